//! Server-sent event streams. Every event has an id, and a reader that reconnects continues after
//! its last event.
//!
//! The source is a stream of events after a cursor, from the event log or from a test. A stream
//! ends at once when the server shuts down. A reader that reads nothing for the port's write
//! timeout is disconnected.

use std::convert::Infallible;
use std::fmt::Display;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use futures_util::{Stream, StreamExt};
use serde::Deserialize;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use utoipa::IntoParams;

use crate::extract::QueryParams;
use crate::problem::{Problem, ProblemKind};

/// The interval of comments while there are no events. The comments make proxies keep the
/// connection open.
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
/// The header `Last-Event-ID` takes precedence over the query parameter `after`. `?after=ID` is for
/// the first request. When a browser reconnects, it sends the header together with the query of its
/// first request.
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

/// Whether a client accepts JSON and does not accept an event stream.
pub(crate) fn wants_json(headers: &HeaderMap) -> bool {
    accepts(headers, "application/json") && !wants_stream(headers)
}

/// Whether a client accepts an event stream.
pub(crate) fn wants_stream(headers: &HeaderMap) -> bool {
    accepts(headers, "text/event-stream")
}

fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let values = headers.get_all(header::ACCEPT).iter();
    values.filter_map(|value| value.to_str().ok()).any(|value| value.contains(kind))
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

/// Responds with frames that are already encoded. While there are no frames, it sends heartbeats.
/// The response ends with the source, or when `shutdown` is cancelled.
pub(crate) fn frames<S>(source: S, shutdown: &CancellationToken, options: SseOptions) -> Response
where
    S: Stream<Item = Bytes> + Send + 'static,
{
    let frames = unfold(Box::pin(source), move |mut source| async move {
        match timeout(options.heartbeat, source.next()).await {
            Ok(frame) => Some((Ok::<_, Infallible>(frame?), source)),
            Err(_) => Some((Ok(Bytes::from_static(b": heartbeat\n\n")), source)),
        }
    });
    let frames = frames.take_until(shutdown.clone().cancelled_owned());
    let mut response = Body::from_stream(frames).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// Responds with the events of `source`. The response ends when the source ends or fails, or when
/// `shutdown` is cancelled. The reader can then reconnect with its cursor.
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
    // nginx buffers responses unless this header is set.
    response.headers_mut().insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    #[tokio::test]
    async fn frames_are_followed_by_heartbeats() {
        let options = SseOptions { heartbeat: Duration::from_millis(20) };
        let frame = Bytes::from_static(b"event: message\nid: 1\ndata: {}\n\n");
        let source = stream::iter([frame.clone()]).chain(stream::pending());
        let shutdown = CancellationToken::new();
        let answer = frames(source, &shutdown, options);
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/event-stream");
        let mut body = answer.into_body().into_data_stream();
        assert_eq!(body.next().await.unwrap().unwrap(), frame);
        for _ in 0..2 {
            assert_eq!(body.next().await.unwrap().unwrap(), ": heartbeat\n\n");
        }
        shutdown.cancel();
        assert!(body.next().await.is_none(), "a stream ends with the server");
        assert_eq!(SseOptions::default().heartbeat, Duration::from_secs(15));
    }
}
