//! Prompts of sessions: the queue, and the status of each prompt.

use ab_api::{
    ApprovalId, Event, EventKind, PageRequest, PromptStatus, SessionId, SessionPrompt, Time,
};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::approvals;
use crate::error::StoreError;
use crate::record::{signed, unsigned};
use crate::sessions::{IdempotencyRecord, SessionRecord, claim_key, update};
use crate::store::Store;
use crate::writer::Writing;

/// A change of a session's prompts. It is stored together with the session.
#[derive(Debug, Clone)]
pub enum SessionPromptChange {
    /// Adds a prompt to the queue.
    Queue(QueuedPrompt),
    /// Replaces the text of a queued prompt.
    Rewrite { number: u32, prompt: String },
    /// Removes a prompt from the queue.
    Withdraw { number: u32 },
    /// Marks a queued prompt as sent.
    MarkSent { number: u32 },
    /// Sets the final status of the prompt that was sent.
    SetFinalStatus(PromptStatus),
}

/// A prompt to add to the queue.
#[derive(Debug, Clone)]
pub struct QueuedPrompt {
    pub prompt: String,
    pub position: PromptQueuePosition,
    /// The approvals whose decisions this prompt tells the agent.
    pub told_approvals: Vec<ApprovalId>,
    /// The key by which a repeated request is recognized. The answer that is stored with the key is
    /// the number of the prompt, which the store fills in.
    pub idempotency: Option<IdempotencyRecord>,
}

/// The place of a new prompt in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromptQueuePosition {
    First,
    Last,
}

/// The result of a [`SessionPromptChange`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionPromptChangeOutcome {
    /// The change is stored. Contains the number of the prompt that was added or changed, if the
    /// change is about one prompt.
    Changed(Option<u32>),
    /// An earlier request with the same key added this prompt. Nothing is changed.
    Existing(u32),
}

impl Store {
    /// Stores a change of a session's prompts, together with the changed session and the events
    /// that describe the change.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if there is no such prompt. [`StoreError::PromptNotQueued`] if the prompt
    /// is no longer in the queue. [`StoreError::IdempotencyKeyReused`] if the key was used with another
    /// request.
    pub async fn change_session_prompts(
        &self,
        record: SessionRecord,
        change: SessionPromptChange,
        events: Vec<Event>,
    ) -> Result<SessionPromptChangeOutcome, StoreError> {
        self.write(move |writing| {
            Box::pin(async move {
                let id = record.session.id;
                let outcome = perform(writing, id, change).await?;
                if let SessionPromptChangeOutcome::Changed(_) = outcome {
                    update(writing, &record).await?;
                    writing.append(id, &events).await?;
                }
                Ok(outcome)
            })
        })
        .await
    }

    /// The first prompt in the queue, which is sent next.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if the queue is empty.
    pub async fn next_queued_prompt(
        &self,
        session: SessionId,
    ) -> Result<SessionPrompt, StoreError> {
        let sql = "SELECT number, status, prompt, created, sent, ended FROM prompts \
             WHERE session = $1 AND status = 'queued' ORDER BY queue_rank LIMIT 1";
        let row = sqlx::query(sql).bind(session.to_string()).fetch_one(self.pool()).await?;
        read(&row)
    }

    /// Returns the prompt of a session with this number.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if the session has no prompt with this number.
    pub async fn session_prompt(
        &self,
        session: SessionId,
        number: u32,
    ) -> Result<SessionPrompt, StoreError> {
        let sql = "SELECT number, status, prompt, created, sent, ended FROM prompts \
             WHERE session = $1 AND number = $2";
        let query = sqlx::query(sql).bind(session.to_string()).bind(i64::from(number));
        read(&query.fetch_one(self.pool()).await?)
    }

