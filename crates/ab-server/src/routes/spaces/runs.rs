//! `/v1/spaces/{id}/runs` and `/v1/runs`: performs operations, and shows, resumes and cancels runs.

use ab_api::{ApproveOrDeny, DecisionChannel, PageRequest, Run, RunId, SpaceId};
use ab_core::Principal;
use ab_spaces::{EventsMessage, MAX_MESSAGE_BYTES, MessageStatus, OperationsMessage};
use ab_store::EventLogScope;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::envelope::Enveloped;
use super::problems::{SpaceProblems, invalid, of_spaces};
use super::space::check;
use super::{OnSpaces, request_key};
use crate::app::HttpApp;
use crate::extract::{JsonBody, QueryParams, check_parameter_names};
use crate::problem::{Problem, ProblemKind};
use crate::routes::control::decided_by;
use crate::sse::{self, Cursor, CursorParams, SseOptions};

const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
/// The preference for a response before the run has ended.
const RESPOND_ASYNC: &str = "respond-async";

/// A run with all its events
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunBody {
    #[serde(flatten)]
    run: Run,
    protocol_version: &'static str,
    run_id: RunId,
    #[schema(value_type = Vec<Object>)]
    events: Vec<Value>,
    /// The operations as they were sent, with their ids, if the request asks for operations
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    operations: Option<Vec<Value>>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ShowQuery {
    /// Whether the response includes the operations.
    operations: Option<bool>,
}

/// The decision about the operation for which a run waits
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResumeRequest {
    approval: ResumeDecision,
}

/// The operation, and whether it is approved or denied
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ResumeDecision {
    operation_id: String,
    decision: ApprovedOrDenied,
    reason: Option<String>,
}

/// The decision: approved or denied
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ApprovedOrDenied {
    Approved,
    Denied,
}

/// Perform operations
///
/// The response is sent when the run has ended (201) or waits for an approval (200). The run
/// continues if the client disconnects. With `Prefer: respond-async` the response is sent at once,
/// with the current state of the run (202). If the message is not valid, the response is 400 with
/// every issue, and nothing is performed.
#[utoipa::path(
    post,
    path = "/v1/spaces/{id}/runs",
    tag = "spaces",
    params(
        ("id" = SpaceId, Path),
        ("idempotency-key" = Option<String>, Header, description = "Identifies the request, so that a retry has no further effect"),
        ("prefer" = Option<String>, Header, description = "`respond-async`: do not wait for the run")
    ),
    request_body = OperationsMessage,
    responses(
        (status = CREATED, description = "The run has ended", body = Enveloped<EventsMessage>),
        (status = OK, description = "The run waits for an approval", body = Enveloped<EventsMessage>),
        (status = ACCEPTED, description = "The run is stored; the request asked not to wait", body = Enveloped<RunBody>),
        SpaceProblems
    )
)]
pub(crate) async fn create(
    on: OnSpaces<SpaceId>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let (spaces, id) = (&on.spaces, on.id);
    let body =
        axum::body::to_bytes(request.into_body(), MAX_MESSAGE_BYTES).await.map_err(|_| {
            let detail =
                format!("the message has more than {MAX_MESSAGE_BYTES} bytes, or ended early");
            Problem::new(ProblemKind::TooLarge, detail).coded("validation_error")
        })?;
    let message = ab_spaces::parse_operations_bytes(&body).map_err(|error| invalid(&error))?;
    let key = request_key(&headers, &principal, &format!("runs:{id}"), &body)?;
    let created = spaces.create_run(id, message, &principal, key).await.map_err(of_spaces)?;
    let location = [(header::LOCATION, format!("/v1/runs/{}", created.id))];
    if wants_no_wait(&headers) {
        let shown = body_of(spaces.get_run(created.id).await, spaces, created.id).await?;
        let applied = [(PREFERENCE_APPLIED, RESPOND_ASYNC)];
        return Ok((StatusCode::ACCEPTED, location, applied, on.answer(shown)).into_response());
    }
    let message = spaces.wait_for_run_events(created.id, 0).await.map_err(of_spaces)?;
    Ok((told(&message), location, on.answer(message)).into_response())
}

/// Whether the client prefers a response before the run has ended.
fn wants_no_wait(headers: &HeaderMap) -> bool {
    let values = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    let mut preferences = values.flat_map(|value| value.split([',', ';']));
    preferences.any(|preference| preference.trim().eq_ignore_ascii_case(RESPOND_ASYNC))
}

/// List the runs of a space, newest first
#[utoipa::path(
    get,
    path = "/v1/spaces/{id}/runs",
    tag = "spaces",
    params(("id" = SpaceId, Path), PageRequest),
    responses((status = OK, body = Enveloped<Vec<Run>>), SpaceProblems)
)]
pub(crate) async fn list(
    on: OnSpaces<SpaceId>,
    QueryParams(page): QueryParams<PageRequest>,
    uri: Uri,
) -> Result<Json<Enveloped<Vec<Run>>>, Problem> {
    check_parameter_names(&uri, &["page", "perPage"])?;
    check(page)?;
    on.spaces.get_space(on.id).await.map_err(of_spaces)?;
    let runs = on.spaces.store().list_runs(on.id, page).await;
    let (runs, total) = runs.map_err(|error| of_spaces(error.into()))?;
    Ok(Json(Enveloped::page(runs, total, page, &on.request_id)))
}

