//! Approvals: stored questions, decided at most once, whose answer is used at most once.

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

pub use programs::RequestedApproval;

/// How many changes a feed holds at most.
const BATCH: i64 = 64;
/// Why an approval expired whose time is over.
const OVERDUE: &str = "no decision was made in time";

/// Which approvals a list has. The default has all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ApprovalFilter {
    pub status: Option<ApprovalStatus>,
    pub session: Option<SessionId>,
}

/// Whose approval may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalOwner {
    Session(SessionId),
    Space(SpaceId),
    /// A program outside the server.
    Program(ApprovalRequester),
}

impl ApprovalOwner {
    /// The session, space or program that an approval is of.
    pub fn for_approval(approval: &Approval) -> Option<ApprovalOwner> {
        let session = approval.session_id.map(ApprovalOwner::Session);
        let space = || approval.space_id.map(ApprovalOwner::Space);
        let program = || approval.requester.clone().map(ApprovalOwner::Program);
        session.or_else(space).or_else(program)
    }

    /// The columns that name it.
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

/// The values of the columns that say whose an approval is. One of them is set.
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

/// An approval whose answer its caller does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnansweredApproval {
    pub approval: Approval,
    /// Whether a restarted session told its agent how the approval was decided.
    pub is_told: bool,
}

/// An approval after a change of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalChange {
    /// Counts the changes of all approvals. The cursor of a feed.
    pub revision: u64,
    pub approval: Approval,
}

impl Store {
    /// Stores a question and tells the session's stream about it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Exists`] if an approval with this id exists.
    pub async fn add_approval(&self, approval: Approval) -> Result<(), StoreError> {
        self.write(move |writing| Box::pin(async move { insert(writing, &approval).await })).await
    }

    /// Decides a pending approval. Of several decisions at the same time exactly one counts.
    ///
    /// # Errors
    ///
    /// [`StoreError::Decided`] with the approval as it is, if it is not pending or its time is over;
    /// [`StoreError::Incomplete`] for a yes to something that is not shown whole; [`StoreError::NotFound`].
    pub async fn decide_approval(
        &self,
        id: ApprovalId,
        decision: ApprovalDecision,
        by: ApprovalDecider,
    ) -> Result<Approval, StoreError> {
        let decided = self.write(move |writing| {
            Box::pin(async move {
                let approval = pending(writing, id).await?;
                if is_over(&approval) {
                    let by = ApprovalDecider::for_timeout();
                    let status = ApprovalStatus::Expired;
                    let late = end(writing, approval, status, by, Some(OVERDUE.to_owned())).await?;
                    // Not an error here: that the approval expired must be stored.
                    return Ok(Err(StoreError::Decided(Box::new(late))));
                }
                if decision.decision == ApproveOrDeny::Approve && approval.subject.is_cut {
                    return Err(StoreError::Incomplete(Box::new(approval)));
                }
                let status = decision.decision.resulting_status();
                Ok(Ok(end(writing, approval, status, by, decision.reason).await?))
            })
        });
        decided.await?
    }

    /// Takes the decision about exactly this digest, if the session or space has one that nobody has taken and whose
    /// time is not over. Of several callers at the same time one gets it.
    ///
    /// # Errors
    ///
    /// Errors of the database.
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

    /// The pending approval of a space about exactly this digest that belongs to no run.
    ///
    /// # Errors
    ///
    /// Errors of the database.
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

    /// Records that the caller that asked gets the answer now, yes or no. An answer is taken once.
    ///
    /// # Errors
    ///
    /// [`StoreError::Grant`] if the approval is pending, was answered before, or is about something else;
    /// [`StoreError::NotFound`] if there is none.
    pub async fn use_decision_of_approval(
        &self,
        id: ApprovalId,
        scope: ApprovalOwner,
        digest: String,
    ) -> Result<Approval, StoreError> {
        self.write(move |writing| {
            Box::pin(async move {
                let approval = read(writing, id).await?;
                if ApprovalOwner::for_approval(&approval) != Some(scope) {
                    return Err(StoreError::Grant(UseDecisionError::Foreign));
                }
                answer(writing, approval, &digest).await
            })
        })
        .await
    }