    /// A page of the prompts of a session and their total number. Sent prompts come first, oldest
    /// first, then the queue in its order. If a status is given, only prompts with this status are
    /// included.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn session_prompts(
        &self,
        session: SessionId,
        status: Option<PromptStatus>,
        page: PageRequest,
    ) -> Result<(Vec<SessionPrompt>, u64), StoreError> {
        let status = status.map(PromptStatus::as_str);
        let total: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM prompts \
             WHERE session = $1 AND (CAST($2 AS TEXT) IS NULL OR status = $2)",
        )
        .bind(session.to_string())
        .bind(status)
        .fetch_one(self.pool())
        .await?;
        let rows = sqlx::query(
            "SELECT number, status, prompt, created, sent, ended FROM prompts \
             WHERE session = $1 AND (CAST($2 AS TEXT) IS NULL OR status = $2) \
             ORDER BY CASE status WHEN 'queued' THEN 1 ELSE 0 END, \
             CASE status WHEN 'queued' THEN queue_rank ELSE COALESCE(sent, created) END, number \
             LIMIT $3 OFFSET $4",
        )
        .bind(session.to_string())
        .bind(status)
        .bind(i64::from(page.per_page()))
        .bind(signed(page.offset()))
        .fetch_all(self.pool())
        .await?;
        let prompts = rows.iter().map(read).collect::<Result<_, _>>()?;
        Ok((prompts, unsigned(total)))
    }

    /// The number of prompts in the queue of a session.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn count_queued_prompts(&self, session: SessionId) -> Result<u64, StoreError> {
        let sql = "SELECT COUNT(*) FROM prompts WHERE session = $1 AND status = 'queued'";
        let query = sqlx::query_scalar(sql).bind(session.to_string());
        let count: i64 = query.fetch_one(self.pool()).await?;
        Ok(unsigned(count))
    }
}

async fn perform(
    writing: &mut Writing,
    session: SessionId,
    change: SessionPromptChange,
) -> Result<SessionPromptChangeOutcome, StoreError> {
    let (number, status) = match change {
        SessionPromptChange::Queue(new) => {
            let number = next_number(writing, session).await?;
            let key = new
                .idempotency
                .map(|key| IdempotencyRecord { response: number.to_string(), ..key });
            if let Some(answer) = claim_key(writing, key.as_ref()).await? {
                let number = answer.parse().map_err(|_| StoreError::Corrupt {
                    what: "answer",
                    problem: format!("{answer:?} is not the number of a prompt"),
                })?;
                return Ok(SessionPromptChangeOutcome::Existing(number));
            }
            approvals::note_told(writing, &new.told_approvals).await?;
            insert(writing, session, number, new.position, &new.prompt).await?;
            (number, PromptStatus::Queued)
        }
        SessionPromptChange::Rewrite { number, prompt } => {
            let sql = "UPDATE prompts SET prompt = $3 \
                 WHERE session = $1 AND number = $2 AND status = 'queued'";
            let query = sqlx::query(sql).bind(session.to_string()).bind(i64::from(number));
            let done = query.bind(prompt).execute(writing.connection().await?).await?;
            check_queued(writing, session, number, done.rows_affected()).await?;
            (number, PromptStatus::Queued)
        }
        SessionPromptChange::Withdraw { number } => {
            let sql = "UPDATE prompts SET status = 'withdrawn', ended = $3 \
                 WHERE session = $1 AND number = $2 AND status = 'queued'";
            let query = sqlx::query(sql).bind(session.to_string()).bind(i64::from(number));
            let done =
                query.bind(Time::now().as_millis()).execute(writing.connection().await?).await?;
            check_queued(writing, session, number, done.rows_affected()).await?;
            (number, PromptStatus::Withdrawn)
        }
        SessionPromptChange::MarkSent { number } => {
            let sql = "UPDATE prompts SET status = 'sent', sent = $3 \
                 WHERE session = $1 AND number = $2 AND status = 'queued'";
            let query = sqlx::query(sql).bind(session.to_string()).bind(i64::from(number));
            let done =
                query.bind(Time::now().as_millis()).execute(writing.connection().await?).await?;
            check_queued(writing, session, number, done.rows_affected()).await?;
            return Ok(SessionPromptChangeOutcome::Changed(Some(number)));
        }
        SessionPromptChange::SetFinalStatus(status) => {
            let ended = end_sent(writing, session, status).await?;
            let Some(number) = ended.filter(|_| status == PromptStatus::Interrupted) else {
                return Ok(SessionPromptChangeOutcome::Changed(ended));
            };
            (number, status)
        }
    };
    let receipt = EventKind::PromptReceipt { number, status };
    writing.append(session, &[Event::at_current_time(receipt)]).await?;
    Ok(SessionPromptChangeOutcome::Changed(Some(number)))
}

