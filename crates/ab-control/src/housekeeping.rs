//! One task that removes old data and counts how much disk space the data directory occupies.

use std::collections::{HashMap, HashSet};

use ab_api::{
    CleanupReport, Event, EventKind, LogLevel, LogSource, RemovalReason, RemovedCache,
    RemovedWorkspace, SessionId, StorageUse, Time,
};
use ab_executor::{CleanupToken, StoredRepoCache};
use ab_store::{EndedRecordId, EndedWorkspace, StoreError};
use tokio::sync::{mpsc, oneshot, watch};

use crate::control::{ControlPlane, ControlPlaneError, Plane};
use crate::retention::{MeasuredWorkspace, Removals, RetentionSettings, Stock, choose_removals};

/// Maximum number of callers that can wait for a cleanup at the same time.
pub(crate) const CLEANUP_REQUESTS: usize = 16;
/// Sessions and runs that ended less than this time ago are kept, even if the database is too
/// large.
const RECENT: std::time::Duration = std::time::Duration::from_secs(24 * 60 * 60);
/// How many sessions and runs are removed before they are listed again.
const RECORDS_AT_ONCE: usize = 500;
/// If disk space is limited, a count older than this is not used to accept a task.
const MAX_COUNT_AGE: std::time::Duration = std::time::Duration::from_secs(30);
/// Maximum number of problems that one report lists.
const MAX_PROBLEMS: usize = 20;

/// A request for a cleanup now.
#[derive(Debug)]
pub(crate) struct CleanupRequest {
    pub(crate) mode: CleanupMode,
    pub(crate) reply: oneshot::Sender<Result<CleanupReport, StoreError>>,
}

/// Whether a cleanup removes anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CleanupMode {
    /// Removes what is too old or too large.
    Remove,
    /// Only reports what would be removed.
    DryRun,
}

impl ControlPlane {
    /// Removes what is too old or too large. Does this now and not at the next regular time.
    ///
    ///
    /// # Errors
    ///
    ///
    /// Fails if the store fails. What was removed before the error stays removed.
    pub async fn clean_up(&self, mode: CleanupMode) -> Result<CleanupReport, ControlPlaneError> {
        Ok(self.plane.clean_up(mode).await?)
    }

    /// The space that the data directory occupied when it was last counted. `None` before the first
    /// count.
    pub fn storage_use(&self) -> Option<StorageUse> {
        self.plane.storage.borrow().map(|counted| counted.storage)
    }
}

/// The disk use of the data directory, and when it was counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CountedStorage {
    storage: StorageUse,
    at: tokio::time::Instant,
}

impl Plane {
    pub(crate) async fn clean_up(&self, mode: CleanupMode) -> Result<CleanupReport, StoreError> {
        let (reply, answer) = oneshot::channel();
        let request = CleanupRequest { mode, reply };
        self.cleanups.send(request).await.map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Checks whether there is enough disk space for new work, and fails if not.
    pub(crate) async fn check_room(&self) -> Result<(), ControlPlaneError> {
        let needed = self.settings.retention.min_free_bytes;
        if let Some(free) = self.executor.free_space().filter(|free| *free < needed) {
            return Err(ControlPlaneError::DiskFull { free, needed });
        }
        if self.settings.retention.max_disk_bytes.is_none() {
            return Ok(());
        }
        let counted = *self.storage.borrow();
        let is_enough = |counted: &CountedStorage| {
            !counted.storage.is_over_limit() && counted.at.elapsed() < MAX_COUNT_AGE
        };
        if counted.as_ref().is_some_and(is_enough) {
            return Ok(());
        }
        // Clean up and count again, because space may have been freed since the last count.
        let storage = self.clean_up(CleanupMode::Remove).await?.storage;
        if !storage.is_over_limit() {
            return Ok(());
        }
        Err(ControlPlaneError::DiskLimit {
            used: storage.bytes_counted_toward_limit(),
            limit: storage.limit_bytes.unwrap_or_default(),
        })
    }
}

/// The state of the task.
pub(crate) struct Housekeeper {
    requests: mpsc::Receiver<CleanupRequest>,
    storage: watch::Sender<Option<CountedStorage>>,
    /// Cached sizes of the workspaces of ended sessions, which do not change.
    sizes: HashMap<String, u64>,
}

impl Housekeeper {
    pub(crate) fn new(
        requests: mpsc::Receiver<CleanupRequest>,
        storage: watch::Sender<Option<CountedStorage>>,
    ) -> Self {
        Self { requests, storage, sizes: HashMap::new() }
    }

