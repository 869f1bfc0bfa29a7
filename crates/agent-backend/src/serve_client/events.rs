//! The events of a session as a stream that survives lost connections.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use ab_api::{Event, EventKind, SessionId};
use ab_core::{Error, ErrorCode, ErrorKind, Result};
use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use tokio::time::{Instant, sleep, timeout};

use super::sse::{SseMessage, SseParser};
use super::{SessionClient, is_final, problem, session_path};
use crate::exchange::{self, Answer};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
/// A server sends a comment every 15 seconds. A connection that is silent for longer than this is dead.
const SILENCE: Duration = Duration::from_secs(45);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// An event and its place in the stream of its session.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamedEvent {
    /// The cursor: [`SessionClient::events_after`] continues after it.
    pub id: u64,
    pub event: Event,
}

/// The events of one session. After a lost connection it continues after the last event that it
/// returned.
pub struct EventStream {
    client: SessionClient,
    session: SessionId,
    after: u64,
    connection: Option<Connection>,
    ready: VecDeque<StreamedEvent>,
    has_ended: bool,
    /// When the server was first unreachable, and the delay before the next attempt.
    outage: Option<Outage>,
}

struct Connection {
    body: Answer,
    parser: SseParser,
}

#[derive(Clone, Copy)]
struct Outage {
    since: Instant,
    pause: Duration,
}

impl EventStream {
    pub(super) fn new(client: SessionClient, session: SessionId, after: u64) -> Self {
        let (connection, ready, outage) = (None, VecDeque::new(), None);
        Self { client, session, after, connection, ready, has_ended: false, outage }
    }

    /// The next event; `None` after the event that ends the session. Events of unknown types are
    /// skipped. The future may be dropped without losing an event.
    ///
    /// # Errors
    ///
    /// The server's error instead of events, or [`ErrorKind::Disconnected`] after the server was
    /// unreachable for [`reconnect_timeout`](super::SessionClientSettings::reconnect_timeout).
    pub async fn next(&mut self) -> Result<Option<StreamedEvent>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.after = event.id;
                self.has_ended = is_last(&event.event);
                return Ok(Some(event));
            }
            if self.has_ended {
                return Ok(None);
            }
            let received: Received<'_> = Box::pin(self.receive());
            match received.await {
                Ok(()) => self.outage = None,
                Err(StreamError::Refused(error)) => return Err(error),
                Err(StreamError::Lost(error)) => self.pause(error).await?,
            }
        }
    }

    /// Waits for bytes, and for a connection if there is none.
    async fn receive(&mut self) -> Result<(), StreamError> {
        if self.connection.is_none() {
            self.connection = connect(&self.client, self.session, self.after).await?;
            self.has_ended = self.connection.is_none();
        }
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let name = &self.client.name;
        let lost = |message: String| {
            StreamError::Lost(Error::new(
                ErrorCode::ConnectionClosed,
                ErrorKind::Disconnected,
                message,
            ))
        };
        let received = match timeout(SILENCE, connection.body.frame()).await {
            Ok(Some(Ok(frame))) => Ok(frame.into_data().unwrap_or_default()),
            Ok(Some(Err(error))) => Err(StreamError::Lost(exchange::lost(name, error))),
            Ok(None) => Err(lost(format!("{name} closed the event stream"))),
            Err(_) => Err(lost(format!("{name} was silent for {} s", SILENCE.as_secs()))),
        };
        let bytes = received.inspect_err(|_| self.connection = None)?;
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let messages = connection.parser.push(&bytes).map_err(StreamError::Refused)?;
        self.ready.extend(messages.into_iter().filter_map(parsed));
        Ok(())
    }

    /// Waits before the next attempt, or gives up with `error`.
    async fn pause(&mut self, error: Error) -> Result<()> {
        let now = Instant::now();
        let first = Outage { since: now, pause: FIRST_PAUSE };
        let outage = self.outage.get_or_insert(first);
        if now.duration_since(outage.since) >= self.client.reconnect_for {
            return Err(error);
        }
        let pause = outage.pause;
        outage.pause = (pause * 2).min(LONGEST_PAUSE);
        sleep(pause).await;
        Ok(())
    }
}

/// A connection that carries events; `None` if the session has ended and no event is left.
async fn connect(
    client: &SessionClient,
    session: SessionId,
    after: u64,
) -> Result<Option<Connection>, StreamError> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, EVENT_STREAM);
    if after > 0 {
        headers.insert(LAST_EVENT_ID, HeaderValue::from(after));
    }
    let path = session_path(session, "/events");
    let sent = client.send(Method::GET, &path, Bytes::new(), headers).await;
    let (head, body) = sent.map_err(StreamError::of_connection)?.into_parts();
    if head.status == StatusCode::NO_CONTENT {
        return Ok(None);
    }
    if head.status.is_success() {
        return Ok(Some(Connection { body, parser: SseParser::default() }));
    }
    let body = client.read(body).await.map_err(StreamError::Lost)?;
    let error = problem::error(&client.name, head.status, &head.headers, &body);
    let refused = is_final(head.status);
    Err(if refused { StreamError::Refused(error) } else { StreamError::Lost(error) })
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("EventStream");
        shown.field("session", &self.session).field("after", &self.after).finish_non_exhaustive()
    }
}

/// A boxed future keeps the connection's types out of the callers' futures.
type Received<'a> = Pin<Box<dyn Future<Output = Result<(), StreamError>> + Send + 'a>>;

enum StreamError {
    /// Another attempt may succeed.
    Lost(Error),
    /// Another attempt would fail in the same way.
    Refused(Error),
}

impl StreamError {
    fn of_connection(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Disconnected
            | ErrorKind::Unavailable
            | ErrorKind::Timeout
            | ErrorKind::Io => Self::Lost(error),
            _ => Self::Refused(error),
        }
    }
}

fn parsed(message: SseMessage) -> Option<StreamedEvent> {
    let id = message.id?.parse().ok()?;
    let event = serde_json::from_str(&message.data).ok()?;
    Some(StreamedEvent { id, event })
}

/// Whether no event follows this one.
fn is_last(event: &Event) -> bool {
    matches!(&event.kind, EventKind::Status { status, .. } if status.is_terminal())
}
