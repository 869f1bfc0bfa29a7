//! Deriving handles: authority only shrinks, and identity reaches every guard.

use std::sync::Arc;

use ab_core::journal::{JournalGuard, JournalVerbosity, MemoryJournalWriter};
use ab_core::path::PathStrictness;
use ab_core::process::PathRestrictions;
use ab_core::{
    Actor, Backend, BackendOptions, ErrorKind, Guards, MemoryDriver, NarrowOptions, PathParser,
    Principal, PrincipalKind, WsPath,
};
use ab_testkit::expect::expect_error;
use ab_testkit::{GuardLog, RecordingDriver, ScriptedGuard, ScriptedGuardBehavior};

fn path(text: &str) -> WsPath {
    PathParser::lenient().parse(text).unwrap()
}

fn ada() -> Principal {
    Principal::new(PrincipalKind::Person, "ada")
}

fn journaled(name: &str) -> (Backend, Arc<MemoryJournalWriter>) {
    let writer = Arc::new(MemoryJournalWriter::default());
    let journal = Some(Arc::new(JournalGuard::new(writer.clone(), JournalVerbosity::Standard)));
    let guards = Guards { journal, ..Guards::default() };
    let assembly =
        BackendOptions { actor: Actor::for_process(name), guards, ..BackendOptions::default() };
    (Backend::with_options(Arc::new(MemoryDriver::new()), assembly), writer)
}

fn actors(writer: &MemoryJournalWriter) -> Vec<String> {
    let actors = writer.records().into_iter().map(|record| record.actor).collect();
    writer.clear();
    actors
}

#[tokio::test]
async fn the_actor_reaches_the_guards_of_every_layer() {
    let (base, base_log) = journaled("base");
    let (other, other_log) = journaled("other");
    let (upper, upper_log) = journaled("upper");
    let own_log = Arc::new(MemoryJournalWriter::default());
    let journal = Some(Arc::new(JournalGuard::new(own_log.clone(), JournalVerbosity::Standard)));
    let restrictions =
        PathRestrictions { hidden: vec![path("secret")], ..PathRestrictions::default() };
    let view = base.mount("mnt", &other).unwrap().overlay(&upper).unwrap();
    let handle = view
        .backend()
        .narrow(NarrowOptions { restrictions, ..NarrowOptions::default() })
        .and_then(|view| {
            let guards = Guards { journal, ..Guards::default() };
            view.narrow(NarrowOptions {
                actor: Some(ada().into()),
                guards,
                ..NarrowOptions::default()
            })
        })
        .unwrap();
    handle.write("a", "1").await.unwrap();
    assert_eq!(actors(&own_log), ["person:ada"]);
    assert!(actors(&upper_log).iter().all(|actor| actor == "person:ada"));
    let plain = base.mount("mnt", &other).unwrap();
    let plain = plain.narrow(NarrowOptions::for_actor(ada())).unwrap();
    plain.write("mnt/b", "1").await.unwrap();
    plain.write("c", "1").await.unwrap();
    assert_eq!(actors(&other_log), ["person:ada"]);
    assert_eq!(actors(&base_log), ["person:ada"]);
    let scope = plain.narrow(NarrowOptions::for_scope(path("dir"))).unwrap();
    scope.write("d", "1").await.unwrap();
    assert!(actors(&base_log).iter().all(|actor| actor == "person:ada"));
    expect_error(scope.read("../c").await, ErrorKind::PathEscape);
    assert_eq!(actors(&base_log), ["person:ada"], "refused paths name the actor too");
    base.write("e", "1").await.unwrap();
    assert_eq!(actors(&base_log), ["base"], "the handle it came from is unchanged");
}

#[tokio::test]
async fn a_narrowed_overlay_shares_its_changes() {
    let (lower, _) = journaled("lower");
    let (upper, _) = journaled("upper");
    let view = lower.overlay(&upper).unwrap();
    let handle = view.backend().narrow(NarrowOptions::for_actor(ada())).unwrap();
    handle.write("a", "1").await.unwrap();
    assert_eq!(view.diff().await.unwrap().len(), 1);
    view.commit().await.unwrap();
    assert_eq!(&lower.read("a").await.unwrap()[..], b"1");
}

#[tokio::test]
async fn nothing_that_was_taken_comes_back() {
    let backend = Backend::new(MemoryDriver::new());
    for file in ["top", "dir/secret/key", "dir/kept", "dir/free"] {
        backend.write(file, "1").await.unwrap();
    }
    let restrictions = PathRestrictions {
        hidden: vec![path("secret")],
        read_only: vec![path("kept")],
        ..PathRestrictions::default()
    };
    let scope = Some(path("dir"));
    let narrow = NarrowOptions {
        scope,
        restrictions,
        path_strictness: PathStrictness::Strict,
        ..NarrowOptions::default()
    };
    let less = backend.narrow(narrow).unwrap();
    let further = [
        NarrowOptions::default(),
        NarrowOptions::for_actor(ada()),
        NarrowOptions::for_scope(WsPath::root()),
        NarrowOptions { path_strictness: PathStrictness::Lenient, ..NarrowOptions::default() },
        NarrowOptions {
            restrictions: PathRestrictions::default(),
            ..NarrowOptions::for_actor(Actor::for_process("root"))
        },
    ];
    for narrow in further {
        let shown = format!("{narrow:?}");
        let handle = less.narrow(narrow).unwrap();
        let error = handle.read("secret/key").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{shown}");
        let error = handle.write("kept", "2").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{shown}");
        assert!(handle.read("../top").await.is_err(), "{shown}");
        assert!(handle.read("/free").await.is_err(), "strict stays strict: {shown}");
        handle.write("free", "2").await.unwrap();
    }
}

#[tokio::test]
async fn guards_of_the_first_handle_see_every_call() {
    let log = GuardLog::default();
    let gate = Arc::new(ScriptedGuard::new(0, ScriptedGuardBehavior::Refuse, &log));
    let guards = Guards { policy: vec![gate], ..Guards::default() };
    let backend = Backend::with_options(
        Arc::new(MemoryDriver::new()),
        BackendOptions { guards, ..BackendOptions::default() },
    );
    let narrow = NarrowOptions {
        scope: Some(path("a")),
        guards: Guards::default(),
        ..NarrowOptions::for_actor(ada())
    };
    let handle = backend.narrow(narrow).unwrap();
    assert!(handle.write("x", "1").await.is_err());
    assert!(handle.narrow(NarrowOptions::default()).unwrap().write("x", "1").await.is_err());
}

#[tokio::test]
async fn env_without_a_scope_reaches_commands() {
    let driver = RecordingDriver::new();
    let backend = Backend::new(driver.clone());
    let env = [("A".to_owned(), "outer".to_owned()), ("B".to_owned(), "outer".to_owned())];
    let narrow = NarrowOptions { env: env.into(), ..NarrowOptions::default() };
    let handle = backend.narrow(narrow).unwrap();
    assert_eq!(handle.info().kind, backend.info().kind);
    let mut request = ab_core::process::ExecRequest::shell("true");
    request.env.insert("A".to_owned(), "own".to_owned());
    drop(handle.spawn(request).await.unwrap());
    let env = driver.last_exec().env;
    assert_eq!((env["A"].as_str(), env["B"].as_str()), ("own", "outer"));
}
