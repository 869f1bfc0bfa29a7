//! Threads for connections, each of which stays on one.
//!
//! A connection is a conversation: a packet comes in, and most of the time an answer goes out before
//! anything else happens. Where the next free thread takes each step, every step may wait for one to
//! wake up on another processor. On a lane the socket, the tasks and the processes of a connection
//! are all waited for by one thread.

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

/// Cheap to clone. They end with the last, or when they are told to, and with them whatever still
/// runs there: also processes that were to outlive their connection.
#[derive(Clone, Debug)]
pub struct ConnectionThreads {
    lanes: Arc<[Lane]>,
}

#[derive(Debug)]
struct Lane {
    runtime: Handle,
    /// How many futures it has.
    busy: Arc<AtomicUsize>,
    /// The thread ends when this says so, or is gone.
    closed: watch::Sender<bool>,
    /// Hears nothing until the thread has ended.
    ended: Mutex<Receiver<Infallible>>,
}

impl ConnectionThreads {
    /// That many threads, at least one.
    pub fn start(count: usize) -> io::Result<ConnectionThreads> {
        let lanes = (0..count.max(1)).map(|_| Lane::open()).collect::<io::Result<Arc<_>>>()?;
        Ok(ConnectionThreads { lanes })
    }

    /// Runs a future on the thread that has the fewest. Once they have ended it is dropped instead.
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

    /// Drops whatever runs there, and waits for that as long as `patience` lasts. Blocks, and must
    /// not be called on a lane.
    pub fn stop(&self, patience: Duration) {
        let last = Instant::now().checked_add(patience);
        for lane in &*self.lanes {
            lane.closed.send_replace(true);
        }
        for lane in &*self.lanes {
            let ended = lane.ended.lock().unwrap_or_else(PoisonError::into_inner);
            // Either it has ended, or the time is up.
            let left = last.map_or(patience, |last| last.saturating_duration_since(Instant::now()));
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
            // Made where it is dropped: that may wait, which a caller's thread must not.
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

/// Counts as long as it is there.
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
        let lanes = ConnectionThreads::start(3).unwrap();
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
        let lanes = ConnectionThreads::start(0).unwrap();
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
        let lanes = ConnectionThreads::start(2).unwrap();
        let (held, mut dropped) = oneshot::channel::<()>();
        let other = lanes.clone();
        let running = lanes.spawn(async move {
            let _both = (other, held);
            std::future::pending::<()>().await;
        });
        lanes.stop(Duration::from_secs(30));
        // All of it is gone by then.
        assert!(matches!(dropped.try_recv(), Err(oneshot::error::TryRecvError::Closed)));
        assert!(running.await.unwrap_err().is_cancelled());
        assert!(lanes.spawn(async {}).await.unwrap_err().is_cancelled());
    }
}
