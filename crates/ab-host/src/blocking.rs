//! Work that may wait for a disk: off the async threads, bounded, and told when nobody waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ab_core::error::{Code, Error, Kind, Result};
use tokio::sync::Semaphore;

/// Threads that one driver keeps busy at most.
pub(crate) const MAX_BLOCKING: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct Blocking {
    permits: Arc<Semaphore>,
}

/// Says whether the caller has gone away. Long work asks between steps and stops.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancel(Arc<AtomicBool>);

impl Cancel {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

impl Blocking {
    pub(crate) fn new() -> Self {
        Self { permits: Arc::new(Semaphore::new(MAX_BLOCKING)) }
    }

    /// Runs `work` on a thread of its own. When the caller goes away, `work` is told and finishes
    /// alone; it still counts against the bound until it has.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Cancel) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let permit = self.permits.clone().acquire_owned().await.map_err(|_| broken("closed"))?;
        let guard = CancelOnDrop(Cancel::default());
        let cancel = guard.0.clone();
        let done = tokio::task::spawn_blocking(move || (work(&cancel), permit));
        match done.await {
            Ok((result, _permit)) => result,
            Err(error) => Err(broken("a file operation panicked").with_source(error)),
        }
    }
}

fn broken(message: &str) -> Error {
    Error::new(Code::ReadFailed, Kind::Io, message)
}
