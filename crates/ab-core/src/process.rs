//! Running commands: the request, and a process as a struct of channels.
//!
//! A driver makes both ends with [`Process::channel`], keeps the [`Feed`] and hands out the
//! [`Process`]. Local and remote processes are the same struct, so nothing above can tell them
//! apart.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use crate::path::WsPath;

/// Output events that may wait for a slow reader; the process blocks beyond that.
pub const OUTPUT_QUEUE: usize = 64;
/// Pieces of standard input that may wait for a slow process.
pub const STDIN_QUEUE: usize = 16;
/// Signals and resizes that may wait.
pub const CONTROL_QUEUE: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A line for the shell.
    Shell(String),
    /// A program and its arguments, without a shell.
    Argv(Vec<String>),
}

impl Command {
    /// The command as one line, for people and journals.
    pub fn line(&self) -> String {
        match self {
            Command::Shell(line) => line.clone(),
            Command::Argv(words) => words.join(" "),
        }
    }

    pub fn is_empty(&self) -> bool {
        match self {
            Command::Shell(line) => line.trim().is_empty(),
            Command::Argv(words) => words.first().is_none_or(|program| program.is_empty()),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stdin {
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
pub enum Lifetime {
    /// Ends with its [`Process`].
    #[default]
    Owned,
    /// Stays in the process table until it exits or is killed.
    Detached,
}

/// Bounds of one command; absent ones fall back to the driver's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExecLimits {
    pub wall: Option<Duration>,
    /// Bytes of output kept.
    pub output: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct ExecRequest {
    pub command: Command,
    /// Where it runs. Its fence is the scope, which is all that the command may see.
    pub cwd: WsPath,
    pub env: BTreeMap<String, String>,
    pub stdin: Stdin,
    pub terminal: Option<TerminalSize>,
    pub lifetime: Lifetime,
    pub limits: ExecLimits,
}

impl ExecRequest {
    pub fn shell(line: impl Into<String>) -> Self {
        Self {
            command: Command::Shell(line.into()),
            cwd: WsPath::root(),
            env: BTreeMap::new(),
            stdin: Stdin::Closed,
            terminal: None,
            lifetime: Lifetime::Owned,
            limits: ExecLimits::default(),
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
    pub exit: Option<Exit>,
}

/// How a process ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// Absent when a signal ended it.
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// The end of what it said on standard error, for error messages.
    pub stderr_tail: String,
}

impl Exit {
    pub fn success(&self) -> bool {
        self.code == Some(0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    Stdout,
    Stderr,
}

/// A piece of output. Sequence numbers count bytes of both channels, so a reader can come back to
/// where it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub sequence: u64,
    pub channel: Channel,
    pub bytes: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    Signal(i32),
    Resize(TerminalSize),
}

/// A running process. Dropping it ends an owned process: the driver sees its channels close.
#[derive(Debug)]
pub struct Process {
    pub id: ProcessId,
    pub output: mpsc::Receiver<Output>,
    /// Absent when standard input is closed; dropping it sends end of file.
    pub stdin: Option<mpsc::Sender<Bytes>>,
    pub control: mpsc::Sender<Control>,
    ending: Ending,
}

/// The driver's side of a [`Process`].
#[derive(Debug)]
pub struct Feed {
    pub output: mpsc::Sender<Output>,
    pub stdin: Option<mpsc::Receiver<Bytes>>,
    pub control: mpsc::Receiver<Control>,
    pub ending: EndingSetter,
}

impl Process {
    pub fn channel(id: ProcessId, stdin: Stdin) -> (Process, Feed) {
        let (output_in, output) = mpsc::channel(OUTPUT_QUEUE);
        let (control, control_out) = mpsc::channel(CONTROL_QUEUE);
        let (stdin, stdin_out) = match stdin {
            Stdin::Closed => (None, None),
            Stdin::Piped => {
                let (sender, receiver) = mpsc::channel(STDIN_QUEUE);
                (Some(sender), Some(receiver))
            }
        };
        let (ending, setter) = Ending::channel();
        (
            Process { id, output, stdin, control, ending },
            Feed { output: output_in, stdin: stdin_out, control: control_out, ending: setter },
        )
    }

    /// Waits for the end. Nothing when the driver lost the process.
    pub async fn wait(&mut self) -> Option<Exit> {
        self.ending.wait().await
    }

    pub fn ending(&self) -> &Ending {
        &self.ending
    }
}

type Hook = Box<dyn FnOnce(Option<&Exit>) + Send>;

/// The end of a process, for any number of observers.
#[derive(Clone)]
pub struct Ending {
    end: watch::Receiver<Option<Option<Exit>>>,
    hooks: Arc<Mutex<Option<Vec<Hook>>>>,
}

impl Ending {
    fn channel() -> (Ending, EndingSetter) {
        let (sender, end) = watch::channel(None);
        let hooks = Arc::new(Mutex::new(Some(Vec::new())));
        (Ending { end, hooks: hooks.clone() }, EndingSetter { end: sender, hooks })
    }

    pub async fn wait(&mut self) -> Option<Exit> {
        match self.end.wait_for(Option::is_some).await {
            Ok(end) => end.clone().flatten(),
            Err(_) => None,
        }
    }

    /// Runs `hook` once the process has ended or was lost; at once if it already has.
    pub fn then(&self, hook: impl FnOnce(Option<&Exit>) + Send + 'static) {
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

impl fmt::Debug for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ending").field("end", &*self.end.borrow()).finish_non_exhaustive()
    }
}

/// Tells every observer how the process ended. Dropped unset, it says that the process was lost.
pub struct EndingSetter {
    end: watch::Sender<Option<Option<Exit>>>,
    hooks: Arc<Mutex<Option<Vec<Hook>>>>,
}

impl EndingSetter {
    pub fn set(self, exit: Exit) {
        self.finish(Some(exit));
    }

    fn finish(&self, exit: Option<Exit>) {
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

impl Drop for EndingSetter {
    fn drop(&mut self) {
        self.finish(None);
    }
}

impl fmt::Debug for EndingSetter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndingSetter").finish_non_exhaustive()
    }
}
