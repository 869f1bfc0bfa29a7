//! A caller's place in the queue. If the caller drops its future, the place is given up.

use std::sync::Arc;

use ab_core::Result;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::failure;
use super::keeper::Keeper;
use super::lease::BackendLease;
use super::member::TicketId;

pub(super) struct Place {
    pub(super) keeper: Arc<Keeper>,
    pub(super) ticket: TicketId,
    pub(super) key: Option<Arc<str>>,
    /// Receives the lease. If the receiver is dropped, a lease that was already sent is also
    /// dropped. This releases the backend.
    pub(super) answer: oneshot::Receiver<Result<BackendLease>>,
}

impl Place {
    pub(super) async fn wait(mut self) -> Result<BackendLease> {
        let limits = self.keeper.limits();
        let answer = match timeout(limits.acquire, &mut self.answer).await {
            Ok(answer) => answer,
            Err(_) if self.keeper.give_up(self.ticket) => {
                return Err(failure::no_room(&limits));
            }
            // The creation has started. From here on its own time limit applies.
            Err(_) => (&mut self.answer).await,
        };
        answer.unwrap_or_else(|_| Err(failure::closed()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.keeper.leave(self.ticket, self.key.as_deref());
    }
}
