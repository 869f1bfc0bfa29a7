//! Starts the operator's own programs in the sandbox of a workspace.
//!
//! An example is a coding agent, or git on a tree that an agent can write. The operator's
//! configuration chooses the program, not a caller of the workspace. The command policy does not
//! judge the program, but it runs in the same sandbox as any command.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ab_core::error::{Error, ErrorCode, ErrorKind, Result};
use ab_core::process::{
    Command, ExecLimits, ExecRequest, OutputChannel, PathRestrictions, Process,
    ProcessControlMessage, ProcessExit, ProcessExitReceiver, ProcessId, StdinMode,
};
use ab_core::{Verb, WsPath};
use ab_host::LocalDriver;
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

/// Maximum number of bytes of each stream that are buffered for a slow reader, in addition to the
/// pipe and the driver's queue.
const STREAM_BUFFER: usize = 64 * 1024;
/// Maximum number of bytes of input that are passed on in one piece.
const INPUT_PIECE: usize = 64 * 1024;

/// Standard output or standard error of a launched program.
pub type ProcessOutputReader = Box<dyn AsyncRead + Send + Sync + Unpin>;
/// Standard input of a launched program. Dropping it, or `shutdown`, ends the input.
pub type ProcessInputWriter = Box<dyn AsyncWrite + Send + Sync + Unpin>;

/// Starts programs in a workspace's sandbox, without the command policy.
///
/// Clones share the driver of the workspace's [`Backend`](ab_core::Backend). No program can be
/// started after the backend is destroyed.
#[derive(Clone, Debug)]
pub struct SandboxProgramLauncher {
    driver: Arc<LocalDriver>,
}

/// A program to start. No shell interprets its arguments.
#[derive(Clone)]
pub struct ProgramLaunchRequest {
    /// The program and its arguments. A program name without a slash is searched in the `PATH` of
    /// the workspace's commands: first the toolchains, then the system.
    pub argv: Vec<String>,
    /// Variables that are added to the variables of every command of the workspace (`PATH`, `HOME`,
    /// …) or replace them. The environment of this process is not passed on. `Debug` prints only
    /// the names, because values may be credentials.
    pub env: BTreeMap<String, String>,
    /// The working directory of the program. Default: the root of the workspace.
    pub cwd: WsPath,
    /// What the program reads as standard input. Closed by default.
    pub stdin: StdinMode,
    /// Limits of this program. The limits that the workspace sets for its commands do not apply.
    pub limits: ExecLimits,
    /// Paths of the workspace that are hidden from the program or read-only for it.
    pub restrictions: PathRestrictions,
}

/// A running program. Dropping it kills the program and everything that it started.
///
/// The caller must read or drop both outputs. If an output is kept and its buffer is full, the
/// program blocks. If an output is dropped, its data is discarded.
pub struct LaunchedProgram {
    /// `Some` if the launch asked for [`StdinMode::Piped`].
    pub stdin: Option<ProcessInputWriter>,
    pub stdout: Option<ProcessOutputReader>,
    pub stderr: Option<ProcessOutputReader>,
    id: ProcessId,
    control: mpsc::Sender<ProcessControlMessage>,
    ending: ProcessExitReceiver,
    /// The task that owns the driver's process. Dropping the handle kills the process.
    streams: AbortOnDropHandle<()>,
}

/// The output of a program and its exit status.
#[derive(Clone, Debug)]
pub struct CapturedProcessOutput {
    pub exit: ProcessExit,
    pub stdout: Bytes,
    pub stderr: Bytes,
}

impl SandboxProgramLauncher {
    pub(crate) fn new(driver: Arc<LocalDriver>) -> Self {
        Self { driver }
    }

    /// Starts a program in the sandbox of the workspace.
    ///
    /// # Errors
    /// `NotFound` if the program or its directory does not exist, `Unavailable` if the sandbox or a
    /// limit is not available, `Destroyed` after the workspace was destroyed.
    pub async fn start(&self, request: ProgramLaunchRequest) -> Result<LaunchedProgram> {
        let ProgramLaunchRequest { argv, env, cwd, stdin, limits, restrictions } = request;
        let command = Command::Argv(argv);
        if command.is_empty() {
            let message = "cannot start a program: the argument list is empty";
            return Err(Error::new(ErrorCode::EmptyCommand, ErrorKind::Invalid, message)
                .with_verb(Verb::Exec));
        }
        let request =
            ExecRequest { env, cwd, stdin, limits, restrictions, ..ExecRequest::new(command) };
        Ok(LaunchedProgram::new(self.driver.launch_operator_program(request).await?))
    }
}

impl ProgramLaunchRequest {
    pub fn new(argv: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: BTreeMap::new(),
            cwd: WsPath::root(),
            stdin: StdinMode::Closed,
            limits: ExecLimits::default(),
            restrictions: PathRestrictions::default(),
        }
    }

    /// Sets one environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }
}

impl fmt::Debug for ProgramLaunchRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProgramLaunchRequest")
            .field("argv", &self.argv)
            .field("env", &self.env.keys())
            .field("cwd", &self.cwd)
            .field("stdin", &self.stdin)
            .field("limits", &self.limits)
            .field("restrictions", &self.restrictions)
            .finish()
    }
}

