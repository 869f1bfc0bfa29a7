//! Cleanup by the control plane: what it removes, what it leaves, and what it refuses.

use std::time::Duration;

use ab_api::{
    RemovalReason, Run, RunId, RunStatus, SessionId, SessionStatus, Space, SpaceBackend, SpaceId,
    SpaceStatus, Time,
};
use ab_control::{CleanupMode, ControlPlaneError, ControlPlaneSettings, RetentionSettings};
use ab_executor::{CleanupToken, StoredRepoCache};
use ab_store::{RunUpdate, Store};

use crate::fake::{Fake, Scene, Script, start, task};

async fn with_retention(executor: Fake, retention: RetentionSettings) -> Scene {
    let dir = tempfile::tempdir().expect("a temporary directory");
    start(dir, executor, ControlPlaneSettings { retention, ..ControlPlaneSettings::default() })
        .await
}

/// Nothing is kept for longer than this.
fn at_once() -> RetentionSettings {
    RetentionSettings {
        workspace_lifetime: Some(Duration::ZERO),
        cache_lifetime: Some(Duration::ZERO),
        ..RetentionSettings::default()
    }
}

fn cache(name: &str, is_borrowed: bool) -> StoredRepoCache {
    let last_used = Time::from_millis(0);
    StoredRepoCache {
        name: name.to_owned(),
        last_used,
        is_used_by_workspace: is_borrowed,
        bytes: 10,
    }
}

#[tokio::test]
async fn cleanup_leaves_sessions_at_work_and_removes_the_rest() {
    let scene = with_retention(Fake::new(Script::Silence), at_once()).await;
    // The cleanup at the start is over after this.
    scene.control.clean_up(CleanupMode::Remove).await.expect("a cleanup");
    let ended = scene.create(false).await;
    scene.event(ended, "\"thought\"").await;
    scene.control.stop_session(ended).await.expect("stop");
    assert_eq!(scene.end(ended).await.status, SessionStatus::Stopped);
    let live = scene.create(false).await;
    scene.event(live, "\"thought\"").await;
    {
        let mut stored = scene.executor.stored.lock().expect("stored");
        let tokens = [format!("fake:{live}"), format!("fake:{ended}"), "fake:lost".to_owned()];
        stored.workspaces = tokens.map(CleanupToken).into();
        stored.caches = vec![cache("used", true), cache("unused", false)];
    }
    let dry = scene.control.clean_up(CleanupMode::DryRun).await.expect("a dry run");
    assert_eq!((dry.workspaces.len(), dry.caches.len()), (2, 1), "{dry:?}");
    assert_eq!(scene.executor.stored.lock().expect("stored").workspaces.len(), 3);
    let report = scene.control.clean_up(CleanupMode::Remove).await.expect("a cleanup");
    let removed: Vec<_> = report.workspaces.iter().map(|it| (it.session_id, it.reason)).collect();
    assert_eq!(removed, [(None, RemovalReason::Unknown), (Some(ended), RemovalReason::Age)]);
    assert_eq!(report.caches.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["unused"]);
    // The fake counts 4096 bytes for each workspace.
    assert_eq!((report.storage.workspaces_bytes, report.storage.caches_bytes), (4096, 10));
    let stored = scene.executor.stored.lock().expect("stored").clone();
    assert_eq!(stored.workspaces, [CleanupToken(format!("fake:{live}"))]);
    let error = scene.control.continue_session(ended, None, None).await.expect_err("removed");
    assert!(matches!(error, ControlPlaneError::WorkspaceGone(_)), "{error}");
    let again = scene.control.clean_up(CleanupMode::Remove).await.expect("a cleanup");
    assert!(again.workspaces.is_empty() && again.caches.is_empty(), "{again:?}");
}

/// A completed session that ended some days ago and has no workspace any more.
async fn ended_days_ago(scene: &Scene, days: i64) -> SessionId {
    let store = scene.control.store();
    let id = scene.create(false).await;
    assert_eq!(scene.end(id).await.status, SessionStatus::Completed);
    // The workspace is removed after the end.
    while !store.pending_cleanups(None).await.expect("list").is_empty() {
        tokio::task::yield_now().await;
    }
    let mut record = store.session_record(id).await.expect("read");
    record.session.updated_at = days_before(record.session.updated_at, days);
    store.update_session(record, Vec::new()).await.expect("save");
    id
}

fn days_before(time: Time, days: i64) -> Time {
    Time::from_millis(time.as_millis() - days * 24 * 60 * 60 * 1000)
}

