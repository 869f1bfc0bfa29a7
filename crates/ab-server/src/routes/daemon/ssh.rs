//! `/ssh`: SSH in the binary messages of a WebSocket.
//!
//! A request with a wrong token is also upgraded. The WebSocket is then closed with code 4001, so
//! that clients can distinguish a wrong token from a network failure.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use ab_core::Backend;
use ab_remote::websocket::WebSocketByteStream;
use ab_remote::{SshConnectionEnd, SshServer};
use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::SEC_WEBSOCKET_VERSION;
use axum::response::{IntoResponse, Response};
use hyper::upgrade::OnUpgrade;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Error as SocketError;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::handshake::server::create_response_with_body;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::app::HttpApp;
use crate::beyond::Beyond;
use crate::gate::Caller;
use crate::log::SentAway;
use crate::places::Place;
use crate::problem::{Problem, ProblemKind, Refusal};

pub(in crate::routes) const PATH: &str = "/ssh";

/// Code and reason of the close frame for a caller with a wrong token.
const UNAUTHORIZED: (u16, &str) = (4001, "Unauthorized");
const CLOSING: (u16, &str) = (1000, "Server shutting down");
const ENDED: (u16, &str) = (1000, "");

/// How long the close handshake may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// Speak SSH in binary messages
///
/// A WebSocket whose binary messages carry the bytes of an SSH connection, split at any point. It
/// supports commands and SFTP. The token is in the Authorization header or in the query. If the
/// token is wrong, the WebSocket is closed with the code 4001 after the upgrade.
#[utoipa::path(
    get,
    path = "/ssh",
    tag = "ssh",
    params(
        ("token" = Option<String>, Query, description = "The token, where no header can be sent"),
        ("X-Root-Dir" = Option<String>, Header, description = "The root directory that the client expects; another one is refused"),
        ("X-Scope-Path" = Option<String>, Header, description = "The directory of the workspace that the connection is confined to")
    ),
    responses(
        (status = SWITCHING_PROTOCOLS, description = "SSH over WebSocket messages follows"),
        (status = UPGRADE_REQUIRED, description = "Unsupported WebSocket version", body = Refusal),
        (status = BAD_REQUEST, description = "An invalid upgrade or scope", body = Refusal),
        (status = FORBIDDEN, description = "The Host, Origin or root directory is not allowed", body = Refusal),
        (status = NOT_FOUND, description = "SSH is not enabled on this server", body = Refusal)
    )
)]
pub(crate) async fn connect(
    State(app): State<HttpApp>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    let daemon = match app.daemon() {
        Ok(daemon) => daemon,
        Err(problem) => return problem.into_response(),
    };
    let Some(ssh) = daemon.ssh.clone() else {
        let detail = "SSH over WebSockets is not enabled on this server";
        return Problem::new(ProblemKind::NotFound, detail).into_response();
    };
    // A caller without the right token must not learn anything about the workspace.
    let admin = caller.principal().filter(|_| caller.is_admin());
    let view = admin.map(|principal| daemon.view(request.headers(), principal));
    let target = match view.transpose() {
        Ok(Some(view)) => SshTarget::Served { server: ssh, view },
        Ok(None) => SshTarget::Unauthorized,
        Err(problem) => return problem.into_response(),
    };
    let is_admin = admin.is_some();
    let mut response = accept_ssh(request, &daemon.sockets, target);
    if !is_admin && response.status() == StatusCode::SWITCHING_PROTOCOLS {
        response.extensions_mut().insert(SentAway(UNAUTHORIZED.0));
    }
    response
}

/// The SSH server to which a WebSocket is connected.
pub(in crate::routes) enum SshTarget {
    /// A server that ends its connections itself when it is shut down.
    Served { server: SshServer, view: Backend },
    /// A server for one connection. The connection ends at the latest when the token is cancelled.
    Until { server: SshServer, backend: Backend, shutdown: CancellationToken },
    /// There is no server, because the caller has no valid token.
    Unauthorized,
}

