//! Bytes that requests take until their answers are sent: so many for a channel, so many for all
//! channels of a connection.
//!
//! A channel on which nothing else is under way need not ask the others: else channels that nobody
//! reads from would stop those that somebody does.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that the requests of one channel may take, with their answers, until those are sent.
pub(crate) const BUDGET: usize = 6 * 1024 * 1024;
/// Bytes that those of all channels of a connection may take, beside one request of each.
const SHARED: usize = 16 * 1024 * 1024;

/// What all channels of a connection have together.
#[derive(Clone, Debug)]
pub(super) struct Purse(Arc<Semaphore>);

impl Default for Purse {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(SHARED)))
    }
}

/// What a channel has.
#[derive(Debug)]
pub(super) struct Budget {
    own: Arc<Semaphore>,
    shared: Purse,
}

/// Taken from it until it is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    _own: OwnedSemaphorePermit,
    _shared: Option<OwnedSemaphorePermit>,
}

impl Budget {
    pub(super) fn new(shared: &Purse) -> Self {
        Self { own: Arc::new(Semaphore::new(BUDGET)), shared: shared.clone() }
    }

    /// Takes bytes, at most [`BUDGET`]. One at a time may wait here.
    pub(super) async fn take(&self, bytes: usize) -> Taken {
        let bytes = bytes.min(BUDGET);
        let own = acquire(&self.own, bytes).await;
        // All the rest is there when nothing else is under way.
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
        // Nobody closes them; waiting is right if somebody did.
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
        let purse = Purse::default();
        let unread: Vec<Budget> = (0..20).map(|_| Budget::new(&purse)).collect();
        let mut taken = Vec::new();
        for budget in &unread {
            while let Some(piece) = budget.take(PIECE).now_or_never() {
                taken.push(piece);
            }
        }
        // One of each, and what they have together.
        assert_eq!(taken.len(), 20 + SHARED / PIECE);
        // Another one goes on, one request after the other.
        let other = Budget::new(&purse);
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
