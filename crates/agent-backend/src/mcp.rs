//! The MCP tools of a workspace, as a connected client or as the stream to an MCP server.
//!
//! For a plain local workspace, the agent-backend program opens the directory a second time. A
//! plain remote workspace has its own MCP server, whose address is in the setting `mcp`. Each
//! message to it is one HTTP request that is sent once. Other workspaces cannot be opened a second
//! time. Examples are workspaces in memory, and workspaces with rules, mounts or restrictions. For
//! these, the program only forwards messages to the live handle, so that the data and the rules of
//! the handle apply.
//!
//! ```no_run
//! use agent_backend::mcp::{BackendMcpExt, McpOptions};
//!
//! # async fn example() -> agent_backend::Result<()> {
//! let backend = agent_backend::memory();
//! let client = backend.mcp_client(McpOptions::default()).await?;
//! for tool in client.list_tools().await? {
//!     println!("{}", tool.name);
//! }
//! # backend.destroy().await
//! # }
//! ```

pub(crate) mod elsewhere;
mod shim;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ab_core::{
    Backend, Closeable, CloseableId, Result, ScopeOptions, WorkspaceLocator, WorkspaceOpener,
};
use ab_host::child_program::{ChildPipes, ChildProcess};
use ab_remote::client::ByteStream;
use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

pub use ab_mcp::Client;

/// The name under which the server program is installed.
const PROGRAM: &str = "agent-backend";

#[derive(Clone, Debug)]
pub struct McpOptions {
    /// The agent-backend program: a path, or a name that is searched in `PATH`.
    pub program: PathBuf,
    /// If set, only this directory of the workspace is served.
    pub scope: Option<String>,
    /// How long the program may take to start and become ready.
    pub start_timeout: Duration,
    /// The directory in which a socket is created for a short time.
    pub temporary_dir: PathBuf,
}

impl Default for McpOptions {
    fn default() -> Self {
        Self {
            program: PathBuf::from(PROGRAM),
            scope: None,
            start_timeout: Duration::from_secs(20),
            temporary_dir: PathBuf::from("/tmp"),
        }
    }
}

/// Adds MCP to a [`Backend`]. Everything that these methods create ends with the backend.
pub trait BackendMcpExt {
    /// Opens a stream to an MCP server that works on this workspace.
    fn mcp_transport(
        &self,
        options: McpOptions,
    ) -> impl Future<Output = Result<McpTransport>> + Send;

    /// Opens a client that is connected to an MCP server for this workspace.
    fn mcp_client(&self, options: McpOptions) -> impl Future<Output = Result<McpClient>> + Send;
}

impl BackendMcpExt for Backend {
    async fn mcp_transport(&self, options: McpOptions) -> Result<McpTransport> {
        let served = match &options.scope {
            Some(scope) => self.scope(scope, ScopeOptions::default())?,
            None => self.clone(),
        };
        let (server, stream) = match served.workspace_locator() {
            Some(WorkspaceLocator { opener: WorkspaceOpener::Program(arguments), scope }) => {
                let mut arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
                if !scope.is_root() {
                    arguments.extend(["--scopePath", scope.as_str()].map(OsString::from));
                }
                let (companion, pipes) = ChildProcess::start(&options.program, &arguments)?;
                let server = Server { companion: Some(companion), serving: None };
                (server, joined(pipes))
            }
            Some(WorkspaceLocator { opener: WorkspaceOpener::Server(server), scope }) => {
                elsewhere::start(&**server, scope)?
            }
            None => {
                let (server, pipes) = shim::start(&options, served).await?;
                (server, joined(pipes))
            }
        };
        let server = Arc::new(Tracked(Mutex::new(Some(server))));
        let id = self.register_closeable(server.clone()).await?;
        Ok(McpTransport { stream, held: Held { backend: self.clone(), id, server } })
    }

    async fn mcp_client(&self, options: McpOptions) -> Result<McpClient> {
        let time_limit = options.start_timeout;
        let transport = self.mcp_transport(options).await?;
        let McpTransport { stream, held } = transport;
        let client = Arc::new(Client::connect(stream, time_limit).await?);
        let id = self.register_closeable(Arc::new(TrackedClient(client.clone()))).await?;
        Ok(McpClient { client, id, held })
    }
}

/// Joins the output and input of the program to one stream.
fn joined(pipes: ChildPipes) -> Box<dyn ByteStream> {
    Box::new(tokio::io::join(pipes.output, pipes.input))
}

/// The program, if there is one, and the task that connects it to the live handle or forwards
/// messages.
struct Server {
    companion: Option<ChildProcess>,
    serving: Option<JoinHandle<()>>,
}

/// A server that is closed when the backend is destroyed.
struct Tracked(Mutex<Option<Server>>);

#[async_trait]
impl Closeable for Tracked {
    async fn close(&self) -> Result<()> {
        let server = self.0.lock().await.take();
        if let Some(mut server) = server {
            if let Some(serving) = server.serving.take() {
                serving.abort();
                // The task was aborted, so its result does not matter.
                let _ = serving.await;
            }
            if let Some(mut companion) = server.companion.take() {
                companion.wait_for_exit_or_kill().await;
            }
        }
        Ok(())
    }
}

struct TrackedClient(Arc<Client>);

#[async_trait]
impl Closeable for TrackedClient {
    async fn close(&self) -> Result<()> {
        self.0.close().await;
        Ok(())
    }
}

/// Keeps the server running until it is dropped.
struct Held {
    backend: Backend,
    id: CloseableId,
    server: Arc<Tracked>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.backend.unregister_closeable(self.id);
        if let Ok(mut server) = self.server.0.try_lock()
            && let Some(server) = server.take()
            && let Some(serving) = server.serving
        {
            serving.abort();
        }
    }
}

/// A stream of JSON lines to an MCP server. It ends with the backend, or when it is dropped.
pub struct McpTransport {
    stream: Box<dyn ByteStream>,
    held: Held,
}

impl McpTransport {
    /// Closes the stream and ends the server.
    pub async fn close(self) -> Result<()> {
        let McpTransport { stream, held } = self;
        drop(stream);
        held.server.close().await
    }
}

/// A connected client. It ends with the backend, or when it is dropped.
pub struct McpClient {
    client: Arc<Client>,
    id: CloseableId,
    held: Held,
}

impl McpClient {
    /// Ends the MCP session and the server.
    pub async fn close(&self) -> Result<()> {
        self.client.close().await;
        self.held.server.close().await
    }
}

impl Deref for McpClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for McpClient {
    fn drop(&mut self) {
        self.held.backend.unregister_closeable(self.id);
    }
}

impl fmt::Debug for McpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("McpTransport")
    }
}

impl fmt::Debug for McpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("McpClient")
    }
}

impl AsyncRead for McpTransport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for McpTransport {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
