//! Removes old data: workspaces of ended sessions, ended sessions, runs of spaces, and the database
//! pages that they occupied.

use ab_api::{RunId, SessionId, SpaceId, Time};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::cleanups::PendingCleanup;
use crate::error::StoreError;
use crate::record::{EventStreamId, parse_id, signed, unsigned};
use crate::store::Store;
use crate::writer::Writing;

/// Maximum number of events that one transaction removes. Other writers have to wait for the
/// transaction.
const MAX_REMOVED_EVENTS: u64 = 1000;
/// Maximum number of pages that one transaction returns to the file system.
const MAX_FREED_PAGES: u64 = 1000;
/// Number of unused pages that the database keeps for the next writes.
const KEPT_FREE_PAGES: u64 = 256;
/// Maximum number of ids that one query returns.
const MAX_LISTED: u64 = 500;

/// The workspace of a session that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedWorkspace {
    pub token: String,
    /// The last session that used the workspace.
    pub session: SessionId,
    pub ended_at: Time,
}

/// A session or run that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedRecord {
    pub id: EndedRecordId,
    pub ended_at: Time,
    /// Whether a session has a workspace. Then it is not removed.
    pub has_workspace: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndedRecordId {
    Session(SessionId),
    Run(RunId),
}

/// The size of the database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DatabaseSize {
    /// The size of the file in bytes.
    pub bytes: u64,
    /// The number of unused bytes in the file.
    pub free_bytes: u64,
}

impl DatabaseSize {
    /// The size of the file without its unused bytes.
    pub fn used_bytes(self) -> u64 {
        self.bytes.saturating_sub(self.free_bytes)
    }
}

