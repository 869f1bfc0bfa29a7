//! Connects a running command to the streams of this process: output, input, signals and the size
//! of the terminal.

use std::io::{self, Read, Write};
use std::time::Duration;

use ab_core::Error;
use ab_core::process::{
    OutputChannel, OutputChunk, Process, ProcessControlMessage, ProcessExit as Ended,
};
use bytes::Bytes;
use rustix::fs::fstat;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::raw;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::terminal::Terminal;

const INTERRUPT: i32 = 2;
const TERMINATE: i32 = 15;
const HANG_UP: i32 = 1;
const KILL: i32 = 9;
/// How long to wait until a killed command has ended. The wait is limited because the machine of a
/// remote command may be unreachable.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Number of bytes of input that are passed on at a time.
const INPUT_BLOCK: usize = 16 * 1024;

/// What an interrupt does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interrupts {
    /// The interrupt is passed on to the command, because the command belongs to this process.
    PassOn,
    /// The interrupt ends this process's wait for the command. The command keeps running.
    Leave,
}

/// How many bytes of one output channel were shown, and how many bytes the command wrote to it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) shown: u64,
    pub(crate) total: u64,
}

/// The result of following a command.
#[derive(Debug, Default)]
pub(crate) struct Over {
    /// How the command ended; `None` if that is not known.
    pub(crate) exit: Option<Ended>,
    /// The exit code of this process, if signals ended the wait for the command.
    pub(crate) left: Option<Exit>,
    pub(crate) stdout: Shown,
    pub(crate) stderr: Shown,
    /// Why the command was lost, if known.
    pub(crate) why_lost: Option<Error>,
    /// Bytes of output that were discarded before they were read.
    pub(crate) missing: u64,
}

/// Shows the output of the command until it ends.
pub(crate) async fn follow(
    mut process: Process,
    bound: Option<u64>,
    interrupts: Interrupts,
    terminal: &mut Terminal,
) -> Result<Over, Failure> {
    if let (Some(stdin), Interrupts::PassOn) = (process.stdin.take(), interrupts) {
        pass_input_on(stdin);
    }
    let mut signals = Signals::watch();
    let mut over = Over::default();
    let mut asked = 0;
    let mut time_limit = None;
    loop {
        let time_limit_ends = async {
            match time_limit {
                Some(end) => sleep_until(end).await,
                None => std::future::pending().await,
            }
        };
        let control = tokio::select! {
            output = process.output.recv() => match output {
                Some(output) => {
                    over.show(&output, bound, terminal)?;
                    continue;
                }
                None => break,
            },
            control = signals.next() => control,
            // The killed command did not end in time. Its machine may be unreachable.
            () = time_limit_ends => return Ok(over),
        };
        // The first signal is passed on to the command. The second signal kills the command. The
        // third signal ends the wait.
        let control = match control {
            ProcessControlMessage::Signal(signal) if interrupts == Interrupts::Leave => {
                over.left = Some(left_by(signal));
                return Ok(over);
            }
            ProcessControlMessage::Signal(signal) => {
                asked += 1;
                match asked {
                    1 => ProcessControlMessage::Signal(signal),
                    2 => {
                        over.left = Some(left_by(signal));
                        time_limit = Some(Instant::now() + TIMEOUT);
                        ProcessControlMessage::Signal(KILL)
                    }
                    _ => return Ok(over),
                }
            }
            control => control,
        };
        // Ignore errors, because the command may have just ended, or its machine may be
        // unreachable.
        let _ = process.control.try_send(control);
    }
    over.exit = process.wait().await;
    over.why_lost = process.exit_receiver().process_lost_error().cloned();
    Ok(over)
}

