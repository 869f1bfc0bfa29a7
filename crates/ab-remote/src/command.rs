//! A command on a channel: its streams, its signals and its exit status.

use std::collections::BTreeMap;
use std::sync::Arc;

use ab_core::command_limit::too_many_commands_error;
use ab_core::process::{
    Command, ExitCause, OutputChannel, Process, ProcessControlMessage, ProcessExit, StdinMode,
    TerminalSize,
};
use ab_core::{Backend, Error, ErrorKind, ExecOptions};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use crate::inbox::Inbox;
use crate::outlet::{Gone, Outlet};
use crate::signal;

/// Maximum number of bytes of input that are passed to the process at a time.
const PIECE: usize = 64 * 1024;
/// The exit statuses that a shell uses for a command that cannot be run, and for a command that
/// does not exist.
const CANNOT_RUN: u32 = 126;
const NOT_FOUND: u32 = 127;
/// The exit status that a shell reports for a command that was ended by a signal: this number plus
/// the number of the signal.
const KILLED: u32 = 128;
/// The exit status that is reported if it is unknown how a process ended.
const LOST: u32 = 255;
/// The default terminal type.
const DEFAULT_TERMINAL: &str = "xterm-256color";
/// The default terminal size.
const DEFAULT_SIZE: TerminalSize = TerminalSize { columns: 80, rows: 24 };

/// A terminal that a client requested.
#[derive(Clone, Debug)]
pub(crate) struct Terminal {
    pub(crate) kind: String,
    pub(crate) size: TerminalSize,
}

/// A command, and the settings with which it runs.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) line: String,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) terminal: Option<Terminal>,
    pub(crate) deaths: Deaths,
    /// Dropped when the command has started or could not be started.
    pub(crate) started: oneshot::Sender<()>,
}

/// How a client is informed that a signal ended its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deaths {
    /// As a signal, by its name.
    Signals,
    /// As the exit status that a shell would report.
    Statuses,
}

impl Deaths {
    /// Chooses by the identification of the client. The package ssh2 for Node.js reports no status
    /// after a signal. The published clients that use this package treat a missing status as
    /// success.
    pub(crate) fn of(client: &[u8]) -> Self {
        let client = client.strip_prefix(b"SSH-2.0-").unwrap_or(client);
        if client.starts_with(b"ssh2js") { Deaths::Statuses } else { Deaths::Signals }
    }
}

/// The size of a terminal. Values that are zero are replaced by the default. Values that are too
/// large are reduced to the maximum.
pub(crate) fn size(columns: u32, rows: u32) -> TerminalSize {
    let clamp = |value: u32, default| match u16::try_from(value) {
        Ok(0) => default,
        Ok(value) => value,
        Err(_) => u16::MAX,
    };
    TerminalSize {
        columns: clamp(columns, DEFAULT_SIZE.columns),
        rows: clamp(rows, DEFAULT_SIZE.rows),
    }
}

/// Limits the number of commands that one connection runs at the same time.
#[derive(Clone, Debug)]
pub(crate) struct CommandSlots {
    most: usize,
    free: Arc<Semaphore>,
}

impl CommandSlots {
    pub(crate) fn new(most: usize) -> Self {
        let most = most.min(Semaphore::MAX_PERMITS);
        Self { most, free: Arc::new(Semaphore::new(most)) }
    }

    /// Takes a slot for a command. The slot becomes free when the permit is dropped.
    pub(crate) fn take(&self, command: &str) -> Result<OwnedSemaphorePermit, Error> {
        let slot = self.free.clone().try_acquire_owned();
        slot.map_err(|_| too_many_commands_error(self.most, "connection", command))
    }
}

