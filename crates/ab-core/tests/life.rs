//! The life of handles: status by generic code, scopes that come and go, the end of a parent.

use std::sync::{Arc, mpsc};
use std::time::SystemTime;

use ab_core::{
    Backend, BackendOptions, ConnectionStatus, ConnectionStatusChange, Driver, Error, ErrorCode,
    ErrorKind, Guards, MemoryDriver, ScopeOptions,
};
use ab_testkit::expect::{assert_content, expect_error};
use ab_testkit::{ConnectionStatusRecorder, GuardLog, RecordingDriver, ScriptedGuard};

use ConnectionStatus::{Connected, Connecting, Destroyed, Disconnected, Reconnecting};

fn scope(parent: &Backend, path: &str) -> Backend {
    parent.scope(path, ScopeOptions::default()).unwrap()
}

/// One backend of every kind that this crate can make.
fn every_kind() -> Vec<Backend> {
    let memory = || Backend::new(MemoryDriver::new());
    let guards = Guards {
        policy: vec![Arc::new(ScriptedGuard::allow_all(0, &GuardLog::default()))],
        ..Guards::default()
    };
    let guarded = Backend::with_options(
        Arc::new(MemoryDriver::new()),
        BackendOptions { guards, ..BackendOptions::default() },
    );
    vec![
        memory(),
        scope(&memory(), "scope"),
        scope(&scope(&memory(), "outer"), "inner"),
        scope(&guarded, "scope"),
        guarded,
        Backend::new(RecordingDriver::new()),
    ]
}

#[tokio::test]
async fn generic_code_needs_no_branch() {
    for backend in every_kind() {
        let heard = ConnectionStatusRecorder::subscribe(&backend);
        assert_eq!(backend.status(), Connected);
        backend.connect().await.unwrap();
        backend.write("file", "x").await.unwrap();
        backend.destroy().await.unwrap();
        assert_eq!(backend.status(), Destroyed);
        assert_eq!(heard.transitions(), [(Connected, Destroyed)]);
        expect_error(backend.read("file").await, ErrorKind::Destroyed);
    }
}

#[tokio::test]
async fn every_transition_reaches_every_subscriber_in_order() {
    let driver = RecordingDriver::new();
    let root = Backend::new(driver.clone());
    let outer = scope(&root, "outer");
    let inner = scope(&outer, "inner");
    let heard = [&root, &root, &outer, &inner].map(ConnectionStatusRecorder::subscribe);
    for status in [Disconnected, Reconnecting, Reconnecting, Connected, Disconnected, Connecting] {
        driver.status_publisher().set(status, None);
    }
    let expect = [
        (Connected, Disconnected),
        (Disconnected, Reconnecting),
        (Reconnecting, Connected),
        (Connected, Disconnected),
        (Disconnected, Connecting),
    ];
    for heard in heard {
        assert_eq!(heard.transitions(), expect);
    }
}

#[tokio::test]
async fn a_transition_tells_time_and_cause() {
    let driver = RecordingDriver::new();
    let root = Backend::new(driver.clone());
    let (sender, told) = mpsc::channel::<ConnectionStatusChange>();
    let scope = scope(&root, "scope");
    let _listening = scope.on_status_change(move |change| sender.send(change.clone()).unwrap());
    let before = SystemTime::now();
    let lost = Error::new(ErrorCode::ConnectionClosed, ErrorKind::Disconnected, "cut");
    driver.status_publisher().set(Reconnecting, Some(lost));
    let change = told.try_recv().unwrap();
    assert_eq!((change.from, change.to), (Connected, Reconnecting));
    assert!(change.at >= before, "{change:?}");
    assert_eq!(change.error.map(|error| error.message().to_owned()), Some("cut".to_owned()));
}

#[tokio::test]
async fn status_is_the_parents_live() {
    let driver = RecordingDriver::new();
    let root = Backend::new(driver.clone());
    let outer = scope(&root, "outer");
    let inner = scope(&outer, "inner");
    for status in [Disconnected, Reconnecting, Connected] {
        driver.status_publisher().set(status, None);
        assert_eq!([&root, &outer, &inner].map(Backend::status), [status; 3]);
    }
    driver.status_publisher().set(Disconnected, None);
    assert_eq!(scope(&inner, "late").status(), Disconnected, "a scope made while it is so");
}

