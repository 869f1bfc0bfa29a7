//! The tasks of a pool. They are joined when the pool ends, or aborted when it is dropped.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ab_core::{Error, ErrorCode, ErrorKind, Result};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Minimum length of the list of tasks at which finished tasks are removed from it.
const SORT_AT_LEAST: usize = 64;

pub(super) struct Tasks {
    runtime: Handle,
    state: Mutex<State>,
}

struct State {
    running: Vec<JoinHandle<()>>,
    /// The length of the list at which finished tasks are removed the next time.
    sort_at: usize,
    ended: bool,
}

impl Tasks {
    pub(super) fn new() -> Result<Self> {
        let runtime = Handle::try_current().map_err(|error| {
            let message = "cannot create a pool: there is no tokio runtime";
            Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
                .with_source(error)
        })?;
        let state = State { running: Vec::new(), sort_at: SORT_AT_LEAST, ended: false };
        Ok(Self { runtime, state: Mutex::new(state) })
    }

    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        // Spawn before locking. A runtime that has shut down drops the work at once, and the drop
        // may call the pool again.
        let task = self.runtime.spawn(work);
        let mut finished = Vec::new();
        let mut state = self.lock();
        if state.ended {
            task.abort();
            return;
        }
        if state.running.len() >= state.sort_at {
            finished.extend(state.running.extract_if(.., |task| task.is_finished()));
            state.sort_at = SORT_AT_LEAST.max(2 * state.running.len());
        }
        state.running.push(task);
        drop(state);
        // Drop after unlocking, because the payload of a panicked task is a value of the caller's
        // code.
        drop(finished);
    }

    /// Aborts running tasks. No task can be started afterwards.
    pub(super) fn abort(&self) -> Vec<JoinHandle<()>> {
        let mut state = self.lock();
        state.ended = true;
        let running = std::mem::take(&mut state.running);
        drop(state);
        running.iter().for_each(JoinHandle::abort);
        running
    }

    /// Aborts running tasks and waits until they have stopped.
    pub(super) async fn join(&self) {
        for task in self.abort() {
            // Ignore the result, because the task has already reported it.
            let _ = task.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn finished_tasks_are_sorted_out() {
        let tasks = Tasks::new().unwrap();
        for _ in 0..SORT_AT_LEAST * 4 {
            tasks.spawn(async {});
            tokio::task::yield_now().await;
            assert!(tasks.lock().running.len() <= SORT_AT_LEAST);
        }
        tasks.spawn(std::future::pending());
        tasks.join().await;
        assert!(tasks.lock().running.is_empty());
    }

    #[tokio::test]
    async fn nothing_starts_after_the_end() {
        let tasks = Tasks::new().unwrap();
        tasks.join().await;
        let (sender, started) = tokio::sync::oneshot::channel();
        tasks.spawn(async move { sender.send(()).unwrap_or_default() });
        assert!(started.await.is_err());
    }
}
