//! A program of ours beside the workspace, spoken to over its standard input and output.
//!
//! It is no command of an agent: it runs as we do, with our environment and no walls, so only
//! programs that we chose ourselves belong here. It ends when it is closed or let go of.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ab_core::{Error, ErrorCode, ErrorKind, Result};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

/// How long it may take to end by itself, once its standard input is closed.
const GRACE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub struct ChildProcess {
    child: Child,
}

/// What a companion is spoken to by.
#[derive(Debug)]
pub struct ChildPipes {
    pub input: ChildStdin,
    pub output: ChildStdout,
}

impl ChildProcess {
    /// Starts `program`; what it says on standard error goes where ours goes.
    pub fn start(program: &Path, arguments: &[OsString]) -> Result<(ChildProcess, ChildPipes)> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        // An interrupt at a terminal is ours to deal with.
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

    /// Nothing once it has ended.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits for its end, and says how it ended.
    pub async fn wait_and_describe_exit(&mut self) -> String {
        match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// Lets it end by itself for a moment, then ends it.
    pub async fn wait_or_kill(&mut self) {
        if timeout(GRACE, self.child.wait()).await.is_err() {
            // One that cannot be ended is reaped when it ends.
            let _ = self.child.kill().await;
        }
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
