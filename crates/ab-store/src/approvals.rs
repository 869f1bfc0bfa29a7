//! Approvals: stored questions, decided at most once.

use ab_api::{
    Approval, ApprovalDecider, ApprovalDecision, ApprovalId, ApprovalStatus, Event, EventKind,
    PageRequest, RunId, SessionId, SpaceId, Time,
};
use sqlx::Row;

use crate::error::StoreError;
use crate::record::{EventStreamId, parse_id, signed, unsigned};
use crate::store::Store;
use crate::writer::{NewRecord, Writing, from_json, to_json};

/// Filters a list of approvals. The default matches all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ApprovalFilter {
    pub status: Option<ApprovalStatus>,
    pub session: Option<SessionId>,
}

/// Whose approval may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantScope {
    Session(SessionId),
    Space(SpaceId),
}

impl Store {
    /// Uses an approval for exactly this digest, if the session or space has an unused one. Of
    /// several concurrent callers one gets it.
    ///
    /// # Errors
    ///
    /// Errors of the database.
    pub async fn use_grant(
        &self,
        scope: GrantScope,
        digest: String,
    ) -> Result<Option<Approval>, StoreError> {
        self.write(move |writing| {
            Box::pin(async move {
                let (session, space) = match scope {
                    GrantScope::Session(id) => (Some(id.to_string()), None),
                    GrantScope::Space(id) => (None, Some(id.to_string())),
                };
                let sql = "SELECT id FROM approvals \
                     WHERE digest = $1 AND status = 'approved' AND used IS NULL AND run IS NULL \
                     AND (session = $2 OR space = $3) ORDER BY id LIMIT 1";
                let query = sqlx::query_scalar(sql).bind(digest).bind(session).bind(space);
                let id: Option<String> = query.fetch_optional(&mut writing.connection).await?;
                match id {
                    Some(id) => mark_used(writing, parse_id(&id)?).await.map(Some),
                    None => Ok(None),
                }
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

    /// Stores a question and adds an event to its stream.
    ///
    /// # Errors
    ///
    /// [`StoreError::Exists`] if an approval with this id exists.
    pub async fn add_approval(&self, approval: Approval) -> Result<(), StoreError> {
        self.write(move |writing| Box::pin(insert(writing, approval))).await
    }

    /// Decides a pending approval. Of several concurrent decisions exactly one counts.
    ///
    /// # Errors
    ///
    /// [`StoreError::Decided`] with the stored approval if it is not pending;
    /// [`StoreError::NotFound`].
    pub async fn decide_approval(
        &self,
        id: ApprovalId,
        decision: ApprovalDecision,
        by: ApprovalDecider,
    ) -> Result<Approval, StoreError> {
        self.write(move |writing| {
            Box::pin(async move {
                let status = decision.decision.resulting_status();
                end(writing, id, status, Some(by), decision.reason).await
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
            Box::pin(async move { expire_of(writing, session, &reason).await })
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
                let ids: Vec<String> = query.fetch_all(&mut writing.connection).await?;
                expire_all(writing, ids, "nobody decided in time").await
            })
        })
        .await
    }

    /// An approval.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if there is none.
    pub async fn approval(&self, id: ApprovalId) -> Result<Approval, StoreError> {
        let sql = "SELECT body FROM approvals WHERE id = $1";
        let body: String =
            sqlx::query_scalar(sql).bind(id.to_string()).fetch_one(self.pool()).await?;
        from_json("approval", &body)
    }

    /// Waits until the approval is no longer pending. Cancel safe.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if there is none; [`StoreError::Closed`] if the store closes first.
    pub async fn wait_for_decision(&self, id: ApprovalId) -> Result<Approval, StoreError> {
        let mut closed = self.closed();
        loop {
            // Subscribe before the read, so that a decision after the read wakes this task.
            let mut signal = self.decision_signal(id);
            let approval = self.approval(id).await?;
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

    /// A page of the approvals that match the filter, newest first, and the total number of
    /// matches.
    ///
    /// # Errors
    ///
    /// Errors of the database.
    pub async fn approvals(
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
        let parse = |row: &sqlx::sqlite::SqliteRow| from_json("approval", row.try_get("body")?);
        let approvals = rows.iter().map(parse).collect::<Result<_, StoreError>>()?;
        Ok((approvals, unsigned(total)))
    }
}

/// Marks an approval as used.
///
/// # Errors
///
/// [`StoreError::Decided`] if it is not approved, or already used.
pub(crate) async fn mark_used(
    writing: &mut Writing,
    id: ApprovalId,
) -> Result<Approval, StoreError> {
    let sql = "SELECT body FROM approvals WHERE id = $1";
    let query = sqlx::query_scalar(sql).bind(id.to_string());
    let body: String = query.fetch_one(&mut writing.connection).await?;
    let mut approval: Approval = from_json("approval", &body)?;
    let now = Time::now();
    approval.used_at = Some(now);
    let sql = "UPDATE approvals SET used = $2, body = $3 \
         WHERE id = $1 AND status = 'approved' AND used IS NULL";
    let done = sqlx::query(sql)
        .bind(id.to_string())
        .bind(now.as_millis())
        .bind(to_json("approval", &approval)?)
        .execute(&mut writing.connection)
        .await?;
    if done.rows_affected() == 0 {
        return Err(StoreError::Decided(Box::new(approval)));
    }
    Ok(approval)
}

/// The stream that gets the events of an approval.
fn stream(approval: &Approval) -> Option<EventStreamId> {
    let session = approval.session_id.map(EventStreamId::Session);
    session.or_else(|| approval.space_id.map(EventStreamId::Space))
}

/// Adds an event to the stream of an approval.
async fn tell(
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

pub(crate) async fn insert(writing: &mut Writing, approval: Approval) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO approvals (id, session, space, run, status, created, expires, digest, body) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(approval.id.to_string())
    .bind(approval.session_id.map(|id| id.to_string()))
    .bind(approval.space_id.map(|id| id.to_string()))
    .bind(approval.run_id.map(|id| id.to_string()))
    .bind(approval.status.as_str())
    .bind(approval.created_at.as_millis())
    .bind(approval.expires_at.map(Time::as_millis))
    .bind(&approval.subject.digest)
    .bind(to_json("approval", &approval)?)
    .execute(&mut writing.connection)
    .await?;
    let title = approval.subject.title.clone();
    let kind = EventKind::ApprovalRequested { approval_id: approval.id, title };
    tell(writing, &approval, kind, approval.created_at).await
}

/// Ends a pending approval and adds an event to its stream.
async fn end(
    writing: &mut Writing,
    id: ApprovalId,
    status: ApprovalStatus,
    by: Option<ApprovalDecider>,
    reason: Option<String>,
) -> Result<Approval, StoreError> {
    let sql = "SELECT body FROM approvals WHERE id = $1";
    let query = sqlx::query_scalar(sql).bind(id.to_string());
    let body: String = query.fetch_one(&mut writing.connection).await?;
    let mut approval: Approval = from_json("approval", &body)?;
    if approval.status != ApprovalStatus::Pending {
        return Err(StoreError::Decided(Box::new(approval)));
    }
    let now = Time::now();
    approval.status = status;
    approval.decided_at = Some(now);
    approval.decided_by = by;
    approval.reason = reason;
    // The condition also holds if several servers share the database.
    let sql = "UPDATE approvals SET status = $2, body = $3 WHERE id = $1 AND status = 'pending'";
    let done = sqlx::query(sql)
        .bind(id.to_string())
        .bind(status.as_str())
        .bind(to_json("approval", &approval)?)
        .execute(&mut writing.connection)
        .await?;
    if done.rows_affected() == 0 {
        return Err(StoreError::Decided(Box::new(approval)));
    }
    let kind = EventKind::ApprovalDecided {
        approval_id: id,
        status,
        decided_by: approval.decided_by.clone(),
        reason: approval.reason.clone(),
    };
    tell(writing, &approval, kind, now).await?;
    writing.decided(id);
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
    let ids: Vec<String> = query.fetch_all(&mut writing.connection).await?;
    expire_all(writing, ids, reason).await?;
    Ok(())
}

/// Expires the pending approvals of a session.
pub(crate) async fn expire_of(
    writing: &mut Writing,
    session: SessionId,
    reason: &str,
) -> Result<(), StoreError> {
    let sql = "SELECT id FROM approvals WHERE status = 'pending' AND session = $1";
    let query = sqlx::query_scalar(sql).bind(session.to_string());
    let ids: Vec<String> = query.fetch_all(&mut writing.connection).await?;
    expire_all(writing, ids, reason).await?;
    Ok(())
}

async fn expire_all(
    writing: &mut Writing,
    ids: Vec<String>,
    reason: &str,
) -> Result<Vec<ApprovalId>, StoreError> {
    let mut expired = Vec::with_capacity(ids.len());
    for id in ids {
        let id = parse_id(&id)?;
        end(writing, id, ApprovalStatus::Expired, None, Some(reason.to_owned())).await?;
        expired.push(id);
    }
    Ok(expired)
}
