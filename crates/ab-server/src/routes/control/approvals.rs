//! `/v1/approvals`: questions of agents and programs, and the decisions about them.

use std::time::Duration;

use ab_api::{
    Approval, ApprovalDecision, ApprovalId, ApprovalQuestion, ApprovalStatus, ApprovalUse,
    DecisionChannel, Page, PageRequest, SessionId,
};
use ab_control::ControlPlaneError;
use ab_core::Principal;
use ab_store::{ApprovalChange, ApprovalFilter, RequestedApproval, StoreError};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::StreamExt;
use serde::Deserialize;
use tokio::time::timeout;
use utoipa::IntoParams;

use super::problems::ApprovalProblems;
use super::{check_operator, decided_by, of_approval, of_task, violated};
use crate::app::HttpApp;
use crate::extract::{JsonBytes, PathParams, QueryParams, check_parameter_names};
use crate::problem::{ErrorEnvelope, Problem, ProblemKind};
use crate::sse::{self, Cursor, CursorParams, SseEvent, SseOptions};

/// The names of the parameters of the list.
const LIST_PARAMETERS: [&str; 5] = ["status", "sessionId", "page", "perPage", "after"];
/// Maximum time that one request waits for a decision.
const MAX_WAIT: Duration = Duration::from_secs(60);

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
/// With `Accept: text/event-stream`, the response is a stream. It first contains the approvals that
/// match, and then every approval that is created, decided or used, whatever its status, so that a
/// reader of pending approvals sees when one is decided. The id of an event is the number of the
/// change. If an approval changed several times while its reader was disconnected, only its latest
/// state is sent.
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
    uri: Uri,
) -> Result<Response, Problem> {
    check_parameter_names(&uri, &LIST_PARAMETERS)?;
    let store = app.control()?.control.store();
    page.check().map_err(|violations| violated(&violations))?;
    let filter = ApprovalFilter { status: query.status, session: query.session_id };
    if sse::wants_stream(&headers) {
        let changes = store.follow_approvals_and_changes(filter, cursor.0).into_stream();
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

/// How long to wait for a decision
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DecisionWait {
    /// Wait until the approval is decided or has expired, but at most this number of seconds. At
    /// most 60.
    #[param(maximum = 60)]
    wait: Option<u64>,
}

/// Show an approval, or wait for its decision
#[utoipa::path(
    get,
    path = "/v1/approvals/{id}",
    tag = "approvals",
    params(("id" = ApprovalId, Path), DecisionWait),
    responses(
        (status = OK, description = "The approval; with `wait` it may still be pending", body = Approval),
        ApprovalProblems
    )
)]
pub(crate) async fn show(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<ApprovalId>,
    QueryParams(DecisionWait { wait }): QueryParams<DecisionWait>,
) -> Result<Json<Approval>, Problem> {
    let wait = Duration::from_secs(wait.unwrap_or_default());
    if wait > MAX_WAIT {
        let detail = format!("invalid wait: must be at most {} seconds", MAX_WAIT.as_secs());
        return Err(Problem::new(ProblemKind::Invalid, detail));
    }
    let store = app.control()?.control.store();
    if !wait.is_zero() {
        tokio::select! {
            biased;
            () = app.shutdown().cancelled() => {}
            // Ignore an error here, because the read below reports it.
            _ = timeout(wait, store.wait_for_decision(id)) => {}
        }
    }
    let approval = store.get_approval(id).await;
    approval.map(Json).map_err(|error| of_approval(id, error.into()))
}

/// Ask for an approval
///
/// For programs outside the server, such as a program that contains an agent. The approval appears
/// in the same list and on the same page as those of sessions. If a program asks again with the
/// same `requester` and `digest`, it gets the approval of its first request, pending or decided,
/// until it uses the decision. Only the caller that asked can use the decision.
#[utoipa::path(
    post,
    path = "/v1/approvals",
    tag = "approvals",
    request_body = ApprovalQuestion,
    responses(
        (status = CREATED, description = "The new approval", body = Approval),
        (status = OK, description = "The approval that the program asked for before", body = Approval),
        (status = BAD_REQUEST, description = "A field is invalid", body = ErrorEnvelope),
        (status = CONFLICT, description = "An open approval has this digest and another text", body = ErrorEnvelope),
        (status = PAYLOAD_TOO_LARGE, description = "The body has more than 2 MiB", body = ErrorEnvelope),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "The body is not declared as JSON", body = ErrorEnvelope),
        (status = TOO_MANY_REQUESTS, description = "1000 approvals of programs are pending, or wrong tokens came", body = ErrorEnvelope),
        ApprovalProblems
    )
)]
pub(crate) async fn request(
    State(app): State<HttpApp>,
    Extension(principal): Extension<Principal>,
    JsonBytes(body): JsonBytes,
) -> Result<Response, Problem> {
    check_operator(&principal, "ask for approvals here")?;
    let question = ApprovalQuestion::parse(&body).map_err(|violations| violated(&violations))?;
    let requested = app.control()?.control.request_approval(&question, principal.to_string()).await;
    let RequestedApproval { approval, is_new } = requested.map_err(of_task)?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let location = [(header::LOCATION, format!("/v1/approvals/{}", approval.id))];
    Ok((status, location, Json(approval)).into_response())
}

/// Use the decision
///
/// The program that asked calls this immediately before it acts. A decision can be used once,
/// whether it is a yes or a no. A yes is valid for the digest of the question, until the approval
/// expires.
#[utoipa::path(
    post,
    path = "/v1/approvals/{id}/use",
    tag = "approvals",
    params(("id" = ApprovalId, Path)),
    request_body = ApprovalUse,
    responses(
        (status = OK, description = "The approval. Only if its status is `approved` may the program act", body = Approval),
        (status = BAD_REQUEST, description = "The body is not valid", body = ErrorEnvelope),
        (status = CONFLICT, description = "It is pending, was used, is about another digest, or another caller asked", body = ErrorEnvelope),
        (status = PAYLOAD_TOO_LARGE, description = "The body has more than 2 MiB", body = ErrorEnvelope),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "The body is not declared as JSON", body = ErrorEnvelope),
        ApprovalProblems
    )
)]
pub(crate) async fn use_answer(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<ApprovalId>,
    Extension(principal): Extension<Principal>,
    JsonBytes(body): JsonBytes,
) -> Result<Json<Approval>, Problem> {
    check_operator(&principal, "use approvals here")?;
    let ApprovalUse { digest } =
        ApprovalUse::parse(&body).map_err(|violations| violated(&violations))?;
    let used = app.control()?.control.use_approval(id, digest, principal.to_string()).await;
    used.map(Json).map_err(|error| of_approval(id, error))
}

/// Decide an approval
///
/// Only the first decision is accepted. Later decisions get 409, and so do decisions after the
/// expiry, and a yes if the subject is too large to be shown completely.
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
