//! `POST /api/v1/sessions/{id}/open/ide`: tells how to open the workspace of a session in an IDE.

use ab_api::{
    Ide, LocalWorkspaceAccess, OpenIdeRequest, OpenIdeResponse, Session, SessionId, SessionStatus,
    SshWorkspaceAccess,
};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::{Extension, Json};

use super::problems::SessionProblems;
use super::sessions::store_failed;
use super::{ControlPlaneRoutes, Locality, found, violated};
use crate::app::HttpApp;
use crate::connections::Encryption;
use crate::extract::PathParams;
use crate::problem::{Problem, ProblemDocument, ProblemKind};
use crate::routes::Peer;

/// The header with which a proxy names the scheme of the original request.
const FORWARDED_SCHEME: &str = "x-forwarded-proto";
const AGENT_WRITES: &str = "The agent can write these files: a program that runs code from them, such as git, make or an \
     IDE that trusts them, runs it as you.";

/// Say how the workspace of a session is opened in an IDE
///
/// A caller on the server's machine gets the directory and the command. For a running session every
/// caller also gets the SSH command. The server does not start a program: `agent-backend session
/// run` starts it on the caller's machine.
#[utoipa::path(
    post,
    path = "/api/v1/sessions/{id}/open/ide",
    tag = "sessions",
    params(("id" = SessionId, Path)),
    request_body = OpenIdeRequest,
    responses(
        (status = OK, body = OpenIdeResponse),
        (status = CONFLICT, description = "The session has no workspace yet", body = ProblemDocument, content_type = "application/problem+json"),
        (status = GONE, description = "The workspace was removed, or another session continues it", body = ProblemDocument, content_type = "application/problem+json"),
        (status = UNPROCESSABLE_ENTITY, description = "The IDE is not known", body = ProblemDocument, content_type = "application/problem+json"),
        (status = PAYLOAD_TOO_LARGE, description = "The body has more than 2 MiB", body = ProblemDocument, content_type = "application/problem+json"),
        SessionProblems
    )
)]
pub(crate) async fn open(
    State(app): State<HttpApp>,
    Extension(peer): Extension<Peer>,
    encryption: Option<Extension<Encryption>>,
    PathParams(id): PathParams<SessionId>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<OpenIdeResponse>, Problem> {
    let surface = app.control()?;
    let ide = OpenIdeRequest::parse(&body).map_err(|violations| violated(&violations))?;
    let session = found(&surface.control, id).await?;
    let path = workspace(surface, &session).await?;
    let local = match Locality::of(peer.0, &headers) {
        Locality::ThisMachine => Some(LocalWorkspaceAccess {
            command: ide.map(|ide| vec![ide.program.to_owned(), path.clone()]).unwrap_or_default(),
            path,
        }),
        Locality::Elsewhere => None,
    };
    let is_encrypted = encryption.is_some_and(|Extension(it)| it == Encryption::Tls)
        || headers.get(FORWARDED_SCHEME).is_some_and(|scheme| scheme == "https");
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let is_reachable = surface.ssh.is_some()
        && matches!(session.status, SessionStatus::Running | SessionStatus::Paused);
    let scheme = if is_encrypted { "wss" } else { "ws" };
    let ssh = host.filter(|_| is_reachable).map(|host| ssh(&format!("{scheme}://{host}"), id));
    let mut notes = Vec::new();
    if local.is_some() {
        notes.push(AGENT_WRITES.to_owned());
    }
    if !is_reachable {
        notes.push(format!(
            "The session is {}: only a running one is reached by SSH.",
            session.status
        ));
    }
    Ok(Json(OpenIdeResponse {
        session_id: id,
        ide: ide.map(|ide| ide.id.to_owned()),
        local,
        ssh,
        not_yet: ide.filter(|ide| ide.needs_port_forwarding).map(not_yet).into_iter().collect(),
        notes,
    }))
}

/// The directory of the workspace.
///
/// # Errors
///
/// Fails if the workspace is not made yet or no longer exists.
async fn workspace(surface: &ControlPlaneRoutes, session: &Session) -> Result<String, Problem> {
    let made = surface.control.store().pending_cleanups(Some(session.id)).await;
    let made = made.map_err(store_failed)?;
    match &session.workspace.mount_path {
        Some(path) if !made.is_empty() => Ok(path.clone()),
        Some(_) => {
            let detail = "the workspace was removed, or another session continues it";
            Err(Problem::new(ProblemKind::Gone, detail).coded("workspace_gone"))
        }
        None if session.status.is_terminal() => {
            let detail = "the session ended before it had a workspace";
            Err(Problem::new(ProblemKind::Gone, detail).coded("workspace_gone"))
        }
        None => {
            let detail = format!("the session is {}: it has no workspace yet", session.status);
            Err(Problem::new(ProblemKind::Conflict, detail).coded("no_workspace"))
        }
    }
}

/// The commands for the standard `ssh` and `sftp` through the WebSocket of the session.
fn ssh(server: &str, id: SessionId) -> SshWorkspaceAccess {
    let url = format!("{server}/api/v1/sessions/{id}/ssh");
    let proxy = format!("ProxyCommand=agent-backend ssh-proxy --token-file TOKEN_FILE {url}");
    let command = |program: &str| [program, "-o", &proxy, "session"].map(str::to_owned).to_vec();
    SshWorkspaceAccess { command: command("ssh"), sftp: command("sftp"), url }
}

fn not_yet(ide: &Ide) -> String {
    format!(
        "{} on another machine works by a program of its own there and needs port forwarding, which the SSH of \
         sessions does not have yet.",
        ide.title
    )
}
