//! Approvals: stored questions. Each question is decided at most once, and its decision is used at
//! most once.

mod programs;

use std::collections::VecDeque;

use ab_api::{
    Approval, ApprovalDecider, ApprovalDecision, ApprovalId, ApprovalRequester, ApprovalStatus,
    ApproveOrDeny, Event, EventKind, PageRequest, RunId, SessionId, SpaceId, Time,
};
use futures_util::{Stream, stream};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;
use tokio::sync::watch;

use crate::error::{StoreError, UseDecisionError};
use crate::record::{EventStreamId, parse_id, signed, unsigned};
use crate::store::Store;
use crate::writer::{NewRecord, Writing, from_json, to_json};
use crate::{sessions, spaces};

pub use programs::RequestedApproval;

/// Maximum number of changes that a reader buffers.
const BATCH: i64 = 64;
/// The reason that is stored for an approval that expired.
const OVERDUE: &str = "no decision was made in time";

/// Filters a list of approvals. The default matches all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ApprovalFilter {
    pub status: Option<ApprovalStatus>,
    pub session: Option<SessionId>,
}

/// The session, space or program that may use the decision of an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalOwner {
    Session(SessionId),
    Space(SpaceId),
    /// A program outside the server.
    Program(ApprovalRequester),
}

impl ApprovalOwner {
    /// The owner of an approval. `None` if the approval names no session, space or program.
    pub fn for_approval(approval: &Approval) -> Option<ApprovalOwner> {
        let session = approval.session_id.map(ApprovalOwner::Session);
        let space = || approval.space_id.map(ApprovalOwner::Space);
        let program = || approval.requester.clone().map(ApprovalOwner::Program);
        session.or_else(space).or_else(program)
    }

    /// The values of the columns that identify this owner.
    fn columns(&self) -> Result<ScopeColumns, StoreError> {
        let mut columns = ScopeColumns::default();
        match self {
            ApprovalOwner::Session(id) => columns.session = Some(id.to_string()),
            ApprovalOwner::Space(id) => columns.space = Some(id.to_string()),
            ApprovalOwner::Program(requester) => {
                columns.requester = Some(requester_key(requester)?)
            }
        }
        Ok(columns)
    }
}

/// The values of the columns that identify the owner of an approval. Exactly one is set.
#[derive(Default)]
struct ScopeColumns {
    session: Option<String>,
    space: Option<String>,
    requester: Option<String>,
}

/// The value of the column `requester`.
fn requester_key(requester: &ApprovalRequester) -> Result<String, StoreError> {
    to_json("requester", requester)
}

/// An approval whose decision has not reached the caller that asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnansweredApproval {
    pub approval: Approval,
    /// Whether a restarted session queued a prompt that tells its agent the decision.
    pub is_decision_told: bool,
}

/// An approval in its state after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalChange {
    /// The number of this change among the changes of all approvals. Readers use it as their
    /// cursor.
    pub revision: u64,
    pub approval: Approval,
}

impl Store {
    /// Stores a question and adds an event about it to the session's stream.
    ///
    /// # Errors
    ///
    /// [`StoreError::AlreadyExists`] if an approval with this id exists. [`StoreError::NotFound`] if
    /// its session has ended or its space was removed.
    pub async fn add_approval(&self, approval: Approval) -> Result<(), StoreError> {
        self.write(move |writing| Box::pin(async move { insert(writing, &approval).await })).await
    }

    /// Decides a pending approval. If several callers decide at the same time, exactly one decision
    /// counts.
    ///
    /// # Errors
    ///
    /// [`StoreError::AlreadyDecided`] with the current approval if it is no longer pending or has expired.
    /// [`StoreError::SubjectNotFullyShown`] if it would be granted although its subject is not shown
    /// completely. [`StoreError::NotFound`] if there is no such approval.
    pub async fn decide_approval(
        &self,
        id: ApprovalId,
        decision: ApprovalDecision,
        by: ApprovalDecider,
    ) -> Result<Approval, StoreError> {
        let decided = self.write_urgently(move |writing| {
            Box::pin(async move {
                let approval = pending(writing, id).await?;
                if is_over(&approval) {
                    let by = ApprovalDecider::for_timeout();
                    let status = ApprovalStatus::Expired;
                    let late = end(writing, approval, status, by, Some(OVERDUE.to_owned())).await?;
                    // Return the error inside `Ok`, so that the transaction commits and the
                    // approval is stored as expired.
                    return Ok(Err(StoreError::AlreadyDecided(Box::new(late))));
                }
                if decision.decision == ApproveOrDeny::Approve && approval.subject.is_cut {
                    return Err(StoreError::SubjectNotFullyShown(Box::new(approval)));
                }
                let status = decision.decision.resulting_status();
                Ok(Ok(end(writing, approval, status, by, decision.reason).await?))
            })
        });
        decided.await?
    }