    /// Cleans up now, at every interval and on request, until the server shuts down.
    pub(crate) async fn run(mut self, plane: &Plane) {
        let mut regular = tokio::time::interval(plane.settings.retention.cleanup_interval);
        regular.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            // If a regular cleanup is due, it runs before the requested cleanups. A caller that
            // gets its answer then knows that no other cleanup is running.
            let request = tokio::select! {
                biased;
                () = plane.shutdown.cancelled() => return,
                _ = regular.tick() => None,
                request = self.requests.recv() => request,
            };
            let mode = request.as_ref().map_or(CleanupMode::Remove, |request| request.mode);
            let outcome = tokio::select! {
                () = plane.shutdown.cancelled() => return,
                outcome = self.clean_up(plane, mode) => outcome,
            };
            match request {
                // The caller may have stopped waiting for the reply.
                Some(CleanupRequest { reply, .. }) => drop(reply.send(outcome)),
                None => {
                    if let Err(error) = outcome {
                        tracing::warn!(%error, "cannot clean up");
                    }
                }
            }
        }
    }

    async fn clean_up(
        &mut self,
        plane: &Plane,
        mode: CleanupMode,
    ) -> Result<CleanupReport, StoreError> {
        let mut report =
            CleanupReport { dry_run: mode == CleanupMode::DryRun, ..CleanupReport::default() };
        let stored = match plane.executor.list_stored_resources().await {
            Ok(stored) => stored,
            Err(error) => {
                note(&mut report, format!("cannot list the workspaces: {error}"));
                Default::default()
            }
        };
        // List the workspaces before reading the store. The store records a workspace before the
        // workspace is created, so every workspace in the list is then known.
        let known = plane.store.pending_cleanups(None).await?;
        let ended = plane.store.ended_workspaces().await?;
        let unknown: Vec<&CleanupToken> = stored
            .workspaces
            .iter()
            .filter(|token| !known.iter().any(|known| known.token == token.0))
            .collect();
        for token in unknown {
            let bytes = self.size(plane, token).await;
            self.remove_unknown(plane, token, bytes, mode, &mut report).await;
        }
        self.sizes.retain(|token, _| ended.iter().any(|it| it.token == *token));
        let mut stock = Stock { caches: stored.caches, ..Stock::default() };
        for workspace in ended {
            let bytes = match self.sizes.get(&workspace.token) {
                Some(bytes) => *bytes,
                None => {
                    let bytes = self.size(plane, &CleanupToken(workspace.token.clone())).await;
                    self.sizes.insert(workspace.token.clone(), bytes);
                    bytes
                }
            };
            stock.ended.push(MeasuredWorkspace { workspace, bytes });
        }
        for cleanup in known {
            if !stock.ended.iter().any(|it| it.workspace.token == cleanup.token) {
                stock.live_bytes += self.size(plane, &CleanupToken(cleanup.token)).await;
            }
        }
        let mut storage = StorageUse {
            workspaces_bytes: stock.live_bytes + stock.ended.iter().map(|it| it.bytes).sum::<u64>(),
            caches_bytes: stock.caches.iter().map(|it| it.bytes).sum(),
            limit_bytes: plane.settings.retention.max_disk_bytes,
            ..StorageUse::default()
        };
        let Removals { workspaces, caches } =
            choose_removals(&plane.settings.retention, stock, Time::now());
        for (workspace, reason) in workspaces {
            let bytes = workspace.bytes;
            if remove_workspace(plane, workspace, reason, mode, &mut report).await? {
                storage.workspaces_bytes = storage.workspaces_bytes.saturating_sub(bytes);
            }
        }
        for (cache, reason) in caches {
            let bytes = cache.bytes;
            if remove_cache(plane, cache, reason, mode, &mut report).await {
                storage.caches_bytes = storage.caches_bytes.saturating_sub(bytes);
            }
        }
        match mode {
            CleanupMode::Remove => remove_history(plane, &mut report).await?,
            CleanupMode::DryRun => count_history(plane, &mut report).await?,
        }
        storage.database_bytes = plane.store.database_size().await?.used_bytes();
        storage.free_bytes = plane.executor.free_space();
        report.storage = storage;
        if mode == CleanupMode::Remove {
            let at = tokio::time::Instant::now();
            self.storage.send_replace(Some(CountedStorage { storage, at }));
        }
        Ok(report)
    }

