//! The messages of an event stream. After a lost connection the stream reconnects and continues
//! after the last message.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use ab_core::{ConnectionStatus, Error, ErrorCode, ErrorKind, Result};
use bytes::Bytes;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::sse::{SseMessage, SseParser};
use super::{ServeClient, is_final, problem};
use crate::exchange::{self, Answer};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
/// A connection that is silent for this long is considered dead. A server sends a comment every 15
/// seconds.
const SILENCE: Duration = Duration::from_secs(45);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// A message with its position in the stream.
pub(super) struct NumberedMessage {
    pub(super) id: u64,
    /// The type of the message, if it has one.
    pub(super) kind: Option<String>,
    pub(super) data: String,
}

/// Reads the messages of the stream at one path. Messages without a number are skipped.
pub(super) struct MessageStream {
    client: ServeClient,
    path: String,
    /// The number of the last message that was returned. `None` if no message was returned yet.
    pub(super) after: Option<u64>,
    connection: Option<Connection>,
    /// The attempt to connect, which continues if [`next`](Self::next) was dropped.
    connecting: Option<Connecting>,
    ready: VecDeque<NumberedMessage>,
    has_ended: bool,
    /// Set while the server cannot be reached.
    outage: Option<Outage>,
    status: watch::Sender<ConnectionStatus>,
}

struct Connection {
    body: Answer,
    parser: SseParser,
    /// When the last bytes arrived.
    heard: Instant,
}

type Connecting = Pin<Box<dyn Future<Output = Result<Option<Connection>, StreamError>> + Send>>;

#[derive(Clone, Copy)]
struct Outage {
    since: Instant,
    /// When the next attempt to connect begins. It is kept here, so that a caller that drops
    /// [`MessageStream::next`] and calls it again waits no less.
    next_attempt: Instant,
    /// How long to wait after the next failure.
    pause: Duration,
}

impl MessageStream {
    pub(super) fn new(client: ServeClient, path: String, after: Option<u64>) -> Self {
        Self {
            client,
            path,
            after,
            connection: None,
            connecting: None,
            ready: VecDeque::new(),
            has_ended: false,
            outage: None,
            status: watch::Sender::new(ConnectionStatus::Connecting),
        }
    }

    /// A receiver of the status of the connection.
    pub(super) fn watch_status(&self) -> watch::Receiver<ConnectionStatus> {
        self.status.subscribe()
    }

    /// Returns the next message, or `None` once the server says that there are no more messages.
    /// Cancel safe.
    ///
    /// # Errors
    ///
    /// Fails if the server answers with an error instead of a stream. [`ErrorKind::Disconnected`]
    /// if the server could not be reached for the client's reconnect timeout.
    pub(super) async fn next(&mut self) -> Result<Option<NumberedMessage>> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                self.after = Some(message.id);
                return Ok(Some(message));
            }
            if self.has_ended {
                return Ok(None);
            }
            if let Some(Outage { next_attempt, .. }) = self.outage
                && self.connection.is_none()
                && self.connecting.is_none()
            {
                sleep_until(next_attempt).await;
            }
            let received: Received<'_> = Box::pin(self.receive());
            match received.await {
                Ok(()) => self.outage = None,
                Err(StreamError::Refused(error)) => return Err(error),
                Err(StreamError::Lost(error)) => self.note_failure(error)?,
            }
        }
    }

    /// Waits until bytes arrive. Connects first if there is no connection.
    async fn receive(&mut self) -> Result<(), StreamError> {
        if self.connection.is_none() {
            let connecting = self.connecting.get_or_insert_with(|| {
                let (client, path, after) = (self.client.clone(), self.path.clone(), self.after);
                Box::pin(async move { connect(&client, &path, after).await })
            });
            let connected = connecting.await;
            self.connecting = None;
            self.connection = connected?;
            self.has_ended = self.connection.is_none();
            self.set_status(ConnectionStatus::Connected);
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
        let received = match timeout_at(connection.heard + SILENCE, connection.body.frame()).await {
            Ok(Some(Ok(frame))) => Ok(frame.into_data().unwrap_or_default()),
            Ok(Some(Err(error))) => Err(StreamError::Lost(exchange::lost(name, error))),
            Ok(None) => Err(lost(format!("{name} closed the event stream"))),
            Err(_) => Err(lost(format!("{name} sent nothing for {} s", SILENCE.as_secs()))),
        };
        let bytes = received.inspect_err(|_| self.connection = None)?;
        let Some(connection) = &mut self.connection else { return Ok(()) };
        connection.heard = Instant::now();
        let messages = connection.parser.push(&bytes).map_err(StreamError::Refused)?;
        self.ready.extend(messages.into_iter().filter_map(numbered));
        Ok(())
    }

    /// Sets the time of the next attempt to connect. Fails with `error` if the reconnect timeout is
    /// over.
    fn note_failure(&mut self, error: Error) -> Result<()> {
        let now = Instant::now();
        let first = Outage { since: now, next_attempt: now, pause: FIRST_PAUSE };
        // Change the status only at the second failure: if the server merely closed the stream, the
        // next attempt succeeds.
        if self.outage.is_some() {
            self.set_status(ConnectionStatus::Reconnecting);
        }
        let outage = self.outage.get_or_insert(first);
        if now.duration_since(outage.since) >= self.client.reconnect_for {
            return Err(error);
        }
        outage.next_attempt = now + outage.pause;
        outage.pause = (outage.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }

    /// Sets the status. Receivers are notified only if it changed.
    fn set_status(&self, status: ConnectionStatus) {
        self.status.send_if_modified(|known| std::mem::replace(known, status) != status);
    }
}

/// Opens a connection. `None` if the server says that there are no more messages.
async fn connect(
    client: &ServeClient,
    path: &str,
    after: Option<u64>,
) -> Result<Option<Connection>, StreamError> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, EVENT_STREAM);
    if let Some(after) = after {
        headers.insert(LAST_EVENT_ID, HeaderValue::from(after));
    }
    let sent = client.send(Method::GET, path, Bytes::new(), headers).await;
    let (head, body) = sent.map_err(StreamError::of_connection)?.into_parts();
    if head.status == StatusCode::NO_CONTENT {
        return Ok(None);
    }
    if head.status.is_success() {
        let (parser, heard) = (SseParser::default(), Instant::now());
        return Ok(Some(Connection { body, parser, heard }));
    }
    let body = client.read(body).await.map_err(StreamError::Lost)?;
    let error = problem::error(&client.name, path, head.status, &head.headers, &body);
    let refused = is_final(head.status);
    Err(if refused { StreamError::Refused(error) } else { StreamError::Lost(error) })
}

/// The boxed future keeps the types of the connection out of the types of the callers' futures.
type Received<'a> = Pin<Box<dyn Future<Output = Result<(), StreamError>> + Send + 'a>>;

enum StreamError {
    /// The connection was lost. Another attempt may succeed.
    Lost(Error),
    /// The server refused the request. Another attempt would fail in the same way.
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

fn numbered(message: SseMessage) -> Option<NumberedMessage> {
    let SseMessage { id, kind, data } = message;
    Some(NumberedMessage { id: id?.parse().ok()?, kind, data })
}
