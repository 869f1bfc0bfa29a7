//! What the server removes to keep its data directory small, and what it occupies.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::SessionId;

/// The answer to `POST /api/v1/cleanup`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CleanupReport {
    /// Whether nothing was removed: the report says what would be.
    pub dry_run: bool,
    /// Workspaces of sessions that ended, in the order of their removal.
    pub workspaces: Vec<RemovedWorkspace>,
    /// Caches of repositories that no workspace borrows from.
    pub caches: Vec<RemovedCache>,
    /// The number of ended sessions, with their events. In a dry run, only those that are too old.
    pub sessions: u64,
    /// The number of ended runs of spaces, with their events.
    pub runs: u64,
    /// What could not be removed, one sentence each.
    pub problems: Vec<String>,
    /// What is occupied afterwards.
    pub storage: StorageUse,
}

/// A workspace that was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemovedWorkspace {
    /// The session that had it last. Null for one that no session knows.
    pub session_id: Option<SessionId>,
    pub bytes: u64,
    pub reason: RemovalReason,
}

/// A cached repository that was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemovedCache {
    pub name: String,
    pub bytes: u64,
    pub reason: RemovalReason,
}

/// Why something is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RemovalReason {
    /// Its time is over.
    Age,
    /// The size limit was exceeded, and it was the oldest.
    Size,
    /// No session knows it.
    Unknown,
}

impl RemovalReason {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Size => "size",
            Self::Unknown => "unknown",
        }
    }
}

/// What the data directory occupies, as it was last counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageUse {
    /// Workspaces of sessions.
    pub workspaces_bytes: u64,
    /// Cached repositories.
    pub caches_bytes: u64,
    /// The database, without the pages that can be used again.
    pub database_bytes: u64,
    /// The limit on workspaces and caches together. Null if there is none.
    pub limit_bytes: Option<u64>,
    /// What other programs could still write to the file system. Null if that is unknown.
    pub free_bytes: Option<u64>,
}

impl StorageUse {
    /// The bytes that count for the limit.
    pub fn limited_bytes(&self) -> u64 {
        self.workspaces_bytes.saturating_add(self.caches_bytes)
    }

    /// Whether the limit is exceeded.
    pub fn is_over_limit(&self) -> bool {
        self.limit_bytes.is_some_and(|limit| self.limited_bytes() > limit)
    }
}
