//! Tokens of agents that work in a space. Only their digests are stored.

use ab_api::{SpaceId, SpaceToken, SpaceTokenId, Time};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::digest::sha256;
use crate::error::StoreError;
use crate::record::parse_id;
use crate::spaces;
use crate::store::Store;
use crate::writer::Writing;

/// Maximum number of tokens of one space.
const MAX_TOKENS: i64 = 100;

impl Store {
    /// Stores a token of a space, and the digest of its secret.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreError::NotFound`] if the space does not exist or is destroyed, and with
    /// [`StoreError::TooManyTokens`] if it has too many tokens.
    pub async fn add_space_token(&self, token: SpaceToken, secret: &str) -> Result<(), StoreError> {
        let digest = sha256(secret.as_bytes());
        self.write(move |writing| {
            Box::pin(async move {
                spaces::check_exists(writing, token.space_id).await?;
                let sql = "SELECT COUNT(*) FROM space_tokens WHERE space = $1";
                let query = sqlx::query_scalar(sql).bind(token.space_id.to_string());
                let count: i64 = query.fetch_one(writing.connection().await?).await?;
                if count >= MAX_TOKENS {
                    return Err(StoreError::TooManyTokens { limit: MAX_TOKENS });
                }
                sqlx::query(
                    "INSERT INTO space_tokens (id, space, digest, created) VALUES ($1, $2, $3, $4)",
                )
                .bind(token.id.to_string())
                .bind(token.space_id.to_string())
                .bind(&digest)
                .bind(token.created_at.as_millis())
                .execute(writing.connection().await?)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// Every token of a space, newest first.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn list_space_tokens(&self, space: SpaceId) -> Result<Vec<SpaceToken>, StoreError> {
        let sql = "SELECT id, space, created FROM space_tokens WHERE space = $1 ORDER BY id DESC";
        let query = sqlx::query(sql).bind(space.to_string());
        query.fetch_all(self.pool()).await?.iter().map(space_token).collect()
    }

    /// Revokes a token of a space: its secret is refused from now on.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreError::NotFound`] if the space has no such token.
    pub async fn remove_space_token(
        &self,
        space: SpaceId,
        token: SpaceTokenId,
    ) -> Result<(), StoreError> {
        self.write_urgently(move |writing| {
            Box::pin(async move {
                let sql = "DELETE FROM space_tokens WHERE space = $1 AND id = $2";
                let query = sqlx::query(sql).bind(space.to_string()).bind(token.to_string());
                let removed = query.execute(writing.connection().await?).await?;
                if removed.rows_affected() == 0 { Err(StoreError::NotFound) } else { Ok(()) }
            })
        })
        .await
    }
}

/// Revokes every token of a space.
pub(crate) async fn remove_all(writing: &mut Writing, space: SpaceId) -> Result<(), StoreError> {
    let query = sqlx::query("DELETE FROM space_tokens WHERE space = $1").bind(space.to_string());
    query.execute(writing.connection().await?).await?;
    Ok(())
}

fn space_token(row: &SqliteRow) -> Result<SpaceToken, StoreError> {
    Ok(SpaceToken {
        id: parse_id(row.try_get("id")?)?,
        space_id: parse_id(row.try_get("space")?)?,
        created_at: Time::from_millis(row.try_get("created")?),
    })
}
