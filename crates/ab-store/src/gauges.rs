//! Counts of stored objects, for metrics.

use ab_api::SessionStatus;
use sqlx::Row;

use crate::error::StoreError;
use crate::record::unsigned;
use crate::store::Store;

/// Counts of stored objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreGauges {
    /// The number of sessions with each status. Statuses without sessions are included with 0.
    pub sessions: Vec<(SessionStatus, u64)>,
    pub queued_prompts: u64,
    pub pending_approvals: u64,
    /// The number of events that were ever stored, including removed ones.
    pub events: u64,
}

impl Store {
    /// Counts the objects that metrics show.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn gauges(&self) -> Result<StoreGauges, StoreError> {
        let rows = sqlx::query("SELECT status, COUNT(*) AS sessions FROM sessions GROUP BY status")
            .fetch_all(self.pool())
            .await?;
        let mut sessions: Vec<(SessionStatus, u64)> =
            SessionStatus::ALL.iter().map(|status| (*status, 0)).collect();
        for row in rows {
            let status: &str = row.try_get("status")?;
            if let Some(counted) = sessions.iter_mut().find(|(it, _)| it.as_str() == status) {
                counted.1 = unsigned(row.try_get("sessions")?);
            }
        }
        let live = "SELECT COUNT(*) FROM prompts JOIN sessions ON sessions.id = prompts.session \
                    WHERE sessions.live = 1 AND prompts.status = 'queued'";
        Ok(StoreGauges {
            sessions,
            queued_prompts: self.count(live).await?,
            pending_approvals: self
                .count("SELECT COUNT(*) FROM approvals WHERE status = 'pending'")
                .await?,
            events: self.last_event_position().await?,
        })
    }

    /// The number of rows whose session, run or space does not exist, for each table, and of pending
    /// approvals and access tokens whose owner has ended. Those that are 0 are omitted: a correct store
    /// has no such rows. Tests use this to find removals that forgot a table.
    ///
    /// # Errors
    ///
    /// Fails if the database fails.
    pub async fn count_rows_without_owner(&self) -> Result<Vec<(&'static str, u64)>, StoreError> {
        let tables = [
            (
                "events",
                "SELECT COUNT(*) FROM events WHERE stream NOT IN (SELECT id FROM sessions \
                 UNION ALL SELECT id FROM runs UNION ALL SELECT id FROM spaces)",
            ),
            (
                "cleanups",
                "SELECT COUNT(*) FROM cleanups WHERE session NOT IN (SELECT id FROM sessions)",
            ),
            (
                "upload_uses",
                "SELECT COUNT(*) FROM upload_uses WHERE session NOT IN (SELECT id FROM sessions)",
            ),
            (
                "approvals",
                "SELECT COUNT(*) FROM approvals \
                 WHERE (session IS NOT NULL AND session NOT IN (SELECT id FROM sessions)) \
                 OR (space IS NOT NULL AND space NOT IN (SELECT id FROM spaces)) \
                 OR (run IS NOT NULL AND run NOT IN (SELECT id FROM runs))",
            ),
            (
                "pending approvals",
                "SELECT COUNT(*) FROM approvals WHERE status = 'pending' \
                 AND (session IN (SELECT id FROM sessions WHERE live = 0) \
                 OR space IN (SELECT id FROM spaces WHERE status = 'destroyed') \
                 OR run IN (SELECT id FROM runs WHERE live = 0))",
            ),
            (
                "session_tokens",
                "SELECT COUNT(*) FROM session_tokens \
                 WHERE session IN (SELECT id FROM sessions WHERE live = 0)",
            ),
            (
                "space_tokens",
                "SELECT COUNT(*) FROM space_tokens \
                 WHERE space IN (SELECT id FROM spaces WHERE status = 'destroyed')",
            ),
        ];
        let mut found = Vec::new();
        for (table, sql) in tables {
            let rows = self.count(sql).await?;
            if rows > 0 {
                found.push((table, rows));
            }
        }
        Ok(found)
    }

    async fn count(&self, sql: &'static str) -> Result<u64, StoreError> {
        let count: i64 = sqlx::query_scalar(sql).fetch_one(self.pool()).await?;
        Ok(unsigned(count))
    }

    /// The number of readers that currently follow the event log or a part of it.
    pub fn event_reader_count(&self) -> usize {
        self.readers_alive()
    }
}