impl LaunchedProgram {
    fn new(mut process: Process) -> Self {
        let (id, control) = (process.id.clone(), process.control.clone());
        let ending = process.exit_receiver().clone();
        let input = process.stdin.take().map(|sender| {
            let (ours, theirs) = duplex(STREAM_BUFFER);
            let writer: ProcessInputWriter = Box::new(theirs);
            (writer, ours, sender)
        });
        let (stdin, input) = match input {
            Some((writer, ours, sender)) => (Some(writer), Some((ours, sender))),
            None => (None, None),
        };
        let ((stdout, out), (stderr, err)) = (duplex(STREAM_BUFFER), duplex(STREAM_BUFFER));
        let streams = tokio::spawn(async move {
            let feeding = async {
                if let Some((reader, sender)) = input {
                    feed(reader, sender).await;
                }
            };
            tokio::join!(feeding, distribute(&mut process, out, err));
            // The program may have closed its output while it still runs.
            process.wait().await;
        });
        Self {
            stdin,
            stdout: Some(Box::new(stdout)),
            stderr: Some(Box::new(stderr)),
            id,
            control,
            ending,
            streams: AbortOnDropHandle::new(streams),
        }
    }

    /// The id of the process in the workspace.
    pub fn id(&self) -> &ProcessId {
        &self.id
    }

    /// A receiver of the program's exit, for observers that do not own the program.
    pub fn exit_receiver(&self) -> &ProcessExitReceiver {
        &self.ending
    }

    /// Sends a signal to the program. Does nothing if it has ended.
    pub async fn signal(&self, number: i32) {
        // A closed channel means that the program has ended.
        let _ = self.control.send(ProcessControlMessage::Signal(number)).await;
    }

    /// Waits until the program ends. The caller must read or drop the output during the wait.
    /// Returns `None` if the driver lost the process.
    pub async fn wait(&mut self) -> Option<ProcessExit> {
        self.ending.wait().await
    }

    /// Kills the program and everything that it started, and waits until they are gone.
    pub async fn kill(self) -> Option<ProcessExit> {
        let Self { streams, mut ending, .. } = self;
        drop(streams);
        ending.wait().await
    }

    /// Reads both outputs to their end and waits until the program ends. If the caller has not
    /// taken the input, it is closed first.
    ///
    /// # Errors
    /// `TooLarge` if both outputs together exceed `max_bytes` bytes. The program is then killed.
    /// `Io` if the driver lost the process.
    pub async fn wait_with_output(mut self, max_bytes: usize) -> Result<CapturedProcessOutput> {
        drop(self.stdin.take());
        let (mut stdout, mut stderr) = (BytesMut::new(), BytesMut::new());
        let (mut out, mut err) = (self.stdout.take(), self.stderr.take());
        while out.is_some() || err.is_some() {
            let ended = tokio::select! {
                read = read_some(&mut out, &mut stdout), if out.is_some() => (read, true),
                read = read_some(&mut err, &mut stderr), if err.is_some() => (read, false),
            };
            match ended {
                (0, true) => out = None,
                (0, false) => err = None,
                _ => {}
            }
            if stdout.len() + stderr.len() > max_bytes {
                self.kill().await;
                let message = format!("the program wrote more than {max_bytes} bytes");
                return Err(Error::new(ErrorCode::TooLarge, ErrorKind::TooLarge, message)
                    .with_verb(Verb::Exec));
            }
        }
        match self.wait().await {
            Some(exit) => {
                Ok(CapturedProcessOutput { exit, stdout: stdout.freeze(), stderr: stderr.freeze() })
            }
            None => Err(Error::new(
                ErrorCode::ExecError,
                ErrorKind::Io,
                self.ending.process_lost_message(),
            )
            .with_verb(Verb::Exec)),
        }
    }
}

impl fmt::Debug for LaunchedProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaunchedProgram")
            .field("id", &self.id)
            .field("ending", &self.ending)
            .finish_non_exhaustive()
    }
}

/// Forwards input until it ends or until the program accepts no more.
async fn feed(mut reader: DuplexStream, sender: mpsc::Sender<Bytes>) {
    loop {
        let mut piece = BytesMut::with_capacity(INPUT_PIECE);
        tokio::select! {
            read = reader.read_buf(&mut piece) => match read {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            },
            () = sender.closed() => return,
        }
        if sender.send(piece.freeze()).await.is_err() {
            return;
        }
    }
}

/// Writes each piece of output to its stream until both outputs have ended. A program may close one
/// output before the other.
async fn distribute(process: &mut Process, out: DuplexStream, err: DuplexStream) {
    let (mut out, mut err) = (Some(out), Some(err));
    while let Some(piece) = process.output.recv().await {
        let stream = match piece.channel {
            OutputChannel::Stdout => &mut out,
            OutputChannel::Stderr => &mut err,
        };
        if piece.ends_channel() {
            *stream = None;
        } else if let Some(stream) = stream {
            // Writing fails if the reader was dropped. The rest of this output is discarded.
            let _ = stream.write_all(&piece.bytes).await;
        }
    }
}

/// Reads from a stream and returns the number of bytes, which is zero at the end of the stream.
async fn read_some(reader: &mut Option<ProcessOutputReader>, into: &mut BytesMut) -> usize {
    match reader {
        Some(reader) => reader.read_buf(into).await.unwrap_or(0),
        None => 0,
    }
}
