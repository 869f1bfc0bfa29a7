//! One entry of the event log.

use std::fmt;
use std::sync::Arc;

use ab_api::{Event, EventKind, RunId, SessionId, SpaceId, Time};
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, Row};

use crate::error::StoreError;

/// Maximum size of one event as JSON, except prompts. Longer texts of an event are cut.
pub const MAX_EVENT_BYTES: usize = 64 * 1024;
/// Maximum size of one `prompt` event as JSON. The longest accepted prompt fits, even if each of its
/// bytes takes six bytes in JSON, so no prompt is cut.
pub const MAX_PROMPT_EVENT_BYTES: usize = 1024 * 1024;

const PROMPT_RECORD_KIND: &str = "prompt";
/// The kind of the last record in a run's stream.
pub const RUN_END_RECORD_KIND: &str = "complete";
/// Maximum size of one event of a run as JSON. A file of 10 MiB in base64 fits.
pub const MAX_RUN_EVENT_BYTES: usize = 16 * 1024 * 1024;

/// The stream that an event belongs to. Every session, run and space has its own stream in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventStreamId {
    Session(SessionId),
    Run(RunId),
    /// The stream of a space, which contains the events of its approvals.
    Space(SpaceId),
}

impl EventStreamId {
    /// The session of this stream. `None` for other streams.
    pub fn session_id(self) -> Option<SessionId> {
        match self {
            Self::Session(id) => Some(id),
            Self::Run(_) | Self::Space(_) => None,
        }
    }

    /// Maximum size of one event of this kind in the stream as JSON.
    pub(crate) fn max_event_bytes(self, kind: &str) -> usize {
        match self {
            Self::Run(_) => MAX_RUN_EVENT_BYTES,
            Self::Session(_) if kind == PROMPT_RECORD_KIND => MAX_PROMPT_EVENT_BYTES,
            Self::Session(_) | Self::Space(_) => MAX_EVENT_BYTES,
        }
    }

    fn parse(text: &str) -> Result<Self, StoreError> {
        match text.split_once('_') {
            Some(("run", _)) => parse_id(text).map(Self::Run),
            Some(("spc", _)) => parse_id(text).map(Self::Space),
            Some(_) | None => parse_id(text).map(Self::Session),
        }
    }
}

impl fmt::Display for EventStreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(id) => id.fmt(f),
            Self::Run(id) => id.fmt(f),
            Self::Space(id) => id.fmt(f),
        }
    }
}

/// An event with its positions in the log. The JSON is kept as text, because it is sent to many
/// readers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    /// The position in the whole log, counted from 1.
    pub position: u64,
    pub stream: EventStreamId,
    /// The position in the event's stream, counted from 1.
    pub seq: u64,
    pub at: Time,
    /// The `type` of the event.
    pub kind: String,
    /// The event as JSON.
    pub json: String,
}

impl EventRecord {
    /// Parses the event.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`] if another version wrote an event that this version does not know.
    pub fn parse_event(&self) -> Result<Event, StoreError> {
        serde_json::from_str(&self.json)
            .map_err(|error| StoreError::Corrupt { what: "event", problem: error.to_string() })
    }

    /// The event as JSON with `sessionId` and `seq`, for streams of several sessions.
    pub fn json_with_session_id(&self) -> String {
        let rest = self.json.strip_prefix('{').unwrap_or_default();
        format!("{{\"sessionId\":\"{}\",\"seq\":{},{rest}", self.stream, self.seq)
    }

    /// Whether this is the last event of its stream: the final status of a session, or the end of a
    /// run.
    pub fn is_last_of_stream(&self) -> bool {
        match self.stream {
            EventStreamId::Session(_) => self.ends_session(),
            EventStreamId::Run(_) => self.kind == RUN_END_RECORD_KIND,
            EventStreamId::Space(_) => false,
        }
    }

    fn ends_session(&self) -> bool {
        self.kind == "status"
            && self.parse_event().is_ok_and(|event| {
                matches!(event.kind, EventKind::Status { status, .. } if status.is_terminal())
            })
    }

    /// The approximate memory use of the record in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.json.len() + size_of::<Self>()
    }
}

/// Converts an unsigned count to the type that the database stores.
pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Converts a count from the database to an unsigned number.
pub(crate) fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or_default()
}

/// Parses an id from the database.
pub(crate) fn parse_id<K: ab_api::IdKind>(text: &str) -> Result<ab_api::Id<K>, StoreError> {
    text.parse().map_err(|error: ab_api::IdError| StoreError::Corrupt {
        what: K::NAME,
        problem: error.to_string(),
    })
}

impl FromRow<'_, SqliteRow> for EventRecord {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        let stream = EventStreamId::parse(row.try_get("stream")?)
            .map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
        Ok(Self {
            position: unsigned(row.try_get("position")?),
            stream,
            seq: unsigned(row.try_get("seq")?),
            at: Time::from_millis(row.try_get("at")?),
            kind: row.try_get("kind")?,
            json: row.try_get("body")?,
        })
    }
}

/// Records that are shared by many readers.
pub(crate) type Records = Vec<Arc<EventRecord>>;
