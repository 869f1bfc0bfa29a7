//! Serves one client over a pair of streams until it disconnects.

use std::io;
use std::time::Duration;

use ab_core::Backend;
use rmcp::ServerHandler;
use rmcp::service::{ServerInitializeError, serve_server};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::bounds::LAST_CALLS;
use crate::lines::{Gone, Lines};
use crate::server::McpServer;

/// Settings for a client that is served over a pair of streams.
#[derive(Clone, Debug)]
pub struct McpStreamSettings {
    /// How long calls may continue after the client has closed its side. Calls that are still
    /// running are then cancelled. If the stream to the client shows when the client is gone, this
    /// can be [`MAX_CALL_TIME`](crate::MAX_CALL_TIME).
    pub last_calls: Duration,
}

impl Default for McpStreamSettings {
    fn default() -> Self {
        Self { last_calls: LAST_CALLS }
    }
}

/// Serves `backend` as JSON lines. Returns after the client has closed its side and its remaining
/// calls had a short time to end. Calls that are still running are then cancelled.
pub async fn serve_mcp_over_streams<R, W>(backend: Backend, input: R, output: W) -> io::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    serve_mcp_over_streams_with(backend, input, output, McpStreamSettings::default()).await
}

/// Like [`serve_mcp_over_streams`], with settings.
pub async fn serve_mcp_over_streams_with<R, W>(
    backend: Backend,
    input: R,
    output: W,
    settings: McpStreamSettings,
) -> io::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (mut lines, line) = Lines::new(input, output);
    lines.last_calls = settings.last_calls;
    let server = McpServer::new(backend).on(line);
    lines.answer_by(server.own_tools().clone());
    served(server, lines).await
}

/// Tells a handler that its client has disconnected, so that it can drop the client's calls.
#[derive(Clone, Debug)]
pub struct CallerDisconnectSignal(Gone);

impl CallerDisconnectSignal {
    pub async fn wait(&self) {
        self.0.wait().await;
    }
}

/// Serves a handler of the caller as JSON lines, with the same limits as
/// [`serve_mcp_over_streams`].
pub async fn serve_mcp_handler_over_streams<H, R, W>(
    make: impl FnOnce(CallerDisconnectSignal) -> H,
    input: R,
    output: W,
) -> io::Result<()>
where
    H: ServerHandler,
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (lines, line) = Lines::new(input, output);
    served(make(CallerDisconnectSignal(line.gone)), lines).await
}

async fn served<H, R, W>(handler: H, lines: Lines<R, W>) -> io::Result<()>
where
    H: ServerHandler,
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    match serve_server(handler, lines).await {
        Ok(running) => running.waiting().await.map(drop).map_err(io::Error::other),
        // A client may disconnect before the handshake.
        Err(
            ServerInitializeError::ConnectionClosed(_)
            | ServerInitializeError::TransportError { .. },
        ) => Ok(()),
        Err(error) => Err(io::Error::other(error.to_string())),
    }
}
