//! Commands: the request to run one, and a running process as a struct of channels.
//!
//! A driver creates both ends with [`Process::new_with_driver_channels`], keeps the
//! [`DriverProcessChannels`] and returns the [`Process`]. Local and remote processes have the same
//! type, so callers do not see a difference.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot, watch};

use crate::error::Error;
use crate::path::WsPath;

/// Maximum number of pieces of output that are queued for a slow reader. If the queue is full, a
/// process that is not detached blocks when it writes.
pub const MAX_QUEUED_OUTPUT_CHUNKS: usize = 32;
/// Maximum number of pieces of standard input that are queued for a slow process.
pub(crate) const MAX_QUEUED_STDIN_CHUNKS: usize = 16;
/// Maximum number of queued signals and changes of the terminal size.
pub(crate) const MAX_QUEUED_CONTROL_MESSAGES: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A command line for the shell.
    Shell(String),
    /// A program and its arguments, which are executed without a shell.
    Argv(Vec<String>),
}

impl Command {
    /// The command as a single line. A shell would parse this line into the same words.
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

/// Quotes a word for the shell.
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

/// Where standard error is sent. A command on a terminal has only one channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StderrMode {
    /// To its own channel. The order between the two channels is lost.
    #[default]
    Separate,
    /// Standard error is sent to the pipe of standard output, as with `2>&1`. All output arrives on
    /// [`OutputChannel::Stdout`] in the order in which it was written.
    Merged,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    pub columns: u16,
    pub rows: u16,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessLifetime {
    /// The process ends when its [`Process`] is dropped.
    #[default]
    Owned,
    /// The process stays in the process table until it exits or is killed.
    Detached,
}

/// Limits of a single command. If the driver has limits too, the lower limit applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecLimits {
    /// Maximum time from start to end. After that the command is killed.
    pub wall_time: Option<Duration>,
    /// Maximum CPU time of each process.
    pub cpu: Option<Duration>,
    /// Maximum memory in bytes. It applies to all processes together if the host supports this.
    pub memory: Option<u64>,
    /// Maximum number of processes and threads at the same time.
    pub processes: Option<u64>,
    /// Maximum size in bytes of a file that the command writes.
    pub file_size: Option<u64>,
    pub open_files: Option<u64>,
}

impl ExecLimits {
    /// For each limit, the lower value of the two.
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

/// Paths that a handle hides or makes read-only, and host directories that are visible to its
/// commands. A derived handle can only add paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathRestrictions {
    /// These paths and everything below them do not exist for the caller.
    pub hidden: Vec<WsPath>,
    /// These paths and everything below them cannot be changed. A missing path cannot be created.
    pub read_only: Vec<WsPath>,
    /// Host directories that are also visible to commands, at the same path as on the host.
    pub host_directories: Vec<HostDirectory>,
}

impl PathRestrictions {
    pub fn is_empty(&self) -> bool {
        self.hidden.is_empty() && self.read_only.is_empty() && self.host_directories.is_empty()
    }

    /// Combines both restrictions.
    pub(crate) fn merged_with(mut self, other: PathRestrictions) -> PathRestrictions {
        self.hidden.extend(other.hidden);
        self.read_only.extend(other.read_only);
        self.host_directories.extend(other.host_directories);
        self
    }

    /// The same restrictions with translated workspace paths.
    pub fn map_paths(mut self, map: impl Fn(&WsPath) -> WsPath) -> PathRestrictions {
        for path in self.hidden.iter_mut().chain(&mut self.read_only) {
            *path = map(path);
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

/// Another mounted workspace on the machine that runs the command, which may be visible to the
/// command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountedWorkspace {
    /// The root of the workspace on the machine that runs the command.
    pub root: String,
    pub visible_path: WsPath,
    /// Where the directory `visible_path` appears in the workspace of the caller.
    pub mount_path: WsPath,
    /// Restrictions, relative to the root of the workspace.
    pub restrictions: PathRestrictions,
}

/// Where mounted workspaces appear for a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountLayout {
    /// The path of the working directory's scope root in the workspace of the caller. `None` if the
    /// driver uses the same path.
    pub scope_path: Option<WsPath>,
    pub mounted: Vec<MountedWorkspace>,
}

#[derive(Clone, Debug)]
pub struct ExecRequest {
    pub command: Command,
    /// The working directory. The command sees only files below the [scope
    /// root](WsPath::innermost_scope_root) of this path.
    pub cwd: WsPath,
    pub env: BTreeMap<String, String>,
    pub stdin: StdinMode,
    /// The complete standard input, if the caller knows it in advance. Guards may check it. The
    /// caller must send it separately. This copy is not sent to other machines.
    pub stdin_for_guards: Option<Bytes>,
    pub stderr: StderrMode,
    pub terminal: Option<TerminalSize>,
    pub lifetime: ProcessLifetime,
    pub limits: ExecLimits,
    pub restrictions: PathRestrictions,
    pub mount_layout: MountLayout,
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
            stdin_for_guards: None,
            stderr: StderrMode::Separate,
            terminal: None,
            lifetime: ProcessLifetime::Owned,
            limits: ExecLimits::default(),
            restrictions: PathRestrictions::default(),
            mount_layout: MountLayout::default(),
        }
    }
}