    /// Uses the decision about exactly this digest, if the owner has a decision that is unused and
    /// not expired. If several callers try at the same time, only one of them gets the decision.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn use_decision_for_digest(
        &self,
        scope: ApprovalOwner,
        digest: String,
    ) -> Result<Option<Approval>, StoreError> {
        self.write(move |writing| {
            Box::pin(async move {
                let ScopeColumns { session, space, requester } = scope.columns()?;
                let sql = "SELECT id FROM approvals \
                     WHERE digest = $1 AND status IN ('approved', 'denied') AND used IS NULL \
                     AND run IS NULL AND (session = $2 OR space = $3 OR requester = $4) \
                     AND (expires IS NULL OR expires > $5) ORDER BY id LIMIT 1";
                let now = Time::now().as_millis();
                let query = sqlx::query_scalar(sql).bind(digest).bind(session).bind(space);
                let id: Option<String> = query
                    .bind(requester)
                    .bind(now)
                    .fetch_optional(writing.connection().await?)
                    .await?;
                let Some(id) = id else { return Ok(None) };
                let mut approval = read(writing, parse_id(&id)?).await?;
                use_up(writing, &mut approval).await?;
                Ok(Some(approval))
            })
        })
        .await
    }

    /// The pending approval of a space about exactly this digest. Approvals of runs are not
    /// considered.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn pending_approval_of_space(
        &self,
        space: SpaceId,
        digest: &str,
    ) -> Result<Option<Approval>, StoreError> {
        let sql = "SELECT body FROM approvals WHERE digest = $1 AND status = 'pending' \
             AND space = $2 AND run IS NULL ORDER BY id LIMIT 1";
        let query = sqlx::query_scalar(sql).bind(digest).bind(space.to_string());
        let body: Option<String> = query.fetch_optional(self.pool()).await?;
        body.map(|body| from_json("approval", &body)).transpose()
    }

    /// Records that the caller that asked now uses the decision, whether the approval was granted
    /// or denied. A decision can be used once.
    ///
    /// # Errors
    ///
    /// [`StoreError::UseDecision`] if the approval is pending, was used before, is about something else,
    /// or belongs to another owner. [`StoreError::NotFound`] if there is no such approval.
    pub async fn use_decision_of_approval(
        &self,
        id: ApprovalId,
        scope: ApprovalOwner,
        digest: String,
    ) -> Result<Approval, StoreError> {
        self.write_urgently(move |writing| {
            Box::pin(async move {
                let approval = read(writing, id).await?;
                if ApprovalOwner::for_approval(&approval) != Some(scope) {
                    return Err(StoreError::UseDecision(UseDecisionError::DifferentOwner));
                }
                answer(writing, approval, &digest).await
            })
        })
        .await
    }

    /// Ends a pending approval as expired, because the caller that asked no longer waits. Has no
    /// effect if the approval is not pending.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if there is no such approval.
    pub async fn withdraw_approval(
        &self,
        id: ApprovalId,
        by: ApprovalDecider,
        reason: String,
    ) -> Result<Approval, StoreError> {
        self.write_urgently(move |writing| {
            Box::pin(async move {
                let approval = read(writing, id).await?;
                if approval.status != ApprovalStatus::Pending {
                    return Ok(approval);
                }
                end(writing, approval, ApprovalStatus::Expired, by, Some(reason)).await
            })
        })
        .await
    }

    /// Expires every pending approval whose deadline has passed, and returns their ids.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn expire_overdue_approvals(&self, now: Time) -> Result<Vec<ApprovalId>, StoreError> {
        self.write(move |writing| {
            Box::pin(async move {
                let sql = "SELECT id FROM approvals WHERE status = 'pending' AND expires <= $1";
                let query = sqlx::query_scalar(sql).bind(now.as_millis());
                let ids: Vec<String> = query.fetch_all(writing.connection().await?).await?;
                expire_all(writing, ids, &ApprovalDecider::for_timeout(), OVERDUE).await
            })
        })
        .await
    }

    /// The time at which the next pending approval expires. `None` if no pending approval expires.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn next_approval_expiry(&self) -> Result<Option<Time>, StoreError> {
        let sql = "SELECT MIN(expires) FROM approvals WHERE status = 'pending'";
        let next: Option<i64> = sqlx::query_scalar(sql).fetch_one(self.pool()).await?;
        Ok(next.map(Time::from_millis))
    }

    /// Reads an approval.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if there is no such approval.
    pub async fn get_approval(&self, id: ApprovalId) -> Result<Approval, StoreError> {
        let sql = "SELECT body FROM approvals WHERE id = $1";
        let body: String =
            sqlx::query_scalar(sql).bind(id.to_string()).fetch_one(self.pool()).await?;
        from_json("approval", &body)
    }

    /// The approvals of a session whose decisions have not reached its agent, oldest first. After a
    /// restart, the session waits for the pending approvals, and still has to send its agent the
    /// decided ones.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn unanswered_approvals(
        &self,
        session: SessionId,
    ) -> Result<Vec<UnansweredApproval>, StoreError> {
        let sql = "SELECT body, told FROM approvals \
             WHERE session = $1 AND used IS NULL ORDER BY id";
        let rows = sqlx::query(sql).bind(session.to_string()).fetch_all(self.pool()).await?;
        let parse = |row: &SqliteRow| {
            let told: Option<i64> = row.try_get("told")?;
            let approval = from_json("approval", row.try_get("body")?)?;
            Ok(UnansweredApproval { approval, is_decision_told: told.is_some() })
        };
        rows.iter().map(parse).collect()
    }

    /// Waits until the approval is no longer pending. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if there is no such approval. [`StoreError::Closed`] if the store
    /// closes first.
    pub async fn wait_for_decision(&self, id: ApprovalId) -> Result<Approval, StoreError> {
        let mut closed = self.closed();
        loop {
            // Subscribe before the read, so that a decision after the read wakes this task.
            let mut signal = self.decision_signal(id);
            let approval = self.get_approval(id).await?;
            if approval.status != ApprovalStatus::Pending {
                return Ok(approval);
            }
            tokio::select! {
                // The sender is dropped when the approval is decided.
                _ = signal.changed() => {}
                _ = closed.wait_for(|closed| *closed) => return Err(StoreError::Closed),
            }
        }
    }

    /// Waits until any approval changes after this call, or until the store closes.
    pub fn wait_for_approval_change(&self) -> impl Future<Output = ()> + Send + use<> {
        let (mut revisions, mut closed) = (self.revisions(), self.closed());
        revisions.mark_unchanged();
        async move {
            tokio::select! {
                // `changed` cannot fail, because the sender lives as long as the store.
                _ = revisions.changed() => {}
                _ = closed.wait_for(|closed| *closed) => {}
            }
        }
    }

    /// The number of the last change of any approval. A reader that starts now uses it as its
    /// cursor.
    pub fn last_approval_revision(&self) -> u64 {
        *self.revisions().borrow()
    }

    /// Follows the changes of approvals.
    ///
    /// Without a cursor, the reader first returns the approvals that match the filter. Then it
    /// returns every change of the filter's session, even if the new status does not match the
    /// filter. A reader of pending approvals therefore sees when an approval is decided. With a
    /// cursor, the reader returns only these later changes. A cursor above the last change is
    /// ignored, because it comes from another database, such as the database before a restore.
    pub fn follow_approvals_and_changes(
        &self,
        filter: ApprovalFilter,
        after: Option<u64>,
    ) -> ApprovalChangeReader {
        // Subscribe before the first read, so that a change after this read wakes the reader.
        let mut wake_up = self.revisions();
        let now = *wake_up.borrow_and_update();
        let after = after.filter(|after| *after <= now);
        let (cursor, snapshot) = (after.unwrap_or_default(), after.is_none().then_some(now));
        let (batch, closed) = (VecDeque::new(), self.closed());
        ApprovalChangeReader {
            store: self.clone(),
            filter,
            cursor,
            snapshot,
            wake_up,
            batch,
            closed,
        }
    }

    /// A page of the approvals that match the filter, newest first, and the total number of
    /// matches.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn list_approvals(
        &self,
        filter: ApprovalFilter,
        page: PageRequest,
    ) -> Result<(Vec<Approval>, u64), StoreError> {
        let status = filter.status.map(ApprovalStatus::as_str);
        let session = filter.session.map(|id| id.to_string());
        let total: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM approvals \
             WHERE (CAST($1 AS TEXT) IS NULL OR status = $1) \
             AND (CAST($2 AS TEXT) IS NULL OR session = $2)",
        )
        .bind(status)
        .bind(&session)
        .fetch_one(self.pool())
        .await?;
        let rows = sqlx::query(
            "SELECT body FROM approvals \
             WHERE (CAST($1 AS TEXT) IS NULL OR status = $1) \
             AND (CAST($2 AS TEXT) IS NULL OR session = $2) \
             ORDER BY id DESC LIMIT $3 OFFSET $4",
        )
        .bind(status)
        .bind(&session)
        .bind(i64::from(page.per_page()))
        .bind(signed(page.offset()))
        .fetch_all(self.pool())
        .await?;
        let parse = |row: &SqliteRow| from_json("approval", row.try_get("body")?);
        let approvals = rows.iter().map(parse).collect::<Result<_, StoreError>>()?;
        Ok((approvals, unsigned(total)))
    }
}

