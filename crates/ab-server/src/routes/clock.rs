//! `GET /api/v1/clock`: what time it is for the server.

use ab_api::Time;
use axum::Json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Access;
use crate::app::App;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(Access::Public.to(routes!(clock)))
}

/// The time of the server
#[utoipa::path(get, path = "/api/v1/clock", tag = "port", responses((status = OK, body = Time)))]
async fn clock() -> Json<Time> {
    Json(Time::now())
}
