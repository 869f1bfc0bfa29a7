//! The audit of a session: which caller did what.

use ab_api::{AuditEntry, AuditSource, PageRequest, SessionId};

use crate::error::StoreError;
use crate::record::{signed, unsigned};
use crate::store::Store;
use crate::writer::{Writing, from_json, to_json};

/// Maximum number of stored entries of each source in one session. The limit applies to each
/// source, so that an agent with very many calls cannot displace the entries about people.
pub const MAX_AUDIT_ENTRIES: u64 = 10_000;

impl Store {
    /// Appends entries to the audit of a session. Entries beyond the limit of their source are
    /// dropped, and the last stored entry says so. If the session was removed, nothing is stored.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn append_audit_entries(
        &self,
        session: SessionId,
        entries: Vec<AuditEntry>,
    ) -> Result<(), StoreError> {
        self.write(move |writing| {
            Box::pin(async move {
                let id = session.to_string();
                let exists: Option<i64> =
                    sqlx::query_scalar("SELECT 1 FROM sessions WHERE id = $1")
                        .bind(&id)
                        .fetch_optional(writing.connection().await?)
                        .await?;
                if exists.is_none() {
                    return Ok(());
                }
                for entry in entries {
                    append(writing, &id, entry).await?;
                }
                Ok(())
            })
        })
        .await
    }

    /// A page of the audit of a session, oldest first, and the total number of its entries.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn list_audit_entries(
        &self,
        session: SessionId,
        page: PageRequest,
    ) -> Result<(Vec<AuditEntry>, u64), StoreError> {
        let total: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM audit WHERE session = $1")
            .bind(session.to_string())
            .fetch_one(self.pool())
            .await?;
        let bodies: Vec<String> = sqlx::query_scalar(
            "SELECT body FROM audit WHERE session = $1 ORDER BY number LIMIT $2 OFFSET $3",
        )
        .bind(session.to_string())
        .bind(i64::from(page.per_page()))
        .bind(signed(page.offset()))
        .fetch_all(self.pool())
        .await?;
        let entries = bodies.iter().map(|body| from_json("audit entry", body));
        Ok((entries.collect::<Result<_, StoreError>>()?, unsigned(total)))
    }
}

async fn append(
    writing: &mut Writing,
    session: &str,
    mut entry: AuditEntry,
) -> Result<(), StoreError> {
    let source = entry.source;
    let sql = "SELECT COUNT(*) FROM audit WHERE session = $1 AND source = $2";
    let stored: i64 = sqlx::query_scalar(sql)
        .bind(session)
        .bind(source.as_str())
        .fetch_one(writing.connection().await?)
        .await?;
    let stored = unsigned(stored);
    if stored >= MAX_AUDIT_ENTRIES {
        return Ok(());
    }
    if stored + 1 == MAX_AUDIT_ENTRIES {
        entry = AuditEntry {
            source: AuditSource::Server,
            actor: "server".to_owned(),
            action: "end-of-audit".to_owned(),
            success: true,
            subject: Some(source.as_str().to_owned()),
            detail: Some(format!("at most {MAX_AUDIT_ENTRIES} entries of this source are stored")),
            ..entry
        };
    }
    let body = to_json("audit entry", &entry)?;
    sqlx::query(
        "INSERT INTO audit (session, number, source, body) VALUES ($1, \
         (SELECT COALESCE(MAX(number), 0) + 1 FROM audit WHERE session = $1), $2, $3)",
    )
    .bind(session)
    .bind(source.as_str())
    .bind(&body)
    .execute(writing.connection().await?)
    .await?;
    Ok(())
}
