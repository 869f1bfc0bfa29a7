//! The events of a session as a stream that survives lost connections.

use std::fmt;

use ab_api::{Event, EventKind, SessionId};
use ab_core::{ConnectionStatus, Result};
use tokio::sync::watch;

use super::stream::MessageStream;
use super::{ServeClient, session_path};

/// An event and its place in the stream of its session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionEventStreamItem {
    /// The cursor: [`ServeClient::follow_events_after`] continues behind it.
    pub id: u64,
    pub event: Event,
}

/// The events of one session. After a lost connection it continues behind the last event that it returned.
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

    /// The status of the connection and its changes: [`ConnectionStatus::Reconnecting`] while the server is out of reach.
    /// It changes only while [`next`](Self::next) waits.
    pub fn watch_status(&self) -> watch::Receiver<ConnectionStatus> {
        self.messages.watch_status()
    }

    /// The next event; `None` after the one that says how the session ended. Events of types that this version
    /// does not know are skipped. The future may be dropped: no event is lost.
    ///
    /// # Errors
    ///
    /// What the server answers instead of events, and [`ErrorKind::Disconnected`](ab_core::ErrorKind::Disconnected) once
    /// the server has been out of reach for [`reconnect_for`](super::ServeClientSettings::reconnect_timeout).
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

/// Whether no event follows this one.
fn is_last(event: &Event) -> bool {
    matches!(&event.kind, EventKind::Status { status, .. } if status.is_terminal())
}