impl Over {
    /// Writes a chunk of the command's output to the streams of this process.
    pub(crate) fn show(
        &mut self,
        output: &OutputChunk,
        bound: Option<u64>,
        terminal: &mut Terminal,
    ) -> Result<(), Failure> {
        if output.lost_bytes_before > 0 {
            self.missing += output.lost_bytes_before;
            terminal.note(&gap(output.lost_bytes_before));
        }
        let shown = match output.channel {
            OutputChannel::Stdout => &mut self.stdout,
            OutputChannel::Stderr => &mut self.stderr,
        };
        let room = bound.map_or(u64::MAX, |bound| bound - shown.shown);
        let length = usize::try_from(room).unwrap_or(usize::MAX).min(output.bytes.len());
        let bytes = &output.bytes[..length];
        shown.shown += length as u64;
        shown.total += output.bytes.len() as u64;
        match output.channel {
            OutputChannel::Stdout => {
                terminal.bytes(bytes)?;
                terminal.finish()
            }
            // The command keeps running even if standard error is closed.
            OutputChannel::Stderr => {
                let _ = io::stderr().write_all(bytes);
                Ok(())
            }
        }
    }
}

/// A note about missing output.
fn gap(bytes: u64) -> String {
    format!("{bytes} bytes of output are missing here: they were dropped before they were read")
}

/// The exit code of this process if it ends because of `signal`.
fn left_by(signal: i32) -> Exit {
    match signal {
        INTERRUPT => Exit::Interrupted,
        TERMINATE => Exit::Terminated,
        _ => Exit::Unavailable,
    }
}

/// The signals that are passed on to the command.
struct Signals {
    interrupts: Option<Signal>,
    terminations: Option<Signal>,
    hang_ups: Option<Signal>,
    sizes: Option<Signal>,
}

impl Signals {
    fn watch() -> Signals {
        Signals {
            interrupts: signal(SignalKind::interrupt()).ok(),
            terminations: signal(SignalKind::terminate()).ok(),
            hang_ups: signal(SignalKind::hangup()).ok(),
            sizes: signal(SignalKind::window_change()).ok(),
        }
    }

    async fn next(&mut self) -> ProcessControlMessage {
        tokio::select! {
            () = one(&mut self.interrupts) => ProcessControlMessage::Signal(INTERRUPT),
            () = one(&mut self.terminations) => ProcessControlMessage::Signal(TERMINATE),
            () = one(&mut self.hang_ups) => ProcessControlMessage::Signal(HANG_UP),
            () = one(&mut self.sizes) => ProcessControlMessage::Resize(raw::size()),
        }
    }
}

/// Waits for the next signal. If there is no handler, this never returns, and the default action of
/// the signal applies.
async fn one(signals: &mut Option<Signal>) {
    let arrived = match signals {
        Some(signals) => signals.recv().await,
        None => None,
    };
    if arrived.is_none() {
        std::future::pending::<()>().await;
    }
}

/// Waits for SIGINT or SIGTERM, and returns the exit code for it.
pub(super) async fn interrupted() -> Exit {
    let mut signals = Signals::watch();
    tokio::select! {
        () = one(&mut signals.interrupts) => Exit::Interrupted,
        () = one(&mut signals.terminations) => Exit::Terminated,
    }
}

pub(super) fn all_of_stdin() -> Result<Vec<u8>, Failure> {
    let mut input = Vec::new();
    let read = io::stdin().lock().read_to_end(&mut input);
    read.map_err(|error| Failure::input("read standard input", error))?;
    Ok(input)
}

/// Passes the standard input of this process on to a command, in a separate thread. The thread ends
/// with the input or with this process, because a blocked read cannot be cancelled.
pub(super) fn pass_input_on(stdin: mpsc::Sender<Bytes>) {
    std::thread::spawn(move || pass_on(&stdin));
}

/// Whether standard output and standard error lead to the same file, pipe or terminal.
pub(super) fn is_one_output() -> bool {
    match (fstat(io::stdout()), fstat(io::stderr())) {
        (Ok(out), Ok(err)) => (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino),
        _ => false,
    }
}

fn pass_on(stdin: &mpsc::Sender<Bytes>) {
    let mut block = vec![0; INPUT_BLOCK];
    loop {
        let length = match io::stdin().lock().read(&mut block) {
            Ok(0) => return,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        if stdin.blocking_send(Bytes::copy_from_slice(&block[..length])).is_err() {
            return;
        }
    }
}