/// Runs a command until it ends. Dropping the future ends the command.
pub(crate) async fn run(
    backend: Backend,
    run: Run,
    slots: CommandSlots,
    inbox: Arc<Inbox>,
    outlet: Outlet,
    controls: mpsc::Receiver<ProcessControlMessage>,
) {
    let deaths = run.deaths;
    // An error means that the client has disconnected and needs no answer.
    let _: Result<(), Gone> = match slots.take(&run.line) {
        Ok(_slot) => match start(&backend, run).await {
            Ok(process) => attend(process, &inbox, outlet, controls, deaths).await,
            Err(error) => refuse(error, outlet).await,
        },
        Err(error) => refuse(error, outlet).await,
    };
    inbox.close();
}

async fn start(backend: &Backend, run: Run) -> Result<Process, Error> {
    let _started = run.started;
    let mut env = run.env;
    if let Some(terminal) = &run.terminal {
        let kind = if terminal.kind.is_empty() { DEFAULT_TERMINAL } else { &terminal.kind };
        env.insert("TERM".to_owned(), kind.to_owned());
    }
    let options = ExecOptions { env, ..ExecOptions::default() };
    let mut request = backend.build_exec_request(Command::Shell(run.line), options)?;
    request.stdin = StdinMode::Piped;
    request.terminal = run.terminal.map(|terminal| terminal.size);
    backend.spawn(request).await
}

async fn refuse(error: Error, outlet: Outlet) -> Result<(), Gone> {
    let mut message = format!("{error}\n");
    if let Some(hint) = error.hint() {
        message.push_str(&format!("{hint}\n"));
    }
    outlet.stderr(Bytes::from(message)).await?;
    let status = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
    outlet.exit(status).await
}

async fn attend(
    mut process: Process,
    inbox: &Inbox,
    outlet: Outlet,
    mut controls: mpsc::Receiver<ProcessControlMessage>,
    deaths: Deaths,
) -> Result<(), Gone> {
    let stdin = process.stdin.take();
    let control = process.control.clone();
    let feeding = async {
        let Some(stdin) = stdin else { return };
        while let Some(piece) = inbox.bytes(PIECE).await {
            if stdin.send(piece).await.is_err() {
                break;
            }
        }
        drop(stdin);
        // The command takes no more input. Discard the rest, so that it does not block the channel.
        while inbox.bytes(usize::MAX).await.is_some() {}
    };
    let steering = async {
        while let Some(wish) = controls.recv().await {
            if control.send(wish).await.is_err() {
                break;
            }
        }
    };
    let talking = async {
        while let Some(output) = process.output.recv().await {
            match output.channel {
                OutputChannel::Stdout => outlet.stdout(output.bytes).await?,
                OutputChannel::Stderr => outlet.stderr(output.bytes).await?,
            }
        }
        Ok(process.wait().await)
    };
    let beside = async {
        tokio::join!(feeding, steering);
        std::future::pending::<()>().await;
    };
    let exit = tokio::select! {
        exit = talking => exit?,
        () = beside => None,
    };
    conclude(exit, outlet, deaths).await
}

async fn conclude(exit: Option<ProcessExit>, outlet: Outlet, deaths: Deaths) -> Result<(), Gone> {
    let Some(exit) = exit else { return outlet.exit(LOST).await };
    let note = match exit.cause {
        ExitCause::Timeout => Some("the command did not end in time"),
        ExitCause::MemoryLimit => Some("the command exceeded its memory limit"),
        ExitCause::CpuLimit => Some("the command exceeded its limit of CPU time"),
        ExitCause::FileSizeLimit => Some("the command exceeded its limit on the size of a file"),
        ExitCause::Exited | ExitCause::DroppedByCaller => None,
    };
    if let Some(note) = note {
        outlet.stderr(Bytes::from(format!("{note}\n"))).await?;
    }
    match (exit.code, exit.signal) {
        (Some(code), _) => outlet.exit(code.cast_unsigned()).await,
        (None, Some(signal)) if deaths == Deaths::Statuses => {
            outlet.exit(KILLED + signal.cast_unsigned()).await
        }
        (None, Some(signal)) => {
            outlet.exit_signal(signal::name(signal), note.unwrap_or_default().to_owned()).await
        }
        (None, None) => outlet.exit(LOST).await,
    }
}