/// Stores a prompt in the queue.
pub(crate) async fn insert(
    writing: &mut Writing,
    session: SessionId,
    number: u32,
    place: PromptQueuePosition,
    prompt: &str,
) -> Result<(), StoreError> {
    let sql = "SELECT MIN(queue_rank), MAX(queue_rank) FROM prompts WHERE session = $1";
    let query = sqlx::query(sql).bind(session.to_string());
    let ranks = query.fetch_one(writing.connection().await?).await?;
    let (least, most): (Option<i64>, Option<i64>) = (ranks.try_get(0)?, ranks.try_get(1)?);
    let rank = match place {
        PromptQueuePosition::First => least.unwrap_or_default() - 1,
        PromptQueuePosition::Last => most.unwrap_or_default() + 1,
    };
    sqlx::query(
        "INSERT INTO prompts (session, number, prompt, status, queue_rank, created) \
         VALUES ($1, $2, $3, 'queued', $4, $5)",
    )
    .bind(session.to_string())
    .bind(i64::from(number))
    .bind(prompt)
    .bind(rank)
    .bind(Time::now().as_millis())
    .execute(writing.connection().await?)
    .await?;
    Ok(())
}

/// Sets the final status of every prompt of a session that has ended. For each queued prompt after
/// the first prompt of the session, adds an event with its status.
pub(crate) async fn end_all(writing: &mut Writing, session: SessionId) -> Result<(), StoreError> {
    end_sent(writing, session, PromptStatus::Interrupted).await?;
    let mut withdrawn: Vec<i64> = sqlx::query_scalar(
        "UPDATE prompts SET status = 'withdrawn', ended = $2 \
         WHERE session = $1 AND status = 'queued' RETURNING number",
    )
    .bind(session.to_string())
    .bind(Time::now().as_millis())
    .fetch_all(writing.connection().await?)
    .await?;
    withdrawn.sort_unstable();
    let further = withdrawn.into_iter().filter_map(|number| u32::try_from(number).ok());
    let receipts: Vec<_> = further
        .filter(|number| *number > 1)
        .map(|number| EventKind::PromptReceipt { number, status: PromptStatus::Withdrawn })
        .map(Event::at_current_time)
        .collect();
    writing.append(session, &receipts).await
}

/// Sets the final status of the prompt that was sent, and returns its number. At most one prompt
/// has the status `sent`.
pub(crate) async fn end_sent(
    writing: &mut Writing,
    session: SessionId,
    status: PromptStatus,
) -> Result<Option<u32>, StoreError> {
    let number: Option<i64> = sqlx::query_scalar(
        "UPDATE prompts SET status = $2, ended = $3 WHERE session = $1 AND status = 'sent' \
         RETURNING number",
    )
    .bind(session.to_string())
    .bind(status.as_str())
    .bind(Time::now().as_millis())
    .fetch_optional(writing.connection().await?)
    .await?;
    Ok(number.and_then(|number| u32::try_from(number).ok()))
}

async fn next_number(writing: &mut Writing, session: SessionId) -> Result<u32, StoreError> {
    let sql = "SELECT MAX(number) FROM prompts WHERE session = $1";
    let query = sqlx::query_scalar(sql).bind(session.to_string());
    let last: Option<i64> = query.fetch_one(writing.connection().await?).await?;
    u32::try_from(last.unwrap_or_default() + 1)
        .map_err(|error| StoreError::Corrupt { what: "prompt", problem: error.to_string() })
}

/// Returns the error for an update of a queued prompt that changed no row.
async fn check_queued(
    writing: &mut Writing,
    session: SessionId,
    number: u32,
    changed: u64,
) -> Result<(), StoreError> {
    if changed > 0 {
        return Ok(());
    }
    let sql = "SELECT status FROM prompts WHERE session = $1 AND number = $2";
    let query = sqlx::query_scalar(sql).bind(session.to_string()).bind(i64::from(number));
    let status: String = query.fetch_one(writing.connection().await?).await?;
    Err(StoreError::PromptNotQueued(parsed(&status)?))
}

fn read(row: &SqliteRow) -> Result<SessionPrompt, StoreError> {
    let number: i64 = row.try_get("number")?;
    let time = |column| -> Result<Option<Time>, StoreError> {
        Ok(row.try_get::<Option<i64>, _>(column)?.map(Time::from_millis))
    };
    Ok(SessionPrompt {
        number: u32::try_from(number)
            .map_err(|error| StoreError::Corrupt { what: "prompt", problem: error.to_string() })?,
        status: parsed(row.try_get("status")?)?,
        prompt: row.try_get("prompt")?,
        created_at: Time::from_millis(row.try_get("created")?),
        sent_at: time("sent")?,
        ended_at: time("ended")?,
    })
}

fn parsed(status: &str) -> Result<PromptStatus, StoreError> {
    status.parse().map_err(|problem| StoreError::Corrupt { what: "prompt", problem })
}
