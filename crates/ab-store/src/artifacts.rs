//! Texts of a session that outlive its workspace, such as its final diff.

use ab_api::{SessionId, Time};

use crate::error::StoreError;
use crate::store::Store;

/// Maximum size of an artifact in bytes.
const MAX_ARTIFACT_BYTES: usize = 8 * 1024 * 1024;

impl Store {
    /// Stores a text under a name. Replaces an earlier text with this name.
    ///
    /// # Errors
    ///
    /// [`StoreError::TooLarge`] if the text is larger than 8 MiB.
    pub async fn put_session_artifact(
        &self,
        session: SessionId,
        name: &'static str,
        body: String,
    ) -> Result<(), StoreError> {
        if body.len() > MAX_ARTIFACT_BYTES {
            let (bytes, limit) = (body.len(), MAX_ARTIFACT_BYTES);
            return Err(StoreError::TooLarge { what: "an artifact", bytes, limit });
        }
        self.write(move |writing| {
            Box::pin(async move {
                sqlx::query(
                    "INSERT INTO artifacts (session, name, created, body) \
                     VALUES ($1, $2, $3, $4) ON CONFLICT (session, name) \
                     DO UPDATE SET created = excluded.created, body = excluded.body",
                )
                .bind(session.to_string())
                .bind(name)
                .bind(Time::now().as_millis())
                .bind(&body)
                .execute(writing.connection().await?)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// The text that is stored under a name for a session.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if there is no such text.
    pub async fn get_session_artifact(
        &self,
        session: SessionId,
        name: &'static str,
    ) -> Result<String, StoreError> {
        let sql = "SELECT body FROM artifacts WHERE session = $1 AND name = $2";
        let query = sqlx::query_scalar(sql).bind(session.to_string()).bind(name);
        Ok(query.fetch_one(self.pool()).await?)
    }
}
