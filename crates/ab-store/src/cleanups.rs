//! Cleanup tokens. Each token names resources to remove, and is stored before the resources are
//! made.

use ab_api::{SessionId, Time};
use sqlx::Row;

use crate::error::StoreError;
use crate::record::parse_id;
use crate::store::Store;

/// Resources of a session that an executor must remove later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingCleanup {
    /// The text that tells the executor what to remove.
    pub token: String,
    pub session: SessionId,
    pub executor: String,
}

impl Store {
    /// Stores a token. Must be called before the executor makes the resources that the token names.
    /// Storing a token twice has no effect.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn add_pending_cleanup(&self, cleanup: PendingCleanup) -> Result<(), StoreError> {
        self.write(move |writing| {
            Box::pin(async move {
                sqlx::query(
                    "INSERT INTO cleanups (token, session, executor, created) \
                     VALUES ($1, $2, $3, $4) ON CONFLICT (token) DO NOTHING",
                )
                .bind(&cleanup.token)
                .bind(cleanup.session.to_string())
                .bind(&cleanup.executor)
                .bind(Time::now().as_millis())
                .execute(writing.connection().await?)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// Removes a token. Must be called after the executor removed the resources that the token
    /// names. Removing a token twice has no effect.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn remove_pending_cleanup(&self, token: String) -> Result<(), StoreError> {
        self.write(move |writing| {
            Box::pin(async move {
                sqlx::query("DELETE FROM cleanups WHERE token = $1")
                    .bind(&token)
                    .execute(writing.connection().await?)
                    .await?;
                Ok(())
            })
        })
        .await
    }

    /// All tokens, oldest first. If a session is given, only the tokens of that session.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn pending_cleanups(
        &self,
        session: Option<SessionId>,
    ) -> Result<Vec<PendingCleanup>, StoreError> {
        let rows = sqlx::query(
            "SELECT token, session, executor FROM cleanups \
             WHERE CAST($1 AS TEXT) IS NULL OR session = $1 ORDER BY created, token",
        )
        .bind(session.map(|id| id.to_string()))
        .fetch_all(self.pool())
        .await?;
        let parse = |row: &sqlx::sqlite::SqliteRow| {
            Ok(PendingCleanup {
                token: row.try_get("token")?,
                session: parse_id(row.try_get("session")?)?,
                executor: row.try_get("executor")?,
            })
        };
        rows.iter().map(parse).collect()
    }
}
