//! Creates, changes and reads sessions.

use ab_api::{Event, PromptStatus, Session, SessionId, Time};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::approvals;
use crate::digest::sha256;
use crate::error::StoreError;
use crate::progress::StoredSessionProgress;
use crate::prompts::{self, PromptQueuePosition};
use crate::store::{Store, WriteUrgency};
use crate::uploads;
use crate::writer::{Writing, from_json, to_json};

/// How long an idempotency key is valid.
const KEY_LIFETIME_MILLIS: i64 = 24 * 60 * 60 * 1000;

/// A session with the stored state of the task that runs it (its driver).
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRecord {
    pub session: Session,
    pub progress: StoredSessionProgress,
}

/// A session to create.
#[derive(Debug, Clone)]
pub struct NewSession {
    pub record: SessionRecord,
    /// The first events of the session's stream.
    pub events: Vec<Event>,
    /// The key by which a repeated request is recognized.
    pub idempotency: Option<IdempotencyRecord>,
    /// The earlier session. The new session takes over its workspace and its cleanup tokens.
    pub continues_session: Option<SessionId>,
}

/// A key that a client sends with a request, so that a repeated request does not create anything
/// again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyRecord {
    /// Identifies the caller. Different callers can use the same key.
    pub scope: String,
    pub key: String,
    /// The request. Only its digest is stored.
    pub request: Vec<u8>,
    /// The answer to store. A repeated request receives it.
    pub response: String,
}

/// The outcome of creating a [`NewSession`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreateSessionOutcome {
    /// The session was created.
    New,
    /// An earlier request with the same key created a session. This is the answer that was stored
    /// then.
    Existing { response: String },
}

impl Store {
    /// Stores a new session, its first prompt, its first events, and the answer of its idempotency
    /// key, in one transaction.
    ///
    /// # Errors
    ///
    /// [`StoreError::IdempotencyKeyReused`] if the key was used with another request. [`StoreError::AlreadyExists`]
    /// if a session with this id exists. [`StoreError::NoWorkspaceToContinue`] if there is no workspace to
    /// take over.
    pub async fn create_session(
        &self,
        session: NewSession,
    ) -> Result<CreateSessionOutcome, StoreError> {
        self.create_sessions(vec![session]).await
    }

    /// Stores the sessions of one task in one transaction. The first session carries the
    /// idempotency key of the request.
    ///
    /// # Errors
    ///
    /// The same as for [`create_session`](Store::create_session). If it fails, no session is
    /// stored.
    pub async fn create_sessions(
        &self,
        sessions: Vec<NewSession>,
    ) -> Result<CreateSessionOutcome, StoreError> {
        self.write(move |writing| {
            Box::pin(async move {
                for session in sessions {
                    let outcome = create(writing, session).await?;
                    if let CreateSessionOutcome::Existing { .. } = outcome {
                        return Ok(outcome);
                    }
                }
                Ok(CreateSessionOutcome::New)
            })
        })
        .await
    }

    /// The stored answer to an earlier request with this key. `None` if there was no such request.
    ///
    /// # Errors
    ///
    /// [`StoreError::IdempotencyKeyReused`] if the key was used with another request.
    pub async fn find_idempotent_response(
        &self,
        scope: &str,
        key: &str,
        request: &[u8],
    ) -> Result<Option<String>, StoreError> {
        let query = sqlx::query(ANSWER).bind(scope).bind(key);
        let Some(row) = query.fetch_optional(self.pool()).await? else { return Ok(None) };
        let created: i64 = row.try_get("created")?;
        if created < Time::now().as_millis() - KEY_LIFETIME_MILLIS {
            return Ok(None);
        }
        stored_answer(&row, request).map(Some)
    }

    /// Stores a changed session together with the events that describe the change. If the session
    /// is ending, its pending approvals expire.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if there is no such session.
    pub async fn update_session(
        &self,
        record: SessionRecord,
        events: Vec<Event>,
    ) -> Result<(), StoreError> {
        let session = &record.session;
        let has_uploads = session.repo.upload_id.is_some() || !session.task.attachments.is_empty();
        let is_over = has_uploads && session.status.is_terminal();
        self.write_as(urgency_of(&record), move |writing| {
            Box::pin(async move {
                update(writing, &record).await?;
                writing.append(record.session.id, &events).await
            })
        })
        .await?;
        if is_over {
            self.wake_upload_sweep();
        }
        Ok(())
    }