#[tokio::test]
async fn destroy_unregisters_from_the_parent() {
    let root = Backend::new(MemoryDriver::new());
    let (first, second) = (scope(&root, "first"), scope(&root, "second"));
    let nested = scope(&first, "nested");
    assert_eq!(
        (root.open_scope_count(), first.open_scope_count(), second.open_scope_count()),
        (2, 1, 0)
    );
    nested.destroy().await.unwrap();
    assert_eq!((root.open_scope_count(), first.open_scope_count()), (2, 0));
    first.destroy().await.unwrap();
    first.destroy().await.unwrap();
    assert_eq!(root.open_scope_count(), 1);
    assert_eq!((root.status(), first.status()), (Connected, Destroyed));
    assert_eq!((nested.status(), second.status()), (Destroyed, Connected));
}

#[tokio::test]
async fn destroy_of_a_scope_destroys_nothing_else() {
    let driver = RecordingDriver::new();
    let root = Backend::new(driver.clone());
    let (first, second) = (scope(&root, "first"), scope(&root, "second"));
    first.write("file", "stays").await.unwrap();
    let heard = [&root, &second].map(ConnectionStatusRecorder::subscribe);
    first.destroy().await.unwrap();

    expect_error(first.read("file").await, ErrorKind::Destroyed);
    assert_content(&root, "first/file", "stays").await;
    second.write("file", "works").await.unwrap();
    assert_content(&scope(&root, "first"), "file", "stays").await;
    assert_eq!((root.status(), driver.close_count()), (Connected, 0));
    assert!(heard.iter().all(|heard| heard.transitions().is_empty()));
}

#[test]
fn dropping_a_scope_unregisters_it() {
    let root = Backend::new(MemoryDriver::new());
    let first = scope(&root, "first");
    let again = first.clone();
    assert_eq!(root.open_scope_count(), 1);
    drop(first);
    assert_eq!(root.open_scope_count(), 1, "a clone is still alive");
    drop(again);
    assert_eq!(root.open_scope_count(), 0);

    let outer = scope(&root, "outer");
    let inner = scope(&outer, "inner");
    drop(outer);
    assert_eq!(root.open_scope_count(), 1, "the inner scope keeps the outer one");
    drop(inner);
    assert_eq!(root.open_scope_count(), 0);
}

#[tokio::test]
async fn orphans_show_the_parents_status() {
    let driver = RecordingDriver::new();
    let root = Backend::new(driver.clone());
    let outer = scope(&root, "outer");
    let inner = scope(&outer, "inner");
    inner.write("file", "x").await.unwrap();
    let heard = [&outer, &inner].map(ConnectionStatusRecorder::subscribe);
    root.destroy().await.unwrap();

    for orphan in [&outer, &inner] {
        assert_eq!(orphan.status(), Destroyed);
        expect_error(orphan.read("file").await, ErrorKind::Destroyed);
        expect_error(orphan.scope("deeper", ScopeOptions::default()), ErrorKind::Destroyed);
        orphan.destroy().await.unwrap();
    }
    for heard in heard {
        assert_eq!(heard.transitions(), [(Connected, Destroyed)]);
    }
    assert_eq!(driver.close_count(), 1);
}

#[tokio::test]
async fn parent_leaves_children_alone() {
    let root = Backend::new(MemoryDriver::new());
    let _child = scope(&root, "child");
    root.destroy().await.unwrap();
    assert_eq!(root.open_scope_count(), 1, "nobody destroyed the child: it is an orphan");
}

#[tokio::test]
async fn the_end_of_an_outer_scope_is_the_end_of_inner_ones() {
    let root = Backend::new(MemoryDriver::new());
    let outer = scope(&root, "outer");
    let inner = scope(&outer, "inner");
    let heard = ConnectionStatusRecorder::subscribe(&inner);
    outer.destroy().await.unwrap();
    assert_eq!((root.status(), inner.status()), (Connected, Destroyed));
    expect_error(inner.write("file", "x").await, ErrorKind::Destroyed);
    assert_eq!(heard.transitions(), [(Connected, Destroyed)]);
}

#[tokio::test]
async fn clones_share_one_life() {
    let backend = Backend::new(MemoryDriver::new());
    let clone = backend.clone();
    clone.write("file", "shared").await.unwrap();
    assert_content(&backend, "file", "shared").await;
    clone.destroy().await.unwrap();
    assert_eq!(backend.status(), Destroyed);
}

#[tokio::test]
async fn a_destroyed_driver_stays_so_for_new_handles() {
    let driver = RecordingDriver::new();
    Backend::new(driver.clone()).destroy().await.unwrap();
    let late = Backend::new(driver);
    assert_eq!(late.status(), Destroyed);
    expect_error(late.read("file").await, ErrorKind::Destroyed);
}
