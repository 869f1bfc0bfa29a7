//! One lock for each session, so that two operations on the same session's files take turns.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ab_api::SessionId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The locks, by session. A lock guards the files with which the changes of a session are copied
/// out of its sandbox. It is needed because a diff and a delivery use the same files.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<SessionId, Weak<Semaphore>>>);

impl Turns {
    /// Waits for the lock of this session. Dropping the permit releases it.
    pub(super) async fn take(&self, session: SessionId) -> Option<OwnedSemaphorePermit> {
        let semaphore = self.of(session);
        // The semaphore is never closed, so this always returns a permit.
        semaphore.acquire_owned().await.ok()
    }

    fn of(&self, session: SessionId) -> Arc<Semaphore> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(semaphore) = known.get(&session).and_then(Weak::upgrade) {
            return semaphore;
        }
        known.retain(|_, semaphore| semaphore.strong_count() > 0);
        let semaphore = Arc::new(Semaphore::new(1));
        known.insert(session, Arc::downgrade(&semaphore));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_session_has_one_turn_at_a_time() {
        let turns = Turns::default();
        let (one, other) = (SessionId::generate(), SessionId::generate());
        let held = turns.take(one).await;
        assert_eq!(turns.of(one).available_permits(), 0);
        drop(turns.take(other).await);
        drop(held);
        drop(turns.take(one).await);
        assert_eq!(turns.0.lock().unwrap().len(), 1, "turns that nobody wants are forgotten");
    }
}