/// Reads the changes of approvals. See [`Store::follow_approvals_and_changes`]. If an approval
/// changed several times between two reads, the reader returns only its latest state.
#[derive(Debug)]
pub struct ApprovalChangeReader {
    store: Store,
    filter: ApprovalFilter,
    cursor: u64,
    /// Up to this change, only approvals that match the filter are returned.
    snapshot: Option<u64>,
    wake_up: watch::Receiver<u64>,
    batch: VecDeque<ApprovalChange>,
    closed: watch::Receiver<bool>,
}

impl ApprovalChangeReader {
    /// Returns the next change. Waits until there is one. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`StoreError::Closed`] once the store is closed. Also fails if the database fails.
    pub async fn next(&mut self) -> Result<ApprovalChange, StoreError> {
        loop {
            if let Some(change) = self.batch.pop_front() {
                self.cursor = change.revision;
                return Ok(change);
            }
            let newest = *self.wake_up.borrow_and_update();
            self.batch = self.read().await?;
            if !self.batch.is_empty() {
                continue;
            }
            if let Some(snapshot) = self.snapshot.take() {
                self.cursor = snapshot;
                continue;
            }
            // Skip the changes of other sessions, so that they are not read again.
            self.cursor = self.cursor.max(newest);
            tokio::select! {
                changed = self.wake_up.changed() => changed.map_err(|_| StoreError::Closed)?,
                _ = self.closed.wait_for(|closed| *closed) => return Err(StoreError::Closed),
            }
        }
    }

