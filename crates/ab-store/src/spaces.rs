//! Spaces and their runs. Each step of a run is stored in one transaction.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ab_api::{
    Approval, ApprovalId, PageRequest, Run, RunId, RunStatus, Space, SpaceId, SpaceStatus, Time,
};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use tokio::sync::oneshot;

use crate::approvals;
use crate::error::StoreError;
use crate::record::{EventStreamId, RUN_END_RECORD_KIND, signed, unsigned};
use crate::sessions::{IdempotencyRecord, claim_key};
use crate::space_tokens;
use crate::store::{Store, WriteUrgency};
use crate::writer::{NewRecord, Writing, from_json, to_json};

/// The kind of a record that contains an event of the protocol.
const RUN_EVENT: &str = "event";
/// The kind of a record that reports the start of an operation.
const RUN_OPERATION: &str = "operation";
/// The kind of a record that contains output of an operation that is still being performed.
const RUN_OUTPUT: &str = "output";
/// The kind of a record that reports that a run waits for an approval.
pub const RUN_WAITS_FOR_APPROVAL_RECORD_KIND: &str = "parked";

/// An operation of a run in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredOperation {
    /// The operation as JSON.
    pub json: String,
    /// Whether the start of the operation is recorded.
    pub is_started: bool,
    /// Whether the event of the operation is in the log.
    pub is_done: bool,
}

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunEventRecord {
    /// The number of the operation that the event ends. `None` for events about the whole run.
    pub number: Option<u32>,
    pub at: Time,
    /// The event as JSON.
    pub json: String,
}

/// One step of a run. Everything in it is committed together.
#[derive(Debug, Clone)]
pub struct RunUpdate {
    /// The run after the step.
    pub run: Run,
    /// Whether anything of the run changes except its `updated_at` time. If `false`, the run's row
    /// is not written.
    pub is_run_changed: bool,
    pub events: Vec<RunEventRecord>,
    /// The number of the operation that is performed next, and the JSON record of its start.
    pub started_operation: Option<(u32, String)>,
    /// The approval that the run now waits for.
    pub requested_approval: Option<Approval>,
    /// The granted approval that permits the operation. It is marked as used.
    pub used_approval: Option<ApprovalId>,
    /// Why the run ends. Its pending approvals expire with this reason.
    pub end_reason: Option<String>,
}

/// Why a space is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpaceEnd {
    /// The reason that its pending approvals get.
    pub reason: String,
    /// The last event of its runs that have not ended.
    pub event: RunEventRecord,
}

impl RunUpdate {
    /// Creates a step that stores the run and nothing else.
    pub fn new(run: Run) -> Self {
        let (is_run_changed, events) = (true, Vec::new());
        Self {
            run,
            is_run_changed,
            events,
            started_operation: None,
            requested_approval: None,
            used_approval: None,
            end_reason: None,
        }
    }
}

/// A queued step of a run. It is committed even if the caller does not wait for the outcome.
#[derive(Debug)]
pub struct QueuedRunUpdate {
    answer: oneshot::Receiver<Result<(), StoreError>>,
}

impl Future for QueuedRunUpdate {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = ready!(Pin::new(&mut self.answer).poll(context));
        Poll::Ready(answer.unwrap_or(Err(StoreError::Closed)))
    }
}

impl Store {
    /// Stores a new space. If an earlier request used the same key, returns the answer of that
    /// request instead.
    ///
    /// # Errors
    ///
    /// [`StoreError::IdempotencyKeyReused`] if the key was used with another request.
    pub async fn create_space(
        &self,
        space: Space,
        key: Option<IdempotencyRecord>,
    ) -> Result<Option<String>, StoreError> {
        self.write(move |writing| {
            Box::pin(async move {
                if let Some(answer) = claim_key(writing, key.as_ref()).await? {
                    return Ok(Some(answer));
                }
                sqlx::query(
                    "INSERT INTO spaces (id, status, created, expires, body) \
                     VALUES ($1, $2, $3, $4, $5)",
                )
                .bind(space.id.to_string())
                .bind(space.status.as_str())
                .bind(space.created_at.as_millis())
                .bind(space.expires_at.map(Time::as_millis))
                .bind(to_json("space", &space)?)
                .execute(writing.connection().await?)
                .await?;
                Ok(None)
            })
        })
        .await
    }

