//! The single task that writes. Changes that are queued at the same time are committed together.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ab_api::{ApprovalId, Event, RunId, SessionId, Time};
use futures_util::future::BoxFuture;
use sqlx::{Connection, SqliteConnection};
use tokio::sync::{mpsc, oneshot};

use crate::deferred::{DeferredStatements, SqlValue};
use crate::error::StoreError;
use crate::record::{EventRecord, EventStreamId, Records, signed, unsigned};
use crate::reserve::DiskReserve;
use crate::shorten::shortened_event;
use crate::store::Readers;

/// Maximum number of queued changes. If the queue is full, callers wait.
pub(crate) const QUEUE: usize = 1024;
/// Maximum number of changes in one commit.
const GROUP: usize = 128;
/// Maximum number of streams whose last sequence number is kept in memory.
const MAX_KNOWN_STREAMS: usize = 1024;
const BEGIN: &str = "BEGIN IMMEDIATE";
/// The names of the counters in the database.
const POSITION: &str = "position";
const REVISION: &str = "revision";

/// A change that waits to be committed.
pub(crate) trait Change: Send {
    /// Performs the change within the open transaction.
    fn perform<'a>(&'a mut self, writing: &'a mut Writing)
    -> BoxFuture<'a, Result<(), StoreError>>;
    /// Whether the change may use the room that is reserved for a full disk. It can then be
    /// performed several times.
    fn is_urgent(&self) -> bool;
    /// Sends the outcome to the caller. Called after the commit.
    fn finish(self: Box<Self>, outcome: Result<(), StoreError>);
}

/// A performed change and its outcome, which its caller receives after the commit.
type Performed = (Box<dyn Change>, Result<(), StoreError>);

/// A message for the writer.
pub(crate) enum Order {
    Change(Box<dyn Change>),
    /// Stop after all changes that were queued earlier.
    Close,
}

/// A [`Change`] that returns a value to the caller that queued it.
pub(crate) struct Typed<F, T> {
    work: Option<F>,
    value: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<F, T> Typed<F, T> {
    pub(crate) fn new(work: F) -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (reply, answer) = oneshot::channel();
        (Self { work: Some(work), value: None, reply }, answer)
    }
}

impl<F, T> Change for Typed<F, T>
where
    T: Send,
    F: for<'a> FnOnce(&'a mut Writing) -> BoxFuture<'a, Result<T, StoreError>> + Send,
{
    fn perform<'a>(
        &'a mut self,
        writing: &'a mut Writing,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let work = self.work.take().ok_or(StoreError::Closed)?;
            self.value = Some(work(writing).await?);
            Ok(())
        })
    }

    fn is_urgent(&self) -> bool {
        false
    }

    fn finish(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Self { value, reply, .. } = *self;
        send(reply, value, outcome);
    }
}

/// A [`Typed`] change that may use the room that is reserved for a full disk.
pub(crate) struct Urgent<F, T> {
    work: F,
    value: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<F, T> Urgent<F, T> {
    pub(crate) fn new(work: F) -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (reply, answer) = oneshot::channel();
        (Self { work, value: None, reply }, answer)
    }
}

impl<F, T> Change for Urgent<F, T>
where
    T: Send,
    F: for<'a> FnOnce(&'a mut Writing) -> BoxFuture<'a, Result<T, StoreError>> + Clone + Send,
{
    fn perform<'a>(
        &'a mut self,
        writing: &'a mut Writing,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        let work = self.work.clone();
        Box::pin(async move {
            self.value = Some(work(writing).await?);
            Ok(())
        })
    }

    fn is_urgent(&self) -> bool {
        true
    }

    fn finish(self: Box<Self>, outcome: Result<(), StoreError>) {
        let Self { value, reply, .. } = *self;
        send(reply, value, outcome);
    }
}

