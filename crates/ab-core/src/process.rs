//! Running commands: the request, and a process as a struct of channels.
//!
//! A driver makes both ends with [`Process::with_driver_side`], keeps the [`ProcessDriverSide`] and hands out the
//! [`Process`]. Local and remote processes are the same struct, so nothing above can tell them
//! apart.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};

use crate::error::Error;
use crate::path::WsPath;

/// Pieces of output that may wait for a slow reader; an owned process blocks beyond that.
pub const OUTPUT_QUEUE_CHUNKS: usize = 32;
/// Pieces of standard input that may wait for a slow process.
pub const STDIN_QUEUE_CHUNKS: usize = 16;
/// Signals and resizes that may wait.
pub const PROCESS_CONTROL_QUEUE_MESSAGES: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A line for the shell.
    Shell(String),
    /// A program and its arguments, without a shell.
    Argv(Vec<String>),
}

impl Command {
    /// The command as one line that a shell would read as the same words.
    pub fn to_shell_line(&self) -> String {
        match self {
            Command::Shell(line) => line.clone(),
            Command::Argv(words) => words.iter().map(|w| quoted(w)).collect::<Vec<_>>().join(" "),
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Command::Shell(line) => line.trim().is_empty(),
            Command::Argv(words) => words.first().is_none_or(|program| program.is_empty()),
        }
    }
}

/// A word as a shell must be given it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "@%_+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StdinMode {
    #[default]
    Closed,
    Piped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    pub columns: u16,
    pub rows: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessLifetime {
    /// Ends with its [`Process`].
    #[default]
    Owned,
    /// Stays in the process table until it exits or is killed.
    Detached,
}

/// Bounds of one command. Those of the driver hold as well: the tighter one is in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecLimits {
    /// From start to end; then it is ended.
    pub wall_time: Option<Duration>,
    /// Seconds of CPU, of each process.
    pub cpu: Option<Duration>,
    /// Bytes of memory, of all processes together where that can be had.
    pub memory: Option<u64>,
    /// Processes and threads at a time.
    pub processes: Option<u64>,
    /// Bytes of the largest file it may write.
    pub file_size: Option<u64>,
    pub open_files: Option<u64>,
}

impl ExecLimits {
    /// The tighter of both, limit by limit.
    pub fn tightened_by(self, other: ExecLimits) -> ExecLimits {
        fn tighter<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
            match (one, other) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            }
        }
        ExecLimits {
            wall_time: tighter(self.wall_time, other.wall_time),
            cpu: tighter(self.cpu, other.cpu),
            memory: tighter(self.memory, other.memory),
            processes: tighter(self.processes, other.processes),
            file_size: tighter(self.file_size, other.file_size),
            open_files: tighter(self.open_files, other.open_files),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostDirectoryAccess {
    #[default]
    ReadOnly,
    ReadWrite,
}

/// What commands see less, or more, of the workspace than files do. Bound to a handle, and only
/// ever added to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathRestrictions {
    /// Not there, with everything below.
    pub hidden: Vec<WsPath>,
    /// Cannot be changed, nor anything below; not made either while it is missing.
    pub read_only: Vec<WsPath>,
    /// Directories of the host that commands see as well, at their own path.
    pub binds: Vec<HostDirectory>,
}

impl PathRestrictions {
    pub fn is_empty(&self) -> bool {
        self.hidden.is_empty() && self.read_only.is_empty() && self.binds.is_empty()
    }

    /// Both, so that neither is lost.
    pub fn merged_with(mut self, other: PathRestrictions) -> PathRestrictions {
        self.hidden.extend(other.hidden);
        self.read_only.extend(other.read_only);
        self.binds.extend(other.binds);
        self
    }

    /// The same with the paths in the workspace put elsewhere.
    pub fn map_paths(mut self, place: impl Fn(&WsPath) -> WsPath) -> PathRestrictions {
        for path in self.hidden.iter_mut().chain(&mut self.read_only) {
            *path = place(path);
        }
        self
    }
}

/// A directory of the machine that runs the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostDirectory {
    pub path: String,
    pub access: HostDirectoryAccess,
}

/// Another workspace that is mounted beside the one a command runs in, for it to see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedWorkspace {
    /// Its root on the machine that runs the command, and what of it may be seen.
    pub root: String,
    pub visible_path: WsPath,
    /// Where that is in the tree that the caller knows.
    pub mount_path: WsPath,
    /// Paths from its root.
    pub restrictions: PathRestrictions,
}

/// How what a command may see lies in the tree that the caller knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountLayout {
    /// Where the directory's fence is, unless that has the same path there as in the driver.
    pub scope_path: Option<WsPath>,
    pub mounted: Vec<MountedWorkspace>,
}

