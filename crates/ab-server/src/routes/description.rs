//! `GET /api/v1/openapi.json`: the description of the whole port.

use axum::Json;
use axum::extract::State;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Access;
use crate::app::HttpApp;

pub(super) fn routes() -> OpenApiRouter<HttpApp> {
    OpenApiRouter::default().routes(Access::Admin.to(routes!(describe)))
}

/// Show the OpenAPI description of this port
#[utoipa::path(
    get,
    path = "/api/v1/openapi.json",
    tag = "port",
    responses(
        (status = OK, description = "The description, in OpenAPI", content_type = "application/json")
    )
)]
async fn describe(State(app): State<HttpApp>) -> Json<OpenApi> {
    Json(super::description_of(&app))
}