fn send<T>(
    reply: oneshot::Sender<Result<T, StoreError>>,
    value: Option<T>,
    outcome: Result<(), StoreError>,
) {
    let answer = outcome.and_then(|()| value.ok_or(StoreError::Closed));
    // The caller may have stopped waiting for the answer. The change is committed anyway.
    let _ = reply.send(answer);
}

/// A new entry for the log.
pub(crate) struct NewRecord {
    pub(crate) at: Time,
    pub(crate) kind: &'static str,
    pub(crate) json: String,
}

/// The open transaction of the writer task, which each [`Change`] uses.
pub(crate) struct Writing {
    connection: SqliteConnection,
    /// Statements of the transaction that are not executed yet.
    deferred: DeferredStatements,
    /// The position of the last record in the log.
    position: u64,
    /// The last `seq` of each stream to which records were appended.
    last_seqs: HashMap<EventStreamId, u64>,
    appended: Records,
    decided: Vec<ApprovalId>,
    /// The number of the last change of any approval (the cursor of readers of approvals).
    revision: u64,
    /// Sessions whose workspaces are being removed although the disk had no room to store that.
    leaving: HashSet<SessionId>,
    /// Runs that were cancelled with their space, unless that change failed.
    cancelled_runs: HashSet<RunId>,
}

impl Writing {
    /// The connection. All deferred statements are executed first.
    ///
    /// # Errors
    ///
    /// Fails if a deferred statement fails.
    pub(crate) async fn connection(&mut self) -> Result<&mut SqliteConnection, StoreError> {
        self.deferred.execute(&mut self.connection).await?;
        Ok(&mut self.connection)
    }

    /// Queues a statement with the values of `$1`, `$2` and so on, to be executed before the commit
    /// at the latest. Its result is not available. If the statement fails, the change fails.
    ///
    /// # Errors
    ///
    /// Fails if a deferred statement fails.
    pub(crate) async fn defer(
        &mut self,
        sql: &'static str,
        values: Vec<SqlValue>,
    ) -> Result<(), StoreError> {
        if self.deferred.add(sql, values) {
            self.deferred.execute(&mut self.connection).await?;
        }
        Ok(())
    }

    /// Appends `events` to the session's stream.
    pub(crate) async fn append(
        &mut self,
        session: SessionId,
        events: &[Event],
    ) -> Result<(), StoreError> {
        let mut entries = Vec::with_capacity(events.len());
        for event in events {
            let json = to_json("event", event)?;
            entries.push(NewRecord { at: event.ts, kind: event.kind.name(), json });
        }
        self.append_to(EventStreamId::Session(session), entries).await
    }

    /// Appends entries to any stream.
    pub(crate) async fn append_to(
        &mut self,
        stream: EventStreamId,
        entries: Vec<NewRecord>,
    ) -> Result<(), StoreError> {
        if entries.is_empty() {
            return Ok(());
        }
        let name = stream.to_string();
        let mut seq = self.last_seq(stream, &name).await?;
        for NewRecord { at, kind, json } in entries {
            let json = fitted(stream, kind, json)?;
            self.position += 1;
            seq += 1;
            let position = self.position;
            let values = vec![
                signed(position).into(),
                name.clone().into(),
                signed(seq).into(),
                at.as_millis().into(),
                kind.to_owned().into(),
                json.clone().into(),
            ];
            let sql = "INSERT INTO events (position, stream, seq, at, kind, body) \
                 VALUES ($1, $2, $3, $4, $5, $6)";
            self.defer(sql, values).await?;
            let record = EventRecord { position, stream, seq, at, kind: kind.to_owned(), json };
            self.appended.push(Arc::new(record));
        }
        if self.last_seqs.len() >= MAX_KNOWN_STREAMS {
            self.last_seqs.clear();
        }
        self.last_seqs.insert(stream, seq);
        Ok(())
    }

