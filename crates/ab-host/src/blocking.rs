//! Runs work that may block on a disk. The work runs outside of the async threads, on a bounded
//! number of threads, and can be cancelled.
//!
//! This module has its own threads, because the bound must hold. The pool of a runtime has no such
//! bound: whenever no thread is idle, it starts another thread, up to hundreds. All drivers of the
//! process share our threads. A thread starts when there is work, and ends when it has been idle
//! for a while.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ab_core::error::{Error, ErrorCode, ErrorKind, Result};
use tokio::sync::oneshot;

/// Maximum number of threads for file operations.
pub(crate) const MAX_THREADS: usize = 64;
/// How long an idle thread waits for more work before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// Tells long-running work whether its caller has gone away. The work checks this flag between its
/// steps, and stops if the flag is set.
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

/// Runs `work` on a blocking thread. If the caller drops the future, work that has not started is
/// discarded. Work that has started sees that `Cancel` is set, and its result is dropped.
pub(crate) async fn run<T: Send + 'static>(
    work: impl FnOnce(&Cancel) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (answer, answered) = oneshot::channel();
    let guard = CancelOnDrop(Cancel::default());
    let cancel = guard.0.clone();
    POOL.submit(Box::new(move || {
        if !cancel.is_set() {
            let _ = answer.send(work(&cancel));
        }
    }))?;
    match answered.await {
        Ok(result) => result,
        Err(_) => Err(failed("a file operation panicked")),
    }
}

/// Runs `work` on a blocking thread and waits until the work is done. If no thread can be started,
/// the work is discarded.
pub(crate) async fn finish(work: impl FnOnce() + Send + 'static) {
    let _ = run(move |_| {
        work();
        Ok(())
    })
    .await;
}

/// Runs `work` on a blocking thread without waiting for the result. If no thread can be started,
/// the work is discarded.
pub(crate) fn leave(work: impl FnOnce() + Send + 'static) {
    let _ = POOL.submit(Box::new(work));
}

fn failed(message: &str) -> Error {
    Error::new(ErrorCode::ReadFailed, ErrorKind::Io, message)
}

type Job = Box<dyn FnOnce() + Send>;

struct Pool {
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    /// The jobs that no thread has taken yet. Each call of `run` adds at most one.
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

static POOL: Pool = Pool {
    state: Mutex::new(State { queue: VecDeque::new(), threads: 0, idle: 0 }),
    wake: Condvar::new(),
};

impl Pool {
    fn submit(&'static self, job: Job) -> Result<()> {
        let mut state = self.lock();
        state.queue.push_back(job);
        if state.idle >= state.queue.len() {
            drop(state);
            self.wake.notify_one();
            return Ok(());
        }
        if state.threads == MAX_THREADS {
            return Ok(());
        }
        state.threads += 1;
        let spawned =
            std::thread::Builder::new().name("ab-host files".to_owned()).spawn(move || self.work());
        if let Err(error) = spawned {
            state.threads -= 1;
            if state.threads == 0 {
                state.queue.pop_back();
                return Err(failed("cannot start a thread").with_source(error));
            }
        }
        Ok(())
    }

    fn work(&self) {
        let mut state = self.lock();
        loop {
            while let Some(job) = state.queue.pop_front() {
                drop(state);
                // A panic ends only the job, not the thread. The job's caller gets an error.
                let _ = catch_unwind(AssertUnwindSafe(job));
                state = self.lock();
            }
            state.idle += 1;
            let waited = self.wake.wait_timeout(state, IDLE);
            let (next, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = next;
            state.idle -= 1;
            if timeout.timed_out() && state.queue.is_empty() {
                state.threads -= 1;
                return;
            }
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
    async fn threads_are_bounded_and_panics_are_errors() {
        let error = run(|_| -> Result<()> { panic!("on purpose") }).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        let gate = Arc::new(Mutex::new(()));
        let held = gate.lock().unwrap();
        let mut waiting = Vec::new();
        for n in 0..3 * MAX_THREADS {
            let gate = gate.clone();
            let mut work = Box::pin(run(move |_| {
                drop(gate.lock());
                Ok(n)
            }));
            assert!(futures_util::FutureExt::now_or_never(&mut work).is_none());
            waiting.push(work);
        }
        assert!(POOL.lock().threads <= MAX_THREADS);
        drop(held);
        for (n, work) in waiting.into_iter().enumerate() {
            assert_eq!(work.await.unwrap(), n);
        }
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_is_told() {
        let (told, hears) = std::sync::mpsc::channel();
        let (begun, begins) = std::sync::mpsc::channel();
        let mut work = Box::pin(run(move |cancel| {
            begun.send(()).map_err(|_| failed("gone"))?;
            while !cancel.is_set() {
                std::thread::yield_now();
            }
            told.send(()).map_err(|_| failed("gone"))
        }));
        assert!(futures_util::FutureExt::now_or_never(&mut work).is_none());
        begins.recv().unwrap();
        drop(work);
        hears.recv().unwrap();
    }
}
