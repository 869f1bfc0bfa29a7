//! `/api/v1/sessions/{id}/ssh`: access to the workspace of a running session by SSH and SFTP.

use ab_api::SessionId;
use ab_core::{NarrowOptions, Principal};
use ab_remote::{SshServer, SshServerSettings};
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::mcp::running;
use super::problems::EndpointProblems;
use crate::app::HttpApp;
use crate::extract::PathParams;
use crate::problem::{Problem, ProblemDocument, ProblemKind};
use crate::routes::daemon::{SshTarget, accept_ssh};

/// SSH access to running sessions.
#[derive(Debug)]
pub(crate) struct SessionSsh {
    pub(crate) settings: SshServerSettings,
    /// Tracks upgraded connections until they have ended.
    pub(crate) sockets: TaskTracker,
}

impl SessionSsh {
    /// Waits for the connections, which end when the shutdown token is cancelled.
    pub(crate) async fn close(&self) {
        self.sockets.close();
        self.sockets.wait().await;
    }
}

/// Speak SSH with the workspace of a running session
///
/// A WebSocket whose binary messages carry the bytes of an SSH connection, split at any point. It
/// supports commands and SFTP, in the session's sandbox and under its command policy. The server
/// requires no SSH login, because the request is already authenticated by a token. `agent-backend
/// ssh-proxy` connects the standard `ssh` or `sftp`.
#[utoipa::path(
    get,
    path = "/api/v1/sessions/{id}/ssh",
    tag = "ssh",
    params(
        ("id" = SessionId, Path),
        ("token" = Option<String>, Query, description = "The token, where no header can be sent")
    ),
    responses(
        (status = SWITCHING_PROTOCOLS, description = "SSH over WebSocket messages follows"),
        (status = UPGRADE_REQUIRED, description = "Unsupported WebSocket version", body = ProblemDocument, content_type = "application/problem+json"),
        EndpointProblems
    )
)]
pub(crate) async fn connect(
    State(app): State<HttpApp>,
    Extension(principal): Extension<Principal>,
    PathParams(id): PathParams<SessionId>,
    request: Request,
) -> Result<Response, Problem> {
    let surface = app.control()?;
    let workspace = running(surface, id).await?;
    let Some(ssh) = &surface.ssh else {
        let detail = "SSH into sessions is not enabled on this server";
        return Err(Problem::new(ProblemKind::NotFound, detail));
    };
    let backend = workspace.backend.narrow(NarrowOptions::for_actor(principal))?;
    let server = SshServer::new(backend.clone(), ssh.settings.clone());
    let shutdown: CancellationToken = app.shutdown().clone();
    let target = SshTarget::Until { server, backend, shutdown };
    Ok(accept_ssh(request, &ssh.sockets, target))
}
