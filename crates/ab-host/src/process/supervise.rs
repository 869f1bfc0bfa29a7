//! Supervises one process from its start to its last byte of output, in one task and without a
//! thread.
//!
//! Output is read only while there is room for it. So a slow reader slows an owned process down,
//! but no output is lost. When the process has ended, or must be ended, the supervisor also kills
//! everything that the process started, and reads the rest of the output.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ab_core::process::{
    ExecLimits, ExitCause, LeftoverProcessOutcome, MAX_EXIT_OUTPUT_TAIL_BYTES, OutputChannel,
    OutputChunk, ProcessControlMessage, ProcessExit, TerminalSize,
};
use bytes::{Bytes, BytesMut};
use rustix::fd::OwnedFd;
use rustix::termios::Winsize;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::child::{Image, Terminal};
use super::running::{Running, Status};
use super::spool::Spool;
use super::stream::{ReadEnd, WriteEnd};
use crate::blocking;

/// How long to wait for more output of a process that has ended. The wait is limited, because a
/// process that could not be killed may hold the pipes open.
const SILENCE: Duration = Duration::from_millis(200);
/// How long to wait until a killed process has ended.
const LAST_WAIT: Duration = Duration::from_secs(10);
/// The line with which the first process inside a bwrap reports that other processes were left
/// running.
pub(crate) const LEFT_PROCESSES: &str = "left";
/// Maximum number of bytes that are read of the report of that process.
const MAX_REPORT: usize = 512;
/// The byte that a terminal interprets as the end of input.
const END_OF_INPUT: &[u8] = &[4];

/// Where the output of a process goes.
#[derive(Debug)]
pub(crate) enum Sink {
    Reader(mpsc::Sender<OutputChunk>),
    Spool(Arc<Spool>),
}

/// The channels of a process that has just been started.
#[derive(Debug)]
pub(crate) struct Channels {
    pub(crate) stdout: Option<ReadEnd>,
    pub(crate) stderr: Option<ReadEnd>,
    pub(crate) stdin: Option<WriteEnd>,
    /// The terminal, if there is one. It is used to change the terminal's size.
    pub(crate) terminal: Option<OwnedFd>,
    /// The process's own ends of its output pipes. We hold them open, so that this task is not
    /// woken when a process closes its output right before its end. The task is then woken only
    /// once, by the end of the process.
    pub(crate) theirs: Vec<OwnedFd>,
    /// The pipe for the reports of the first process inside a bwrap: first that it runs, and at its
    /// end what it has found.
    pub(crate) report: Option<OwnedFd>,
    pub(crate) output_end: OutputEnd,
}

/// Whether the end of standard output is reported while the process is still running.
#[derive(Debug, Default)]
pub(crate) enum OutputEnd {
    #[default]
    Unseen,
    Seen,
    /// The end is reported, but only after the first output. The process opens its own end of the
    /// pipe while it starts. Until then we hold this end, so that the pipe does not end too early.
    SeenAfterOutput(OwnedFd),
}

impl Channels {
    /// Keeps the image's handles for the process's output open.
    pub(crate) fn keep_open(&mut self, image: &mut Image) {
        const OUTPUT: std::ops::RangeInclusive<usize> = 1..=2;
        if image.terminal == Terminal::None && image.handles.len() > *OUTPUT.end() {
            let mut handles = image.handles.drain(OUTPUT);
            let output = handles.next();
            self.theirs.extend(handles);
            match self.output_end {
                OutputEnd::Unseen => self.theirs.extend(output),
                OutputEnd::Seen | OutputEnd::SeenAfterOutput(_) => {}
            }
        }
    }
}

/// The inputs through which the process is controlled.
#[derive(Debug)]
pub(crate) struct SupervisorInputs {
    pub(crate) stdin: Option<mpsc::Receiver<Bytes>>,
    pub(crate) control: mpsc::Receiver<ProcessControlMessage>,
    /// `None` for a process that continues after its handle was dropped.
    pub(crate) handle_dropped: Option<oneshot::Receiver<()>>,
    /// Becomes true when the backend ends.
    pub(crate) stop: watch::Receiver<bool>,
    /// The limits of the process. This task enforces the wall time, and the kernel the others.
    pub(crate) limits: ExecLimits,
    pub(crate) strays: Strays,
}

/// What happens to processes that have left the process group, if their command ended by itself. If
/// the command was killed, these processes are always killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Strays {
    /// They continue to run. They are left because finding them takes an examination of all
    /// processes of the host after every command.
    Left,
    Killed,
}

