//! Threads for connections. Each connection stays on one thread.
//!
//! Usually a packet arrives on a connection, and an answer is sent before anything else happens.
//! With a work-stealing runtime, each of these steps may have to wake a thread on another
//! processor. With this module, a single thread waits for the socket, the tasks and the processes
//! of a connection.

use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A set of threads that serve connections. Cheap to clone. The threads end when the last clone is
/// dropped or [`stop`](Self::stop) is called. Everything that runs on the threads then also ends,
/// including processes that should continue after their connection.
#[derive(Clone, Debug)]
pub struct SshConnectionThreads {
    lanes: Arc<[Lane]>,
}

#[derive(Debug)]
struct Lane {
    runtime: Handle,
    /// The number of futures that run on this thread.
    busy: Arc<AtomicUsize>,
    /// The thread ends when this becomes `true` or is dropped.
    closed: watch::Sender<bool>,
    /// Receiving returns an error when the thread has ended.
    ended: Mutex<Receiver<Infallible>>,
}

impl SshConnectionThreads {
    /// Starts `count` threads, but at least one.
    pub fn start(count: usize) -> io::Result<SshConnectionThreads> {
        let lanes = (0..count.max(1)).map(|_| Lane::open()).collect::<io::Result<Arc<_>>>()?;
        Ok(SshConnectionThreads { lanes })
    }

    /// Runs a future on the thread that has the fewest futures. If the threads were stopped, the
    /// future is dropped.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let load = |lane: &&Lane| lane.busy.load(Ordering::Relaxed);
        let Some(lane) = self.lanes.iter().min_by_key(load) else { return tokio::spawn(future) };
        let place = Place::on(&lane.busy);
        lane.runtime.spawn(async move {
            let _place = place;
            future.await
        })
    }

    /// Drops everything that runs on the threads, and waits until they have ended, at most for the
    /// time `timeout`. This blocks, so it must not be called on one of the threads.
    pub fn stop(&self, timeout: Duration) {
        let last = Instant::now().checked_add(timeout);
        for lane in &*self.lanes {
            lane.closed.send_replace(true);
        }
        for lane in &*self.lanes {
            let ended = lane.ended.lock().unwrap_or_else(PoisonError::into_inner);
            // Either the thread has ended or the timeout is over.
            let left = last.map_or(timeout, |last| last.saturating_duration_since(Instant::now()));
            let _ = ended.recv_timeout(left);
        }
    }
}

impl Lane {
    fn open() -> io::Result<Lane> {
        let (closed, mut closing) = watch::channel(false);
        let (ends, ended) = mpsc::sync_channel(1);
        let (tell, told) = mpsc::sync_channel(1);
        let serve = move || {
            let _ends = ends;
            // Create the runtime on the thread that drops it, because dropping a runtime may block.
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(tell.send(Err(error))),
            };
            if tell.send(Ok(runtime.handle().clone())).is_ok() {
                let _ = runtime.block_on(closing.wait_for(|closed| *closed));
            }
            runtime.shutdown_background();
        };
        thread::Builder::new().name("ab-remote lane".to_owned()).spawn(serve)?;
        let gone = || io::Error::other("the thread of a lane is gone");
        let runtime = told.recv().map_err(|_| gone())??;
        Ok(Lane { runtime, busy: Arc::default(), closed, ended: Mutex::new(ended) })
    }
}

/// Counts one future of a thread until it is dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn on(busy: &Arc<AtomicUsize>) -> Self {
        busy.fetch_add(1, Ordering::Relaxed);
        Place(busy.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn each_goes_where_the_fewest_are_and_stays_there() {
        let lanes = SshConnectionThreads::start(3).unwrap();
        let (open, closed) = tokio::sync::watch::channel(());
        let run = |_| {
            let mut closed = closed.clone();
            lanes.spawn(async move {
                let before = thread::current().id();
                let _ = closed.changed().await;
                assert_eq!(thread::current().id(), before);
                before
            })
        };
        let running: Vec<_> = (0..6).map(run).collect();
        let busy = |lane: &Lane| lane.busy.load(Ordering::Relaxed);
        assert_eq!(lanes.lanes.iter().map(busy).collect::<Vec<_>>(), [2, 2, 2]);
        drop(open);
        let mut threads = HashSet::new();
        for one in running {
            threads.insert(one.await.unwrap());
        }
        assert_eq!(threads.len(), 3);
        assert!(!threads.contains(&thread::current().id()));
        assert_eq!(lanes.lanes.iter().map(busy).sum::<usize>(), 0);
    }

    #[tokio::test]
    async fn what_runs_ends_with_the_lanes() {
        let lanes = SshConnectionThreads::start(0).unwrap();
        let (held, dropped) = oneshot::channel::<()>();
        let running = lanes.spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        drop(lanes);
        assert!(dropped.await.is_err());
        assert!(running.await.unwrap_err().is_cancelled());
    }

    #[tokio::test]
    async fn they_end_when_told_to_whoever_still_has_them() {
        let lanes = SshConnectionThreads::start(2).unwrap();
        let (held, mut dropped) = oneshot::channel::<()>();
        let other = lanes.clone();
        let running = lanes.spawn(async move {
            let _both = (other, held);
            std::future::pending::<()>().await;
        });
        lanes.stop(Duration::from_secs(30));
        // Everything is dropped by then.
        assert!(matches!(dropped.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        assert!(running.await.unwrap_err().is_cancelled());
        assert!(lanes.spawn(async {}).await.unwrap_err().is_cancelled());
    }
}