    /// Returns the space with this id, unless it is destroyed.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if there is no such space.
    pub async fn get_space(&self, id: SpaceId) -> Result<Space, StoreError> {
        let sql = "SELECT body FROM spaces WHERE id = $1 AND status <> 'destroyed'";
        let body: String =
            sqlx::query_scalar(sql).bind(id.to_string()).fetch_one(self.pool()).await?;
        from_json("space", &body)
    }

    /// A page of the spaces that are not destroyed, newest first, and their total number.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn list_spaces(&self, page: PageRequest) -> Result<(Vec<Space>, u64), StoreError> {
        let now = Time::now().as_millis();
        let sql = "SELECT COUNT(*) FROM spaces \
             WHERE status <> 'destroyed' AND (expires IS NULL OR expires > $1)";
        let total: i64 = sqlx::query_scalar(sql).bind(now).fetch_one(self.pool()).await?;
        let sql = "SELECT body FROM spaces \
             WHERE status <> 'destroyed' AND (expires IS NULL OR expires > $3) \
             ORDER BY id DESC LIMIT $1 OFFSET $2";
        let rows = sqlx::query(sql)
            .bind(i64::from(page.per_page()))
            .bind(signed(page.offset()))
            .bind(now)
            .fetch_all(self.pool())
            .await?;
        let spaces = rows.iter().map(|row| from_json("space", row.try_get("body")?));
        Ok((spaces.collect::<Result<_, StoreError>>()?, unsigned(total)))
    }

    /// The spaces that have expired and are not destroyed.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn expired_spaces(&self, now: Time) -> Result<Vec<Space>, StoreError> {
        let sql = "SELECT body FROM spaces WHERE status <> 'destroyed' AND expires <= $1";
        let rows = sqlx::query(sql).bind(now.as_millis()).fetch_all(self.pool()).await?;
        rows.iter().map(|row| from_json("space", row.try_get("body")?)).collect()
    }

    /// Marks a space as destroyed, cancels its runs and expires its pending approvals, in one
    /// transaction. The runs and their events are kept. Returns the runs that had not ended.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if there is no such space.
    pub async fn destroy_space(
        &self,
        mut space: Space,
        end: SpaceEnd,
    ) -> Result<Vec<RunId>, StoreError> {
        space.status = SpaceStatus::Destroyed;
        self.write_urgently(move |writing| {
            Box::pin(async move {
                let sql = "UPDATE spaces SET status = $2, body = $3 \
                     WHERE id = $1 AND status <> 'destroyed'";
                let done = sqlx::query(sql)
                    .bind(space.id.to_string())
                    .bind(space.status.as_str())
                    .bind(to_json("space", &space)?)
                    .execute(writing.connection().await?)
                    .await?;
                if done.rows_affected() == 0 {
                    return Err(StoreError::NotFound);
                }
                approvals::expire_of_space(writing, space.id, &end.reason).await?;
                space_tokens::remove_all(writing, space.id).await?;
                cancel_runs(writing, space.id, &end.event).await
            })
        })
        .await
    }

    /// Stores a new run with its operations. If an earlier request used the same key, returns the
    /// answer of that request instead.
    ///
    /// # Errors
    ///
    /// [`StoreError::IdempotencyKeyReused`] if the key was used with another request. [`StoreError::NotFound`]
    /// if the space is destroyed.
    pub async fn create_run(
        &self,
        run: Run,
        operations: Vec<String>,
        key: Option<IdempotencyRecord>,
    ) -> Result<Option<String>, StoreError> {
        self.write(move |writing| {
            Box::pin(async move {
                if let Some(answer) = claim_key(writing, key.as_ref()).await? {
                    return Ok(Some(answer));
                }
                insert_run(writing, &run, operations).await?;
                Ok(None)
            })
        })
        .await
    }

    /// Reads a run.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if there is no such run.
    pub async fn get_run(&self, id: RunId) -> Result<Run, StoreError> {
        let sql = "SELECT body FROM runs WHERE id = $1";
        let body: String =
            sqlx::query_scalar(sql).bind(id.to_string()).fetch_one(self.pool()).await?;
        from_json("run", &body)
    }

    /// A page of the runs of a space, newest first, and their total number.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn list_runs(
        &self,
        space: SpaceId,
        page: PageRequest,
    ) -> Result<(Vec<Run>, u64), StoreError> {
        let sql = "SELECT COUNT(*) FROM runs WHERE space = $1";
        let query = sqlx::query_scalar(sql).bind(space.to_string());
        let total: i64 = query.fetch_one(self.pool()).await?;
        let sql = "SELECT body FROM runs WHERE space = $1 ORDER BY id DESC LIMIT $2 OFFSET $3";
        let rows = sqlx::query(sql)
            .bind(space.to_string())
            .bind(i64::from(page.per_page()))
            .bind(signed(page.offset()))
            .fetch_all(self.pool())
            .await?;
        Ok((bodies(&rows)?, unsigned(total)))
    }

    /// All runs that have not ended, oldest first. If a space is given, only the runs of this
    /// space.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn unfinished_runs(&self, space: Option<SpaceId>) -> Result<Vec<Run>, StoreError> {
        let sql = "SELECT body FROM runs WHERE live = 1 \
             AND (CAST($1 AS TEXT) IS NULL OR space = $1) ORDER BY id";
        let query = sqlx::query(sql).bind(space.map(|id| id.to_string()));
        bodies(&query.fetch_all(self.pool()).await?)
    }

    /// The operations of a run, in order.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn run_operations(&self, run: RunId) -> Result<Vec<StoredOperation>, StoreError> {
        let sql = "SELECT body, started, event FROM operations WHERE run = $1 ORDER BY number";
        let rows = sqlx::query(sql).bind(run.to_string()).fetch_all(self.pool()).await?;
        let record = |row: &SqliteRow| {
            let started: Option<i64> = row.try_get("started")?;
            let event: Option<String> = row.try_get("event")?;
            Ok(StoredOperation {
                json: row.try_get("body")?,
                is_started: started.is_some(),
                is_done: event.is_some(),
            })
        };
        rows.iter().map(record).collect()
    }

    /// The events of a run as JSON, in order.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn run_events(&self, run: RunId) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT body FROM events WHERE stream = $1 AND kind = $2 ORDER BY seq";
        let query = sqlx::query_scalar(sql).bind(run.to_string()).bind(RUN_EVENT);
        Ok(query.fetch_all(self.pool()).await?)
    }

    /// Adds output of a running command to the log of its run.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn add_run_output(
        &self,
        run: RunId,
        at: Time,
        json: String,
    ) -> Result<(), StoreError> {
        self.write(move |writing| {
            Box::pin(async move {
                let record = NewRecord { at, kind: RUN_OUTPUT, json };
                writing.append_to(EventStreamId::Run(run), vec![record]).await
            })
        })
        .await
    }

    /// Commits one step of a run.
    ///
    /// # Errors
    ///
    /// [`StoreError::AlreadyDecided`] if the approval was already used. [`StoreError::TooLarge`] if an
    /// event is too large. [`StoreError::NotFound`] if the run ended because its space was removed.
    /// If it fails, nothing of the step is stored.
    pub async fn update_run(&self, step: RunUpdate) -> Result<(), StoreError> {
        self.queue_run_update(step).await?.await
    }

    /// Queues one step of a run, and returns a future of its outcome.
    ///
    /// # Errors
    ///
    /// [`StoreError::Closed`] if the store is closed. The errors of [`Store::update_run`] are
    /// returned by the future.
    pub async fn queue_run_update(&self, step: RunUpdate) -> Result<QueuedRunUpdate, StoreError> {
        let urgency = match step.run.status {
            RunStatus::Cancelled => WriteUrgency::Urgent,
            _ => WriteUrgency::Normal,
        };
        let answer =
            self.queue_as(urgency, move |writing| Box::pin(perform_step(writing, step))).await?;
        Ok(QueuedRunUpdate { answer })
    }
}