/// Show a run with all its events
#[utoipa::path(
    get,
    path = "/v1/runs/{id}",
    tag = "spaces",
    params(("id" = RunId, Path), ShowQuery),
    responses((status = OK, body = Enveloped<RunBody>), SpaceProblems)
)]
pub(crate) async fn show(
    on: OnSpaces<RunId>,
    QueryParams(query): QueryParams<ShowQuery>,
) -> Result<Json<Enveloped<RunBody>>, Problem> {
    let mut shown = body_of(on.spaces.get_run(on.id).await, &on.spaces, on.id).await?;
    if query.operations == Some(true) {
        shown.operations = Some(on.spaces.run_operations(on.id).await.map_err(of_spaces)?);
    }
    Ok(on.answer(shown))
}

async fn body_of(
    run: Result<Run, ab_spaces::SpacesError>,
    spaces: &ab_spaces::Spaces,
    id: RunId,
) -> Result<RunBody, Problem> {
    let run = run.map_err(of_spaces)?;
    let events = spaces.run_events(id).await.map_err(of_spaces)?;
    let protocol_version = ab_spaces::PROTOCOL_VERSION;
    Ok(RunBody { run, protocol_version, run_id: id, events, operations: None })
}

/// Decide the operation that a run waits with
///
/// The response is sent when the run has ended (201) or waits again (200). It contains the events
/// since the decision.
#[utoipa::path(
    post,
    path = "/v1/runs/{id}/resume",
    tag = "spaces",
    params(("id" = RunId, Path)),
    request_body = ResumeRequest,
    responses(
        (status = CREATED, description = "The run has ended", body = Enveloped<EventsMessage>),
        (status = OK, description = "The run waits for another approval", body = Enveloped<EventsMessage>),
        SpaceProblems
    )
)]
pub(crate) async fn resume(
    on: OnSpaces<RunId>,
    Extension(principal): Extension<Principal>,
    JsonBody(request): JsonBody<ResumeRequest>,
) -> Result<Response, Problem> {
    let ResumeDecision { operation_id, decision, reason } = request.approval;
    let decision = match decision {
        ApprovedOrDenied::Approved => ApproveOrDeny::Approve,
        ApprovedOrDenied::Denied => ApproveOrDeny::Deny,
    };
    let by = decided_by(&principal, &decision.into(), DecisionChannel::Api)?;
    let resumed = on.spaces.resume_run(on.id, &operation_id, decision, reason, by).await;
    let message = resumed.map_err(of_spaces)?;
    Ok((told(&message), on.answer(message)).into_response())
}

/// Cancel a run
///
/// The current operation is stopped, and the remaining ones are not performed.
#[utoipa::path(
    post,
    path = "/v1/runs/{id}/cancel",
    tag = "spaces",
    params(("id" = RunId, Path)),
    responses((status = OK, body = Enveloped<RunBody>), SpaceProblems)
)]
pub(crate) async fn cancel(on: OnSpaces<RunId>) -> Result<Json<Enveloped<RunBody>>, Problem> {
    let cancelled = on.spaces.cancel_run(on.id).await;
    Ok(on.answer(body_of(cancelled, &on.spaces, on.id).await?))
}

/// Follow a run
///
/// Server-sent events: `operation` when an operation starts, `output` while a command runs, `event`
/// with an event of the protocol, `parked` when the run waits for an approval, and `complete` at
/// the end. A reader that already has everything of an ended run gets 204. If the run has no event
/// with the id of the cursor yet, the stream starts with the first event.
#[utoipa::path(
    get,
    path = "/v1/runs/{id}/stream",
    tag = "spaces",
    params(
        ("id" = RunId, Path),
        CursorParams,
        ("last-event-id" = Option<u64>, Header, description = "The last event that the client received; overrides `after`")
    ),
    responses(
        (status = OK, description = "The events", body = String, content_type = "text/event-stream"),
        (status = NO_CONTENT, description = "The run has ended, and the client has received every event"),
        SpaceProblems
    )
)]
pub(crate) async fn stream(
    State(app): State<HttpApp>,
    OnSpaces { spaces, id, .. }: OnSpaces<RunId>,
    cursor: Cursor,
) -> Result<Response, Problem> {
    let run = spaces.get_run(id).await.map_err(of_spaces)?;
    let store = spaces.store();
    let scope = EventLogScope::Run(id);
    let after = store.resume_cursor(scope, cursor.0.unwrap_or_default()).await;
    let after = after.map_err(|error| of_spaces(error.into()))?;
    let rest = store.event_records(scope, after, 1).await;
    let rest = rest.map_err(|error| of_spaces(error.into()))?;
    if run.status.is_terminal() && rest.is_empty() {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let records = store.follow_events(scope, after).into_stream();
    let frames = records.filter_map(|record| {
        let frame = record.ok().map(|record| {
            let (kind, seq, json) = (&record.kind, record.seq, &record.json);
            Bytes::from(format!("event: {kind}\nid: {seq}\ndata: {json}\n\n"))
        });
        std::future::ready(frame)
    });
    Ok(sse::frames(frames, app.shutdown(), SseOptions::default()))
}

/// The status of the response: 201 if the run has ended, 200 if it waits.
fn told(message: &EventsMessage) -> StatusCode {
    match message.status {
        MessageStatus::AwaitingApproval => StatusCode::OK,
        MessageStatus::Completed | MessageStatus::Error => StatusCode::CREATED,
    }
}
