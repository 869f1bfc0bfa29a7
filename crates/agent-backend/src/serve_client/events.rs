//! The events of a session as a stream that survives lost connections.

use std::fmt;

use ab_api::{Event, EventKind, SessionId};
use ab_core::{ConnectionStatus, Result};
use tokio::sync::watch;

use super::stream::MessageStream;
use super::{ServeClient, session_path};

/// An event and its position in the stream of its session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionEventStreamItem {
    /// The cursor of the event. [`ServeClient::follow_events_after`] continues after it.
    pub id: u64,
    pub event: Event,
}

/// The events of one session. After a lost connection the stream continues after the last event
/// that it returned.
pub struct SessionEventStream {
    session: SessionId,
    messages: MessageStream,
    has_ended: bool,
}

impl SessionEventStream {
    pub(super) fn new(client: ServeClient, session: SessionId, after: u64) -> Self {
        let after = (after > 0).then_some(after);
        let messages = MessageStream::new(client, session_path(session, "/events"), after);
        Self { session, messages, has_ended: false }
    }

    /// A receiver of the status of the connection. The status is [`ConnectionStatus::Reconnecting`]
    /// while the server cannot be reached. It changes only while [`next`](Self::next) waits.
    pub fn watch_status(&self) -> watch::Receiver<ConnectionStatus> {
        self.messages.watch_status()
    }

    /// Returns the next event, or `None` after the event that reports the end of the session.
    /// Events of types that this version does not know are skipped. Cancel safe.
    ///
    /// # Errors
    ///
    /// Fails if the server answers with an error instead of events.
    /// [`ErrorKind::Disconnected`](ab_core::ErrorKind::Disconnected) if the server could not be
    /// reached for [`reconnect_for`](super::ServeClientSettings::reconnect_timeout).
    pub async fn next(&mut self) -> Result<Option<SessionEventStreamItem>> {
        while !self.has_ended {
            let Some(message) = self.messages.next().await? else { return Ok(None) };
            if let Ok(event) = serde_json::from_str::<Event>(&message.data) {
                self.has_ended = is_last(&event);
                return Ok(Some(SessionEventStreamItem { id: message.id, event }));
            }
        }
        Ok(None)
    }
}

impl fmt::Debug for SessionEventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("SessionEventStream");
        let after = &self.messages.after;
        shown.field("session", &self.session).field("after", after).finish_non_exhaustive()
    }
}

/// Whether this is the last event of a session.
fn is_last(event: &Event) -> bool {
    matches!(&event.kind, EventKind::Status { status, .. } if status.is_terminal())
}