    /// The last `seq` of a stream. Zero if the stream has no records.
    async fn last_seq(&mut self, stream: EventStreamId, name: &str) -> Result<u64, StoreError> {
        if let Some(seq) = self.last_seqs.get(&stream) {
            return Ok(*seq);
        }
        let query = sqlx::query_scalar("SELECT MAX(seq) FROM events WHERE stream = $1").bind(name);
        let last: Option<i64> = query.fetch_one(self.connection().await?).await?;
        Ok(unsigned(last.unwrap_or_default()))
    }

    /// Notes that `approval` is decided. After the commit, the tasks that wait for it are notified.
    pub(crate) fn decided(&mut self, approval: ApprovalId) {
        self.decided.push(approval);
    }

    /// Notes, until the store is closed, that no session may take over the workspace of `session`.
    pub(crate) fn note_leaving_workspace(&mut self, session: SessionId) {
        self.leaving.insert(session);
    }

    pub(crate) fn is_workspace_leaving(&self, session: SessionId) -> bool {
        self.leaving.contains(&session)
    }

    /// Notes, until the store is closed, that a run was cancelled because its space is removed.
    pub(crate) fn note_cancelled_run(&mut self, run: RunId) {
        self.cancelled_runs.insert(run);
    }

    /// Whether a run was noted as cancelled. The change that noted it may have failed.
    pub(crate) fn may_be_cancelled(&self, run: RunId) -> bool {
        self.cancelled_runs.contains(&run)
    }

    /// Assigns the number of the next change of an approval.
    pub(crate) fn next_revision(&mut self) -> u64 {
        self.revision += 1;
        self.revision
    }

    /// Stores the numbers of the last record and of the last changed approval, so that the numbers
    /// are not assigned again after the rows are removed.
    pub(crate) async fn keep_counters(&mut self) -> Result<(), StoreError> {
        for (name, value) in [(POSITION, self.position), (REVISION, self.revision)] {
            let sql = "INSERT INTO counters (name, value) VALUES ($1, $2) \
                 ON CONFLICT (name) DO UPDATE SET value = excluded.value";
            self.defer(sql, vec![name.to_owned().into(), signed(value).into()]).await?;
        }
        Ok(())
    }

    /// Performs one of several changes of a transaction. If the change fails, everything that it
    /// wrote is rolled back.
    async fn run(&mut self, change: &mut dyn Change) -> Result<(), StoreError> {
        let before = self.mark();
        self.execute("SAVEPOINT one_change").await?;
        let mut outcome = change.perform(self).await;
        if outcome.is_ok() {
            outcome = self.connection().await.map(|_| ());
        }
        if outcome.is_err() {
            self.reset(&before);
            if let Err(error) = self.execute("ROLLBACK TO one_change").await {
                // On a full disk SQLite has already rolled back the whole transaction. Return the
                // original error.
                return match outcome {
                    Err(cause) if cause.is_fatal() => Err(cause),
                    _ => Err(error),
                };
            }
        }
        self.execute("RELEASE one_change").await?;
        outcome
    }

    fn mark(&self) -> Mark {
        Mark {
            position: self.position,
            revision: self.revision,
            appended: self.appended.len(),
            decided: self.decided.len(),
        }
    }

    /// Resets the state in memory to the state before a failed change.
    fn reset(&mut self, before: &Mark) {
        self.position = before.position;
        self.revision = before.revision;
        self.appended.truncate(before.appended);
        self.decided.truncate(before.decided);
        self.last_seqs.clear();
        self.deferred.clear();
    }

    /// Executes a statement after all deferred ones.
    async fn execute(&mut self, sql: &'static str) -> Result<(), StoreError> {
        self.defer(sql, Vec::new()).await?;
        self.connection().await?;
        Ok(())
    }
}

/// The state in memory before a change, to return to if the change fails.
struct Mark {
    position: u64,
    revision: u64,
    appended: usize,
    decided: usize,
}

/// The state of the writer task.
pub(crate) struct Writer {
    writing: Writing,
    orders: mpsc::Receiver<Order>,
    readers: Arc<Readers>,
    reserve: DiskReserve,
}

