//! `/api/v1/sessions/{id}/mcp`: the workspace of a running session as tools, for its agent.

use ab_api::SessionId;
use ab_control::ControlPlaneError;
use ab_executor::RunningSessionWorkspace;
use axum::extract::{Request, State};
use axum::response::Response;

use super::problems::EndpointProblems;
use super::{ControlPlaneRoutes, found, of_session};
use crate::app::HttpApp;
use crate::extract::PathParams;
use crate::problem::{Problem, ProblemKind};
use crate::routes::mcp;

/// Send an MCP message to a session's workspace
///
/// One JSON-RPC message, or an array of them if the protocol revision supports batches. The command
/// policy judges commands. If it requires an approval, the call waits until the approval is
/// decided.
#[utoipa::path(
    post,
    path = "/api/v1/sessions/{id}/mcp",
    tag = "mcp",
    params(
        ("id" = SessionId, Path),
        ("session" = Option<bool>, Query, description = "Begin an MCP session with this initialize"),
        ("MCP-Protocol-Version" = Option<String>, Header, description = "The revision of the protocol"),
        ("Mcp-Session-Id" = Option<String>, Header, description = "The MCP session, if there is one")
    ),
    request_body(content = serde_json::Value, content_type = "application/json"),
    responses(
        (status = OK, description = "The answer", content((serde_json::Value = "application/json"), (String = "text/event-stream"))),
        (status = ACCEPTED, description = "Accepted; there is no response"),
        (status = NOT_ACCEPTABLE, description = "Accept does not list both response types"),
        (status = REQUEST_TIMEOUT, description = "The body did not arrive in time"),
        (status = PAYLOAD_TOO_LARGE, description = "The body is too large"),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "The body is not JSON"),
        EndpointProblems
    )
)]
pub(crate) async fn call(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SessionId>,
    request: Request,
) -> Result<Response, Problem> {
    answer(&app, id, request).await
}

/// Listen to an MCP session of a session's workspace
#[utoipa::path(
    get,
    path = "/api/v1/sessions/{id}/mcp",
    tag = "mcp",
    params(
        ("id" = SessionId, Path),
        ("Mcp-Session-Id" = Option<String>, Header, description = "The MCP session")
    ),
    responses(
        (status = OK, description = "The messages of the server", body = String, content_type = "text/event-stream"),
        (status = METHOD_NOT_ALLOWED, description = "The request names no MCP session"),
        (status = NOT_ACCEPTABLE, description = "Accept does not list text/event-stream"),
        EndpointProblems
    )
)]
pub(crate) async fn listen(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SessionId>,
    request: Request,
) -> Result<Response, Problem> {
    answer(&app, id, request).await
}

/// End an MCP session of a session's workspace
#[utoipa::path(
    delete,
    path = "/api/v1/sessions/{id}/mcp",
    tag = "mcp",
    params(
        ("id" = SessionId, Path),
        ("Mcp-Session-Id" = Option<String>, Header, description = "The MCP session")
    ),
    responses(
        (status = ACCEPTED, description = "It has ended"),
        (status = METHOD_NOT_ALLOWED, description = "The request names no MCP session"),
        EndpointProblems
    )
)]
pub(crate) async fn end(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SessionId>,
    request: Request,
) -> Result<Response, Problem> {
    answer(&app, id, request).await
}

async fn answer(app: &HttpApp, id: SessionId, request: Request) -> Result<Response, Problem> {
    let RunningSessionWorkspace { backend, mcp: endpoint } = running(app.control()?, id).await?;
    mcp::pass(app, endpoint, &backend, request).await
}

/// The workspace of a running session.
///
/// # Errors
///
/// 409 if the agent of the session is not running, 410 if the session has ended.
pub(super) async fn running(
    surface: &ControlPlaneRoutes,
    id: SessionId,
) -> Result<RunningSessionWorkspace, Problem> {
    if let Some(workspace) = surface.endpoints.find(id) {
        return Ok(workspace);
    }
    let session = found(&surface.control, id).await?;
    if session.status.is_terminal() {
        return Err(of_session(id, ControlPlaneError::SessionEnded(session.status)));
    }
    let detail =
        format!("the agent of the session is not running: the session is {}", session.status);
    Err(Problem::new(ProblemKind::Conflict, detail).coded("not_running"))
}
