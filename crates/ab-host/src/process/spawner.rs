//! The few threads that start processes.
//!
//! They never end, because the kernel ends children with the *thread* that started them. They block
//! every signal, because a handler must not run in a child that still shares our memory. And they
//! wait for those that nobody waits for any more.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rustix::process::{WaitId, WaitIdOptions, waitid};
use tokio::sync::oneshot;

use super::child::{self, Copies, Failed, Image, Stack, Started};

/// Starts that can be under way at a time: each keeps its thread until it is another program.
const MOST: usize = 4;
/// How often those that nobody waits for are looked at, while there are any.
const ROUND: Duration = Duration::from_millis(20);

enum Order {
    Start(Box<Image>, oneshot::Sender<Answer>),
    /// One that was killed, and whose parent we are.
    Bury(OwnedFd),
}

/// Starts a program on a thread that never ends. The image is given back, with the handles that the
/// program has copies of.
pub(crate) async fn start(image: Image) -> Result<(Started, Box<Image>), std::io::Error> {
    told(ordered(image)?.await)
}

/// The same on a thread that may wait, which is none of the runtime's.
pub(crate) fn start_waiting(image: Image) -> Result<Started, std::io::Error> {
    told(ordered(image)?.blocking_recv()).map(|(started, _)| started)
}

/// With what is left of the order, for whoever gave it to clear away.
type Answer = (Result<Newborn, Failed>, Box<Image>, Copies);

/// One that runs and that nobody has taken over. Whoever wanted it may go away at any time, also
/// when the answer is already on its way: what is let go of ends, with its group.
struct Newborn(Option<Started>);

impl Drop for Newborn {
    fn drop(&mut self) {
        let Some(started) = self.0.take() else { return };
        if let Some(group) = rustix::process::Pid::from_raw(started.pid) {
            // Until it is waited for, its number is its own.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        kill(&started.handle);
        bury(started.handle);
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
    let (newborn, image, _copies) = answer.map_err(|_| lost())?;
    let mut newborn = newborn.map_err(|failed| {
        std::io::Error::new(std::io::Error::from(failed.errno).kind(), FailedStart(failed))
    })?;
    Ok((newborn.0.take().ok_or_else(lost)?, image))
}

fn lost() -> std::io::Error {
    std::io::Error::other("the thread that starts processes is gone")
}

/// Why a start failed, for whoever wants to look at the step.
#[derive(Debug)]
pub(crate) struct FailedStart(pub(crate) Failed);

impl std::fmt::Display for FailedStart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for FailedStart {}

/// Waits, in its own time, for a process that was killed.
pub(crate) fn bury(handle: OwnedFd) {
    if let Ok(spawner) = spawner() {
        // Without the thread there is nobody left to wait at all.
        let _ = spawner.send(Order::Bury(handle));
    }
}

/// The one whose turn it is.
fn spawner() -> std::io::Result<&'static Sender<Order>> {
    static SPAWNERS: OnceLock<Vec<Sender<Order>>> = OnceLock::new();
    static TURN: AtomicUsize = AtomicUsize::new(0);
    let spawners = match SPAWNERS.get() {
        Some(spawners) => spawners,
        None => {
            let made = spawners_made()?;
            // Those that were made at the same time hear nothing more and end: they have no
            // children yet.
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
            Ok(Order::Start(image, answer)) => {
                let mut copies = Copies::default();
                let started = child::start(&image, &mut stack, &mut copies);
                let newborn = started.map(|started| Newborn(Some(started)));
                drop(answer.send((newborn, image, copies)));
            }
            Ok(Order::Bury(handle)) => dead.push(handle),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        dead.retain(|handle| !ended(handle));
    }
}

fn kill(handle: &OwnedFd) {
    // It may have ended by itself, which is as good.
    let _ = rustix::process::pidfd_send_signal(handle, rustix::process::Signal::KILL);
}

/// Whether a child has ended; it is not waited for by anyone else then.
pub(crate) fn ended(handle: &OwnedFd) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    !matches!(waitid(WaitId::PidFd(handle.as_fd()), options), Ok(None))
}
