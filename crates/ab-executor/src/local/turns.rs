//! One lock for each session, so that two operations on the same session's files take turns.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ab_api::SessionId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// The locks, by session. A lock guards the files with which the changes of a session are copied
/// out of its sandbox. It is needed because a diff and a delivery use the same files.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<SessionId, Weak<SessionTurns>>>);

/// The lock of one session.
#[derive(Debug)]
struct SessionTurns {
    lock: Arc<Semaphore>,
    /// The diff of the delivery that holds the lock.
    delivering: watch::Sender<Option<Arc<str>>>,
}

/// The lock of a session is held until this value is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<SessionTurns>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// What a caller gets that wants the diff of a session.
#[derive(Debug)]
pub(super) enum DiffTurn {
    /// The lock, with which the caller makes the diff.
    Held(Turn),
    /// The diff of the delivery in progress. A push to a slow server can hold the lock for long.
    Delivering(Arc<str>),
}

impl Turns {
    /// Waits for the lock of this session.
    pub(super) async fn take(&self, session: SessionId) -> Turn {
        let turns = self.of(session);
        // The semaphore is never closed, so this always returns a permit.
        let permit = Arc::clone(&turns.lock).acquire_owned().await.ok();
        Turn { turns, _permit: permit }
    }

    /// Waits for the lock of this session, or for the diff of the delivery that holds it.
    pub(super) async fn take_for_diff(&self, session: SessionId) -> DiffTurn {
        let turns = self.of(session);
        let mut delivering = turns.delivering.subscribe();
        tokio::select! {
            biased;
            turn = self.take(session) => DiffTurn::Held(turn),
            Ok(diff) = delivering.wait_for(Option::is_some) => {
                DiffTurn::Delivering(diff.clone().unwrap_or_default())
            }
        }
    }

    fn of(&self, session: SessionId) -> Arc<SessionTurns> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turns) = known.get(&session).and_then(Weak::upgrade) {
            return turns;
        }
        known.retain(|_, turns| turns.strong_count() > 0);
        let (lock, delivering) = (Arc::new(Semaphore::new(1)), watch::Sender::new(None));
        let turns = Arc::new(SessionTurns { lock, delivering });
        known.insert(session, Arc::downgrade(&turns));
        turns
    }
}

impl Turn {
    /// Gives the diff to the callers that wait for the lock, until this value is dropped.
    pub(super) fn publish_diff(&self, diff: String) {
        self.turns.delivering.send_replace(Some(diff.into()));
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.delivering.send_replace(None);
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
        assert_eq!(turns.of(one).lock.available_permits(), 0);
        drop(turns.take(other).await);
        drop(held);
        drop(turns.take(one).await);
        assert_eq!(turns.0.lock().unwrap().len(), 1, "turns that nobody wants are forgotten");
    }

    #[tokio::test]
    async fn diff_of_a_delivery_is_given_while_it_holds_the_lock() {
        let (turns, session) = (Turns::default(), SessionId::generate());
        let delivery = turns.take(session).await;
        let publishing = async {
            tokio::task::yield_now().await;
            delivery.publish_diff("a diff".to_owned());
        };
        let (waited, ()) = tokio::join!(turns.take_for_diff(session), publishing);
        assert!(matches!(waited, DiffTurn::Delivering(diff) if &*diff == "a diff"));
        drop(delivery);
        assert!(matches!(turns.take_for_diff(session).await, DiffTurn::Held(_)));
    }
}