    /// The size of a workspace. Zero if it cannot be counted or was just removed.
    async fn size(&self, plane: &Plane, token: &CleanupToken) -> u64 {
        plane.executor.workspace_storage(token).await.map_or(0, |storage| storage.bytes)
    }

    async fn remove_unknown(
        &self,
        plane: &Plane,
        token: &CleanupToken,
        bytes: u64,
        mode: CleanupMode,
        report: &mut CleanupReport,
    ) {
        if mode == CleanupMode::Remove {
            if let Err(error) = plane.executor.clean_up_session(token).await {
                return note(report, format!("cannot remove the workspace {}: {error}", token.0));
            }
            tracing::info!(target: "retention", token = token.0, bytes, "removed a workspace without a session");
        }
        let reason = RemovalReason::Unknown;
        report.workspaces.push(RemovedWorkspace { session_id: None, bytes, reason });
    }
}

/// Removes the workspace of an ended session, and adds a note to the session's stream. Returns
/// `false` if the workspace was not removed.
async fn remove_workspace(
    plane: &Plane,
    MeasuredWorkspace { workspace, bytes }: MeasuredWorkspace,
    reason: RemovalReason,
    mode: CleanupMode,
    report: &mut CleanupReport,
) -> Result<bool, StoreError> {
    let EndedWorkspace { token, session, .. } = workspace.clone();
    if mode == CleanupMode::Remove {
        if !plane.store.begin_workspace_removal(workspace).await? {
            return Ok(false);
        }
        let token = CleanupToken(token);
        if let Err(error) = plane.remove_made(&token).await {
            note(report, format!("cannot remove the workspace of session {session}: {error}"));
            return Ok(false);
        }
        plane.store.remove_pending_cleanup(token.0).await?;
        tracing::info!(target: "retention", %session, bytes, reason = reason.as_str(), "removed a workspace");
        plane.store.append_events(session, vec![removal_event(plane, reason)]).await?;
    }
    report.workspaces.push(RemovedWorkspace { session_id: Some(session), bytes, reason });
    Ok(mode == CleanupMode::Remove)
}

/// The event that reports in a session's stream that its workspace was removed.
fn removal_event(plane: &Plane, reason: RemovalReason) -> Event {
    let why = match (reason, plane.settings.retention.workspace_lifetime) {
        (RemovalReason::Age, Some(kept)) => {
            format!("it is kept for {} after the end of a session", in_words(kept))
        }
        (RemovalReason::Age | RemovalReason::Size | RemovalReason::Unknown, _) => {
            "the size limit of the server was exceeded, and it was the oldest".to_owned()
        }
    };
    Event::at_current_time(EventKind::Log {
        level: LogLevel::Info,
        message: format!("The workspace was removed: {why}."),
        source: LogSource::Session,
        tool_execution_id: None,
    })
}

fn in_words(time: std::time::Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 86_400, seconds / 3600) {
        (0, 0) => format!("{seconds} seconds"),
        (0, hours) => format!("{hours} hours"),
        (days, _) => format!("{days} days"),
    }
}

async fn remove_cache(
    plane: &Plane,
    cache: StoredRepoCache,
    reason: RemovalReason,
    mode: CleanupMode,
    report: &mut CleanupReport,
) -> bool {
    let StoredRepoCache { name, bytes, .. } = cache;
    if mode == CleanupMode::Remove {
        match plane.executor.remove_cache(&name).await {
            Ok(true) => {}
            // A session uses the cache again.
            Ok(false) => return false,
            Err(error) => {
                note(report, format!("cannot remove the cache {name}: {error}"));
                return false;
            }
        }
        tracing::info!(target: "retention", cache = name, bytes, reason = reason.as_str(), "removed a cache");
    }
    report.caches.push(RemovedCache { name, bytes, reason });
    mode == CleanupMode::Remove
}

