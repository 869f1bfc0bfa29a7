//! `/api/v1/cleanup`: removes what is too old or too large, and reports what is occupied.

use ab_api::CleanupReport;
use ab_control::CleanupMode;
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use utoipa::IntoParams;

use super::of_task;
use super::problems::SessionProblems;
use crate::app::HttpApp;
use crate::extract::QueryParams;
use crate::problem::Problem;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(crate) struct CleanupQuery {
    /// Whether nothing is removed: the report says what would be.
    #[serde(default)]
    dry_run: bool,
}

/// Remove what the retention settings allow to remove, now
///
/// The server does the same at its start and every ten minutes. Nothing that a session at work uses is removed.
#[utoipa::path(
    post,
    path = "/api/v1/cleanup",
    tag = "operation",
    params(CleanupQuery),
    responses((status = OK, body = CleanupReport), SessionProblems)
)]
pub(crate) async fn run(
    State(app): State<HttpApp>,
    QueryParams(CleanupQuery { dry_run }): QueryParams<CleanupQuery>,
) -> Result<Json<CleanupReport>, Problem> {
    let mode = if dry_run { CleanupMode::DryRun } else { CleanupMode::Remove };
    app.control()?.control.clean_up(mode).await.map(Json).map_err(of_task)
}
