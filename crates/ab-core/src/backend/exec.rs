//! Runs commands through the handle: waits for a command, starts one and returns it while it runs,
//! or starts a detached one.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::Backend;
use crate::call::Verb;
use crate::effective_policy::EffectivePolicy;
use crate::error::{Error, ErrorCode, ErrorKind, Result};
use crate::process::{
    Command, ExecLimits, ExecRequest, ExitCause, OutputChannel, Process, ProcessExit, ProcessId,
    ProcessInfo, ProcessLifetime, StdinMode,
};

/// Default of the maximum number of bytes that `exec` keeps of each channel.
pub const DEFAULT_MAX_EXEC_OUTPUT_BYTES: usize = 16 * 1024 * 1024;

/// Options for running a command.
#[derive(Clone, Debug)]
pub struct ExecOptions {
    /// The working directory in the workspace. Default: the root.
    pub cwd: Option<String>,
    pub env: BTreeMap<String, String>,
    /// The complete standard input of the command.
    pub input: Bytes,
    /// The command is killed after this time.
    pub timeout: Option<Duration>,
    /// Maximum number of bytes of each channel that are kept. Further bytes are counted and
    /// discarded.
    pub max_output_bytes: usize,
    pub limits: ExecLimits,
}

impl Default for ExecOptions {
    fn default() -> Self {
        Self {
            cwd: None,
            env: BTreeMap::new(),
            input: Bytes::new(),
            timeout: None,
            max_output_bytes: DEFAULT_MAX_EXEC_OUTPUT_BYTES,
            limits: ExecLimits::default(),
        }
    }
}

/// The output of a command and its exit status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecOutput {
    pub stdout: CapturedOutput,
    pub stderr: CapturedOutput,
    pub exit: ProcessExit,
}

impl ExecOutput {
    /// Standard output as text. If it was truncated, a note is added at the end.
    pub fn stdout_text(&self) -> String {
        self.stdout.display_text()
    }
}

/// The output of a command on one channel, which is standard output or standard error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapturedOutput {
    /// The first bytes of the output.
    pub bytes: Bytes,
    /// The length of the whole output in bytes.
    pub total_bytes: u64,
}

impl CapturedOutput {
    pub fn is_truncated(&self) -> bool {
        self.total_bytes > self.bytes.len() as u64
    }

    /// The output as text. Invalid bytes become `\u{fffd}`. If the output was truncated, a note
    /// with the full length is added.
    pub fn display_text(&self) -> String {
        let mut text = String::from_utf8_lossy(&self.bytes).into_owned();
        if self.is_truncated() {
            let kept = self.bytes.len();
            text.push_str(&format!(
                "\n[output truncated: the first {kept} of {} bytes]\n",
                self.total_bytes
            ));
        }
        text
    }
}

/// Collects the output of one channel. Bytes beyond the limit are only counted.
struct Gathering {
    kept: BytesMut,
    total: u64,
    bound: usize,
}

impl Gathering {
    fn new(bound: usize) -> Self {
        Self { kept: BytesMut::new(), total: 0, bound }
    }

    fn add(&mut self, bytes: &[u8]) {
        let room = self.bound - self.kept.len();
        self.kept.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.total += bytes.len() as u64;
    }

    fn done(self) -> CapturedOutput {
        CapturedOutput { bytes: self.kept.freeze(), total_bytes: self.total }
    }
}

impl Backend {
    /// Runs a shell command in the root of the workspace and waits for it. A non-zero exit status
    /// is an error with code `EXEC_FAILED`.
    pub async fn exec(&self, command: &str) -> Result<ExecOutput> {
        self.exec_with(command, ExecOptions::default()).await
    }

    /// Runs a shell command and waits for it. If the command fails, the error contains its output.
    /// See [`Error::exec_output`].
    pub async fn exec_with(&self, command: &str, options: ExecOptions) -> Result<ExecOutput> {
        let timeout = options.timeout;
        let output =
            self.exec_allowing_failure(Command::Shell(command.to_owned()), options).await?;
        if output.exit.success() && output.exit.cause == ExitCause::Exited {
            return Ok(output);
        }
        Err(unsuccessful(command, timeout, output))
    }

    /// Runs a command and waits for it. A command that fails is not an error here. The result
    /// contains its exit status.
    pub async fn exec_allowing_failure(
        &self,
        command: Command,
        options: ExecOptions,
    ) -> Result<ExecOutput> {
        let line = command.to_shell_line();
        let (input, bound) = (options.input.clone(), options.max_output_bytes);
        let mut process = self.spawn(self.build_exec_request(command, options)?).await?;
        let (mut stdout, mut stderr) = (Gathering::new(bound), Gathering::new(bound));
        let feeding = process.stdin.take().map(|stdin| async move {
            // Sending fails if the command ends without reading its input.
            let _ = stdin.send(input).await;
        });
        let gathering = async {
            while let Some(output) = process.output.recv().await {
                match output.channel {
                    OutputChannel::Stdout => stdout.add(&output.bytes),
                    OutputChannel::Stderr => stderr.add(&output.bytes),
                }
            }
        };
        match feeding {
            Some(feeding) => {
                futures_util::future::join(feeding, gathering).await;
            }
            None => gathering.await,
        }
        let Some(exit) = process.wait().await else {
            return Err(match process.exit_receiver().process_lost_error() {
                Some(why) => why.clone().with_command(&line),
                None => failure(ErrorCode::ExecError, ErrorKind::Io, &line, "the process was lost"),
            });
        };
        Ok(ExecOutput { stdout: stdout.done(), stderr: stderr.done(), exit })
    }

