//! Serves one client over a pair of streams until it is gone.

use std::io;

use ab_core::Backend;
use rmcp::service::{ServerInitializeError, serve_server};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::lines::Lines;
use crate::server::Server;

/// Serves `backend` as JSON lines. Returns after the client has closed its end and its last calls
/// had a moment to end. Calls that still run are then cancelled.
pub async fn serve_stdio<R, W>(backend: Backend, input: R, output: W) -> io::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (mut lines, line) = Lines::new(input, output);
    let server = Server::new(backend).on(line);
    lines.answer_by(server.own_tools().clone());
    match serve_server(server, lines).await {
        Ok(running) => running.waiting().await.map(drop).map_err(io::Error::other),
        // A client may disconnect before the handshake.
        Err(
            ServerInitializeError::ConnectionClosed(_)
            | ServerInitializeError::TransportError { .. },
        ) => Ok(()),
        Err(error) => Err(io::Error::other(error.to_string())),
    }
}
