//! Commands through the handle: start one, or run one to its end.

use bytes::{Bytes, BytesMut};

use super::Backend;
use crate::call::Verb;
use crate::error::{Code, Error, Kind, Result};
use crate::process::{Channel, ExecRequest, Exit, Process, ProcessId, ProcessInfo};

/// What a command said and how it ended.
#[derive(Clone, Debug, Default)]
pub struct ExecOutput {
    pub stdout: Bytes,
    pub stderr: Bytes,
    pub exit: Exit,
}

impl Backend {
    /// Runs a command line in the workspace's root and waits for it. A status other than zero is
    /// an error with code `EXEC_FAILED`.
    pub async fn exec(&self, command: &str) -> Result<ExecOutput> {
        let mut process = self.spawn(ExecRequest::shell(command)).await?;
        let (mut stdout, mut stderr) = (BytesMut::new(), BytesMut::new());
        while let Some(output) = process.output.recv().await {
            match output.channel {
                Channel::Stdout => stdout.extend_from_slice(&output.bytes),
                Channel::Stderr => stderr.extend_from_slice(&output.bytes),
            }
        }
        let Some(exit) = process.wait().await else {
            return Err(failure(Code::ExecError, Kind::Io, command, "the process was lost"));
        };
        if exit.success() {
            return Ok(ExecOutput { stdout: stdout.freeze(), stderr: stderr.freeze(), exit });
        }
        let said = if stderr.is_empty() { &stdout } else { &stderr };
        let said = String::from_utf8_lossy(said);
        let status = match (exit.code, exit.signal) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "an unknown status".to_owned(),
        };
        let message = format!("command ended with {status}: {}", said.trim());
        Err(failure(Code::ExecFailed, Kind::Failed, command, message).with_exit(exit))
    }

    /// Starts a command; dropping the process ends it.
    pub async fn spawn(&self, request: ExecRequest) -> Result<Process> {
        self.life.check(Verb::Exec)?;
        if request.command.is_empty() {
            let line = request.command.line();
            return Err(failure(Code::EmptyCommand, Kind::Invalid, &line, "the command is empty"));
        }
        self.driver.exec(request).await
    }

    /// The processes that were started detached in this workspace or scope.
    pub async fn processes(&self) -> Result<Vec<ProcessInfo>> {
        self.life.check(Verb::Processes)?;
        self.driver.processes().await
    }

    /// Follows a detached process from a sequence number on.
    pub async fn attach(&self, id: &ProcessId, from: u64) -> Result<Process> {
        self.life.check(Verb::Attach)?;
        self.driver.attach(id, from).await
    }
}

fn failure(code: Code, kind: Kind, command: &str, message: impl Into<String>) -> Error {
    Error::new(code, kind, message).with_verb(Verb::Exec).with_command(command)
}