pub(crate) async fn supervise(
    mut running: Running,
    channels: Channels,
    sink: Sink,
    mut inputs: SupervisorInputs,
) -> (ProcessExit, Spent) {
    let Channels { stdout, stderr, stdin, terminal, theirs, report, output_end } = channels;
    let pace = Pace::default();
    let tails = Tails::default();
    let spent = Spent::default();
    let notice = EndNotice::new(output_end);
    let errors = if stderr.is_some() { OutputChannel::Stderr } else { OutputChannel::Stdout };
    let output = pump([stdout, stderr], &sink, &pace, &tails, &spent, &notice);
    tokio::pin!(output);
    let (end_input, input_ended) = oneshot::channel();
    let feeding = feed(stdin, inputs.stdin.take(), input_ended, terminal.is_some());
    tokio::pin!(feeding);

    // If the time is too long for the clock, there is no deadline.
    let limits = inputs.limits;
    let deadline = limits.wall_time.and_then(|wall| Instant::now().checked_add(wall));
    let (mut end_input, mut handle_dropped) = (Some(end_input), inputs.handle_dropped.take());
    let (mut cause, mut last) = (ExitCause::Exited, None);
    let (mut flows, mut feeds, mut controls) = (true, true, true);
    let status = loop {
        let ends = tokio::select! {
            status = running.ended() => break status.unwrap_or_default(),
            () = &mut output, if flows => {
                flows = false;
                None
            }
            () = &mut feeding, if feeds => {
                feeds = false;
                None
            }
            control = inputs.control.recv(), if controls => {
                match control {
                    None => controls = false,
                    Some(ProcessControlMessage::Signal(number)) => running.signal(number),
                    Some(ProcessControlMessage::Resize(size)) => resize(terminal.as_ref(), size),
                    Some(ProcessControlMessage::CloseStdin) => drop(end_input.take()),
                }
                None
            }
            () = wait_for_drop(&mut handle_dropped), if handle_dropped.is_some() && last.is_none() => Some(ExitCause::DroppedByCaller),
            () = stopped(&mut inputs.stop), if last.is_none() => Some(ExitCause::DroppedByCaller),
            () = sleep_until(deadline.unwrap_or_else(Instant::now)),
                if deadline.is_some() && last.is_none() => Some(ExitCause::Timeout),
            // Do not wait any longer. A process that waits for a broken disk does not react even to
            // SIGKILL.
            () = sleep_until(last.unwrap_or_else(Instant::now)), if last.is_some() => {
                break Status::default();
            }
        };
        if let Some(ended_by) = ends {
            cause = ended_by;
            last = Some(Instant::now() + LAST_WAIT);
            running.kill();
            let strays = running.kill_strays();
            blocking::finish(strays).await;
        }
    };
    let report = report.map(|report| SandboxReport::read(&report));
    let has_failed_to_start = report.as_ref().is_some_and(|report| !report.has_started);
    let report = report.unwrap_or_default();
    if cause == ExitCause::Exited {
        cause = if running.ran_out_of_memory() {
            ExitCause::MemoryLimit
        } else {
            let status = Status { cpu_time: report.cpu_time.or(status.cpu_time), ..status };
            by_kernel_limit(&status, &limits)
        };
    }
    let leftovers = match cause {
        ExitCause::Exited if running.has_left_some() || report.has_left_processes => {
            LeftoverProcessOutcome::Ended
        }
        ExitCause::Exited
        | ExitCause::MemoryLimit
        | ExitCause::CpuLimit
        | ExitCause::FileSizeLimit
        | ExitCause::Timeout
        | ExitCause::DroppedByCaller => LeftoverProcessOutcome::None,
    };
    running.kill_rest();
    if cause == ExitCause::Exited && inputs.strays == Strays::Killed {
        blocking::finish(running.kill_strays()).await;
    }
    drop(theirs);
    notice.release();
    while flows {
        let seen = pace.reads.load(Ordering::Relaxed);
        tokio::select! {
            () = &mut output => flows = false,
            () = wait_for_drop(&mut handle_dropped), if handle_dropped.is_some() => flows = false,
            () = sleep(SILENCE) => {
                let silent = seen == pace.reads.load(Ordering::Relaxed);
                flows = !(silent && pace.waits.load(Ordering::Relaxed));
            }
        }
    }
    if let Some(group) = running.take_group() {
        blocking::finish(group.into_removal()).await;
    }
    let Status { mut code, signal, .. } = status;
    if cause == ExitCause::Exited && has_failed_to_start && code == Some(1) {
        code = Some(NOT_RUN);
        tails.note(errors, NOT_RUN_MESSAGE.as_bytes());
        let (bytes, offset) = (Bytes::from_static(NOT_RUN_MESSAGE.as_bytes()), &pace.offset);
        pass(&sink, errors, bytes, offset).await;
    }
    let (stdout_tail, stderr_tail) = tails.texts();
    let exit = ProcessExit {
        code,
        signal,
        cause,
        leftover_processes: leftovers,
        stdout_tail,
        stderr_tail,
    };
    (exit, spent.taken())
}