    /// Ends a pending approval as expired, because what asked no longer waits. Harmless if it is not pending.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if there is none.
    pub async fn withdraw_approval(
        &self,
        id: ApprovalId,
        by: ApprovalDecider,
        reason: String,
    ) -> Result<Approval, StoreError> {
        self.write(move |writing| {
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

    /// Expires every pending approval of a session, because the agent that asked is gone.
    ///
    /// # Errors
    ///
    /// Errors of the database.
    pub async fn expire_session_approvals(
        &self,
        session: SessionId,
        reason: String,
    ) -> Result<(), StoreError> {
        self.write(move |writing| {
            Box::pin(async move {
                let sql = "SELECT id FROM approvals WHERE status = 'pending' AND session = $1";
                let query = sqlx::query_scalar(sql).bind(session.to_string());
                let ids: Vec<String> = query.fetch_all(writing.connection().await?).await?;
                let by = ApprovalDecider::for_server_rule("end of the session");
                expire_all(writing, ids, &by, &reason).await?;
                Ok(())
            })
        })
        .await
    }

    /// Expires every pending approval whose deadline has passed, and returns their ids.
    ///
    /// # Errors
    ///
    /// Errors of the database.
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

    /// When the next pending approval expires.
    ///
    /// # Errors
    ///
    /// Errors of the database.
    pub async fn next_approval_expiry(&self) -> Result<Option<Time>, StoreError> {
        let sql = "SELECT MIN(expires) FROM approvals WHERE status = 'pending'";
        let next: Option<i64> = sqlx::query_scalar(sql).fetch_one(self.pool()).await?;
        Ok(next.map(Time::from_millis))
    }

    /// An approval.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if there is none.
    pub async fn get_approval(&self, id: ApprovalId) -> Result<Approval, StoreError> {
        let sql = "SELECT body FROM approvals WHERE id = $1";
        let body: String =
            sqlx::query_scalar(sql).bind(id.to_string()).fetch_one(self.pool()).await?;
        from_json("approval", &body)
    }

    /// The approvals of a session whose answers its agent does not have, oldest first: what a restarted session waits
    /// for, and which answers it still has to give.
    ///
    /// # Errors
    ///
    /// Errors of the database.
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
            Ok(UnansweredApproval { approval, is_told: told.is_some() })
        };
        rows.iter().map(parse).collect()
    }

    /// Waits until the approval is no longer pending. Dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if there is none; [`StoreError::Closed`] if the store closes first.
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

    /// Waits until some approval changes after the call, or the store closes.
    pub fn wait_for_approval_change(&self) -> impl Future<Output = ()> + Send + use<> {
        let (mut revisions, mut closed) = (self.revisions(), self.closed());
        revisions.mark_unchanged();
        async move {
            tokio::select! {
                // The sender lives as long as the store.
                _ = revisions.changed() => {}
                _ = closed.wait_for(|closed| *closed) => {}
            }
        }
    }

    /// The revision of the approval that changed last: the cursor of a feed that starts now.
    pub fn last_approval_revision(&self) -> u64 {
        *self.revisions().borrow()
    }

    /// Follows the changes of approvals. Without a cursor the feed begins with the approvals that pass the filter; then, and
    /// with a cursor from the start, it has every later change of the filter's session, whatever the status: a reader
    /// of pending approvals is told when one is decided. A cursor above the last revision is from another database, such
    /// as the one before a restore, and counts as none.
    pub fn follow_approvals_and_changes(
        &self,
        filter: ApprovalFilter,
        after: Option<u64>,
    ) -> ApprovalChangeReader {
        // Subscribed before the first read: a change after that read signals.
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

    /// A page of the approvals that pass the filter, newest first, and how many pass it in all.
    ///
    /// # Errors
    ///
    /// Errors of the database.
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

/// A reader of the changes of approvals, see [`Store::follow_approvals_and_changes`]. An approval that changed several times while its
/// reader was away comes once, as it is.
#[derive(Debug)]
pub struct ApprovalChangeReader {
    store: Store,
    filter: ApprovalFilter,
    cursor: u64,
    /// The revision up to which only what passes the filter is given.
    snapshot: Option<u64>,
    wake_up: watch::Receiver<u64>,
    batch: VecDeque<ApprovalChange>,
    closed: watch::Receiver<bool>,
}

impl ApprovalChangeReader {
    /// The next change. Waits until there is one; dropping the future loses nothing.
    ///
    /// # Errors
    ///
    /// [`StoreError::Closed`] once the store is closed, and errors of the database.
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
            // Changes of other sessions are not read again.
            self.cursor = self.cursor.max(newest);
            tokio::select! {
                changed = self.wake_up.changed() => changed.map_err(|_| StoreError::Closed)?,
                _ = self.closed.wait_for(|closed| *closed) => return Err(StoreError::Closed),
            }
        }
    }

    /// The changes as a stream, which ends when the store is closed.
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

/// The stream that gets the events of an approval.
fn stream(approval: &Approval) -> Option<EventStreamId> {
    let session = approval.session_id.map(EventStreamId::Session);
    session.or_else(|| approval.space_id.map(EventStreamId::Space))
}

/// Tells the stream of an approval about it.
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
        _ => Err(StoreError::Decided(Box::new(approval))),
    }
}

/// Whether the time of an approval is over.
fn is_over(approval: &Approval) -> bool {
    approval.expires_at.is_some_and(|expires| expires <= Time::now())
}

/// Ends a pending approval and adds an event to its stream.
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
    // The condition keeps the rule where several servers share the database.
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
        return Err(StoreError::Decided(Box::new(approval)));
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

/// Marks the answer as taken.
async fn answer(
    writing: &mut Writing,
    mut approval: Approval,
    digest: &str,
) -> Result<Approval, StoreError> {
    let refusal = if approval.status == ApprovalStatus::Pending {
        Some(UseDecisionError::NotApproved(ApprovalStatus::Pending))
    } else if approval.subject.digest.as_deref().unwrap_or_default() != digest {
        Some(UseDecisionError::Changed)
    } else if approval.used_at.is_some() {
        Some(UseDecisionError::Used)
    } else if approval.status == ApprovalStatus::Approved && is_over(&approval) {
        Some(UseDecisionError::Expired)
    } else {
        None
    };
    if let Some(refusal) = refusal {
        return Err(StoreError::Grant(refusal));
    }
    use_up(writing, &mut approval).await?;
    Ok(approval)
}

/// Marks a yes as used.
///
/// # Errors
///
/// [`StoreError::Decided`] if it is no unused yes.
pub(crate) async fn mark_used(
    writing: &mut Writing,
    id: ApprovalId,
) -> Result<Approval, StoreError> {
    let mut approval = read(writing, id).await?;
    if approval.status != ApprovalStatus::Approved || approval.used_at.is_some() {
        return Err(StoreError::Decided(Box::new(approval)));
    }
    use_up(writing, &mut approval).await?;
    Ok(approval)
}

async fn use_up(writing: &mut Writing, approval: &mut Approval) -> Result<(), StoreError> {
    let now = Time::now();
    approval.used_at = Some(now);
    // The condition keeps the rule where several servers share the database.
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
        return Err(StoreError::Grant(UseDecisionError::Used));
    }
    Ok(())
}

/// Records that a restarted session tells its agent how these approvals were decided.
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