#[derive(Clone, Debug)]
pub struct ExecRequest {
    pub command: Command,
    /// Where it runs. Its fence is the scope, which is all that the command may see.
    pub cwd: WsPath,
    pub env: BTreeMap<String, String>,
    pub stdin: StdinMode,
    /// All that standard input will say, where the caller knows it beforehand. It is for guards to
    /// judge; the caller still sends it. Requests to other machines do not carry it.
    pub declared_stdin: Option<Bytes>,
    pub terminal: Option<TerminalSize>,
    pub lifetime: ProcessLifetime,
    pub limits: ExecLimits,
    pub restrictions: PathRestrictions,
    pub layout: MountLayout,
}

impl ExecRequest {
    pub fn shell(line: impl Into<String>) -> Self {
        Self::new(Command::Shell(line.into()))
    }

    pub fn new(command: Command) -> Self {
        Self {
            command,
            cwd: WsPath::root(),
            env: BTreeMap::new(),
            stdin: StdinMode::Closed,
            declared_stdin: None,
            terminal: None,
            lifetime: ProcessLifetime::Owned,
            limits: ExecLimits::default(),
            restrictions: PathRestrictions::default(),
            layout: MountLayout::default(),
        }
    }
}

/// A process in a driver's table.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(String);

impl ProcessId {
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Clone, Debug)]
pub struct ProcessInfo {
    pub id: ProcessId,
    pub command: String,
    /// Where it was started; a scope shows only processes of its own.
    pub cwd: WsPath,
    pub started: SystemTime,
    /// Absent while it runs.
    pub exit: Option<ProcessExit>,
}

/// Bytes of the end of each channel that a [`ProcessExit`] keeps.
pub const OUTPUT_TAIL_BYTES: usize = 4096;

/// How a process ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessExit {
    /// Absent when a signal ended it.
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub cause: ExitCause,
    pub orphans: OrphanOutcome,
    /// The end of what it said, for journals and error messages.
    pub stdout_tail: String,
    pub stderr_tail: String,
}

/// Who ended a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExitCause {
    /// It ended by itself, or by a signal that someone sent.
    #[default]
    Itself,
    /// Its time was up.
    Timeout,
    /// It, or one of its processes, asked for more memory than the limit.
    MemoryLimit,
    /// Whoever held it let go, or the backend was destroyed.
    Dropped,
}

/// What became of processes that a command had left running when it ended by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrphanOutcome {
    /// There were none that the driver knows of.
    #[default]
    None,
    /// Some were still running, as after `server &`, and were ended with the command.
    Ended,
}

