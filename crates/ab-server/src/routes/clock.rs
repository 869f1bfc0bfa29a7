//! `GET /api/v1/clock`: the time of the server.

use ab_api::Time;
use axum::Json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Access;
use crate::app::HttpApp;

pub(super) fn routes() -> OpenApiRouter<HttpApp> {
    OpenApiRouter::default().routes(Access::Admin.to(routes!(clock)))
}

/// The time of the server
#[utoipa::path(get, path = "/api/v1/clock", tag = "port", responses((status = OK, body = Time)))]
async fn clock() -> Json<Time> {
    Json(Time::now())
}
