//! Locks for paths on a plain SSH server. An operation that checks a path and then changes it holds
//! the lock of the path. So no other call on this connection changes the path between the check and
//! the change.

use std::hash::{DefaultHasher, Hash, Hasher};

use tokio::sync::{Semaphore, SemaphorePermit};

/// Number of locks. Several paths share one lock, so unrelated calls may wait for each other.
const LANES: usize = 64;

#[derive(Debug)]
pub(super) struct Turns {
    lanes: Vec<Semaphore>,
}

impl Default for Turns {
    fn default() -> Self {
        Self { lanes: (0..LANES).map(|_| Semaphore::new(1)).collect() }
    }
}

/// A held lock on one or two paths. The caller holds it while it changes the files at these paths.
pub(super) struct Turn<'a> {
    _permits: [Option<SemaphorePermit<'a>>; 2],
}

impl Turns {
    pub(super) async fn of(&self, real: &str) -> Turn<'_> {
        Turn { _permits: [self.take(lane(real)).await, None] }
    }

    /// Locks two paths, always in the same order to prevent deadlocks.
    pub(super) async fn of_two(&self, one: &str, other: &str) -> Turn<'_> {
        let (one, other) = (lane(one), lane(other));
        if one == other {
            return Turn { _permits: [self.take(one).await, None] };
        }
        let first = self.take(one.min(other)).await;
        Turn { _permits: [first, self.take(one.max(other)).await] }
    }

    async fn take(&self, lane: usize) -> Option<SemaphorePermit<'_>> {
        // The semaphores are never closed, so this returns a permit.
        self.lanes.get(lane)?.acquire().await.ok()
    }
}

fn lane(real: &str) -> usize {
    let mut hasher = DefaultHasher::new();
    real.hash(&mut hasher);
    hasher.finish() as usize % LANES
}
