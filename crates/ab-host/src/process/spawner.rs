//! The few threads that start processes.
//!
//! These threads never end, because the kernel kills a child when the *thread* that started it
//! ends. They block every signal, because no signal handler must run in a child that still shares
//! our memory. They also reap processes that no task waits for any more.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rustix::process::{WaitId, WaitIdOptions, waitid};
use tokio::sync::oneshot;

use super::child::{self, Copies, Failed, Image, Stack, Started};

/// Maximum number of starts at the same time. Each start blocks its thread until the child executes
/// its program.
const MOST: usize = 4;
/// How often killed processes are polled until all of them have been reaped.
const ROUND: Duration = Duration::from_millis(20);

enum Order {
    Start(Box<Image>, oneshot::Sender<Answer>),
    /// Wait for a child of this process that was killed, so that no zombie remains.
    Reap(OwnedFd),
}

/// Starts a program on a thread that never ends. Also returns the image. The program has copies of
/// the image's handles.
pub(crate) async fn start(image: Image) -> Result<(Started, Box<Image>), std::io::Error> {
    told(ordered(image)?.await)
}

/// Like [`start`], but for a blocking thread outside of the runtime.
pub(crate) fn start_waiting(image: Image) -> Result<Started, std::io::Error> {
    told(ordered(image)?.blocking_recv()).map(|(started, _)| started)
}

/// The result of a start, followed by the image and the copies, which the caller drops.
type Answer = (Result<UnclaimedChild, Failed>, Box<Image>, Copies);

/// A started process that no caller has taken over yet. Dropping this value kills the process and
/// its group. This is needed because the caller may be cancelled at any time, even after the answer
/// was sent.
struct UnclaimedChild(Option<Started>);

impl Drop for UnclaimedChild {
    fn drop(&mut self) {
        let Some(started) = self.0.take() else { return };
        if let Some(group) = rustix::process::Pid::from_raw(started.pid) {
            // This cannot kill another group, because the id of a process is not reused before the
            // process is reaped.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        kill(&started.handle);
        reap(started.handle);
    }
}

fn ordered(image: Image) -> std::io::Result<oneshot::Receiver<Answer>> {
    let (answer, answered) = oneshot::channel();
    spawner()?.send(Order::Start(Box::new(image), answer)).map_err(|_| lost())?;
    Ok(answered)
}

fn told(
    answer: Result<Answer, oneshot::error::RecvError>,
) -> std::io::Result<(Started, Box<Image>)> {
    let (unclaimed, image, _copies) = answer.map_err(|_| lost())?;
    let mut unclaimed = unclaimed.map_err(|failed| {
        std::io::Error::new(std::io::Error::from(failed.errno).kind(), FailedStart(failed))
    })?;
    Ok((unclaimed.0.take().ok_or_else(lost)?, image))
}

fn lost() -> std::io::Error {
    std::io::Error::other("the thread that starts processes is gone")
}

/// The error of a start that failed. It names the step that failed.
#[derive(Debug)]
pub(crate) struct FailedStart(pub(crate) Failed);

impl std::fmt::Display for FailedStart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for FailedStart {}

/// Hands a killed process to a spawner thread, which reaps it.
pub(crate) fn reap(handle: OwnedFd) {
    if let Ok(spawner) = spawner() {
        // This fails only if the thread is gone. In this case nothing can reap the process.
        let _ = spawner.send(Order::Reap(handle));
    }
}

/// Returns a spawner thread. The threads are used in turn.
fn spawner() -> std::io::Result<&'static Sender<Order>> {
    static SPAWNERS: OnceLock<Vec<Sender<Order>>> = OnceLock::new();
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let spawners = match SPAWNERS.get() {
        Some(spawners) => spawners,
        None => {
            let made = spawners_made()?;
            // If two callers make threads at the same time, only the first ones are kept. The other
            // threads get no orders and end. They have no children yet.
            SPAWNERS.get_or_init(|| made)
        }
    };
    Ok(&spawners[TURN.fetch_add(1, Ordering::Relaxed) % spawners.len()])
}

fn spawners_made() -> std::io::Result<Vec<Sender<Order>>> {
    let count = std::thread::available_parallelism().map_or(1, usize::from).min(MOST);
    let made = |_| {
        let (orders, received) = channel();
        let builder = std::thread::Builder::new().name("ab-host starts".to_owned());
        builder.spawn(move || work(&received)).map(|_| orders)
    };
    (0..count).map(made).collect()
}

fn work(orders: &Receiver<Order>) {
    child::block_signals();
    let mut stack = Stack::new();
    let mut dead: Vec<OwnedFd> = Vec::new();
    loop {
        let order = if dead.is_empty() {
            orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            orders.recv_timeout(ROUND)
        };
        match order {
            // The caller was cancelled while its order waited.
            Ok(Order::Start(_, answer)) if answer.is_closed() => {}
            Ok(Order::Start(image, answer)) => {
                let mut copies = Copies::default();
                let started = child::start(&image, &mut stack, &mut copies);
                let unclaimed = started.map(|started| UnclaimedChild(Some(started)));
                drop(answer.send((unclaimed, image, copies)));
            }
            Ok(Order::Reap(handle)) => dead.push(handle),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        dead.retain(|handle| !ended(handle));
    }
}

fn kill(handle: &OwnedFd) {
    // An error means that the process has ended already.
    let _ = rustix::process::pidfd_send_signal(handle, rustix::process::Signal::KILL);
}

/// Returns whether a child has ended. Reaps a child that has ended.
pub(crate) fn ended(handle: &OwnedFd) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    !matches!(waitid(WaitId::PidFd(handle.as_fd()), options), Ok(None))
}