    /// Creates the request for a command, and parses its directory by the rules of this handle. The
    /// caller may change the other fields.
    pub fn build_exec_request(
        &self,
        command: Command,
        options: ExecOptions,
    ) -> Result<ExecRequest> {
        let mut request = ExecRequest::new(command);
        if let Some(cwd) = &options.cwd {
            request.cwd = self.parse(Verb::Exec, cwd)?;
        }
        request.env = options.env;
        if !options.input.is_empty() {
            request.stdin = StdinMode::Piped;
            request.stdin_for_guards = Some(options.input);
        }
        let own = ExecLimits { wall_time: options.timeout, ..ExecLimits::default() };
        request.limits = options.limits.tightened_by(own);
        Ok(request)
    }

    /// Starts a command. Dropping the process ends it.
    pub async fn spawn(&self, request: ExecRequest) -> Result<Process> {
        self.life.check(Verb::Exec)?;
        if request.command.is_empty() {
            let line = request.command.to_shell_line();
            return Err(failure(
                ErrorCode::EmptyCommand,
                ErrorKind::Invalid,
                &line,
                "the command is empty",
            ));
        }
        self.driver().exec(request).await
    }

    /// Starts a detached command. It stays in the workspace's process table until it ends or is
    /// killed, even if the returned process is dropped. Its output is kept up to a limit, for
    /// callers that [attach](Self::attach) to it.
    pub async fn spawn_detached(&self, request: ExecRequest) -> Result<Process> {
        self.spawn(ExecRequest { lifetime: ProcessLifetime::Detached, ..request }).await
    }

    /// The detached processes of this workspace or scope.
    pub async fn detached_processes(&self) -> Result<Vec<ProcessInfo>> {
        self.life.check(Verb::Processes)?;
        self.driver().processes().await
    }

    /// Attaches to a detached process and reads its output, starting at a sequence number.
    pub async fn attach(&self, id: &ProcessId, from: u64) -> Result<Process> {
        self.life.check(Verb::Attach)?;
        self.driver().attach(id, from).await
    }

    /// The policy that is in force for commands of this handle, with evidence that each control
    /// works.
    pub async fn effective_policy(&self) -> Result<EffectivePolicy> {
        self.life.check(Verb::Exec)?;
        self.driver().effective_policy().await
    }
}

fn unsuccessful(command: &str, timeout: Option<Duration>, output: ExecOutput) -> Error {
    let exit = output.exit.clone();
    let error = match exit.cause {
        ExitCause::Timeout => {
            let message = match timeout {
                Some(timeout) => format!("the command did not end within {timeout:?}"),
                None => "the command did not end in time".to_owned(),
            };
            failure(ErrorCode::Timeout, ErrorKind::Timeout, command, message)
        }
        ExitCause::MemoryLimit => {
            let message = "the command exceeded its memory limit";
            failure(ErrorCode::ExecFailed, ErrorKind::CommandFailed, command, message)
        }
        ExitCause::CpuLimit => {
            let message = "the command exceeded its limit of CPU time";
            failure(ErrorCode::ExecFailed, ErrorKind::CommandFailed, command, message)
        }
        ExitCause::FileSizeLimit => {
            let message = "the command exceeded its limit on the size of a file";
            failure(ErrorCode::ExecFailed, ErrorKind::CommandFailed, command, message)
        }
        ExitCause::DroppedByCaller => {
            let message = "the command was ended with its backend";
            failure(ErrorCode::ExecFailed, ErrorKind::Cancelled, command, message)
        }
        ExitCause::Exited => {
            let said = if output.stderr.bytes.is_empty() { &output.stdout } else { &output.stderr };
            let status = match (exit.code, exit.signal) {
                (Some(code), _) => format!("exit code {code}"),
                (None, Some(signal)) => format!("signal {signal}"),
                (None, None) => "an unknown status".to_owned(),
            };
            let said = said.display_text();
            let message = match said.trim() {
                "" => format!("command ended with {status}"),
                said => format!("command ended with {status}: {said}"),
            };
            failure(ErrorCode::ExecFailed, ErrorKind::CommandFailed, command, message)
        }
    };
    error.with_process_exit(exit).with_exec_output(output)
}

fn failure(code: ErrorCode, kind: ErrorKind, command: &str, message: impl Into<String>) -> Error {
    Error::new(code, kind, message).with_verb(Verb::Exec).with_command(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_noted_with_the_full_length() {
        let mut gathering = Gathering::new(4);
        gathering.add(b"ab");
        gathering.add(b"cdef");
        gathering.add(b"g");
        let said = gathering.done();
        assert_eq!((said.bytes.as_ref(), said.total_bytes), (&b"abcd"[..], 7));
        assert_eq!(said.display_text(), "abcd\n[output truncated: the first 4 of 7 bytes]\n");
        assert_eq!(
            CapturedOutput { bytes: Bytes::from("ab"), total_bytes: 2 }.display_text(),
            "ab"
        );
    }
}
