//! The one thread that starts processes.
//!
//! It never ends, because the kernel ends children with the *thread* that started them. It blocks
//! every signal, because a handler must not run in a child that still shares our memory. And it
//! waits for those that nobody waits for any more.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use rustix::process::{WaitId, WaitIdOptions, waitid};
use tokio::sync::oneshot;

use super::child::{self, Failed, Image, Stack, Started};

/// How often those that nobody waits for are looked at, while there are any.
const ROUND: Duration = Duration::from_millis(20);

enum Order {
    Start(Box<Image>, oneshot::Sender<Result<Started, Failed>>),
    /// One that was killed, and whose parent we are.
    Bury(OwnedFd),
}

/// Starts a program on the thread that never ends.
pub(crate) async fn start(image: Image) -> Result<Started, std::io::Error> {
    let (answer, answered) = oneshot::channel();
    let lost = || std::io::Error::other("the thread that starts processes is gone");
    spawner()?.send(Order::Start(Box::new(image), answer)).map_err(|_| lost())?;
    match answered.await.map_err(|_| lost())? {
        Ok(started) => Ok(started),
        Err(failed) => {
            Err(std::io::Error::new(std::io::Error::from(failed.errno).kind(), FailedStart(failed)))
        }
    }
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

fn spawner() -> std::io::Result<&'static Sender<Order>> {
    static SPAWNER: OnceLock<Sender<Order>> = OnceLock::new();
    if let Some(spawner) = SPAWNER.get() {
        return Ok(spawner);
    }
    let (orders, received) = channel();
    std::thread::Builder::new().name("ab-host starts".to_owned()).spawn(move || work(&received))?;
    // Of two that were started at once, one hears nothing more and ends: it has no children yet.
    Ok(SPAWNER.get_or_init(|| orders))
}

fn work(orders: &Receiver<Order>) {
    child::block_signals();
    let mut stack = Stack::new();
    let mut dead: Vec<OwnedFd> = Vec::new();
    loop {
        let order = match dead.is_empty() {
            true => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => orders.recv_timeout(ROUND),
        };
        match order {
            Ok(Order::Start(image, answer)) => {
                let started = child::start(&image, &mut stack);
                if let Err(Ok(started)) = answer.send(started) {
                    // Whoever wanted it has gone away.
                    kill(&started.handle);
                    dead.push(started.handle);
                }
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

fn ended(handle: &OwnedFd) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    !matches!(waitid(WaitId::PidFd(handle.as_fd()), options), Ok(None))
}