    /// Stores a session whose processes were lost, together with the events that describe this. If
    /// its agent may have received a prompt, the prompt gets the status `unknown`. It is urgent also
    /// if the session is ending.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if there is no such session.
    pub async fn restart_session(
        &self,
        record: SessionRecord,
        events: Vec<Event>,
        urgency: WriteUrgency,
    ) -> Result<(), StoreError> {
        let urgency = match urgency {
            WriteUrgency::Urgent => urgency,
            WriteUrgency::Normal => urgency_of(&record),
        };
        self.write_as(urgency, move |writing| {
            Box::pin(async move {
                let id = record.session.id;
                prompts::end_sent(writing, id, PromptStatus::Unknown).await?;
                update(writing, &record).await?;
                writing.append(id, &events).await
            })
        })
        .await
    }

    /// Reads a session together with the state that its driver stored, without the additions that
    /// clients see.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if there is no such session.
    pub async fn session_record(&self, id: SessionId) -> Result<SessionRecord, StoreError> {
        let sql = "SELECT body, progress FROM sessions WHERE id = $1";
        let row = sqlx::query(sql).bind(id.to_string()).fetch_one(self.pool()).await?;
        record(&row)
    }

    /// A session as clients see it. If it has not ended, it includes its open approvals and recent
    /// events.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if there is no such session.
    pub async fn get_session(&self, id: SessionId) -> Result<Session, StoreError> {
        let session = self.session_record(id).await?.session;
        self.complete(vec![session]).await?.pop().ok_or(StoreError::NotFound)
    }

    /// Every session that has not ended, oldest first. The server resumes them when it starts.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn unfinished_sessions(&self) -> Result<Vec<SessionRecord>, StoreError> {
        let sql = "SELECT body, progress FROM sessions WHERE live = 1 ORDER BY id";
        let rows = sqlx::query(sql).fetch_all(self.pool()).await?;
        rows.iter().map(record).collect()
    }
}

const ANSWER: &str =
    "SELECT digest, answer, created FROM idempotency_keys WHERE scope = $1 AND key = $2";

async fn create(
    writing: &mut Writing,
    new: NewSession,
) -> Result<CreateSessionOutcome, StoreError> {
    if let Some(answer) = claim_key(writing, new.idempotency.as_ref()).await? {
        return Ok(CreateSessionOutcome::Existing { response: answer });
    }
    let session = &new.record.session;
    if let Some(before) = new.continues_session {
        if writing.is_workspace_leaving(before) {
            return Err(StoreError::NoWorkspaceToContinue);
        }
        let taken =
            sqlx::query("UPDATE cleanups SET session = $1 WHERE session = $2 AND removing IS NULL")
                .bind(session.id.to_string())
                .bind(before.to_string())
                .execute(writing.connection().await?)
                .await?;
        if taken.rows_affected() == 0 {
            return Err(StoreError::NoWorkspaceToContinue);
        }
    }
    sqlx::query(
        "INSERT INTO sessions \
         (id, tenant, project, status, live, agent, repo, created, updated, body, progress, task) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
    )
    .bind(session.id.to_string())
    .bind(&session.tenant_id)
    .bind(&session.project_id)
    .bind(session.status.as_str())
    .bind(live(session))
    .bind(&session.agent.kind)
    .bind(&session.repo.url)
    .bind(session.created_at.as_millis())
    .bind(session.updated_at.as_millis())
    .bind(to_json("session", session)?)
    .bind(to_json("session", &new.record.progress)?)
    .bind(session.task_group.map_or(session.id, |group| group.id).to_string())
    .execute(writing.connection().await?)
    .await?;
    for (name, value) in &session.labels {
        sqlx::query("INSERT INTO session_labels (session, name, value) VALUES ($1, $2, $3)")
            .bind(session.id.to_string())
            .bind(name)
            .bind(value)
            .execute(writing.connection().await?)
            .await?;
    }
    // A session that continues another session does not claim uploads, because the files are
    // already in the workspace.
    if new.continues_session.is_none() {
        uploads::claim(writing, session).await?;
    }
    prompts::insert(writing, session.id, 1, PromptQueuePosition::Last, &session.prompt).await?;
    writing.append(session.id, &new.events).await?;
    Ok(CreateSessionOutcome::New)
}

