//! `GET /`: redirects browsers to the web page and tells other clients the name of the server.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::control::PageProblems;
use crate::access::Access;
use crate::app::HttpApp;
use crate::problem::Problem;

pub(super) fn routes() -> OpenApiRouter<HttpApp> {
    OpenApiRouter::default().routes(Access::Public.to(routes!(home)))
}

/// The name of the server
#[derive(Debug, Serialize, ToSchema)]
struct Greeting {
    #[schema(example = "agent-backend")]
    name: &'static str,
    /// The path of the OpenAPI description
    docs: &'static str,
}

/// The start page
///
/// Redirects a browser to `/ui`. Other clients get the name of the server.
#[utoipa::path(
    get,
    path = "/",
    tag = "page",
    responses(
        (status = OK, body = Greeting),
        (status = SEE_OTHER, description = "At /ui"),
        PageProblems
    )
)]
async fn home(State(app): State<HttpApp>, headers: HeaderMap) -> Result<Response, Problem> {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    if app.control().is_ok() && accepts.is_some_and(|accepts| accepts.contains("text/html")) {
        return Ok(Redirect::to("/ui").into_response());
    }
    if app.gateway().is_ok() {
        let greeting = Greeting { name: "agent-backend", docs: "/api/v1/openapi.json" };
        return Ok(Json(greeting).into_response());
    }
    Err(super::unknown().await)
}
