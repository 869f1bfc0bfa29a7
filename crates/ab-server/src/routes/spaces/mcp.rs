//! `/v1/spaces/{id}/mcp`: the workspace of a space as MCP tools, under the policy of the space.

use ab_api::SpaceId;
use axum::extract::{Request, State};
use axum::response::Response;

use super::problems::{SpaceProblems, of_spaces};
use crate::app::HttpApp;
use crate::extract::PathParams;
use crate::problem::Problem;
use crate::routes::mcp;

/// Send a message of the protocol to a space
///
/// If the policy requires an approval for a command, the call fails at once, and its response names
/// the approval. Once the approval is granted, the same command runs when it is repeated.
#[utoipa::path(
    post,
    path = "/v1/spaces/{id}/mcp",
    tag = "mcp",
    params(("id" = SpaceId, Path)),
    request_body(content = serde_json::Value, content_type = "application/json"),
    responses(
        (status = OK, description = "The answer", content((serde_json::Value = "application/json"), (String = "text/event-stream"))),
        (status = ACCEPTED, description = "Accepted; there is no response"),
        (status = NOT_ACCEPTABLE, description = "Accept does not list both response types"),
        (status = REQUEST_TIMEOUT, description = "The body did not arrive in time"),
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
        (status = OK, description = "The messages of the server", body = String, content_type = "text/event-stream"),
        (status = METHOD_NOT_ALLOWED, description = "The request names no MCP session"),
        (status = NOT_ACCEPTABLE, description = "Accept does not list text/event-stream"),
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

async fn answer(app: &HttpApp, id: SpaceId, request: Request) -> Result<Response, Problem> {
    let surface = app.spaces()?;
    let workspace = surface.spaces.space_workspace(id).await.map_err(of_spaces)?;
    let endpoint = surface.endpoint(id, workspace.backend());
    mcp::pass(app, endpoint, workspace.backend(), request).await
}
