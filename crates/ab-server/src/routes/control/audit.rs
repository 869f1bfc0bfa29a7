//! `GET /api/v1/sessions/{id}/audit`: which caller did what to a session.

use ab_api::{AuditEntry, Page, PageRequest, SessionId};
use axum::Json;
use axum::extract::State;

use super::problems::SessionProblems;
use super::sessions::store_failed;
use super::{found, violated};
use crate::app::HttpApp;
use crate::extract::{PathParams, QueryParams};
use crate::problem::Problem;

/// List who did what to a session, oldest first
///
/// The list contains the requests that changed the session or tried to change it, and the calls on
/// its endpoint, with their outcomes. At most 10,000 entries of each source are stored.
#[utoipa::path(
    get,
    path = "/api/v1/sessions/{id}/audit",
    tag = "sessions",
    params(("id" = SessionId, Path), PageRequest),
    responses((status = OK, body = Page<AuditEntry>), SessionProblems)
)]
pub(crate) async fn list(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SessionId>,
    QueryParams(page): QueryParams<PageRequest>,
) -> Result<Json<Page<AuditEntry>>, Problem> {
    let control = &app.control()?.control;
    page.check().map_err(|violations| violated(&violations))?;
    found(control, id).await?;
    let (items, total) =
        control.store().list_audit_entries(id, page).await.map_err(store_failed)?;
    Ok(Json(page.build_response_page(items, total)))
}
