//! Event streams: every event has an id, and a reader that comes back continues after the last one.
//!
//! The source is a stream of events after a cursor; the event log and tests each bring their own. A
//! stream ends at once when the server shuts down. A reader that accepts no bytes for the stall time
//! of the port is disconnected by the connection itself.

use std::convert::Infallible;
use std::fmt::Display;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use utoipa::IntoParams;

use crate::extract::QueryParams;
use crate::problem::{Problem, ProblemKind};

/// How often a comment is sent where there is no event, so that proxies keep the connection.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// One event: its id in the stream, and its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SseEvent {
    pub(crate) id: u64,
    /// The data, as JSON on one line.
    pub(crate) json: String,
}

/// The id of the last event that a reader has, if it has one.
///
/// The header `Last-Event-ID` decides. A browser sends it when it reconnects, together with the query
/// of its first request; `?after=ID` is for that first request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cursor(pub(crate) Option<u64>);

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct CursorParams {
    /// The id of the last event that the reader has.
    after: Option<u64>,
}

impl<S: Send + Sync> FromRequestParts<S> for Cursor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        if let Some(value) = parts.headers.get(&LAST_EVENT_ID) {
            let id = value.to_str().ok().and_then(|text| text.parse().ok());
            let detail = "invalid Last-Event-ID: must be the id of an event of this stream";
            return id
                .map(|id| Cursor(Some(id)))
                .ok_or_else(|| Problem::new(ProblemKind::Invalid, detail));
        }
        let QueryParams(CursorParams { after }) =
            QueryParams::from_request_parts(parts, state).await?;
        Ok(Cursor(after))
    }
}

/// Settings of an event stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SseOptions {
    pub(crate) heartbeat: Duration,
}

impl Default for SseOptions {
    fn default() -> Self {
        Self { heartbeat: HEARTBEAT }
    }
}

/// Answers with the events of `source`. The answer ends with the source, with its first error, or
/// when `shutdown` is cancelled; the reader then comes back with its cursor.
pub(crate) fn answer<S, E>(source: S, shutdown: &CancellationToken, options: SseOptions) -> Response
where
    S: Stream<Item = Result<SseEvent, E>> + Send + 'static,
    E: Display,
{
    let events = source
        .scan((), |(), event| {
            std::future::ready(match event {
                Ok(event) => Some(event),
                Err(error) => {
                    tracing::warn!(%error, "an event stream ended early");
                    None
                }
            })
        })
        .map(|SseEvent { id, json }| {
            Ok::<_, Infallible>(Event::default().id(id.to_string()).data(json))
        })
        .take_until(shutdown.clone().cancelled_owned());
    let heartbeat = KeepAlive::new().interval(options.heartbeat).text("");
    let mut response = Sse::new(events).keep_alive(heartbeat).into_response();
    // nginx buffers answers unless it is told not to.
    response.headers_mut().insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}
