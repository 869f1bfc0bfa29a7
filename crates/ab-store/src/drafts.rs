//! Drafts of tasks. Each draft belongs to one caller.

use ab_api::{Draft, DraftContent, DraftId, PageRequest, Time};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::error::StoreError;
use crate::record::{parse_id, signed, unsigned};
use crate::sessions::{IdempotencyRecord, claim_key};
use crate::store::Store;
use crate::writer::{Writing, from_json, to_json};

/// Maximum size of a draft in bytes of JSON.
const MAX_DRAFT_BYTES: usize = 512 * 1024;

const COLUMNS: &str = "SELECT id, created, updated, body FROM drafts WHERE owner = $1 AND id = $2";

impl Store {
    /// Stores a new draft of `owner`. A repeated request with the same key returns the draft in the
    /// form in which the first request created it.
    ///
    /// # Errors
    ///
    /// [`StoreError::TooLarge`] if the draft is larger than 512 KiB. [`StoreError::IdempotencyKeyReused`] if
    /// the key was used with another request.
    pub async fn create_draft(
        &self,
        owner: String,
        content: DraftContent,
        key: Option<IdempotencyRecord>,
    ) -> Result<Draft, StoreError> {
        let now = Time::now();
        let draft = Draft { id: DraftId::generate(), content, created_at: now, updated_at: now };
        let body = checked_body(&draft.content)?;
        let key = match key {
            Some(key) => Some(IdempotencyRecord { response: to_json("draft", &draft)?, ..key }),
            None => None,
        };
        self.write(move |writing| {
            Box::pin(async move {
                if let Some(answer) = claim_key(writing, key.as_ref()).await? {
                    return from_json("draft", &answer);
                }
                sqlx::query(
                    "INSERT INTO drafts (id, owner, created, updated, body) \
                     VALUES ($1, $2, $3, $3, $4)",
                )
                .bind(draft.id.to_string())
                .bind(&owner)
                .bind(now.as_millis())
                .bind(&body)
                .execute(writing.connection().await?)
                .await?;
                Ok(draft)
            })
        })
        .await
    }

    /// A page of the drafts of `owner`, newest first, and their total number.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn list_drafts(
        &self,
        owner: &str,
        page: PageRequest,
    ) -> Result<(Vec<Draft>, u64), StoreError> {
        let total: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM drafts WHERE owner = $1")
            .bind(owner)
            .fetch_one(self.pool())
            .await?;
        let rows = sqlx::query(
            "SELECT id, created, updated, body FROM drafts WHERE owner = $1 \
             ORDER BY id DESC LIMIT $2 OFFSET $3",
        )
        .bind(owner)
        .bind(i64::from(page.per_page()))
        .bind(signed(page.offset()))
        .fetch_all(self.pool())
        .await?;
        Ok((rows.iter().map(draft).collect::<Result<_, _>>()?, unsigned(total)))
    }

    /// Returns the draft with this id, if it belongs to `owner`.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if the owner has no such draft.
    pub async fn get_draft(&self, owner: &str, id: DraftId) -> Result<Draft, StoreError> {
        let query = sqlx::query(COLUMNS).bind(owner).bind(id.to_string());
        draft(&query.fetch_one(self.pool()).await?)
    }

    /// Replaces the content of a draft of `owner`.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if the owner has no such draft. [`StoreError::TooLarge`] if the
    /// draft is larger than 512 KiB.
    pub async fn update_draft(
        &self,
        owner: String,
        id: DraftId,
        content: DraftContent,
    ) -> Result<Draft, StoreError> {
        let body = checked_body(&content)?;
        self.write(move |writing| Box::pin(update(writing, owner, id, body))).await
    }

    /// Removes a draft of `owner`.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotFound`] if the owner has no such draft.
    pub async fn remove_draft(&self, owner: String, id: DraftId) -> Result<(), StoreError> {
        self.write(move |writing| {
            Box::pin(async move {
                let removed = sqlx::query("DELETE FROM drafts WHERE owner = $1 AND id = $2")
                    .bind(&owner)
                    .bind(id.to_string())
                    .execute(writing.connection().await?)
                    .await?;
                if removed.rows_affected() == 0 { Err(StoreError::NotFound) } else { Ok(()) }
            })
        })
        .await
    }
}

async fn update(
    writing: &mut Writing,
    owner: String,
    id: DraftId,
    body: String,
) -> Result<Draft, StoreError> {
    sqlx::query("UPDATE drafts SET updated = $3, body = $4 WHERE owner = $1 AND id = $2")
        .bind(&owner)
        .bind(id.to_string())
        .bind(Time::now().as_millis())
        .bind(&body)
        .execute(writing.connection().await?)
        .await?;
    let query = sqlx::query(COLUMNS).bind(&owner).bind(id.to_string());
    draft(&query.fetch_one(writing.connection().await?).await?)
}

fn checked_body(content: &DraftContent) -> Result<String, StoreError> {
    let body = to_json("draft", content)?;
    if body.len() > MAX_DRAFT_BYTES {
        let (bytes, limit) = (body.len(), MAX_DRAFT_BYTES);
        return Err(StoreError::TooLarge { what: "a draft", bytes, limit });
    }
    Ok(body)
}

fn draft(row: &SqliteRow) -> Result<Draft, StoreError> {
    Ok(Draft {
        id: parse_id(row.try_get("id")?)?,
        content: from_json("draft", row.try_get("body")?)?,
        created_at: Time::from_millis(row.try_get("created")?),
        updated_at: Time::from_millis(row.try_get("updated")?),
    })
}