/// Upgrades a request to a WebSocket and serves SSH on it.
pub(in crate::routes) fn accept_ssh(
    mut request: Request,
    sockets: &TaskTracker,
    target: SshTarget,
) -> Response {
    let response = match create_response_with_body(&request, Body::empty) {
        Ok(response) => response,
        Err(SocketError::Protocol(ProtocolError::MissingSecWebSocketVersionHeader)) => {
            return another_version();
        }
        Err(_) => return not_a_websocket(),
    };
    let Some(upgrade) = request.extensions_mut().remove::<OnUpgrade>() else {
        return not_a_websocket();
    };
    // A WebSocket counts towards the connection limits until it ends.
    let place = request.extensions_mut().remove::<Place>();
    tokio::spawn(sockets.track_future(async move {
        let _place = place;
        // An error means that the caller has disconnected.
        let Ok(stream) = upgrade.await else { return };
        let stream = Beyond::new(stream);
        match target {
            SshTarget::Served { server, view } => carried(server, view, stream).await,
            SshTarget::Until { server, backend, shutdown } => {
                tokio::select! {
                    () = carried(server, backend, stream) => {}
                    () = shutdown.cancelled() => {}
                }
            }
            SshTarget::Unauthorized => part(Shared::new(stream), UNAUTHORIZED).await,
        }
    }));
    response
}

fn not_a_websocket() -> Response {
    let message = "this path accepts only WebSockets that carry SSH";
    Problem::new(ProblemKind::Invalid, message).titled("Not a WebSocket").into_response()
}

fn another_version() -> Response {
    let message = "only WebSocket version 13 is supported";
    let problem = Problem::new(ProblemKind::UpgradeRequired, message).titled("Unsupported version");
    ([(SEC_WEBSOCKET_VERSION, "13")], problem).into_response()
}

/// Serves SSH on a separate connection thread (lane), if the server has such threads.
async fn carried(ssh: SshServer, view: Backend, mut stream: Beyond) {
    let lanes = ssh.connection_threads().cloned();
    let Some(lanes) = lanes else {
        // Boxed, so that the future for connections on a lane does not reserve memory for this one.
        return Box::pin(carry(&ssh, view, Shared::new(stream))).await;
    };
    let serving = lanes.spawn(async move {
        match stream.settle() {
            Ok(()) => carry(&ssh, view, Shared::new(stream)).await,
            Err(error) => tracing::warn!(%error, "cannot serve an SSH connection"),
        }
    });
    // A panic in the task has already been reported.
    let _ = AbortOnDropHandle::new(serving).await;
}

/// Serves SSH over the socket, then closes the socket with a reason.
async fn carry(ssh: &SshServer, view: Backend, socket: Shared) {
    let ended = ssh.serve_with_backend(view, socket.clone()).await;
    tracing::debug!(%ended, "an SSH connection ended");
    let reason = if ended == SshConnectionEnd::ShutDown { CLOSING } else { ENDED };
    part(socket, reason).await;
}

/// Sends a close frame with this code and reason, and waits a short time for the peer's close
/// frame.
async fn part(mut socket: Shared, (code, reason): (u16, &'static str)) {
    let parting = async {
        socket.lock().start_close(code, reason);
        if socket.flush().await.is_ok() {
            let mut unheard = [0; 1024];
            while let Ok(1..) = socket.read(&mut unheard).await {}
            poll_fn(|context| socket.lock().poll_discard_input(context)).await;
        }
    };
    // A peer that does not answer is dropped.
    let _ = timeout(GOODBYE, parting).await;
}

/// The socket. The SSH stream and the close handshake after it share the socket. Only the close
/// handshake closes it.
#[derive(Clone)]
struct Shared(Arc<Mutex<WebSocketByteStream<Beyond>>>);

impl Shared {
    fn new(stream: Beyond) -> Self {
        Self(Arc::new(Mutex::new(WebSocketByteStream::new_server(stream))))
    }

    fn lock(&self) -> MutexGuard<'_, WebSocketByteStream<Beyond>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for Shared {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.lock()).poll_read(context, buffer)
    }
}

impl AsyncWrite for Shared {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.lock()).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.lock()).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}
