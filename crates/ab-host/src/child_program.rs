//! A helper program that this process starts and talks to over the program's standard input and
//! output.
//!
//! Such a program is not a command of an agent. It runs as our user, with our environment and
//! without a sandbox, so only trusted programs may be started this way. The program is killed when
//! its handle is dropped, unless several processes share it ([`shared`]).

pub mod shared;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ab_core::{Error, ErrorCode, ErrorKind, Result};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// How long the program may take to exit after its standard input was closed.
const GRACE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct ChildProcess {
    child: Child,
}

/// The pipes to the standard input and output of a [`ChildProcess`].
#[derive(Debug)]
pub struct ChildPipes {
    pub input: ChildStdin,
    pub output: ChildStdout,
}

/// The pipe from the standard error of a program that writes its log there.
pub type ChildLog = ChildStderr;

impl ChildProcess {
    /// Starts `program` with `input` as its standard input. The caller reads the program's standard
    /// error. Its standard output is discarded. Unlike other programs, this program is not killed
    /// when its handle is dropped. It ends at the end of its input.
    pub(crate) fn start_reading(
        program: &Path,
        arguments: &[OsString],
        input: File,
    ) -> Result<(ChildProcess, ChildLog)> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(input).stdout(Stdio::null()).stderr(Stdio::piped());
        // Put the program into its own process group, so that it does not get interrupts from a
        // terminal. They are meant for this process.
        command.process_group(0);
        let mut child = command.spawn().map_err(|error| missing(program, error))?;
        match child.stderr.take() {
            Some(log) => Ok((ChildProcess { child }, log)),
            None => {
                Err(Error::new(ErrorCode::ExecError, ErrorKind::Io, "the program has no pipes"))
            }
        }
    }

    /// Starts `program`. The program inherits our standard error.
    pub fn start(program: &Path, arguments: &[OsString]) -> Result<(ChildProcess, ChildPipes)> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Put the program into its own process group, so that it does not get interrupts from the
        // terminal. They are meant for this process.
        command.process_group(0).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| missing(program, error))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Error::new(
                ErrorCode::ExecError,
                ErrorKind::Io,
                "the program has no pipes",
            ));
        };
        Ok((ChildProcess { child }, ChildPipes { input, output }))
    }

    /// Returns the process id, or `None` after the program's exit was observed.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until the program exits, and returns a description of its exit status.
    pub async fn wait_and_describe_exit(&mut self) -> String {
        match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// Kills the program and waits until it has ended.
    pub async fn kill(&mut self) {
        // If the kill fails, the process is reaped when it exits.
        let _ = self.child.kill().await;
    }

    /// Waits briefly for the program to exit, then kills it.
    pub async fn wait_for_exit_or_kill(&mut self) {
        if timeout(GRACE, self.child.wait()).await.is_err() {
            // If the kill fails, the process is reaped when it exits.
            let _ = self.child.kill().await;
        }
    }
}

/// A program that keeps running when this process ends. It has no standard input.
#[derive(Debug)]
pub struct DetachedChildProgram {
    pub child: Child,
    pub output: ChildStdout,
    pub errors: ChildStderr,
}

impl DetachedChildProgram {
    /// Starts `program` in the process group of this process. The program can leave the group
    /// later.
    ///
    /// # Errors
    /// Fails with [`ErrorKind::Unavailable`] if the program cannot be executed, and with
    /// [`ErrorKind::Io`] in all other cases.
    pub fn start(program: &Path, arguments: &[OsString]) -> Result<DetachedChildProgram> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| missing(program, error))?;
        let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) else {
            let message = "the program has no pipes";
            return Err(Error::new(ErrorCode::ExecError, ErrorKind::Io, message));
        };
        Ok(DetachedChildProgram { child, output, errors })
    }
}

fn missing(program: &Path, error: io::Error) -> Error {
    let message = format!("cannot start {}: {error}", program.display());
    let kind = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => ErrorKind::Unavailable,
        _ => ErrorKind::Io,
    };
    let code = if kind == ErrorKind::Unavailable {
        ErrorCode::MissingUtilities
    } else {
        ErrorCode::ExecError
    };
    Error::new(code, kind, message).with_source(error)
}