/// Removes sessions and runs that ended long ago, and shrinks the database file.
async fn remove_history(plane: &Plane, report: &mut CleanupReport) -> Result<(), StoreError> {
    let store = &plane.store;
    let RetentionSettings {
        session_lifetime: sessions, max_database_bytes: database_limit, ..
    } = plane.settings.retention;
    if let Some(kept) = sessions {
        let before = ago(kept);
        while remove_oldest_records(plane, before, None, report).await? > 0 {}
        store.remove_unused_rows(before).await?;
    }
    if database_limit.is_some() {
        while remove_oldest_records(plane, ago(RECENT), database_limit, report).await? > 0 {}
    }
    if report.sessions > 0 || report.runs > 0 {
        let (sessions, runs) = (report.sessions, report.runs);
        tracing::info!(target: "retention", sessions, runs, "removed old sessions and runs");
    }
    store.compact().await
}

/// Removes the oldest sessions and runs that ended before a time, at most 500. If there is a
/// `limit`, stops as soon as the database has at most this many bytes. Returns the number of
/// removed sessions and runs.
async fn remove_oldest_records(
    plane: &Plane,
    before: Time,
    limit: Option<u64>,
    report: &mut CleanupReport,
) -> Result<usize, StoreError> {
    let mut oldest = Vec::new();
    let mut offset = 0;
    while oldest.len() < RECORDS_AT_ONCE {
        let page = plane.store.ended_records(before, offset).await?;
        if page.is_empty() {
            break;
        }
        offset += page.len() as u64;
        oldest.extend(page.into_iter().filter(|record| !record.has_workspace));
    }
    oldest.truncate(RECORDS_AT_ONCE);
    let mut removed = 0;
    for record in oldest {
        if let Some(limit) = limit
            && plane.store.database_size().await?.used_bytes() <= limit
        {
            break;
        }
        match record.id {
            EndedRecordId::Session(session) => {
                if !plane.store.remove_session(session).await? {
                    continue;
                }
                tracing::debug!(target: "retention", %session, "removed a session");
                report.sessions += 1;
            }
            EndedRecordId::Run(run) => {
                plane.store.remove_run(run).await?;
                report.runs += 1;
            }
        }
        removed += 1;
    }
    Ok(removed)
}

/// Counts what [`remove_history`] would remove after the workspaces of `report` are removed. The size of a session or
/// run in the database is estimated.
async fn count_history(plane: &Plane, report: &mut CleanupReport) -> Result<(), StoreError> {
    let RetentionSettings {
        session_lifetime: sessions, max_database_bytes: database_limit, ..
    } = plane.settings.retention;
    let too_old = sessions.map(ago);
    let not_recent = database_limit.map(|_| ago(RECENT));
    let Some(before) = too_old.max(not_recent) else { return Ok(()) };
    let losing: HashSet<SessionId> =
        report.workspaces.iter().filter_map(|workspace| workspace.session_id).collect();
    let mut used = plane.store.database_size().await?.used_bytes();
    let mut offset = 0;
    loop {
        let page = plane.store.ended_records(before, offset).await?;
        if page.is_empty() {
            return Ok(());
        }
        offset += page.len() as u64;
        for record in page {
            let is_too_old = too_old.is_some_and(|before| record.ended_at < before);
            let is_too_much = database_limit.is_some_and(|limit| used > limit)
                && not_recent.is_some_and(|before| record.ended_at < before);
            if !is_too_old && !is_too_much {
                return Ok(());
            }
            match record.id {
                EndedRecordId::Session(id) if record.has_workspace && !losing.contains(&id) => {
                    continue;
                }
                EndedRecordId::Session(_) => report.sessions += 1,
                EndedRecordId::Run(_) => report.runs += 1,
            }
            if database_limit.is_some() {
                let bytes = plane.store.ended_record_size(record.id).await?;
                used = used.saturating_sub(bytes);
            }
        }
    }
}

fn ago(time: std::time::Duration) -> Time {
    let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    Time::from_millis(Time::now().as_millis().saturating_sub(millis))
}

fn note(report: &mut CleanupReport, problem: String) {
    tracing::warn!(target: "retention", problem, "a cleanup is incomplete");
    if report.problems.len() < MAX_PROBLEMS {
        report.problems.push(problem);
    }
}