/// Finds out whether one of the limits that the kernel enforces for each process ended a process.
fn by_kernel_limit(status: &Status, limits: &ExecLimits) -> ExitCause {
    /// A shell reports a signal that ended its command as an exit code above this number.
    const BY_SIGNAL: i32 = 128;
    let signal = status.signal.or_else(|| Some(status.code? - BY_SIGNAL));
    // A program that ignores SIGXCPU gets SIGKILL a little later.
    let used_up = |limit| status.cpu_time.is_some_and(|time| time >= limit);
    match signal {
        Some(libc::SIGXCPU) if limits.cpu.is_some() => ExitCause::CpuLimit,
        Some(libc::SIGKILL) if limits.cpu.is_some_and(used_up) => ExitCause::CpuLimit,
        Some(libc::SIGXFSZ) if limits.file_size.is_some() => ExitCause::FileSizeLimit,
        _ => ExitCause::Exited,
    }
}

/// The exit code if bwrap failed before the command ran.
pub(crate) const NOT_RUN: i32 = 125;
/// The last line of standard error in that case.
pub(crate) const NOT_RUN_MESSAGE: &str =
    "agent-backend: the sandbox could not be set up, so the command did not run\n";

/// What the first process inside a bwrap reports: one line when it starts, and more at its end.
#[derive(Debug, Default, PartialEq, Eq)]
struct SandboxReport {
    has_started: bool,
    has_left_processes: bool,
    /// The CPU time of the command. Reported only if SIGKILL ended the command.
    cpu_time: Option<Duration>,
}

impl SandboxReport {
    /// Reads the report from a nonblocking pipe.
    fn read(pipe: &OwnedFd) -> SandboxReport {
        let mut bytes = [0_u8; MAX_REPORT];
        let length = rustix::io::read(pipe, &mut bytes).unwrap_or(0);
        SandboxReport::parse(&String::from_utf8_lossy(&bytes[..length]))
    }

    /// Parses the report. The times have the format of the shell command `times`: one line for the
    /// shell, and one for its command.
    fn parse(text: &str) -> SandboxReport {
        let time = |word: &str| -> Option<Duration> {
            let (minutes, seconds) = word.strip_suffix('s')?.split_once('m')?;
            let seconds = Duration::try_from_secs_f64(seconds.parse().ok()?).ok()?;
            Some(Duration::from_mins(minutes.parse().ok()?) + seconds)
        };
        let times = |line: &str| -> Option<Duration> { line.split_whitespace().map(time).sum() };
        SandboxReport {
            has_started: !text.is_empty(),
            has_left_processes: text.lines().any(|line| line == LEFT_PROCESSES),
            cpu_time: text.lines().filter(|line| !line.is_empty()).filter_map(times).nth(1),
        }
    }
}

/// Pipes at their end that are not closed yet. Closing them takes some time, so it is done after
/// the caller has received the exit.
#[derive(Debug, Default)]
pub(crate) struct Spent(std::sync::Mutex<Vec<ReadEnd>>);

impl Spent {
    fn keep(&self, channel: Option<ReadEnd>) {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).extend(channel);
    }

    fn taken(&self) -> Self {
        let mut spent = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Self(std::sync::Mutex::new(std::mem::take(&mut spent)))
    }
}

/// Whether the task waits for output, how many reads were done so far, and the offset of the next
/// output.
#[derive(Debug, Default)]
struct Pace {
    waits: AtomicBool,
    reads: AtomicU64,
    offset: AtomicU64,
}

/// Reports the end of standard output, if that was requested.
#[derive(Debug)]
struct EndNotice {
    is_wanted: bool,
    held: std::sync::Mutex<Option<OwnedFd>>,
}

impl EndNotice {
    fn new(output_end: OutputEnd) -> Self {
        let (is_wanted, held) = match output_end {
            OutputEnd::Unseen => (false, None),
            OutputEnd::Seen => (true, None),
            OutputEnd::SeenAfterOutput(held) => (true, Some(held)),
        };
        Self { is_wanted, held: std::sync::Mutex::new(held) }
    }

    /// Drops our end of the pipe, so that the pipe ends when the process closes its own end.
    fn release(&self) {
        drop(self.held.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take());
    }
}

