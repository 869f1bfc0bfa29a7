//! Serving one caller over a pair of streams, until it is gone.

use std::io;

use ab_core::Backend;
use rmcp::service::{ServerInitializeError, serve_server};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::lines::Lines;
use crate::server::Server;

/// Serves `backend` as JSON lines. Returns when the caller has closed its end, after its last calls
/// had a moment to end; what it left running ends then.
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
        // Callers may leave before they have begun.
        Err(
            ServerInitializeError::ConnectionClosed(_)
            | ServerInitializeError::TransportError { .. },
        ) => Ok(()),
        Err(error) => Err(io::Error::other(error.to_string())),
    }
}