impl ProcessExit {
    pub fn success(&self) -> bool {
        self.code == Some(0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputChannel {
    Stdout,
    Stderr,
}

/// A piece of output. Sequence numbers count bytes of both channels, so a reader can come back to
/// where it was: after this piece, that is [`OutputChunk::next_offset`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputChunk {
    pub offset: u64,
    pub channel: OutputChannel,
    /// Empty when there is only a loss to be told of, or the [end of a channel](OutputChunk::ends_channel).
    pub bytes: Bytes,
    /// Bytes just before this piece that were kept too long ago to be read any more.
    pub lost_bytes: u64,
}

impl OutputChunk {
    /// Says that a channel has ended while the process may go on.
    pub fn end_of(channel: OutputChannel, offset: u64) -> Self {
        OutputChunk { offset, channel, bytes: Bytes::new(), lost_bytes: 0 }
    }

    /// Whether this piece says that its channel has ended. Only programs that the operator launches are watched
    /// for that; otherwise both channels end when `output` closes.
    pub fn ends_channel(&self) -> bool {
        self.bytes.is_empty() && self.lost_bytes == 0
    }

    pub fn next_offset(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessControlMessage {
    Signal(i32),
    Resize(TerminalSize),
    /// End of file on standard input. An owned process also gets it when its `stdin` is dropped; a
    /// detached one only so, since its next holder may have more to say.
    CloseStdin,
}

/// A running process. Dropping it ends an owned process and lets go of a detached one.
#[derive(Debug)]
pub struct Process {
    pub id: ProcessId,
    /// Closes after the last piece. An owned process waits for whoever holds this; one whose
    /// receiver was dropped talks to nobody.
    pub output: mpsc::Receiver<OutputChunk>,
    /// Absent when standard input is closed.
    pub stdin: Option<mpsc::Sender<Bytes>>,
    pub control: mpsc::Sender<ProcessControlMessage>,
    ending: ProcessExitReceiver,
    _leash: oneshot::Sender<()>,
}

/// The driver's side of a [`Process`].
#[derive(Debug)]
pub struct ProcessDriverSide {
    pub output: mpsc::Sender<OutputChunk>,
    pub stdin: Option<mpsc::Receiver<Bytes>>,
    pub control: mpsc::Receiver<ProcessControlMessage>,
    pub exit: ProcessExitSender,
    /// Ends when the [`Process`] is dropped, whatever became of its channels.
    pub dropped: oneshot::Receiver<()>,
}

/// The driver's side of an [attached](Process::attached) process.
#[derive(Debug)]
pub struct AttachedProcessDriverSide {
    pub output: mpsc::Sender<OutputChunk>,
    /// Ends when the [`Process`] is dropped.
    pub dropped: oneshot::Receiver<()>,
}

impl Process {
    pub fn with_driver_side(id: ProcessId, stdin: StdinMode) -> (Process, ProcessDriverSide) {
        let (output_in, output) = mpsc::channel(OUTPUT_QUEUE_CHUNKS);
        let (control, control_out) = mpsc::channel(PROCESS_CONTROL_QUEUE_MESSAGES);
        let (stdin, stdin_out) = match stdin {
            StdinMode::Closed => (None, None),
            StdinMode::Piped => {
                let (sender, receiver) = mpsc::channel(STDIN_QUEUE_CHUNKS);
                (Some(sender), Some(receiver))
            }
        };
        let (ending, setter) = ProcessExitReceiver::channel();
        let (held, leash) = oneshot::channel();
        let feed = ProcessDriverSide {
            output: output_in,
            stdin: stdin_out,
            control: control_out,
            exit: setter,
            dropped: leash,
        };
        (Process { id, output, stdin, control, ending, _leash: held }, feed)
    }

    /// A process that somebody else owns, joined: letting go of it ends nothing.
    pub fn attached(
        id: ProcessId,
        stdin: Option<mpsc::Sender<Bytes>>,
        control: mpsc::Sender<ProcessControlMessage>,
        ending: ProcessExitReceiver,
    ) -> (Process, AttachedProcessDriverSide) {
        let (output_in, output) = mpsc::channel(OUTPUT_QUEUE_CHUNKS);
        let (held, leash) = oneshot::channel();
        let process = Process { id, output, stdin, control, ending, _leash: held };
        (process, AttachedProcessDriverSide { output: output_in, dropped: leash })
    }

    /// Waits for the end. Nothing when the driver lost the process.
    pub async fn wait(&mut self) -> Option<ProcessExit> {
        self.ending.wait().await
    }

    pub fn exit_receiver(&self) -> &ProcessExitReceiver {
        &self.ending
    }
}

type Hook = Box<dyn FnOnce(Option<&ProcessExit>) + Send>;

/// The end of a process, for any number of observers.
#[derive(Clone)]
pub struct ProcessExitReceiver {
    end: watch::Receiver<Option<Option<ProcessExit>>>,
    hooks: Arc<Mutex<Option<Vec<Hook>>>>,
    loss_error: Arc<OnceLock<Error>>,
}

impl ProcessExitReceiver {
    fn channel() -> (ProcessExitReceiver, ProcessExitSender) {
        let (sender, end) = watch::channel(None);
        let hooks = Arc::new(Mutex::new(Some(Vec::new())));
        let why_lost = Arc::default();
        let ending =
            ProcessExitReceiver { end, hooks: hooks.clone(), loss_error: Arc::clone(&why_lost) };
        (ending, ProcessExitSender { end: sender, hooks, why_lost })
    }

    pub async fn wait(&mut self) -> Option<ProcessExit> {
        match self.end.wait_for(Option::is_some).await {
            Ok(end) => end.clone().flatten(),
            Err(_) => None,
        }
    }

    /// Why the process was lost, if it was and somebody knows.
    pub fn loss_error(&self) -> Option<&Error> {
        self.loss_error.get()
    }

    /// What to say of a process that was lost.
    pub fn loss_message(&self) -> String {
        match self.loss_error() {
            Some(why) => format!("the process was lost: {}", why.message()),
            None => "the process was lost".to_owned(),
        }
    }

    /// Runs `hook` once the process has ended or was lost; at once if it already has.
    pub fn on_end(&self, hook: impl FnOnce(Option<&ProcessExit>) + Send + 'static) {
        let mut hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        match hooks.as_mut() {
            Some(waiting) => waiting.push(Box::new(hook)),
            None => {
                drop(hooks);
                let end = self.end.borrow().clone().flatten();
                hook(end.as_ref());
            }
        }
    }
}

impl fmt::Debug for ProcessExitReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ending").field("end", &*self.end.borrow()).finish_non_exhaustive()
    }
}

/// Tells every observer how the process ended. Dropped unset, it says that the process was lost.
pub struct ProcessExitSender {
    end: watch::Sender<Option<Option<ProcessExit>>>,
    hooks: Arc<Mutex<Option<Vec<Hook>>>>,
    why_lost: Arc<OnceLock<Error>>,
}

impl ProcessExitSender {
    pub fn send(self, exit: ProcessExit) {
        self.finish(Some(exit));
    }

    /// The process was lost, and this is why.
    pub fn send_lost(self, why: Error) {
        // There is no other who could have said it.
        let _ = self.why_lost.set(why);
    }

    fn finish(&self, exit: Option<ProcessExit>) {
        let hooks = {
            let mut hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(hooks) = hooks.take() else { return };
            self.end.send_replace(Some(exit.clone()));
            hooks
        };
        for hook in hooks {
            hook(exit.as_ref());
        }
    }
}

impl Drop for ProcessExitSender {
    fn drop(&mut self) {
        self.finish(None);
    }
}

impl fmt::Debug for ProcessExitSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndingSetter").finish_non_exhaustive()
    }
}
