//! Chooses which workspaces and caches are removed, by their age and size. Does no I/O.

use std::time::Duration;

use ab_api::{RemovalReason, Time};
use ab_executor::StoredRepoCache;
use ab_store::EndedWorkspace;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long and how much data of ended sessions is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionSettings {
    /// How long the workspace of a session that was stopped or failed is kept. `None` keeps it
    /// forever.
    pub workspace_lifetime: Option<Duration>,
    /// How long an ended session is kept with its events after its workspace was removed. `None`
    /// keeps it forever.
    pub session_lifetime: Option<Duration>,
    /// How long a cached repository is kept after its last use. `None` keeps it forever.
    pub cache_lifetime: Option<Duration>,
    /// Maximum number of bytes of all workspaces and caches together. While they exceed this
    /// number, new tasks are refused.
    pub max_disk_bytes: Option<u64>,
    /// Maximum number of bytes of the database. While it is larger, ended sessions and runs are
    /// removed, the oldest first.
    pub max_database_bytes: Option<u64>,
    /// For this time after the end of its session, a workspace is not removed to meet a size limit.
    pub workspace_grace: Duration,
    /// Minimum number of free bytes in the file system. While fewer are free, new tasks are
    /// refused.
    pub min_free_bytes: u64,
    /// The time between two cleanups.
    pub cleanup_interval: Duration,
}

impl Default for RetentionSettings {
    fn default() -> Self {
        Self {
            workspace_lifetime: Some(30 * DAY),
            session_lifetime: Some(180 * DAY),
            cache_lifetime: Some(30 * DAY),
            max_disk_bytes: None,
            max_database_bytes: None,
            workspace_grace: 7 * DAY,
            min_free_bytes: 64 * 1024 * 1024,
            cleanup_interval: Duration::from_secs(10 * 60),
        }
    }
}

/// The workspace of a session that ended, and its size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MeasuredWorkspace {
    pub(crate) workspace: EndedWorkspace,
    pub(crate) bytes: u64,
}

/// Everything that occupies disk space now: the workspaces and the caches.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stock {
    /// Workspaces of ended sessions. The session that ended first comes first.
    pub(crate) ended: Vec<MeasuredWorkspace>,
    /// The total size of the workspaces of sessions that have not ended.
    pub(crate) live_bytes: u64,
    pub(crate) caches: Vec<StoredRepoCache>,
}

/// The workspaces and caches to remove. Each list is in the order of removal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Removals {
    pub(crate) workspaces: Vec<(MeasuredWorkspace, RemovalReason)>,
    pub(crate) caches: Vec<(StoredRepoCache, RemovalReason)>,
}

/// Chooses what is removed at the time `now`. Caches are removed before workspaces, because caches
/// can be made again.
pub(crate) fn choose_removals(settings: &RetentionSettings, stock: Stock, now: Time) -> Removals {
    let is_over = |since: Time, kept: Option<Duration>| {
        kept.is_some_and(|kept| since.saturating_add(kept) <= now)
    };
    let Stock { ended, live_bytes, mut caches } = stock;
    caches.sort_by_key(|cache| cache.last_used);
    let cached: u64 = caches.iter().map(|cache| cache.bytes).sum();
    let in_workspaces: u64 = ended.iter().map(|it| it.bytes).sum();
    let mut total = live_bytes.saturating_add(cached).saturating_add(in_workspaces);
    let mut removals = Removals::default();
    let mut kept = Vec::new();
    for workspace in ended {
        if is_over(workspace.workspace.ended_at, settings.workspace_lifetime) {
            total = total.saturating_sub(workspace.bytes);
            removals.workspaces.push((workspace, RemovalReason::Age));
        } else {
            kept.push(workspace);
        }
    }
    let is_above = |total: u64| settings.max_disk_bytes.is_some_and(|limit| total > limit);
    for cache in caches.into_iter().filter(|cache| !cache.is_used_by_workspace) {
        let reason = if is_over(cache.last_used, settings.cache_lifetime) {
            RemovalReason::Age
        } else if is_above(total) {
            RemovalReason::Size
        } else {
            continue;
        };
        total = total.saturating_sub(cache.bytes);
        removals.caches.push((cache, reason));
    }
    for workspace in kept {
        if is_above(total) && is_over(workspace.workspace.ended_at, Some(settings.workspace_grace))
        {
            total = total.saturating_sub(workspace.bytes);
            removals.workspaces.push((workspace, RemovalReason::Size));
        }
    }
    removals
}

#[cfg(test)]
mod tests {
    use ab_api::SessionId;

    use super::*;

    /// Makes a workspace of this size, whose session ended this many days ago.
    fn workspace(days: u32, bytes: u64) -> MeasuredWorkspace {
        let workspace = EndedWorkspace {
            token: format!("w{days}"),
            session: SessionId::generate(),
            ended_at: at(days),
        };
        MeasuredWorkspace { workspace, bytes }
    }

    fn cache(days: u32, bytes: u64, is_borrowed: bool) -> StoredRepoCache {
        StoredRepoCache {
            name: format!("c{days}"),
            last_used: at(days),
            is_used_by_workspace: is_borrowed,
            bytes,
        }
    }

    fn at(days: u32) -> Time {
        let ago = i64::from(days) * i64::try_from(DAY.as_millis()).unwrap_or(i64::MAX);
        Time::from_millis(now().as_millis() - ago)
    }

    fn now() -> Time {
        Time::from_millis(1_800_000_000_000)
    }

    /// Checks the names of what is removed. A `!` marks a removal because of a size limit.
    fn check(settings: RetentionSettings, live_bytes: u64, expect: &[&str]) {
        let stock = Stock {
            ended: [31, 20, 8, 6, 0].map(|days| workspace(days, 10)).into(),
            live_bytes,
            caches: vec![cache(3, 10, false), cache(40, 10, false), cache(50, 10, true)],
        };
        let Removals { workspaces, caches } = choose_removals(&settings, stock, now());
        let name = |name: String, reason: RemovalReason| {
            if reason == RemovalReason::Size { format!("{name}!") } else { name }
        };
        let workspaces = workspaces.into_iter().map(|(it, why)| name(it.workspace.token, why));
        let removed: Vec<String> =
            workspaces.chain(caches.into_iter().map(|(it, why)| name(it.name, why))).collect();
        assert_eq!(removed, expect, "{settings:?}");
    }

    #[test]
    fn old_things_go_first_and_recent_work_stays() {
        let settings = RetentionSettings::default();
        check(settings, 0, &["w31", "c40"]);
        let forever =
            RetentionSettings { workspace_lifetime: None, cache_lifetime: None, ..settings };
        check(forever, 1 << 40, &[]);
        let limited = |limit| RetentionSettings { max_disk_bytes: Some(limit), ..settings };
        // After the removal of what is too old, six items of 10 bytes are left.
        check(limited(60), 0, &["w31", "c40"]);
        check(limited(59), 0, &["w31", "c40", "c3!"]);
        check(limited(49), 0, &["w31", "w20!", "c40", "c3!"]);
        check(limited(0), 0, &["w31", "w20!", "w8!", "c40", "c3!"]);
        // Workspaces of live sessions exceed the limit alone, and they are not removed.
        check(limited(50), 1000, &["w31", "w20!", "w8!", "c40", "c3!"]);
    }
}
