//! `/mcp`: the tools of the workspace. `ab-mcp` handles the content of requests.

use ab_core::Principal;
use ab_mcp::CallerAddress;
use axum::Extension;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};

use crate::app::HttpApp;
use crate::problem::Refusal;
use crate::routes::Peer;

/// Send an MCP message
///
/// One JSON-RPC message, or an array of them if the protocol revision supports batches. A call does
/// not require a handshake. The response is JSON, or an event stream if notifications precede the
/// result. With `?session=true`, `initialize` begins a session.
#[utoipa::path(
    post,
    path = "/mcp",
    tag = "mcp",
    params(
        ("session" = Option<bool>, Query, description = "Begin a session with this initialize"),
        ("X-Root-Dir" = Option<String>, Header, description = "The root directory that the client expects; another one is refused"),
        ("X-Scope-Path" = Option<String>, Header, description = "Work inside this directory of the workspace"),
        ("MCP-Protocol-Version" = Option<String>, Header, description = "The revision of the protocol"),
        ("Mcp-Session-Id" = Option<String>, Header, description = "The session, if there is one")
    ),
    request_body(content = serde_json::Value, content_type = "application/json"),
    responses(
        (status = OK, description = "The answer", content((serde_json::Value = "application/json"), (String = "text/event-stream"))),
        (status = ACCEPTED, description = "Accepted; there is no response"),
        (status = BAD_REQUEST, description = "No message, or invalid headers", body = Refusal),
        (status = FORBIDDEN, description = "The Host, Origin or root directory is not allowed", body = Refusal),
        (status = NOT_FOUND, description = "There is no such session, or the revision has no such method"),
        (status = NOT_ACCEPTABLE, description = "Accept does not list both response types"),
        (status = REQUEST_TIMEOUT, description = "The body did not arrive in time"),
        (status = CONFLICT, description = "A call with this id is not answered yet in this session"),
        (status = PAYLOAD_TOO_LARGE, description = "The body is too large"),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "The body is not JSON"),
        (status = INTERNAL_SERVER_ERROR, description = "The server is closing, or failed"),
        (status = SERVICE_UNAVAILABLE, description = "Too many large bodies, large answers or sessions at the same time")
    )
)]
pub(crate) async fn call(
    State(app): State<HttpApp>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> Response {
    answer(&app, &principal, request).await
}

/// Listen to a session
///
/// Only sessions have such a stream.
#[utoipa::path(
    get,
    path = "/mcp",
    tag = "mcp",
    params(("Mcp-Session-Id" = Option<String>, Header, description = "The session")),
    responses(
        (status = OK, description = "The messages of the server", body = String, content_type = "text/event-stream"),
        (status = BAD_REQUEST, description = "Invalid headers, or another scope than that of the session", body = Refusal),
        (status = FORBIDDEN, description = "The Host, Origin or root directory is not allowed", body = Refusal),
        (status = NOT_FOUND, description = "There is no such session"),
        (status = METHOD_NOT_ALLOWED, description = "The request names no session"),
        (status = NOT_ACCEPTABLE, description = "Accept does not list text/event-stream"),
        (status = CONFLICT, description = "Another client already listens to this session"),
        (status = INTERNAL_SERVER_ERROR, description = "The server is closing, or failed")
    )
)]
pub(crate) async fn listen(
    State(app): State<HttpApp>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> Response {
    answer(&app, &principal, request).await
}

/// End a session
#[utoipa::path(
    delete,
    path = "/mcp",
    tag = "mcp",
    params(("Mcp-Session-Id" = Option<String>, Header, description = "The session")),
    responses(
        (status = ACCEPTED, description = "It has ended"),
        (status = BAD_REQUEST, description = "Invalid headers, or another scope than that of the session", body = Refusal),
        (status = FORBIDDEN, description = "The Host, Origin or root directory is not allowed", body = Refusal),
        (status = NOT_FOUND, description = "There is no such session"),
        (status = METHOD_NOT_ALLOWED, description = "The request names no session"),
        (status = INTERNAL_SERVER_ERROR, description = "The server is closing, or failed")
    )
)]
pub(crate) async fn end(
    State(app): State<HttpApp>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> Response {
    answer(&app, &principal, request).await
}

async fn answer(app: &HttpApp, principal: &Principal, mut request: Request) -> Response {
    let daemon = match app.daemon() {
        Ok(daemon) => daemon,
        Err(problem) => return problem.into_response(),
    };
    let address = CallerAddress(Peer::of(&request));
    request.extensions_mut().insert(address);
    match daemon.view(request.headers(), principal) {
        Ok(backend) => daemon.mcp.handle_request(backend, request).await.map(Body::new),
        Err(problem) => problem.into_response(),
    }
}
