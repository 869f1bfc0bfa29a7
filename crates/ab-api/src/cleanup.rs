//! What the server removes to keep its data directory small, and how much space the directory
//! occupies.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::SessionId;

/// The answer to `POST /api/v1/cleanup`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CleanupReport {
    /// Whether this is a dry run: the report lists what would be removed, and nothing was removed.
    pub dry_run: bool,
    /// Removed workspaces of sessions that ended, in the order of their removal.
    pub workspaces: Vec<RemovedWorkspace>,
    /// Removed caches of repositories that no workspace needs.
    pub caches: Vec<RemovedCache>,
    /// The number of removed sessions. Their events are removed with them. In a dry run, the number
    /// that a limit on the database removes is estimated.
    pub sessions: u64,
    /// The number of removed runs of spaces. Their events are removed with them. In a dry run, it is
    /// estimated in the same way.
    pub runs: u64,
    /// What could not be removed, one sentence each.
    pub problems: Vec<String>,
    /// The disk space that is occupied after the cleanup.
    pub storage: StorageUse,
}

/// A workspace that was removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RemovedWorkspace {
    /// The last session that used the workspace. Null if no session knows the workspace.
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

/// Why an item was removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RemovalReason {
    /// The item was kept for the configured time.
    Age,
    /// The size limit was exceeded and this was the oldest item.
    Size,
    /// No session knows the workspace.
    Unknown,
}

impl RemovalReason {
    /// The name of the reason in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Age => "age",
            Self::Size => "size",
            Self::Unknown => "unknown",
        }
    }
}

/// The disk space that the data directory occupied when it was last counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StorageUse {
    /// The size of the workspaces of sessions in bytes.
    pub workspaces_bytes: u64,
    /// The size of the cached repositories in bytes.
    pub caches_bytes: u64,
    /// The size of the database in bytes, without unused pages.
    pub database_bytes: u64,
    /// The limit on workspaces and caches together in bytes. Null if there is no limit.
    pub limit_bytes: Option<u64>,
    /// The number of bytes that can still be written to the file system. Null if the number is
    /// unknown.
    pub free_bytes: Option<u64>,
}

impl StorageUse {
    /// The number of bytes that count towards the limit.
    pub fn limited_bytes(&self) -> u64 {
        self.workspaces_bytes.saturating_add(self.caches_bytes)
    }

    /// Whether the limit is exceeded.
    pub fn is_over_limit(&self) -> bool {
        self.limit_bytes.is_some_and(|limit| self.limited_bytes() > limit)
    }
}