fn bodies(rows: &[SqliteRow]) -> Result<Vec<Run>, StoreError> {
    rows.iter().map(|row| from_json("run", row.try_get("body")?)).collect()
}

/// Fails with [`StoreError::NotFound`] if there is no such space, or it is destroyed.
pub(crate) async fn check_exists(writing: &mut Writing, id: SpaceId) -> Result<(), StoreError> {
    let sql = "SELECT COUNT(*) FROM spaces WHERE id = $1 AND status <> 'destroyed'";
    let query = sqlx::query_scalar(sql).bind(id.to_string());
    let spaces: i64 = query.fetch_one(writing.connection().await?).await?;
    if spaces == 0 { Err(StoreError::NotFound) } else { Ok(()) }
}

/// Cancels the runs of a space that have not ended, and returns their ids.
async fn cancel_runs(
    writing: &mut Writing,
    space: SpaceId,
    event: &RunEventRecord,
) -> Result<Vec<RunId>, StoreError> {
    let sql = "SELECT body FROM runs WHERE live = 1 AND space = $1 ORDER BY id";
    let query = sqlx::query(sql).bind(space.to_string());
    let live = bodies(&query.fetch_all(writing.connection().await?).await?)?;
    let mut cancelled = Vec::with_capacity(live.len());
    for mut run in live {
        let id = run.id;
        run.status = RunStatus::Cancelled;
        run.pending_approval = None;
        run.updated_at = Time::now();
        run.ended_at = Some(run.updated_at);
        let events = vec![event.clone()];
        perform_step(writing, RunUpdate { events, ..RunUpdate::new(run) }).await?;
        writing.note_cancelled_run(id);
        cancelled.push(id);
    }
    Ok(cancelled)
}