/// Stores a key with its answer. If an earlier request used the same key, returns the answer of
/// that request instead.
pub(crate) async fn claim_key(
    writing: &mut Writing,
    key: Option<&IdempotencyRecord>,
) -> Result<Option<String>, StoreError> {
    let Some(key) = key else { return Ok(None) };
    remove_old_keys(writing).await?;
    let query = sqlx::query(ANSWER).bind(&key.scope).bind(&key.key);
    if let Some(row) = query.fetch_optional(writing.connection().await?).await? {
        return stored_answer(&row, &key.request).map(Some);
    }
    sqlx::query(
        "INSERT INTO idempotency_keys (scope, key, digest, answer, created) \
         VALUES ($1, $2, $3, $4, $5)",
    )
    .bind(&key.scope)
    .bind(&key.key)
    .bind(sha256(&key.request))
    .bind(&key.response)
    .bind(Time::now().as_millis())
    .execute(writing.connection().await?)
    .await?;
    Ok(None)
}

/// Removes expired keys. Their requests can no longer be repeated.
pub(crate) async fn remove_old_keys(writing: &mut Writing) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM idempotency_keys WHERE created < $1")
        .bind(Time::now().as_millis() - KEY_LIFETIME_MILLIS)
        .execute(writing.connection().await?)
        .await?;
    Ok(())
}

fn stored_answer(row: &SqliteRow, request: &[u8]) -> Result<String, StoreError> {
    let digest: &str = row.try_get("digest")?;
    if digest != sha256(request) {
        return Err(StoreError::IdempotencyKeyReused);
    }
    Ok(row.try_get("answer")?)
}

pub(crate) async fn update(
    writing: &mut Writing,
    record: &SessionRecord,
) -> Result<(), StoreError> {
    let session = &record.session;
    let done = sqlx::query(
        "UPDATE sessions SET status = $2, live = $3, updated = $4, body = $5, progress = $6 \
         WHERE id = $1",
    )
    .bind(session.id.to_string())
    .bind(session.status.as_str())
    .bind(live(session))
    .bind(session.updated_at.as_millis())
    .bind(to_json("session", session)?)
    .bind(to_json("session", &record.progress)?)
    .execute(writing.connection().await?)
    .await?;
    if done.rows_affected() == 0 {
        return Err(StoreError::NotFound);
    }
    if record.progress.ending.is_some() {
        approvals::expire_of_session(writing, session.id).await?;
    }
    if session.status.is_terminal() {
        prompts::end_all(writing, session.id).await?;
    }
    Ok(())
}

/// Fails with [`StoreError::NotFound`] if there is no such session, or it has ended.
pub(crate) async fn check_live(writing: &mut Writing, id: SessionId) -> Result<(), StoreError> {
    let sql = "SELECT COUNT(*) FROM sessions WHERE id = $1 AND live = 1";
    let query = sqlx::query_scalar(sql).bind(id.to_string());
    let sessions: i64 = query.fetch_one(writing.connection().await?).await?;
    if sessions == 0 { Err(StoreError::NotFound) } else { Ok(()) }
}

/// The end of a session is urgent: on a full disk it makes room, or is what a person asked for.
fn urgency_of(record: &SessionRecord) -> WriteUrgency {
    if record.progress.ending.is_some() { WriteUrgency::Urgent } else { WriteUrgency::Normal }
}

fn live(session: &Session) -> i64 {
    i64::from(!session.status.is_terminal())
}

pub(crate) fn record(row: &SqliteRow) -> Result<SessionRecord, StoreError> {
    Ok(SessionRecord {
        session: from_json("session", row.try_get("body")?)?,
        progress: from_json("session", row.try_get("progress")?)?,
    })
}
