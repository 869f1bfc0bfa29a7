//! Starts the program so that it forwards messages between its client and a live handle of this
//! process.
//!
//! The program connects through a socket in a private directory. The first connection must come
//! from this program. After this connection the socket is removed.

use std::ffi::OsString;

use ab_core::{Backend, Error, ErrorCode, ErrorKind, Result};
use ab_host::child_program::{ChildPipes, ChildProcess};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use super::{McpOptions, Server};

/// Starts the program and serves `backend` to it. `backend` is already limited to the scope of the
/// options.
pub(super) async fn start(options: &McpOptions, backend: Backend) -> Result<(Server, ChildPipes)> {
    let McpOptions { program, start_timeout: time_limit, temporary_dir: temporary, .. } = options;
    let fails = |act: &str, error: std::io::Error| {
        Error::new(ErrorCode::ExecError, ErrorKind::Io, format!("{act}: {error}"))
            .with_source(error)
    };
    let directory = tempfile::Builder::new().prefix("agent-backend-").tempdir_in(temporary);
    let directory =
        directory.map_err(|error| fails("cannot create a directory for a socket", error))?;
    let path = directory.path().join("mcp");
    let listener =
        UnixListener::bind(&path).map_err(|error| fails("cannot create a socket", error))?;
    let arguments = [OsString::from("mcp"), OsString::from("--connect"), path.into_os_string()];
    let (mut companion, pipes) = ChildProcess::start(program, &arguments)?;
    let id = companion.id();
    let connected = tokio::select! {
        connected = timeout(*time_limit, connection(&listener, id)) => connected,
        ended = companion.wait_and_describe_exit() => {
            let message = format!("{} ended before it was ready: {ended}", program.display());
            return Err(Error::new(ErrorCode::ExecError, ErrorKind::Unavailable, message)
                .with_hint("is it the agent-backend program of this version?"));
        }
    };
    let stream = match connected {
        Ok(stream) => {
            stream.map_err(|error| fails("cannot accept the program's connection", error))?
        }
        Err(_) => {
            let message = format!("{} was not ready within {time_limit:?}", program.display());
            return Err(Error::new(ErrorCode::Timeout, ErrorKind::Timeout, message));
        }
    };
    let (input, output) = stream.into_split();
    let serving = tokio::spawn(async move {
        // Ignore the error, because the program sees the end of the stream.
        let _ = ab_mcp::serve_mcp_over_streams(backend, input, output).await;
    });
    Ok((Server { companion: Some(companion), serving: Some(serving) }, pipes))
}

/// Waits for the connection of the program with the process id `id`, and rejects others.
async fn connection(listener: &UnixListener, id: Option<u32>) -> std::io::Result<UnixStream> {
    loop {
        let (stream, _) = listener.accept().await?;
        let caller = stream.peer_cred()?.pid().and_then(|pid| u32::try_from(pid).ok());
        if caller.is_some() && caller == id {
            return Ok(stream);
        }
    }
}
