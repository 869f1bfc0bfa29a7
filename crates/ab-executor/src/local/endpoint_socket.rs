//! Serves the session's workspace as MCP tools over a local socket, for agents that cannot use its
//! HTTP endpoint.
//!
//! The socket is in a directory beside the workspace. Only this session's sandbox shows this
//! directory, so every connection comes from the session. The agent starts
//! `agent-backend mcp --connect`, which forwards messages between its standard streams and the
//! socket.

use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use ab_acp::McpServer;
use ab_api::SessionId;
use ab_core::{Backend, NarrowOptions, Principal, PrincipalKind};
use ab_snapshot::PreparedWorkspace;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// Maximum number of connections of one session.
const MOST_CONNECTIONS: usize = 16;
const SOCKET: &str = "mcp";

/// A socket that is not served yet. Its directory is created before the sandbox, because the
/// sandbox mounts it.
#[derive(Debug)]
pub(super) struct EndpointSocket {
    directory: PathBuf,
}

/// Serves the socket until it is dropped.
#[derive(Debug)]
pub(super) struct ServedSocket {
    path: PathBuf,
    _serving: AbortOnDropHandle<()>,
}

impl EndpointSocket {
    /// Creates the directory of the socket, and removes the socket of an earlier attempt.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be created.
    pub(super) fn make(workspace: &PreparedWorkspace) -> io::Result<EndpointSocket> {
        use std::os::unix::fs::DirBuilderExt;
        let directory = workspace.tree.with_file_name("socket");
        std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&directory)?;
        match std::fs::remove_file(directory.join(SOCKET)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(EndpointSocket { directory })
    }

    /// The directory to mount in the sandbox. It is read-only, so that the agent cannot replace the
    /// socket.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Creates the socket and starts to serve it. Calls are made as the session's agent.
    ///
    /// # Errors
    ///
    /// Fails if the socket cannot be created.
    pub(super) fn serve(&self, session: SessionId, backend: &Backend) -> io::Result<ServedSocket> {
        // Open the directory and use a short path below `/proc`, because the real path may be too
        // long for a socket address.
        let directory = std::fs::File::open(&self.directory)?;
        let address = format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd());
        let listener = UnixListener::bind(address)?;
        let agent = Principal::new(PrincipalKind::Agent, &session.to_string());
        let backend = backend.narrow(NarrowOptions::for_actor(agent)).map_err(io::Error::other)?;
        let serving = AbortOnDropHandle::new(tokio::spawn(accept(listener, backend)));
        Ok(ServedSocket { path: self.directory.join(SOCKET), _serving: serving })
    }
}

impl ServedSocket {
    /// Returns the MCP server entry for the agent. It names the program that the agent starts to
    /// use the socket.
    pub(super) fn offer(&self, name: &str, own_executable: &Path) -> McpServer {
        let path = self.path.to_string_lossy().into_owned();
        McpServer::Stdio {
            name: name.to_owned(),
            command: own_executable.to_string_lossy().into_owned(),
            args: vec!["mcp".to_owned(), "--connect".to_owned(), path],
            env: Vec::new(),
        }
    }
}

async fn accept(listener: UnixListener, backend: Backend) {
    let mut connections = JoinSet::new();
    loop {
        if connections.len() >= MOST_CONNECTIONS {
            connections.join_next().await;
        }
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(serve(stream, backend.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection of a session's agent");
                return;
            }
        }
    }
}

async fn serve(stream: UnixStream, backend: Backend) {
    let (input, output) = stream.into_split();
    if let Err(error) = ab_mcp::serve_mcp_over_streams(backend, input, output).await {
        tracing::debug!(%error, "a connection of a session's agent failed");
    }
}
