//! Tokens of sessions, with which a session's agent authenticates at its own endpoint.

use ab_api::{SessionId, Time};

use crate::digest::sha256;
use crate::error::StoreError;
use crate::record::parse_id;
use crate::store::Store;

impl Store {
    /// Makes `token` valid for the endpoint of `session`. Only its digest is stored.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn add_session_token(
        &self,
        session: SessionId,
        token: &str,
    ) -> Result<(), StoreError> {
        let digest = sha256(token.as_bytes());
        self.write(move |writing| {
            Box::pin(async move {
                sqlx::query(
                    "INSERT INTO session_tokens (digest, session, created) VALUES ($1, $2, $3) \
                     ON CONFLICT (digest) DO NOTHING",
                )
                .bind(&digest)
                .bind(session.to_string())
                .bind(Time::now().as_millis())
                .execute(writing.connection().await?)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// The session that `token` belongs to. `None` if the token is unknown.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn session_by_access_token(
        &self,
        token: &str,
    ) -> Result<Option<SessionId>, StoreError> {
        let sql = "SELECT session FROM session_tokens WHERE digest = $1";
        let query = sqlx::query_scalar(sql).bind(sha256(token.as_bytes()));
        let session: Option<String> = query.fetch_optional(self.pool()).await?;
        session.as_deref().map(parse_id).transpose()
    }

    /// Revokes every token of `session`.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn remove_session_tokens(&self, session: SessionId) -> Result<(), StoreError> {
        self.write_urgently(move |writing| {
            Box::pin(async move {
                sqlx::query("DELETE FROM session_tokens WHERE session = $1")
                    .bind(session.to_string())
                    .execute(writing.connection().await?)
                    .await?;
                Ok(())
            })
        })
        .await
    }
}
