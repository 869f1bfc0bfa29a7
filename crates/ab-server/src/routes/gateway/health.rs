//! `GET /v1/health`: a health check, which clients request before anything else.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::problems::GatewayProblems;
use crate::app::HttpApp;
use crate::problem::Problem;

/// The status of the gateway
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GatewayHealth {
    #[schema(example = "ok")]
    status: &'static str,
}

/// Check the health of the gateway
#[utoipa::path(
    get,
    path = "/v1/health",
    tag = "agents",
    responses((status = OK, body = GatewayHealth), GatewayProblems)
)]
pub(crate) async fn show(State(app): State<HttpApp>) -> Result<Json<GatewayHealth>, Problem> {
    app.gateway()?;
    Ok(Json(GatewayHealth { status: "ok" }))
}