impl Writer {
    pub(crate) async fn new(
        mut connection: SqliteConnection,
        orders: mpsc::Receiver<Order>,
        readers: Arc<Readers>,
        reserve: DiskReserve,
    ) -> Result<Self, StoreError> {
        let position = last_position(&mut connection).await?;
        let revision = last_revision(&mut connection).await?;
        readers.revision.send_replace(revision);
        let writing = Writing {
            connection,
            deferred: DeferredStatements::default(),
            position,
            last_seqs: HashMap::new(),
            appended: Vec::new(),
            decided: Vec::new(),
            revision,
            leaving: HashSet::new(),
            cancelled_runs: HashSet::new(),
        };
        Ok(Self { writing, orders, readers, reserve })
    }

    /// Commits changes until the store is closed.
    pub(crate) async fn run(mut self) {
        loop {
            let mut group = Vec::new();
            let mut is_closing = false;
            match self.orders.recv().await {
                None => break,
                Some(Order::Close) => is_closing = true,
                Some(Order::Change(change)) => group.push(change),
            }
            while group.len() < GROUP && !is_closing {
                match self.orders.try_recv() {
                    Ok(Order::Change(change)) => group.push(change),
                    Ok(Order::Close) => is_closing = true,
                    Err(_) => break,
                }
            }
            if !group.is_empty() {
                self.commit(group).await;
            }
            if is_closing {
                break;
            }
        }
        self.orders.close();
        if let Err(error) = self.writing.connection.close().await {
            tracing::warn!(%error, "cannot close the database");
        }
    }

    async fn commit(&mut self, group: Vec<Box<dyn Change>>) {
        let is_full = |outcome: &Result<(), StoreError>| {
            outcome.as_ref().is_err_and(StoreError::is_disk_full)
        };
        let outcomes = self.attempt(group).await;
        let has_room = !outcomes.iter().any(|(_, outcome)| is_full(outcome));
        for (change, outcome) in outcomes {
            if change.is_urgent() && is_full(&outcome) {
                self.commit_from_reserve(change, outcome).await;
            } else {
                change.finish(outcome);
            }
        }
        if has_room {
            self.reserve.fill();
        }
    }

    /// Commits a change for which the disk has no other room. The rest of the room is reserved
    /// again.
    async fn commit_from_reserve(
        &mut self,
        mut change: Box<dyn Change>,
        mut outcome: Result<(), StoreError>,
    ) {
        while outcome.as_ref().is_err_and(StoreError::is_disk_full) && self.reserve.release() {
            let Some(next) = self.attempt(vec![change]).await.pop() else { return };
            (change, outcome) = next;
        }
        if outcome.is_ok() {
            self.empty_log().await;
        }
        self.reserve.fill();
        change.finish(outcome);
    }

    /// Commits the changes together, and returns the outcome of each.
    async fn attempt(&mut self, group: Vec<Box<dyn Change>>) -> Vec<Performed> {
        let (position, revision) = (self.writing.position, self.writing.revision);
        let mut outcomes = Vec::with_capacity(group.len());
        match self.transact(group, &mut outcomes).await {
            Ok(()) => {
                let Writing { appended, decided, revision, .. } = &self.writing;
                self.readers.publish(appended, decided, *revision);
            }
            Err(error) => {
                self.writing.position = position;
                self.writing.revision = revision;
                self.writing.last_seqs.clear();
                self.writing.deferred.clear();
                // Ignore the error: after a failed commit SQLite may already have ended the
                // transaction.
                let _ = self.writing.execute("ROLLBACK").await;
                if error.is_disk_full() {
                    self.empty_log().await;
                }
                for (_, outcome) in &mut outcomes {
                    *outcome = Err(error.clone());
                }
            }
        }
        self.writing.appended.clear();
        self.writing.decided.clear();
        outcomes
    }