/// The id of a process in a driver's process table.
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
    /// The working directory at the start. A scope shows only processes that were started in it.
    pub cwd: WsPath,
    pub started: SystemTime,
    /// How the process ended. `None` while it runs.
    pub exit: Option<ProcessExit>,
}

/// Number of bytes at the end of each channel that a [`ProcessExit`] keeps.
pub const MAX_EXIT_OUTPUT_TAIL_BYTES: usize = 4096;

/// How a process ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessExit {
    /// The exit code. `None` if a signal ended the process.
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub cause: ExitCause,
    pub leftover_processes: LeftoverProcessOutcome,
    /// The last bytes of the output, for journals and error messages.
    pub stdout_tail: String,
    pub stderr_tail: String,
}

/// What ended a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExitCause {
    /// The process exited, or a signal ended it.
    #[default]
    Exited,
    /// The time limit of the process.
    Timeout,
    /// The process, or one of its child processes, exceeded the memory limit.
    MemoryLimit,
    /// The limit of CPU time.
    CpuLimit,
    /// The limit on the size of a file that the process writes.
    FileSizeLimit,
    /// The caller dropped the process, or the backend was destroyed.
    DroppedByCaller,
}

/// What happened to processes that were still running when the command exited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeftoverProcessOutcome {
    /// The driver knows of no such processes.
    #[default]
    None,
    /// Some processes were still running, as after `server &`, and were ended.
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

/// A piece of output. Offsets count the bytes of both channels together. A reader can later
/// continue after this piece at [`OutputChunk::next_offset`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputChunk {
    pub offset: u64,
    pub channel: OutputChannel,
    /// The bytes. Empty if the chunk only reports lost bytes or the [end of a
    /// channel](OutputChunk::ends_channel).
    pub bytes: Bytes,
    /// The number of bytes directly before this piece that are no longer available.
    pub lost_bytes_before: u64,
}

impl OutputChunk {
    /// Creates a chunk that reports the end of a channel. The process may continue.
    pub fn end_marker(channel: OutputChannel, offset: u64) -> Self {
        OutputChunk { offset, channel, bytes: Bytes::new(), lost_bytes_before: 0 }
    }

    /// Whether this chunk reports the end of its channel. Only programs that the operator launches
    /// send such chunks. For other processes both channels end when `output` closes.
    pub fn ends_channel(&self) -> bool {
        self.bytes.is_empty() && self.lost_bytes_before == 0
    }

