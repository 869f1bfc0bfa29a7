//! Limits the memory of requests and their answers, for each channel and for all channels of a
//! connection together.
//!
//! The only request of a channel does not use the shared budget. Without this rule, channels whose
//! client does not read would block channels whose client reads.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of bytes of the requests of one channel, including their answers, until the
/// answers are sent.
pub(crate) const BUDGET: usize = 6 * 1024 * 1024;
/// Maximum number of bytes for all channels of a connection together, not counting one request of
/// each channel.
const SHARED: usize = 16 * 1024 * 1024;

/// The number of bytes that all channels of a connection together may use.
#[derive(Clone, Debug)]
pub(super) struct SharedBudget(Arc<Semaphore>);

impl Default for SharedBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(SHARED)))
    }
}

/// The budgets of one channel: its own, and the budget that it shares with the other channels of
/// its connection.
#[derive(Debug)]
pub(super) struct Budget {
    own: Arc<Semaphore>,
    shared: SharedBudget,
}

/// Bytes that were taken from a budget. They are returned when this value is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    _own: OwnedSemaphorePermit,
    _shared: Option<OwnedSemaphorePermit>,
}

impl Budget {
    pub(super) fn new(shared: &SharedBudget) -> Self {
        Self { own: Arc::new(Semaphore::new(BUDGET)), shared: shared.clone() }
    }

    /// Takes bytes from the budget, at most [`BUDGET`]. Only one caller may wait here at any time.
    pub(super) async fn take(&self, bytes: usize) -> Taken {
        let bytes = bytes.min(BUDGET);
        let own = acquire(&self.own, bytes).await;
        // The request is alone if all other bytes of the channel's budget are available. A request
        // that is alone does not need the shared budget.
        let alone = acquire(&self.own, BUDGET - bytes);
        let shared = tokio::select! {
            biased;
            _rest = alone => None,
            shared = acquire(&self.shared.0, bytes) => Some(shared),
        };
        Taken { _own: own, _shared: shared }
    }
}

async fn acquire(permits: &Arc<Semaphore>, count: usize) -> OwnedSemaphorePermit {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    match permits.clone().acquire_many_owned(count).await {
        Ok(permit) => permit,
        // The semaphores are never closed.
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const PIECE: usize = 1024 * 1024;

    #[test]
    fn channels_share_and_none_is_stopped() {
        let shared_budget = SharedBudget::default();
        let unread: Vec<Budget> = (0..20).map(|_| Budget::new(&shared_budget)).collect();
        let mut taken = Vec::new();
        for budget in &unread {
            while let Some(piece) = budget.take(PIECE).now_or_never() {
                taken.push(piece);
            }
        }
        // One request of each channel fits, and also the requests in the shared budget.
        assert_eq!(taken.len(), 20 + SHARED / PIECE);
        // Another channel can continue, with one request at a time.
        let other = Budget::new(&shared_budget);
        for _ in 0..3 {
            let first = other.take(PIECE).now_or_never().unwrap();
            let second = other.take(PIECE);
            tokio::pin!(second);
            assert!(second.as_mut().now_or_never().is_none());
            drop(first);
            assert!(second.now_or_never().is_some());
        }
        taken.clear();
        assert!(other.take(BUDGET).now_or_never().is_some());
    }
}