    /// Gives back the disk space of the database's log file, which also has what failed
    /// transactions wrote.
    async fn empty_log(&mut self) {
        // If it fails, the log keeps its space.
        let _ = self.writing.execute("PRAGMA wal_checkpoint(TRUNCATE)").await;
    }

    async fn transact(
        &mut self,
        group: Vec<Box<dyn Change>>,
        outcomes: &mut Vec<Performed>,
    ) -> Result<(), StoreError> {
        // Fill in the outcomes first, so that every change has one even if the transaction cannot
        // begin.
        outcomes.extend(group.into_iter().map(|change| (change, Ok(()))));
        self.writing.defer(BEGIN, Vec::new()).await?;
        if let [(change, outcome)] = outcomes.as_mut_slice() {
            // A transaction with a single change needs no savepoint.
            let before = self.writing.mark();
            *outcome = change.perform(&mut self.writing).await;
            return match outcome {
                Ok(()) => self.writing.execute("COMMIT").await,
                Err(error) if error.is_fatal() => Err(error.clone()),
                Err(_) => {
                    let has_begun = !self.writing.deferred.starts_with(BEGIN);
                    self.writing.reset(&before);
                    if has_begun { self.writing.execute("ROLLBACK").await } else { Ok(()) }
                }
            };
        }
        for (change, outcome) in outcomes.iter_mut() {
            *outcome = self.writing.run(change.as_mut()).await;
            if let Err(error) = outcome
                && error.is_fatal()
            {
                return Err(error.clone());
            }
        }
        self.writing.execute("COMMIT").await
    }
}

async fn last_position(connection: &mut SqliteConnection) -> Result<u64, StoreError> {
    let stored = kept(connection, POSITION).await?;
    let last: Option<i64> =
        sqlx::query_scalar("SELECT MAX(position) FROM events").fetch_one(connection).await?;
    Ok(unsigned(last.unwrap_or_default()).max(stored))
}

async fn last_revision(connection: &mut SqliteConnection) -> Result<u64, StoreError> {
    let stored = kept(connection, REVISION).await?;
    let last: Option<i64> =
        sqlx::query_scalar("SELECT MAX(revision) FROM approvals").fetch_one(connection).await?;
    Ok(unsigned(last.unwrap_or_default()).max(stored))
}

/// Reads a counter that [`Writing::keep_counters`] stored. Zero if it was never stored.
async fn kept(connection: &mut SqliteConnection, name: &str) -> Result<u64, StoreError> {
    let query = sqlx::query_scalar("SELECT value FROM counters WHERE name = $1").bind(name);
    let value: Option<i64> = query.fetch_optional(connection).await?;
    Ok(unsigned(value.unwrap_or_default()))
}

/// Returns the JSON of an event with its texts cut so that it fits into the stream. The events of
/// runs are not cut, because they contain files.
fn fitted(stream: EventStreamId, kind: &str, json: String) -> Result<String, StoreError> {
    let (bytes, limit) = (json.len(), stream.max_event_bytes(kind));
    if bytes <= limit {
        return Ok(json);
    }
    let shortened = match stream {
        EventStreamId::Session(_) | EventStreamId::Space(_) => shortened_event(&json, limit),
        EventStreamId::Run(_) => None,
    };
    shortened.ok_or(StoreError::TooLarge { what: "an event", bytes, limit })
}

/// Serializes `value` as JSON text.
pub(crate) fn to_json<T: serde::Serialize>(
    what: &'static str,
    value: &T,
) -> Result<String, StoreError> {
    serde_json::to_string(value)
        .map_err(|error| StoreError::Corrupt { what, problem: error.to_string() })
}

/// Parses a value from JSON text.
pub(crate) fn from_json<T: serde::de::DeserializeOwned>(
    what: &'static str,
    json: &str,
) -> Result<T, StoreError> {
    serde_json::from_str(json)
        .map_err(|error| StoreError::Corrupt { what, problem: error.to_string() })
}
