//! `/v1/approvals`: questions of agents, and the decisions on them.

use ab_api::{
    Approval, ApprovalDecision, ApprovalId, ApprovalStatus, Page, PageRequest, SessionId,
};
use ab_control::ControlPlaneError;
use ab_core::Principal;
use ab_store::ApprovalFilter;
use axum::extract::State;
use axum::{Extension, Json};
use serde::Deserialize;
use utoipa::IntoParams;

use super::problems::ApprovalProblems;
use super::{decided_by, of_approval, of_task, violated};
use crate::app::HttpApp;
use crate::extract::{JsonBytes, PathParams, QueryParams};
use crate::problem::{ErrorEnvelope, Problem};

/// Filters of the list of approvals
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(crate) struct ApprovalQuery {
    status: Option<ApprovalStatus>,
    session_id: Option<SessionId>,
}

/// List approvals, newest first
#[utoipa::path(
    get,
    path = "/v1/approvals",
    tag = "approvals",
    params(ApprovalQuery, PageRequest),
    responses((status = OK, body = Page<Approval>), ApprovalProblems)
)]
pub(crate) async fn list(
    State(app): State<HttpApp>,
    QueryParams(query): QueryParams<ApprovalQuery>,
    QueryParams(page): QueryParams<PageRequest>,
) -> Result<Json<Page<Approval>>, Problem> {
    let store = app.control()?.control.store();
    page.check().map_err(|violations| violated(&violations))?;
    let filter = ApprovalFilter { status: query.status, session: query.session_id };
    let approvals = store.approvals(filter, page).await;
    let (approvals, total) = approvals.map_err(|error| of_task(ControlPlaneError::from(error)))?;
    Ok(Json(page.build_page(approvals, total)))
}

/// Decide an approval
///
/// The first decision counts. Later ones get 409.
#[utoipa::path(
    post,
    path = "/v1/approvals/{id}",
    tag = "approvals",
    params(("id" = ApprovalId, Path)),
    request_body = ApprovalDecision,
    responses(
        (status = OK, description = "The approval with its decision", body = Approval),
        (status = BAD_REQUEST, description = "The body is not a decision", body = ErrorEnvelope),
        (status = CONFLICT, description = "It was decided before, or has expired", body = ErrorEnvelope),
        (status = PAYLOAD_TOO_LARGE, description = "The body has more than 2 MiB", body = ErrorEnvelope),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "The body is not declared as JSON", body = ErrorEnvelope),
        ApprovalProblems
    )
)]
pub(crate) async fn decide(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<ApprovalId>,
    Extension(principal): Extension<Principal>,
    JsonBytes(body): JsonBytes,
) -> Result<Json<Approval>, Problem> {
    let decision = ApprovalDecision::parse(&body).map_err(|violations| violated(&violations))?;
    let by = decided_by(&principal, "api");
    let decided = app.control()?.control.decide_approval(id, decision, by).await;
    decided.map(Json).map_err(|error| of_approval(id, error))
}
