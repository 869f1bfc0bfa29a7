//! Follows the log from a cursor: first the stored records, then new ones.

use std::collections::VecDeque;
use std::sync::Arc;

use ab_api::{RunId, SessionId};
use futures_util::Stream;
use futures_util::stream;
use tokio::sync::watch;

use crate::error::StoreError;
use crate::record::{EventRecord, EventStreamId};
use crate::store::Store;
use crate::tail::{Known, Tail};

/// Maximum number of records that a reader buffers.
const BATCH: usize = 64;

/// Which part of the log a reader follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventLogScope {
    /// The stream of one session. The cursor is the sequence number in this stream.
    Session(SessionId),
    /// The stream of one run. The cursor is the sequence number in this stream.
    Run(RunId),
    /// The whole log. The cursor is the position in the log.
    All,
}

impl EventLogScope {
    /// The single stream that is followed. `None` for the whole log.
    pub(crate) fn stream(self) -> Option<EventStreamId> {
        match self {
            Self::Session(id) => Some(EventStreamId::Session(id)),
            Self::Run(id) => Some(EventStreamId::Run(id)),
            Self::All => None,
        }
    }
}

/// A reader of the log. It returns every record after its cursor once and in order, and then waits
/// for more.
#[derive(Debug)]
pub struct EventLogReader {
    store: Store,
    scope: EventLogScope,
    cursor: u64,
    tail: Arc<Tail>,
    wake_up: watch::Receiver<u64>,
    batch: VecDeque<Arc<EventRecord>>,
    closed: watch::Receiver<bool>,
    _token: Arc<()>,
}

impl EventLogReader {
    pub(crate) fn new(store: Store, scope: EventLogScope, after: u64) -> Self {
        let tail = match scope.stream() {
            Some(stream) => store.tails().stream(stream),
            None => store.tails().all(),
        };
        // Subscribe before the first read, so that a record committed after that read wakes the
        // reader.
        let wake_up = tail.wake_up();
        let (closed, token) = (store.closed(), store.reader_token());
        let batch = VecDeque::new();
        Self { store, scope, cursor: after, tail, wake_up, batch, closed, _token: token }
    }

    /// The cursor of the last returned record.
    pub fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Returns the next record. Waits until there is one. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`StoreError::Closed`] once the store is closed. Also fails if the database fails.
    pub async fn next(&mut self) -> Result<Arc<EventRecord>, StoreError> {
        loop {
            if let Some(record) = self.batch.pop_front() {
                self.cursor = self.tail.cursor(&record);
                return Ok(record);
            }
            self.wake_up.borrow_and_update();
            self.batch = match self.tail.after(self.cursor, BATCH) {
                Known::Next(records) => records.into(),
                Known::Older => {
                    self.store.event_records(self.scope, self.cursor, BATCH).await?.into()
                }
            };
            if self.batch.is_empty() {
                tokio::select! {
                    changed = self.wake_up.changed() => changed.map_err(|_| StoreError::Closed)?,
                    _ = self.closed.wait_for(|closed| *closed) => return Err(StoreError::Closed),
                }
            }
        }
    }

    /// Converts the reader to a stream of records. The stream ends when the store is closed, or
    /// after the last event of a session or run that has ended.
    pub fn into_stream(self) -> impl Stream<Item = Result<Arc<EventRecord>, StoreError>> + Send {
        stream::unfold(Some(self), |follow| async move {
            let mut follow = follow?;
            match follow.next().await {
                Ok(record) => {
                    let is_end = follow.scope.stream().is_some() && record.is_last_of_stream();
                    Some((Ok(record), (!is_end).then_some(follow)))
                }
                Err(StoreError::Closed) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
    }
}