    /// Converts the reader to a stream of changes. The stream ends when the store is closed.
    pub fn into_stream(self) -> impl Stream<Item = Result<ApprovalChange, StoreError>> + Send {
        stream::unfold(Some(self), |feed| async move {
            let mut feed = feed?;
            match feed.next().await {
                Ok(change) => Some((Ok(change), Some(feed))),
                Err(StoreError::Closed) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
    }

    async fn read(&self) -> Result<VecDeque<ApprovalChange>, StoreError> {
        let status = self.snapshot.and(self.filter.status).map(ApprovalStatus::as_str);
        let until = self.snapshot.map_or(i64::MAX, signed);
        let rows = sqlx::query(
            "SELECT revision, body FROM approvals \
             WHERE revision > $1 AND revision <= $2 \
             AND (CAST($3 AS TEXT) IS NULL OR status = $3) \
             AND (CAST($4 AS TEXT) IS NULL OR session = $4) \
             ORDER BY revision LIMIT $5",
        )
        .bind(signed(self.cursor))
        .bind(until)
        .bind(status)
        .bind(self.filter.session.map(|id| id.to_string()))
        .bind(BATCH)
        .fetch_all(self.store.pool())
        .await?;
        let parse = |row: &SqliteRow| {
            let revision = unsigned(row.try_get("revision")?);
            let approval = from_json("approval", row.try_get("body")?)?;
            Ok(ApprovalChange { revision, approval })
        };
        rows.iter().map(parse).collect()
    }
}

/// The stream that receives the events of an approval.
fn stream(approval: &Approval) -> Option<EventStreamId> {
    let session = approval.session_id.map(EventStreamId::Session);
    session.or_else(|| approval.space_id.map(EventStreamId::Space))
}

/// Adds an event about an approval to the approval's stream.
async fn publish(
    writing: &mut Writing,
    approval: &Approval,
    kind: EventKind,
    at: Time,
) -> Result<(), StoreError> {
    let Some(stream) = stream(approval) else { return Ok(()) };
    let event = Event { kind, ts: at };
    let json = to_json("event", &event)?;
    writing.append_to(stream, vec![NewRecord { at, kind: event.kind.name(), json }]).await
}

pub(crate) async fn insert(writing: &mut Writing, approval: &Approval) -> Result<(), StoreError> {
    // An owner that is gone would leave its question pending.
    match ApprovalOwner::for_approval(approval) {
        Some(ApprovalOwner::Session(id)) => sessions::check_live(writing, id).await?,
        Some(ApprovalOwner::Space(id)) => spaces::check_exists(writing, id).await?,
        Some(ApprovalOwner::Program(_)) | None => {}
    }
    let revision = writing.next_revision();
    sqlx::query(
        "INSERT INTO approvals \
         (id, session, space, run, requester, status, created, expires, digest, revision, body) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
    )
    .bind(approval.id.to_string())
    .bind(approval.session_id.map(|id| id.to_string()))
    .bind(approval.space_id.map(|id| id.to_string()))
    .bind(approval.run_id.map(|id| id.to_string()))
    .bind(approval.requester.as_ref().map(requester_key).transpose()?)
    .bind(approval.status.as_str())
    .bind(approval.created_at.as_millis())
    .bind(approval.expires_at.map(Time::as_millis))
    .bind(&approval.subject.digest)
    .bind(signed(revision))
    .bind(to_json("approval", approval)?)
    .execute(writing.connection().await?)
    .await?;
    let (approval_id, title) = (approval.id, approval.subject.title.clone());
    let kind = EventKind::ApprovalRequested { approval_id, title };
    publish(writing, approval, kind, approval.created_at).await
}

async fn read(writing: &mut Writing, id: ApprovalId) -> Result<Approval, StoreError> {
    let sql = "SELECT body FROM approvals WHERE id = $1";
    let query = sqlx::query_scalar(sql).bind(id.to_string());
    let body: String = query.fetch_one(writing.connection().await?).await?;
    from_json("approval", &body)
}

async fn pending(writing: &mut Writing, id: ApprovalId) -> Result<Approval, StoreError> {
    let approval = read(writing, id).await?;
    match approval.status {
        ApprovalStatus::Pending => Ok(approval),
        _ => Err(StoreError::AlreadyDecided(Box::new(approval))),
    }
}

/// Whether the time at which an approval expires has passed, so that its decision is no longer
/// valid.
fn is_over(approval: &Approval) -> bool {
    approval.expires_at.is_some_and(|expires| expires <= Time::now())
}

/// Ends a pending approval with this status and adds an event to its stream.
async fn end(
    writing: &mut Writing,
    mut approval: Approval,
    status: ApprovalStatus,
    by: ApprovalDecider,
    reason: Option<String>,
) -> Result<Approval, StoreError> {
    let (id, now) = (approval.id, Time::now());
    approval.status = status;
    approval.decided_at = Some(now);
    approval.decided_by = Some(by);
    approval.reason = reason;
    // The condition on the status keeps decisions unique even if several servers share the
    // database.
    let sql = "UPDATE approvals SET status = $2, revision = $3, body = $4 \
         WHERE id = $1 AND status = 'pending'";
    let done = sqlx::query(sql)
        .bind(id.to_string())
        .bind(status.as_str())
        .bind(signed(writing.next_revision()))
        .bind(to_json("approval", &approval)?)
        .execute(writing.connection().await?)
        .await?;
    if done.rows_affected() == 0 {
        return Err(StoreError::AlreadyDecided(Box::new(approval)));
    }
    writing.decided(id);
    let kind = EventKind::ApprovalDecided {
        approval_id: id,
        status,
        decided_by: approval.decided_by.clone(),
        reason: approval.reason.clone(),
    };
    publish(writing, &approval, kind, now).await?;
    Ok(approval)
}

/// Expires the pending approvals of a session that ends.
pub(crate) async fn expire_of_session(
    writing: &mut Writing,
    session: SessionId,
) -> Result<(), StoreError> {
    let sql = "SELECT id FROM approvals WHERE status = 'pending' AND session = $1";
    let query = sqlx::query_scalar(sql).bind(session.to_string());
    let ids: Vec<String> = query.fetch_all(writing.connection().await?).await?;
    let by = ApprovalDecider::for_server_rule("end of the session");
    expire_all(writing, ids, &by, "the session ended").await?;
    Ok(())
}

/// Expires the pending approvals of a space, those of its runs included.
pub(crate) async fn expire_of_space(
    writing: &mut Writing,
    space: SpaceId,
    reason: &str,
) -> Result<(), StoreError> {
    let sql = "SELECT id FROM approvals WHERE status = 'pending' AND space = $1";
    let query = sqlx::query_scalar(sql).bind(space.to_string());
    let ids: Vec<String> = query.fetch_all(writing.connection().await?).await?;
    let by = ApprovalDecider::for_server_rule("end of the space");
    expire_all(writing, ids, &by, reason).await?;
    Ok(())
}

/// Expires the pending approvals of a run.
pub(crate) async fn expire_of_run(
    writing: &mut Writing,
    run: RunId,
    reason: &str,
) -> Result<(), StoreError> {
    let sql = "SELECT id FROM approvals WHERE status = 'pending' AND run = $1";
    let query = sqlx::query_scalar(sql).bind(run.to_string());
    let ids: Vec<String> = query.fetch_all(writing.connection().await?).await?;
    let by = ApprovalDecider::for_server_rule("end of the run");
    expire_all(writing, ids, &by, reason).await?;
    Ok(())
}

/// Marks the decision of an approval as used. Fails if it may not be used for the operation with
/// this digest.
async fn answer(
    writing: &mut Writing,
    mut approval: Approval,
    digest: &str,
) -> Result<Approval, StoreError> {
    let refusal = if approval.status == ApprovalStatus::Pending {
        Some(UseDecisionError::NotApproved(ApprovalStatus::Pending))
    } else if approval.subject.digest.as_deref().unwrap_or_default() != digest {
        Some(UseDecisionError::DifferentOperation)
    } else if approval.used_at.is_some() {
        Some(UseDecisionError::AlreadyUsed)
    } else if approval.status == ApprovalStatus::Approved && is_over(&approval) {
        Some(UseDecisionError::Expired)
    } else {
        None
    };
    if let Some(refusal) = refusal {
        return Err(StoreError::UseDecision(refusal));
    }
    use_up(writing, &mut approval).await?;
    Ok(approval)
}

/// Marks a granted approval as used.
///
/// # Errors
///
/// [`StoreError::AlreadyDecided`] if the approval is not granted or was used before.
pub(crate) async fn mark_used(
    writing: &mut Writing,
    id: ApprovalId,
) -> Result<Approval, StoreError> {
    let mut approval = read(writing, id).await?;
    if approval.status != ApprovalStatus::Approved || approval.used_at.is_some() {
        return Err(StoreError::AlreadyDecided(Box::new(approval)));
    }
    use_up(writing, &mut approval).await?;
    Ok(approval)
}

async fn use_up(writing: &mut Writing, approval: &mut Approval) -> Result<(), StoreError> {
    let now = Time::now();
    approval.used_at = Some(now);
    // The condition on `used` keeps each use unique even if several servers share the database.
    let sql = "UPDATE approvals SET used = $2, revision = $3, body = $4 \
         WHERE id = $1 AND used IS NULL";
    let done = sqlx::query(sql)
        .bind(approval.id.to_string())
        .bind(now.as_millis())
        .bind(signed(writing.next_revision()))
        .bind(to_json("approval", approval)?)
        .execute(writing.connection().await?)
        .await?;
    if done.rows_affected() == 0 {
        return Err(StoreError::UseDecision(UseDecisionError::AlreadyUsed));
    }
    Ok(())
}

/// Records that a restarted session queued a prompt that tells its agent these decisions.
pub(crate) async fn note_told(writing: &mut Writing, ids: &[ApprovalId]) -> Result<(), StoreError> {
    for id in ids {
        sqlx::query("UPDATE approvals SET told = $2 WHERE id = $1")
            .bind(id.to_string())
            .bind(Time::now().as_millis())
            .execute(writing.connection().await?)
            .await?;
    }
    Ok(())
}

async fn expire_all(
    writing: &mut Writing,
    ids: Vec<String>,
    by: &ApprovalDecider,
    reason: &str,
) -> Result<Vec<ApprovalId>, StoreError> {
    let mut expired = Vec::with_capacity(ids.len());
    for id in ids {
        let approval = pending(writing, parse_id(&id)?).await?;
        expired.push(approval.id);
        let reason = Some(reason.to_owned());
        end(writing, approval, ApprovalStatus::Expired, by.clone(), reason).await?;
    }
    Ok(expired)
}
