//! `/api/v1/cleanup`: removes what is too old or too large, and reports the disk use.

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
    /// If true, nothing is removed, and the report lists what would be removed.
    #[serde(default)]
    dry_run: bool,
}

/// Remove what the retention settings allow to remove, now
///
/// The server also does this when it starts and every ten minutes. Workspaces and caches that a
/// running session uses are not removed.
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