    pub fn next_offset(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessControlMessage {
    Signal(i32),
    Resize(TerminalSize),
    /// Closes standard input. A process that is not detached also gets EOF if its `stdin` is
    /// dropped. A detached process does not get EOF in this case, because another attached caller
    /// may send more.
    CloseStdin,
}

/// A running process. Dropping this value ends the process, unless it is detached.
#[derive(Debug)]
pub struct Process {
    pub id: ProcessId,
    /// The output. The channel closes after the last piece. If the channel is full, a process that
    /// is not detached blocks when it writes. If the receiver is dropped, the output is discarded.
    pub output: mpsc::Receiver<OutputChunk>,
    /// The standard input. `None` if it is closed.
    pub stdin: Option<mpsc::Sender<Bytes>>,
    pub control: mpsc::Sender<ProcessControlMessage>,
    ending: ProcessExitReceiver,
    _leash: oneshot::Sender<()>,
}

/// The driver's side of a [`Process`].
#[derive(Debug)]
pub struct DriverProcessChannels {
    pub output: mpsc::Sender<OutputChunk>,
    pub stdin: Option<mpsc::Receiver<Bytes>>,
    pub control: mpsc::Receiver<ProcessControlMessage>,
    pub exit: ProcessExitSender,
    /// Completes when the [`Process`] is dropped, even if its channels still exist.
    pub process_dropped: oneshot::Receiver<()>,
}

/// The driver's side of an [attached](Process::new_attached) process.
#[derive(Debug)]
pub struct DriverAttachmentChannels {
    pub output: mpsc::Sender<OutputChunk>,
    /// Completes when the [`Process`] is dropped.
    pub process_dropped: oneshot::Receiver<()>,
}

impl Process {
    pub fn new_with_driver_channels(
        id: ProcessId,
        stdin: StdinMode,
    ) -> (Process, DriverProcessChannels) {
        let (output_in, output) = mpsc::channel(MAX_QUEUED_OUTPUT_CHUNKS);
        let (control, control_out) = mpsc::channel(MAX_QUEUED_CONTROL_MESSAGES);
        let (stdin, stdin_out) = match stdin {
            StdinMode::Closed => (None, None),
            StdinMode::Piped => {
                let (sender, receiver) = mpsc::channel(MAX_QUEUED_STDIN_CHUNKS);
                (Some(sender), Some(receiver))
            }
        };
        let (ending, setter) = ProcessExitReceiver::channel();
        let (held, leash) = oneshot::channel();
        let feed = DriverProcessChannels {
            output: output_in,
            stdin: stdin_out,
            control: control_out,
            exit: setter,
            process_dropped: leash,
        };
        (Process { id, output, stdin, control, ending, _leash: held }, feed)
    }

    /// A process that is owned by another handle. Dropping this value does not end the process.
    pub fn new_attached(
        id: ProcessId,
        stdin: Option<mpsc::Sender<Bytes>>,
        control: mpsc::Sender<ProcessControlMessage>,
        ending: ProcessExitReceiver,
    ) -> (Process, DriverAttachmentChannels) {
        let (output_in, output) = mpsc::channel(MAX_QUEUED_OUTPUT_CHUNKS);
        let (held, leash) = oneshot::channel();
        let process = Process { id, output, stdin, control, ending, _leash: held };
        (process, DriverAttachmentChannels { output: output_in, process_dropped: leash })
    }

    /// Waits until the process has ended. Returns `None` if the driver cannot tell how it ended,
    /// for example because the connection was lost.
    pub async fn wait(&mut self) -> Option<ProcessExit> {
        self.ending.wait().await
    }

    pub fn exit_receiver(&self) -> &ProcessExitReceiver {
        &self.ending
    }
}

type Hook = Box<dyn FnOnce(Option<&ProcessExit>) + Send>;

/// Receives the exit of a process. Can be cloned for any number of observers.
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

    /// The reason why the exit of the process is unknown. `None` if the exit is known, or if the
    /// driver gave no reason.
    pub fn process_lost_error(&self) -> Option<&Error> {
        self.loss_error.get()
    }

    /// The error message for a process whose exit is unknown.
    pub fn process_lost_message(&self) -> String {
        match self.process_lost_error() {
            Some(why) => format!("the process was lost: {}", why.message()),
            None => "the process was lost".to_owned(),
        }
    }

    /// Calls `hook` when the process has ended, or when it is certain that its exit remains
    /// unknown. Calls it at once if this has already happened.
    pub(crate) fn on_end(&self, hook: impl FnOnce(Option<&ProcessExit>) + Send + 'static) {
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

/// Sends the exit of a process to all observers. If this value is dropped without sending,
/// observers learn that the exit is unknown.
pub struct ProcessExitSender {
    end: watch::Sender<Option<Option<ProcessExit>>>,
    hooks: Arc<Mutex<Option<Vec<Hook>>>>,
    why_lost: Arc<OnceLock<Error>>,
}

impl ProcessExitSender {
    pub fn send(self, exit: ProcessExit) {
        self.finish(Some(exit));
    }

    /// Reports that the exit of the process remains unknown, with the cause.
    pub fn send_process_lost(self, cause: Error) {
        // This cannot fail, because the cause is set only here.
        let _ = self.why_lost.set(cause);
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
