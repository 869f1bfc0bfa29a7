//! `/v1/approvals`: questions of agents, and the decisions on them.

use ab_api::{
    Approval, ApprovalDecision, ApprovalId, ApprovalStatus, DecisionChannel, Page, PageRequest,
    SessionId,
};
use ab_control::ControlPlaneError;
use ab_core::Principal;
use ab_store::{ApprovalChange, ApprovalFilter, StoreError};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::StreamExt;
use serde::Deserialize;
use utoipa::IntoParams;

use super::problems::ApprovalProblems;
use super::{decided_by, of_approval, of_task, violated};
use crate::app::HttpApp;
use crate::extract::{JsonBytes, PathParams, QueryParams};
use crate::problem::{ErrorEnvelope, Problem};
use crate::sse::{self, Cursor, CursorParams, SseEvent, SseOptions};

/// Filters of the list of approvals
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(crate) struct ApprovalQuery {
    status: Option<ApprovalStatus>,
    session_id: Option<SessionId>,
}

/// List approvals, newest first
///
/// With `Accept: text/event-stream`, a stream: first the approvals that match, then every approval that is made,
/// decided or used, whatever its status, so that a reader of pending ones learns what no longer waits. The id of an
/// event counts the changes; an approval that changed several times while its reader was away comes once.
#[utoipa::path(
    get,
    path = "/v1/approvals",
    tag = "approvals",
    params(
        ApprovalQuery,
        PageRequest,
        CursorParams,
        ("last-event-id" = Option<u64>, Header, description = "The last event that the client received; overrides `after`")
    ),
    responses(
        (status = OK, description = "The approvals", content(
            (Page<Approval> = "application/json"),
            (String = "text/event-stream")
        )),
        ApprovalProblems
    )
)]
pub(crate) async fn list(
    State(app): State<HttpApp>,
    QueryParams(query): QueryParams<ApprovalQuery>,
    QueryParams(page): QueryParams<PageRequest>,
    cursor: Cursor,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let store = app.control()?.control.store();
    page.check().map_err(|violations| violated(&violations))?;
    let filter = ApprovalFilter { status: query.status, session: query.session_id };
    if sse::wants_stream(&headers) {
        let changes = store.follow_approvals(filter, cursor.0).into_stream();
        let events = changes.map(|change| {
            let ApprovalChange { revision, approval } = change?;
            let json = serde_json::to_string(&approval).map_err(|error| StoreError::Corrupt {
                what: "approval",
                problem: error.to_string(),
            })?;
            Ok::<_, StoreError>(SseEvent { id: revision, json })
        });
        return Ok(sse::answer(events, app.shutdown(), SseOptions::default()));
    }
    let approvals = store.list_approvals(filter, page).await;
    let (approvals, total) = approvals.map_err(|error| of_task(ControlPlaneError::from(error)))?;
    Ok(Json(page.build_response_page(approvals, total)).into_response())
}

/// Show an approval
#[utoipa::path(
    get,
    path = "/v1/approvals/{id}",
    tag = "approvals",
    params(("id" = ApprovalId, Path)),
    responses((status = OK, body = Approval), ApprovalProblems)
)]
pub(crate) async fn show(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<ApprovalId>,
) -> Result<Json<Approval>, Problem> {
    let approval = app.control()?.control.store().get_approval(id).await;
    approval.map(Json).map_err(|error| of_approval(id, error.into()))
}

/// Decide an approval
///
/// The first decision counts. Later ones get 409, as do decisions after the expiry, and a yes to something that is
/// too large to be shown whole.
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
        (status = UNSUPPORTED_MEDIA_TYPE, description = "The Content-Type is not JSON", body = ErrorEnvelope),
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
    let by = decided_by(&principal, &decision, DecisionChannel::Api)?;
    let decided = app.control()?.control.decide_approval(id, decision, by).await;
    decided.map(Json).map_err(|error| of_approval(id, error))
}
