//! API keys: named secrets of programs that use the server. Only their digests are stored.

use ab_api::{ApiKey, ApiKeyId, PageRequest, SessionId, SpaceId, Time};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::digest::sha256;
use crate::error::StoreError;
use crate::record::{parse_id, signed, unsigned};
use crate::store::Store;

/// The caller that a stored token belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessTokenOwner {
    /// The token belongs to the agent of this session.
    Session(SessionId),
    /// The token belongs to an agent that works in this space.
    Space(SpaceId),
    /// The token is an API key that is not revoked. This is the name of the key.
    ApiKey(String),
}

impl Store {
    /// Stores a key, and the digest of its secret.
    ///
    /// # Errors
    ///
    /// [`StoreError::AlreadyExists`] if a key that is not revoked has this name.
    pub async fn create_api_key(&self, key: ApiKey, secret: &str) -> Result<(), StoreError> {
        let digest = sha256(secret.as_bytes());
        self.write(move |writing| {
            Box::pin(async move {
                sqlx::query(
                    "INSERT INTO api_keys (id, name, digest, created) VALUES ($1, $2, $3, $4)",
                )
                .bind(key.id.to_string())
                .bind(&key.name)
                .bind(&digest)
                .bind(key.created_at.as_millis())
                .execute(writing.connection().await?)
                .await?;
                Ok(())
            })
        })
        .await
    }

    /// A page of all keys, newest first, and the total number of keys. Revoked keys are included.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn list_api_keys(&self, page: PageRequest) -> Result<(Vec<ApiKey>, u64), StoreError> {
        let total: i64 =
            sqlx::query_scalar("SELECT COUNT(*) FROM api_keys").fetch_one(self.pool()).await?;
        let sql =
            "SELECT id, name, created, revoked FROM api_keys ORDER BY id DESC LIMIT $1 OFFSET $2";
        let rows = sqlx::query(sql)
            .bind(i64::from(page.per_page()))
            .bind(signed(page.offset()))
            .fetch_all(self.pool())
            .await?;
        Ok((rows.iter().map(api_key).collect::<Result<_, _>>()?, unsigned(total)))
    }

    /// Revokes a key, so that its secret is no longer accepted. Has no effect if the key is already
    /// revoked.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if there is no such key.
    pub async fn revoke_api_key(&self, id: ApiKeyId) -> Result<ApiKey, StoreError> {
        self.write_urgently(move |writing| {
            Box::pin(async move {
                sqlx::query("UPDATE api_keys SET revoked = $2 WHERE id = $1 AND revoked IS NULL")
                    .bind(id.to_string())
                    .bind(Time::now().as_millis())
                    .execute(writing.connection().await?)
                    .await?;
                let sql = "SELECT id, name, created, revoked FROM api_keys WHERE id = $1";
                let row = sqlx::query(sql).bind(id.to_string());
                api_key(&row.fetch_one(writing.connection().await?).await?)
            })
        })
        .await
    }

    /// Finds the caller that a token belongs to. `None` if the token is unknown or revoked.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn token_owner(&self, token: &str) -> Result<Option<AccessTokenOwner>, StoreError> {
        let row = sqlx::query(
            "SELECT session AS owner, 'session' AS kind FROM session_tokens WHERE digest = $1 \
             UNION ALL \
             SELECT space AS owner, 'space' AS kind FROM space_tokens WHERE digest = $1 \
             UNION ALL \
             SELECT name AS owner, 'key' AS kind FROM api_keys WHERE digest = $1 AND revoked IS NULL",
        )
        .bind(sha256(token.as_bytes()))
        .fetch_optional(self.pool())
        .await?;
        let Some(row) = row else { return Ok(None) };
        let owner: String = row.try_get("owner")?;
        let kind: String = row.try_get("kind")?;
        Ok(Some(match kind.as_str() {
            "session" => AccessTokenOwner::Session(parse_id(&owner)?),
            "space" => AccessTokenOwner::Space(parse_id(&owner)?),
            _ => AccessTokenOwner::ApiKey(owner),
        }))
    }
}

fn api_key(row: &SqliteRow) -> Result<ApiKey, StoreError> {
    let revoked: Option<i64> = row.try_get("revoked")?;
    Ok(ApiKey {
        id: parse_id(row.try_get("id")?)?,
        name: row.try_get("name")?,
        created_at: Time::from_millis(row.try_get("created")?),
        revoked_at: revoked.map(Time::from_millis),
    })
}