impl Store {
    /// The workspaces of sessions that have ended. The session that ended first comes first.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn ended_workspaces(&self) -> Result<Vec<EndedWorkspace>, StoreError> {
        let rows = sqlx::query(
            "SELECT cleanups.token, cleanups.session, sessions.updated FROM cleanups \
             JOIN sessions ON sessions.id = cleanups.session \
             WHERE sessions.live = 0 AND cleanups.removing IS NULL ORDER BY sessions.updated",
        )
        .fetch_all(self.pool())
        .await?;
        let parse = |row: &SqliteRow| {
            Ok(EndedWorkspace {
                token: row.try_get("token")?,
                session: parse_id(row.try_get("session")?)?,
                ended_at: Time::from_millis(row.try_get("updated")?),
            })
        };
        rows.iter().map(parse).collect()
    }

    /// Begins the removal of the workspace of an ended session. From now on, no other session can
    /// continue in the workspace. Returns `false` if another session already has the workspace, or
    /// if the session has not ended.
    ///
    /// If the disk is full, the beginning of the removal is recorded only in memory, because only
    /// the removal frees the space that the record needs. If the server is then killed, the next
    /// server process finds the workspace in [`ended_workspaces`](Store::ended_workspaces) again.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn begin_workspace_removal(
        &self,
        workspace: EndedWorkspace,
    ) -> Result<bool, StoreError> {
        match self.store_workspace_removal(workspace.clone()).await {
            Err(error) if error.is_disk_full() => {}
            stored => return stored,
        }
        self.write(move |writing| {
            Box::pin(async move {
                let found: Option<i64> = sqlx::query_scalar(
                    "SELECT 1 FROM cleanups JOIN sessions ON sessions.id = cleanups.session \
                     WHERE cleanups.token = $1 AND cleanups.session = $2 AND sessions.live = 0",
                )
                .bind(&workspace.token)
                .bind(workspace.session.to_string())
                .fetch_optional(writing.connection().await?)
                .await?;
                if found.is_some() {
                    writing.note_leaving_workspace(workspace.session);
                }
                Ok(found.is_some())
            })
        })
        .await
    }

    async fn store_workspace_removal(&self, workspace: EndedWorkspace) -> Result<bool, StoreError> {
        self.write(move |writing| {
            Box::pin(async move {
                let begun = sqlx::query(
                    "UPDATE cleanups SET removing = $3 WHERE token = $1 AND session = $2 \
                     AND EXISTS (SELECT 1 FROM sessions WHERE id = $2 AND live = 0)",
                )
                .bind(&workspace.token)
                .bind(workspace.session.to_string())
                .bind(Time::now().as_millis())
                .execute(writing.connection().await?)
                .await?;
                Ok(begun.rows_affected() > 0)
            })
        })
        .await
    }

    /// The workspaces whose removal has begun but has not finished.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn begun_workspace_removals(&self) -> Result<Vec<PendingCleanup>, StoreError> {
        let sql = "SELECT token, session, executor FROM cleanups WHERE removing IS NOT NULL";
        let rows = sqlx::query(sql).fetch_all(self.pool()).await?;
        let parse = |row: &SqliteRow| {
            Ok(PendingCleanup {
                token: row.try_get("token")?,
                session: parse_id(row.try_get("session")?)?,
                executor: row.try_get("executor")?,
            })
        };
        rows.iter().map(parse).collect()
    }

    /// At most 500 sessions and runs that ended before this time, the earliest first, after the first `offset` ones.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn ended_records(
        &self,
        before: Time,
        offset: u64,
    ) -> Result<Vec<EndedRecord>, StoreError> {
        let rows = sqlx::query(
            "SELECT id, updated, 0 AS is_run, \
             EXISTS (SELECT 1 FROM cleanups WHERE cleanups.session = sessions.id) AS has_workspace \
             FROM sessions WHERE live = 0 AND updated < $1 \
             UNION ALL SELECT id, updated, 1, 0 FROM runs WHERE live = 0 AND updated < $1 \
             ORDER BY 2, 1 LIMIT $2 OFFSET $3",
        )
        .bind(before.as_millis())
        .bind(signed(MAX_LISTED))
        .bind(signed(offset))
        .fetch_all(self.pool())
        .await?;
        let parse = |row: &SqliteRow| {
            let is_run = row.try_get::<i64, _>("is_run")? != 0;
            let id = row.try_get("id")?;
            let id = if is_run {
                EndedRecordId::Run(parse_id(id)?)
            } else {
                EndedRecordId::Session(parse_id(id)?)
            };
            let ended_at = Time::from_millis(row.try_get("updated")?);
            let has_workspace = row.try_get::<i64, _>("has_workspace")? != 0;
            Ok(EndedRecord { id, ended_at, has_workspace })
        };
        rows.iter().map(parse).collect()
    }

    /// Estimates how many bytes of the database the removal of a session or run frees.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn ended_record_size(&self, id: EndedRecordId) -> Result<u64, StoreError> {
        let sql = match id {
            EndedRecordId::Session(_) => {
                "SELECT (SELECT COALESCE(SUM(LENGTH(body) + 150), 0) FROM events WHERE stream = $1) \
                 + (SELECT COALESCE(SUM(LENGTH(body)), 0) FROM artifacts WHERE session = $1) \
                 + (SELECT COALESCE(SUM(LENGTH(prompt)), 0) FROM prompts WHERE session = $1) \
                 + (SELECT COALESCE(SUM(LENGTH(body)), 0) FROM approvals WHERE session = $1) \
                 + (SELECT COALESCE(SUM(LENGTH(body)), 0) FROM audit WHERE session = $1)"
            }
            EndedRecordId::Run(_) => {
                "SELECT (SELECT COALESCE(SUM(LENGTH(body) + 150), 0) FROM events WHERE stream = $1) \
                 + (SELECT COALESCE(SUM(LENGTH(body)), 0) FROM approvals WHERE run = $1) \
                 + (SELECT COALESCE(SUM(LENGTH(body) + COALESCE(LENGTH(event), 0)), 0) \
                    FROM operations WHERE run = $1)"
            }
        };
        let id = match id {
            EndedRecordId::Session(id) => id.to_string(),
            EndedRecordId::Run(id) => id.to_string(),
        };
        let bytes: i64 = sqlx::query_scalar(sql).bind(id).fetch_one(self.pool()).await?;
        Ok(unsigned(bytes))
    }

    /// Removes a session that has ended and has no workspace, including its events, approvals and
    /// all other rows. For any other session it removes nothing and returns `false`.
    ///
    /// # Errors
    ///
    /// Fails if the database fails. The call can be repeated.
    pub async fn remove_session(&self, id: SessionId) -> Result<bool, StoreError> {
        // Remove the events first. If the session's row were removed first, an interrupted removal
        // would leave events that no later call can find.
        if !self.is_removable(id).await? {
            return Ok(false);
        }
        self.remove_events(EventStreamId::Session(id)).await?;
        self.write(move |writing| {
            Box::pin(async move {
                let id = id.to_string();
                for table in [
                    "DELETE FROM artifacts WHERE session = $1",
                    "DELETE FROM approvals WHERE session = $1",
                    "DELETE FROM session_labels WHERE session = $1",
                    "DELETE FROM prompts WHERE session = $1",
                    "DELETE FROM session_tokens WHERE session = $1",
                    "DELETE FROM audit WHERE session = $1",
                    "DELETE FROM upload_uses WHERE session = $1",
                    "DELETE FROM sessions WHERE id = $1",
                ] {
                    sqlx::query(table).bind(&id).execute(writing.connection().await?).await?;
                }
                writing.keep_counters().await?;
                Ok(true)
            })
        })
        .await
    }

    async fn is_removable(&self, id: SessionId) -> Result<bool, StoreError> {
        let found: Option<i64> = sqlx::query_scalar(
            "SELECT 1 FROM sessions WHERE id = $1 AND live = 0 \
             AND NOT EXISTS (SELECT 1 FROM cleanups WHERE cleanups.session = sessions.id)",
        )
        .bind(id.to_string())
        .fetch_optional(self.pool())
        .await?;
        Ok(found.is_some())
    }

    /// Removes a run that has ended, including its operations, events and approvals. Has no effect
    /// on a run that has not ended.
    ///
    /// # Errors
    ///
    /// Fails if the database fails. The call can be repeated.
    pub async fn remove_run(&self, id: RunId) -> Result<(), StoreError> {
        let sql = "SELECT 1 FROM runs WHERE id = $1 AND live = 0";
        let ended: Option<i64> =
            sqlx::query_scalar(sql).bind(id.to_string()).fetch_optional(self.pool()).await?;
        if ended.is_none() {
            return Ok(());
        }
        self.remove_events(EventStreamId::Run(id)).await?;
        self.write(move |writing| {
            Box::pin(async move {
                let id = id.to_string();
                for table in [
                    "DELETE FROM approvals WHERE run = $1",
                    "DELETE FROM operations WHERE run = $1",
                    "DELETE FROM runs WHERE id = $1",
                ] {
                    sqlx::query(table).bind(&id).execute(writing.connection().await?).await?;
                }
                writing.keep_counters().await
            })
        })
        .await
    }

    /// Removes the rows of destroyed spaces without runs, of decided approvals that programs
    /// requested, and of idempotency keys that have expired.
    ///
    /// # Errors
    ///
    /// Fails if the database fails. The call can be repeated.
    pub async fn remove_unused_rows(&self, before: Time) -> Result<(), StoreError> {
        let ids: Vec<String> = sqlx::query_scalar(
            "SELECT id FROM spaces WHERE status = 'destroyed' AND created < $1 \
             AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.space = spaces.id) LIMIT $2",
        )
        .bind(before.as_millis())
        .bind(signed(MAX_LISTED))
        .fetch_all(self.pool())
        .await?;
        for id in ids {
            let space: SpaceId = parse_id(&id)?;
            self.remove_events(EventStreamId::Space(space)).await?;
            self.write(move |writing| {
                Box::pin(async move {
                    for table in [
                        "DELETE FROM approvals WHERE space = $1",
                        "DELETE FROM spaces WHERE id = $1",
                    ] {
                        sqlx::query(table).bind(&id).execute(writing.connection().await?).await?;
                    }
                    writing.keep_counters().await
                })
            })
            .await?;
        }
        let before = before.as_millis();
        self.write(move |writing| {
            Box::pin(async move {
                let decided = "DELETE FROM approvals \
                               WHERE requester IS NOT NULL AND status <> 'pending' AND created < $1";
                sqlx::query(decided).bind(before).execute(writing.connection().await?).await?;
                crate::sessions::remove_old_keys(writing).await
            })
        })
        .await
    }

    /// Removes the events of a stream, the oldest first. Uses several transactions, so that other
    /// writers do not wait long.
    async fn remove_events(&self, stream: EventStreamId) -> Result<(), StoreError> {
        loop {
            let removed = self
                .write(move |writing| Box::pin(remove_some_events(writing, stream.to_string())))
                .await?;
            if removed < MAX_REMOVED_EVENTS {
                return Ok(());
            }
        }
    }

    /// The size of the database.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn database_size(&self) -> Result<DatabaseSize, StoreError> {
        let (page, all, free) = self.pages().await?;
        Ok(DatabaseSize { bytes: page.saturating_mul(all), free_bytes: page.saturating_mul(free) })
    }

    /// Returns unused pages of the database to the file system, except a few that are kept for the
    /// next writes.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn compact(&self) -> Result<(), StoreError> {
        loop {
            let (_, all, free) = self.pages().await?;
            if free <= KEPT_FREE_PAGES {
                return Ok(());
            }
            let pages = (free - KEPT_FREE_PAGES).min(MAX_FREED_PAGES);
            self.write(move |writing| {
                Box::pin(async move {
                    // The number is part of the text, because a pragma takes no parameters.
                    let sql = format!("PRAGMA incremental_vacuum({pages})");
                    sqlx::query(sqlx::AssertSqlSafe(sql))
                        .execute(writing.connection().await?)
                        .await?;
                    Ok(())
                })
            })
            .await?;
            // Stop if nothing was freed, because a database of an earlier version cannot return its
            // pages.
            if self.pages().await?.1 >= all {
                return Ok(());
            }
        }
    }

    /// Returns the page size, the number of pages, and the number of unused pages.
    async fn pages(&self) -> Result<(u64, u64, u64), StoreError> {
        let row = sqlx::query(
            "SELECT page_size, page_count, freelist_count \
             FROM pragma_page_size, pragma_page_count, pragma_freelist_count",
        )
        .fetch_one(self.pool())
        .await?;
        let number = |name| Ok::<_, StoreError>(unsigned(row.try_get::<i64, _>(name)?));
        Ok((number("page_size")?, number("page_count")?, number("freelist_count")?))
    }
}

async fn remove_some_events(writing: &mut Writing, stream: String) -> Result<u64, StoreError> {
    writing.keep_counters().await?;
    let removed = sqlx::query(
        "DELETE FROM events WHERE position IN \
         (SELECT position FROM events WHERE stream = $1 ORDER BY seq LIMIT $2)",
    )
    .bind(&stream)
    .bind(signed(MAX_REMOVED_EVENTS))
    .execute(writing.connection().await?)
    .await?;
    Ok(removed.rows_affected())
}