/// Whether a run was cancelled because its space was removed. The task of the run may not know that
/// yet.
async fn is_cancelled(writing: &mut Writing, run: RunId) -> Result<bool, StoreError> {
    if !writing.may_be_cancelled(run) {
        return Ok(false);
    }
    let sql = "SELECT COUNT(*) FROM runs WHERE id = $1 AND live = 1";
    let query = sqlx::query_scalar(sql).bind(run.to_string());
    let live: i64 = query.fetch_one(writing.connection().await?).await?;
    Ok(live == 0)
}

async fn insert_run(
    writing: &mut Writing,
    run: &Run,
    operations: Vec<String>,
) -> Result<(), StoreError> {
    check_exists(writing, run.space_id).await?;
    sqlx::query(
        "INSERT INTO runs (id, space, status, live, created, updated, body) \
         VALUES ($1, $2, $3, 1, $4, $4, $5)",
    )
    .bind(run.id.to_string())
    .bind(run.space_id.to_string())
    .bind(run.status.as_str())
    .bind(run.created_at.as_millis())
    .bind(to_json("run", run)?)
    .execute(writing.connection().await?)
    .await?;
    let id = run.id.to_string();
    for (number, operation) in operations.into_iter().enumerate() {
        let sql = "INSERT INTO operations (run, number, body) VALUES ($1, $2, $3)";
        let values = vec![id.clone().into(), signed(number as u64).into(), operation.into()];
        writing.defer(sql, values).await?;
    }
    Ok(())
}

async fn perform_step(writing: &mut Writing, step: RunUpdate) -> Result<(), StoreError> {
    let RunUpdate {
        run,
        is_run_changed,
        events,
        started_operation: started,
        requested_approval: asked,
        used_approval: used,
        end_reason,
    } = step;
    if is_cancelled(writing, run.id).await? {
        return Err(StoreError::NotFound);
    }
    let id = run.id.to_string();
    let mut records = Vec::with_capacity(events.len() + 1);
    for RunEventRecord { number, at, json } in events {
        if let Some(number) = number {
            let sql = "UPDATE operations SET event = 'yes' WHERE run = $1 AND number = $2";
            writing.defer(sql, vec![id.clone().into(), i64::from(number).into()]).await?;
        }
        records.push(NewRecord { at, kind: RUN_EVENT, json });
    }
    let now = run.updated_at;
    if let Some(approval) = used {
        approvals::mark_used(writing, approval).await?;
    }
    if let Some((number, json)) = started {
        let sql = "UPDATE operations SET started = $3 WHERE run = $1 AND number = $2";
        let values = vec![id.clone().into(), i64::from(number).into(), now.as_millis().into()];
        writing.defer(sql, values).await?;
        records.push(NewRecord { at: now, kind: RUN_OPERATION, json });
    }
    if let Some(approval) = asked {
        approvals::insert(writing, &approval).await?;
        records.push(NewRecord {
            at: now,
            kind: RUN_WAITS_FOR_APPROVAL_RECORD_KIND,
            json: to_json("run", &run)?,
        });
    }
    if run.status.is_terminal() {
        let reason = end_reason.as_deref().unwrap_or("the run has ended");
        approvals::expire_of_run(writing, run.id, reason).await?;
        records.push(NewRecord { at: now, kind: RUN_END_RECORD_KIND, json: to_json("run", &run)? });
    }
    if is_run_changed {
        let sql = "UPDATE runs SET status = $2, live = $3, updated = $4, body = $5 WHERE id = $1";
        let values = vec![
            id.into(),
            run.status.as_str().to_owned().into(),
            i64::from(!run.status.is_terminal()).into(),
            now.as_millis().into(),
            to_json("run", &run)?.into(),
        ];
        writing.defer(sql, values).await?;
    }
    writing.append_to(EventStreamId::Run(run.id), records).await
}
