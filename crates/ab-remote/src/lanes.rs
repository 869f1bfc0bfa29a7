//! Threads for connections, each of which stays on one.
//!
//! A connection is a conversation: a packet comes in, and most of the time an answer goes out before
//! anything else happens. Where the next free thread takes each step, every step may wait for one to
//! wake up on another processor. On a lane the socket, the tasks and the processes of a connection
//! are all waited for by one thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Cheap to clone. Dropping the last ends the threads, and with them whatever still runs there: also
/// processes that were to outlive their connection.
#[derive(Clone, Debug)]
pub struct Lanes {
    lanes: Arc<[Lane]>,
}

#[derive(Debug)]
struct Lane {
    runtime: Handle,
    /// How many futures it has.
    busy: Arc<AtomicUsize>,
    /// The thread ends when this is dropped.
    _open: oneshot::Sender<()>,
}

impl Lanes {
    /// That many threads, at least one.
    pub fn open(count: usize) -> io::Result<Lanes> {
        let lanes = (0..count.max(1)).map(|_| Lane::open()).collect::<io::Result<Arc<_>>>()?;
        Ok(Lanes { lanes })
    }

    /// Runs a future on the thread that has the fewest.
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
}

impl Lane {
    fn open() -> io::Result<Lane> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (open, closed) = oneshot::channel::<()>();
        let serve = move || {
            // Nothing is ever sent: it ends when the other end is gone.
            let _ = runtime.block_on(closed);
            // Who works on a file finishes that, but nobody waits for it.
            runtime.shutdown_background();
        };
        thread::Builder::new().name("ab-remote lane".to_owned()).spawn(serve)?;
        Ok(Lane { runtime: handle, busy: Arc::default(), _open: open })
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

    use super::*;

    #[tokio::test]
    async fn each_goes_where_the_fewest_are_and_stays_there() {
        let lanes = Lanes::open(3).unwrap();
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
        let lanes = Lanes::open(0).unwrap();
        let (held, dropped) = oneshot::channel::<()>();
        let running = lanes.spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        drop(lanes);
        assert!(dropped.await.is_err());
        assert!(running.await.unwrap_err().is_cancelled());
    }
}
