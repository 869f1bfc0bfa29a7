//! Event streams of one session and of all sessions.

use ab_api::{Event, FieldViolations, SessionId};
use ab_control::ControlPlaneError;
use ab_store::{EventLogScope, StoreError};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::problems::SessionProblems;
use super::{found, of_session, of_task, violated};
use crate::app::HttpApp;
use crate::extract::{PathParams, QueryParams};
use crate::problem::Problem;
use crate::sse::{self, Cursor, CursorParams, SseEvent, SseOptions};

/// Maximum number of events in one JSON response.
const MAX_HISTORY: usize = 1000;

/// A list of events
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventHistory {
    /// Oldest first
    items: Vec<Event>,
    /// The id of the last event: use it as `after` in the next request
    last_event_id: u64,
    /// Whether there are more events
    has_more: bool,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct HistoryQuery {
    /// Maximum number of events in a JSON response: 1 to 1,000, which is the default.
    limit: Option<usize>,
}

/// Follow the events of a session
///
/// The stream contains every event after the cursor, and ends with the session. A reader that
/// already has every event of an ended session gets 204. If the session has no event with the id of
/// the cursor yet, the id comes from before a restore, and the stream starts with the first event.
/// With `Accept: application/json` the response is the list of events so far.
#[utoipa::path(
    get,
    path = "/api/v1/sessions/{id}/events",
    tag = "sessions",
    params(
        ("id" = SessionId, Path),
        CursorParams,
        HistoryQuery,
        ("last-event-id" = Option<u64>, Header, description = "The last event that the client received; overrides `after`")
    ),
    responses(
        (status = OK, description = "The events", content(
            (String = "text/event-stream"),
            (EventHistory = "application/json")
        )),
        (status = NO_CONTENT, description = "The session has ended, and the client has received every event"),
        SessionProblems
    )
)]
pub(crate) async fn follow(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SessionId>,
    cursor: Cursor,
    QueryParams(HistoryQuery { limit }): QueryParams<HistoryQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let control = &app.control()?.control;
    let session = found(control, id).await?;
    let scope = EventLogScope::Session(id);
    let failed = |error: StoreError| of_session(id, error.into());
    let after = cursor.0.unwrap_or_default();
    let after = control.store().resume_cursor(scope, after).await.map_err(failed)?;
    if sse::wants_json(&headers) {
        let limit = limit.unwrap_or(MAX_HISTORY);
        if !(1..=MAX_HISTORY).contains(&limit) {
            let mut violations = FieldViolations::default();
            violations.add_invalid("limit", "must be 1 to 1000");
            return Err(violated(&violations));
        }
        let records = control.store().event_records(scope, after, limit).await.map_err(failed)?;
        let last_event_id = records.last().map_or(after, |record| record.seq);
        let rest = control.store().event_records(scope, last_event_id, 1).await.map_err(failed)?;
        let items = records.iter().map(|record| record.parse_event()).collect::<Result<_, _>>();
        let items = items.map_err(failed)?;
        return Ok(
            Json(EventHistory { items, last_event_id, has_more: !rest.is_empty() }).into_response()
        );
    }
    // Respond with 204, because a browser reconnects after the end of every other stream.
    if session.status.is_terminal()
        && control.store().event_records(scope, after, 1).await.map_err(failed)?.is_empty()
    {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let records = control.follow_events(scope, after).into_stream();
    let events = records
        .map(|record| record.map(|record| SseEvent { id: record.seq, json: record.json.clone() }));
    Ok(sse::answer(events, app.shutdown(), SseOptions::default()))
}

/// Follow the events of all sessions
///
/// Every event has the members `sessionId` and `seq`. Without a cursor the stream starts now. If
/// the log has no event with the id of the cursor yet, the stream starts with the first event.
#[utoipa::path(
    get,
    path = "/api/v1/events",
    tag = "sessions",
    params(
        CursorParams,
        ("last-event-id" = Option<u64>, Header, description = "The last event that the client received; overrides `after`")
    ),
    responses(
        (status = OK, description = "The events", body = String, content_type = "text/event-stream"),
        SessionProblems
    )
)]
pub(crate) async fn follow_all(
    State(app): State<HttpApp>,
    cursor: Cursor,
) -> Result<Response, Problem> {
    let control = &app.control()?.control;
    let after = match cursor.0 {
        Some(after) => control.store().resume_cursor(EventLogScope::All, after).await,
        None => control.store().last_event_position().await,
    };
    let after = after.map_err(|error| of_task(ControlPlaneError::from(error)))?;
    let records = control.follow_events(EventLogScope::All, after).into_stream();
    // Skip the events of runs and spaces, which the log also contains.
    let events = records.filter_map(|record| {
        let event = match record {
            Ok(record) if record.stream.session_id().is_none() => None,
            Ok(record) => {
                Some(Ok(SseEvent { id: record.position, json: record.json_with_session_id() }))
            }
            Err(error) => Some(Err(error)),
        };
        std::future::ready(event)
    });
    Ok(sse::answer(events, app.shutdown(), SseOptions::default()))
}
