//! `/v1/spaces/{id}/mcp`: the workspace of a space as tools, under its policy.

use ab_api::SpaceId;
use ab_core::Principal;
use ab_mcp::CallerAddress;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;

use super::problems::{SpaceProblems, of_spaces};
use crate::app::HttpApp;
use crate::extract::PathParams;
use crate::problem::{Problem, ProblemKind};
use crate::routes::Peer;

/// Send a message of the protocol to a space
///
/// A command that the policy asks about fails at once; its answer names the approval. The same command runs when it
/// is repeated after a yes.
#[utoipa::path(
    post,
    path = "/v1/spaces/{id}/mcp",
    tag = "mcp",
    params(("id" = SpaceId, Path)),
    request_body(content = serde_json::Value, content_type = "application/json"),
    responses(
        (status = OK, description = "The answer", content((serde_json::Value = "application/json"), (String = "text/event-stream"))),
        (status = ACCEPTED, description = "Nothing to answer"),
        (status = NOT_ACCEPTABLE, description = "Accept does not name both kinds of answer"),
        (status = REQUEST_TIMEOUT, description = "The body did not come in time"),
        SpaceProblems
    )
)]
pub(crate) async fn call(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SpaceId>,
    request: Request,
) -> Result<Response, Problem> {
    answer(&app, id, request).await
}

/// Listen to an MCP session of a space
#[utoipa::path(
    get,
    path = "/v1/spaces/{id}/mcp",
    tag = "mcp",
    params(("id" = SpaceId, Path)),
    responses(
        (status = OK, description = "What the server says", body = String, content_type = "text/event-stream"),
        (status = METHOD_NOT_ALLOWED, description = "The request names no MCP session"),
        (status = NOT_ACCEPTABLE, description = "Accept does not name text/event-stream"),
        SpaceProblems
    )
)]
pub(crate) async fn listen(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SpaceId>,
    request: Request,
) -> Result<Response, Problem> {
    answer(&app, id, request).await
}

/// End an MCP session of a space
#[utoipa::path(
    delete,
    path = "/v1/spaces/{id}/mcp",
    tag = "mcp",
    params(("id" = SpaceId, Path)),
    responses(
        (status = ACCEPTED, description = "It has ended"),
        (status = METHOD_NOT_ALLOWED, description = "The request names no MCP session"),
        SpaceProblems
    )
)]
pub(crate) async fn end(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SpaceId>,
    request: Request,
) -> Result<Response, Problem> {
    answer(&app, id, request).await
}

async fn answer(app: &HttpApp, id: SpaceId, mut request: Request) -> Result<Response, Problem> {
    let surface = app.spaces()?;
    let workspace = surface.spaces.workspace(id).await.map_err(of_spaces)?;
    let mcp = surface.endpoint(id, workspace.backend());
    let backend = match request.extensions().get::<Principal>().cloned() {
        Some(principal) => workspace.backend_for(principal).map_err(Problem::from)?,
        None => workspace.backend().clone(),
    };
    let address = CallerAddress(Peer::of(&request));
    request.extensions_mut().insert(address);
    tokio::select! {
        biased;
        () = app.shutdown().cancelled() => {
            Err(Problem::new(ProblemKind::Unavailable, "the server is shutting down"))
        }
        answer = mcp.handle(backend, request) => Ok(answer.map(Body::new)),
    }
}