/// A run of a space that ended some days ago.
async fn run_days_ago(store: &Store, days: i64) -> RunId {
    let at = days_before(Time::now(), days);
    let space = Space {
        id: SpaceId::generate(),
        name: None,
        description: None,
        status: SpaceStatus::Ready,
        backend: SpaceBackend::default(),
        policy: Default::default(),
        env: Default::default(),
        metadata: Default::default(),
        created_at: at,
        expires_at: None,
    };
    let run = Run {
        id: RunId::generate(),
        space_id: space.id,
        status: RunStatus::Completed,
        operation_count: 0,
        pending_approval: None,
        created_by: "operator".to_owned(),
        created_at: at,
        updated_at: at,
        ended_at: Some(at),
    };
    let id = run.id;
    store.create_space(space, None).await.expect("a space");
    store.create_run(run.clone(), Vec::new(), None).await.expect("a run");
    store.update_run(RunUpdate::new(run)).await.expect("its end");
    id
}

#[tokio::test]
async fn database_beyond_its_limit_loses_sessions_and_runs_that_ended_before_yesterday() {
    let limit = RetentionSettings {
        max_database_bytes: Some(1),
        cleanup_interval: Duration::from_secs(3600),
        ..RetentionSettings::default()
    };
    let scene = with_retention(Fake::new(Script::Work), limit).await;
    // The first regular cleanup is over when a requested one is.
    scene.control.clean_up(CleanupMode::DryRun).await.expect("a cleanup");
    let store = scene.control.store();
    let sessions = [ended_days_ago(&scene, 2).await, ended_days_ago(&scene, 0).await];
    let runs = [run_days_ago(store, 2).await, run_days_ago(store, 0).await];
    for mode in [CleanupMode::DryRun, CleanupMode::Remove] {
        let report = scene.control.clean_up(mode).await.expect("a cleanup");
        assert_eq!((report.sessions, report.runs), (1, 1), "{mode:?}");
    }
    assert!(store.get_session(sessions[0]).await.is_err());
    assert!(store.get_session(sessions[1]).await.is_ok());
    assert!(store.get_run(runs[0]).await.is_err());
    assert!(store.get_run(runs[1]).await.is_ok());
}

#[tokio::test]
async fn dry_run_counts_what_the_limit_of_the_database_would_remove() {
    const LIMIT: u64 = 2 << 20;
    let retention = RetentionSettings {
        max_database_bytes: Some(LIMIT),
        cleanup_interval: Duration::from_secs(3600),
        ..RetentionSettings::default()
    };
    let scene = with_retention(Fake::new(Script::Work), retention).await;
    // The first regular cleanup is over when a requested one is.
    scene.control.clean_up(CleanupMode::DryRun).await.expect("a cleanup");
    let store = scene.control.store();
    // Without the oldest ones the database is small enough.
    let large = ended_days_ago(&scene, 4).await;
    store.put_session_artifact(large, "diff", "x".repeat(2 << 20)).await.expect("put");
    let small = ended_days_ago(&scene, 3).await;
    let run = run_days_ago(store, 5).await;
    for mode in [CleanupMode::DryRun, CleanupMode::Remove] {
        assert!(store.database_size().await.expect("size").used_bytes() > LIMIT);
        let report = scene.control.clean_up(mode).await.expect("a cleanup");
        assert_eq!((report.sessions, report.runs), (1, 1), "{mode:?}");
    }
    assert!(store.get_session(large).await.is_err());
    assert!(store.get_session(small).await.is_ok());
    assert!(store.get_run(run).await.is_err());
}

#[tokio::test]
async fn task_beyond_the_limit_makes_no_session() {
    // The fake counts 4096 bytes for each workspace.
    let retention =
        RetentionSettings { max_disk_bytes: Some(4000), ..RetentionSettings::default() };
    let scene = with_retention(Fake::new(Script::Silence), retention).await;
    let id = scene.control.create_session(task(false), None).await.expect("there is room");
    scene.event(id, "\"thought\"").await;
    scene.control.clean_up(CleanupMode::Remove).await.expect("a cleanup");
    let error = scene.control.create_session(task(false), None).await.expect_err("no room");
    let ControlPlaneError::DiskLimit { used: 4096, limit: 4000 } = error else { panic!("{error}") };
    assert_eq!(scene.control.store().unfinished_sessions().await.expect("read").len(), 1);
    scene.control.cancel_session(id).await.expect("cancel");
    scene.end(id).await;
    // The second one waits until the workspace is removed.
    scene.control.cancel_session(id).await.expect("cleaned up");
    scene.control.create_session(task(false), None).await.expect("there is room again");

    let full = Fake { free_space: Some(1000), ..Fake::new(Script::Silence) };
    let scene = with_retention(full, RetentionSettings::default()).await;
    let error = scene.control.create_session(task(false), None).await.expect_err("no room");
    assert!(matches!(error, ControlPlaneError::DiskFull { free: 1000, .. }), "{error}");
}
