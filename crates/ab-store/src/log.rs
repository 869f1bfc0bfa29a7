//! Reads and appends events.

use std::sync::Arc;

use ab_api::{Event, SessionId};

use crate::error::StoreError;
use crate::follow::EventLogScope;
use crate::record::{EventRecord, EventStreamId, Records, signed, unsigned};
use crate::store::Store;

/// Maximum number of records that one read returns.
const MAX_READ: usize = 1000;

impl Store {
    /// Appends `events` to the stream of a session, in one transaction. Long texts of an event that
    /// is too large are cut.
    ///
    /// # Errors
    ///
    /// [`StoreError::TooLarge`] if one of the events is too large although its texts are short. In
    /// this case no event is appended.
    pub async fn append_events(
        &self,
        session: SessionId,
        events: Vec<Event>,
    ) -> Result<(), StoreError> {
        self.write(move |writing| Box::pin(async move { writing.append(session, &events).await }))
            .await
    }

    /// At most `limit` records after a cursor. Never more than 1,000.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn event_records(
        &self,
        scope: EventLogScope,
        after: u64,
        limit: usize,
    ) -> Result<Vec<Arc<EventRecord>>, StoreError> {
        let limit = signed(limit.min(MAX_READ) as u64);
        let records: Vec<EventRecord> = match scope.stream() {
            Some(stream) => {
                sqlx::query_as(
                    "SELECT position, stream, seq, at, kind, body FROM events \
                     WHERE stream = $1 AND seq > $2 ORDER BY seq LIMIT $3",
                )
                .bind(stream.to_string())
                .bind(signed(after))
                .bind(limit)
                .fetch_all(self.pool())
                .await?
            }
            None => {
                sqlx::query_as(
                    "SELECT position, stream, seq, at, kind, body FROM events \
                     WHERE position > $1 ORDER BY position LIMIT $2",
                )
                .bind(signed(after))
                .bind(limit)
                .fetch_all(self.pool())
                .await?
            }
        };
        Ok(records.into_iter().map(Arc::new).collect::<Records>())
    }

    /// The last `limit` (at most 1,000) records of a session, in order. If `kind` is given, only
    /// records of this kind.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn last_event_records(
        &self,
        session: SessionId,
        kind: Option<&str>,
        limit: usize,
    ) -> Result<Vec<EventRecord>, StoreError> {
        let mut records: Vec<EventRecord> = sqlx::query_as(
            "SELECT position, stream, seq, at, kind, body FROM events \
             WHERE stream = $1 AND (CAST($2 AS TEXT) IS NULL OR kind = $2) \
             ORDER BY seq DESC LIMIT $3",
        )
        .bind(session.to_string())
        .bind(kind)
        .bind(signed(limit.min(MAX_READ) as u64))
        .fetch_all(self.pool())
        .await?;
        records.reverse();
        Ok(records)
    }

    /// The sequence number of the last record of a stream. Zero if the stream has no records.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn last_stream_seq(&self, stream: EventStreamId) -> Result<u64, StoreError> {
        let sql = "SELECT MAX(seq) FROM events WHERE stream = $1";
        let query = sqlx::query_scalar(sql).bind(stream.to_string());
        let last: Option<i64> = query.fetch_one(self.pool()).await?;
        Ok(unsigned(last.unwrap_or_default()))
    }

    /// The position of the last record that was ever written to the log. A reader that does not
    /// want the history starts here.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn last_event_position(&self) -> Result<u64, StoreError> {
        // The last records may have been removed. In this case the counter has the position,
        // because it was stored before the removal.
        let sql = "SELECT MAX(position) FROM (SELECT MAX(position) AS position FROM events \
                   UNION ALL SELECT value FROM counters WHERE name = 'position')";
        let last: Option<i64> = sqlx::query_scalar(sql).fetch_one(self.pool()).await?;
        Ok(unsigned(last.unwrap_or_default()))
    }

    /// The cursor with which a reader continues after the record `after`. If this log has not
    /// reached the number `after` yet, the number comes from another log, such as the log before a
    /// restore. The reader then starts with the first record.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn resume_cursor(&self, scope: EventLogScope, after: u64) -> Result<u64, StoreError> {
        if after == 0 {
            return Ok(0);
        }
        let last = match scope.stream() {
            Some(stream) => self.last_stream_seq(stream).await?,
            None => self.last_event_position().await?,
        };
        Ok(if after > last { 0 } else { after })
    }
}
