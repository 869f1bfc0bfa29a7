//! One entry of the event log.

use std::sync::Arc;

use ab_api::{Event, EventKind, SessionId, Time};
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, Row};

use crate::error::StoreError;

/// The largest JSON of one event. Executors cut long outputs before they report them.
pub const MAX_EVENT_BYTES: usize = 64 * 1024;

/// An event with its places in the log. The JSON is kept as text: it is written to many readers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    /// The place in the whole log, counted from 1.
    pub position: u64,
    pub session: SessionId,
    /// The place in the session's stream, counted from 1.
    pub seq: u64,
    pub at: Time,
    /// The event's `type`.
    pub kind: String,
    /// The event as JSON.
    pub json: String,
}

impl EventRecord {
    /// The event.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] if another version wrote an event that this one does not know.
    pub fn event(&self) -> Result<Event, StoreError> {
        serde_json::from_str(&self.json)
            .map_err(|error| StoreError::Corrupt { what: "event", problem: error.to_string() })
    }

    /// The event as JSON with `sessionId` and `seq`, for streams of several sessions.
    pub fn json_with_session_id(&self) -> String {
        let rest = self.json.strip_prefix('{').unwrap_or_default();
        format!("{{\"sessionId\":\"{}\",\"seq\":{},{rest}", self.session, self.seq)
    }

    /// Whether this is the last event of its session: a status from which no session returns.
    pub fn ends_session(&self) -> bool {
        self.kind == "status"
            && self.event().is_ok_and(|event| {
                matches!(event.kind, EventKind::Status { status, .. } if status.is_terminal())
            })
    }

    /// How much memory the record takes, roughly.
    pub(crate) fn bytes(&self) -> usize {
        self.json.len() + size_of::<Self>()
    }
}

/// An unsigned count as the database stores it.
pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A count from the database.
pub(crate) fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or_default()
}

/// An id from the database.
pub(crate) fn parse_id<K: ab_api::IdKind>(text: &str) -> Result<ab_api::Id<K>, StoreError> {
    text.parse().map_err(|error: ab_api::IdError| StoreError::Corrupt {
        what: K::NAME,
        problem: error.to_string(),
    })
}

impl FromRow<'_, SqliteRow> for EventRecord {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        let stream: &str = row.try_get("stream")?;
        let session = parse_id(stream).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
        Ok(Self {
            position: unsigned(row.try_get("position")?),
            session,
            seq: unsigned(row.try_get("seq")?),
            at: Time::from_millis(row.try_get("at")?),
            kind: row.try_get("kind")?,
            json: row.try_get("body")?,
        })
    }
}

/// Records that many readers share.
pub(crate) type Records = Vec<Arc<EventRecord>>;
