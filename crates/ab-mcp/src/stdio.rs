//! Serves one client over a pair of streams until it disconnects.

use std::io;

use ab_core::Backend;
use rmcp::ServerHandler;
use rmcp::service::{ServerInitializeError, serve_server};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::lines::{Gone, Lines};
use crate::server::McpServer;

/// Serves `backend` as JSON lines. Returns after the client has closed its side and its remaining
/// calls had a short time to end. Calls that are still running are then cancelled.
pub async fn serve_mcp_over_streams<R, W>(backend: Backend, input: R, output: W) -> io::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (mut lines, line) = Lines::new(input, output);
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