/// Copies the output of both channels to the sink until both channels have ended.
async fn pump(
    channels: [Option<ReadEnd>; 2],
    sink: &Sink,
    pace: &Pace,
    tails: &Tails,
    spent: &Spent,
    notice: &EndNotice,
) {
    let [mut stdout, mut stderr] = channels;
    while stdout.is_some() || stderr.is_some() {
        pace.waits.store(true, Ordering::Relaxed);
        let (channel, read) = tokio::select! {
            read = next(&mut stdout), if stdout.is_some() => (OutputChannel::Stdout, read),
            read = next(&mut stderr), if stderr.is_some() => (OutputChannel::Stderr, read),
        };
        pace.waits.store(false, Ordering::Relaxed);
        pace.reads.fetch_add(1, Ordering::Relaxed);
        let Some(bytes) = read else {
            if let (Sink::Reader(reader), true) = (sink, notice.is_wanted) {
                let offset = pace.offset.load(Ordering::Relaxed);
                drop(reader.send(OutputChunk::end_marker(channel, offset)).await);
            }
            spent.keep(match channel {
                OutputChannel::Stdout => stdout.take(),
                OutputChannel::Stderr => stderr.take(),
            });
            continue;
        };
        if channel == OutputChannel::Stdout {
            notice.release();
        }
        tails.note(channel, &bytes);
        pass(sink, channel, bytes, &pace.offset).await;
    }
}

/// Passes output to the sink.
async fn pass(sink: &Sink, channel: OutputChannel, bytes: Bytes, offset: &AtomicU64) {
    let start = offset.load(Ordering::Relaxed);
    let piece = OutputChunk { offset: start, channel, bytes, lost_bytes_before: 0 };
    offset.store(piece.next_offset(), Ordering::Relaxed);
    match sink {
        // An error means that the reader is gone. The output is discarded, and the process
        // continues.
        Sink::Reader(reader) => drop(reader.send(piece).await),
        Sink::Spool(spool) => spool.push(piece.channel, piece.bytes).await,
    }
}

/// Returns the next bytes of a channel, or `None` at its end or after an error.
async fn next(stream: &mut Option<ReadEnd>) -> Option<Bytes> {
    let bytes = stream.as_mut()?.read().await.ok()?;
    (!bytes.is_empty()).then_some(bytes)
}

/// Writes input to the process until there is no more input.
async fn feed(
    stream: Option<WriteEnd>,
    input: Option<mpsc::Receiver<Bytes>>,
    mut ended: oneshot::Receiver<()>,
    terminal: bool,
) {
    let (Some(mut stream), Some(mut input)) = (stream, input) else { return };
    loop {
        let bytes = tokio::select! {
            biased;
            bytes = input.recv() => bytes,
            _ = &mut ended => None,
        };
        let Some(bytes) = bytes else { break };
        match stream.write_all(&bytes).await {
            Ok(still) => stream = still,
            // The process has closed its input.
            Err(_) => return,
        }
    }
    if terminal {
        let _ = stream.write_all(END_OF_INPUT).await;
    }
}

async fn wait_for_drop(handle_dropped: &mut Option<oneshot::Receiver<()>>) {
    if let Some(held) = handle_dropped {
        let _ = held.await;
        *handle_dropped = None;
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the table is gone. Then the process must stop too.
    let _ = stop.wait_for(|stopped| *stopped).await;
}

fn resize(terminal: Option<&OwnedFd>, size: TerminalSize) {
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    if let Some(terminal) = terminal {
        // An error means that the process has just ended, and its terminal with it.
        let _ = rustix::termios::tcsetwinsize(terminal, size);
    }
}

/// The last bytes of the output on each channel, at most [`MAX_EXIT_OUTPUT_TAIL_BYTES`] of each.
#[derive(Debug, Default)]
struct Tails {
    ends: std::sync::Mutex<(BytesMut, BytesMut)>,
}

impl Tails {
    fn note(&self, channel: OutputChannel, bytes: &[u8]) {
        let mut ends = self.ends.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let end = match channel {
            OutputChannel::Stdout => &mut ends.0,
            OutputChannel::Stderr => &mut ends.1,
        };
        end.extend_from_slice(&bytes[bytes.len().saturating_sub(MAX_EXIT_OUTPUT_TAIL_BYTES)..]);
        let surplus = end.len().saturating_sub(MAX_EXIT_OUTPUT_TAIL_BYTES);
        let _ = end.split_to(surplus);
    }

    fn texts(&self) -> (String, String) {
        let ends = self.ends.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let text = |end: &BytesMut| String::from_utf8_lossy(end).into_owned();
        (text(&ends.0), text(&ends.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_every_shell_are_read() {
        let check = |text: &str, has_left_processes, millis: Option<u64>| {
            let cpu_time = millis.map(Duration::from_millis);
            let has_started = !text.is_empty();
            let expect = SandboxReport { has_started, has_left_processes, cpu_time };
            assert_eq!(SandboxReport::parse(text), expect, "{text:?}");
        };
        check("", false, None);
        check("\n", false, None);
        check("\nleft\n", true, None);
        check("0m0.002s 0m0.001s\n1m2.500s 0m0.250s\n", false, Some(62_750));
        check("0m0.000000s 0m0.000000s\n0m1.990000s 0m0.010000s\nleft\n", true, Some(2000));
        check("0m0.00s 0m0.00s\n", false, None);
        check("0m-1s 0m0s\nm s\n", false, None);
    }
}
