//! Cleanup by the control plane: what it removes, what it leaves, and what it refuses.

use std::time::Duration;

use ab_api::{RemovalReason, SessionStatus, Time};
use ab_control::{CleanupMode, ControlPlaneError, ControlPlaneSettings, RetentionSettings};
use ab_executor::{CleanupToken, StoredRepoCache};

use crate::fake::{Fake, Scene, Script, start, task};

async fn with_retention(executor: Fake, retention: RetentionSettings) -> Scene {
    let dir = tempfile::tempdir().expect("a temporary directory");
    start(dir, executor, ControlPlaneSettings { retention, ..ControlPlaneSettings::default() })
        .await
}

/// Nothing is kept for longer than this.
fn at_once() -> RetentionSettings {
    RetentionSettings {
        workspaces: Some(Duration::ZERO),
        cache: Some(Duration::ZERO),
        ..RetentionSettings::default()
    }
}

fn cache(name: &str, is_borrowed: bool) -> StoredRepoCache {
    let last_used = Time::from_millis(0);
    StoredRepoCache { name: name.to_owned(), last_used, is_borrowed, bytes: 10 }
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

#[tokio::test]
async fn database_beyond_its_limit_loses_sessions_that_ended_before_yesterday() {
    const DAY: i64 = 24 * 60 * 60 * 1000;
    let limit = RetentionSettings { database_limit: Some(1), ..RetentionSettings::default() };
    let scene = with_retention(Fake::new(Script::Work), limit).await;
    let store = scene.control.store();
    let mut sessions = Vec::new();
    for days in [2, 0] {
        let id = scene.create(false).await;
        sessions.push(id);
        assert_eq!(scene.end(id).await.status, SessionStatus::Completed);
        // The workspace is removed after the end.
        while !store.pending_cleanups(None).await.expect("list").is_empty() {
            tokio::task::yield_now().await;
        }
        let mut record = store.session_record(id).await.expect("read");
        let millis = record.session.updated_at.as_millis() - days * DAY;
        record.session.updated_at = Time::from_millis(millis);
        store.update_session(record, Vec::new()).await.expect("save");
    }
    let report = scene.control.clean_up(CleanupMode::Remove).await.expect("a cleanup");
    assert_eq!(report.sessions, 1);
    assert!(store.get_session(sessions[0]).await.is_err());
    assert!(store.get_session(sessions[1]).await.is_ok());
}

#[tokio::test]
async fn task_beyond_the_limit_makes_no_session() {
    // The fake counts 4096 bytes for each workspace.
    let retention = RetentionSettings { disk_limit: Some(4000), ..RetentionSettings::default() };
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
