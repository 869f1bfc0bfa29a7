//! Deriving handles: authority only shrinks, and identity reaches every guard.

use std::sync::Arc;

use ab_core::journal::{Journal, JournalMode, MemoryWriter};
use ab_core::path::PathStyle;
use ab_core::process::Restrictions;
use ab_core::{
    Actor, Backend, BackendOptions, Guards, Kind, Memory, Narrow, PathRules, Principal,
    PrincipalKind, WsPath,
};
use ab_testkit::expect::failure;
use ab_testkit::{Gate, GateAnswer, Log, Recording};

fn path(text: &str) -> WsPath {
    PathRules::lenient().parse(text).unwrap()
}

fn ada() -> Principal {
    Principal::new(PrincipalKind::Person, "ada")
}

fn journaled(name: &str) -> (Backend, Arc<MemoryWriter>) {
    let writer = Arc::new(MemoryWriter::default());
    let journal = Some(Arc::new(Journal::new(writer.clone(), JournalMode::Standard)));
    let guards = Guards { journal, ..Guards::default() };
    let assembly = BackendOptions { actor: Actor::new(name), guards, ..BackendOptions::default() };
    (Backend::assemble(Arc::new(Memory::new()), assembly), writer)
}

fn actors(writer: &MemoryWriter) -> Vec<String> {
    let actors = writer.records().into_iter().map(|record| record.actor).collect();
    writer.clear();
    actors
}

#[tokio::test]
async fn the_actor_reaches_the_guards_of_every_layer() {
    let (base, base_log) = journaled("base");
    let (other, other_log) = journaled("other");
    let (upper, upper_log) = journaled("upper");
    let own_log = Arc::new(MemoryWriter::default());
    let journal = Some(Arc::new(Journal::new(own_log.clone(), JournalMode::Standard)));
    let restrictions = Restrictions { hidden: vec![path("secret")], ..Restrictions::default() };
    let view = base.mount("mnt", &other).unwrap().overlay(&upper).unwrap();
    let handle = view
        .backend()
        .narrow(Narrow { restrictions, ..Narrow::default() })
        .and_then(|view| {
            let guards = Guards { journal, ..Guards::default() };
            view.narrow(Narrow { actor: Some(ada().into()), guards, ..Narrow::default() })
        })
        .unwrap();
    handle.write("a", "1").await.unwrap();
    assert_eq!(actors(&own_log), ["person:ada"]);
    assert!(actors(&upper_log).iter().all(|actor| actor == "person:ada"));
    let plain = base.mount("mnt", &other).unwrap();
    let plain = plain.narrow(Narrow::actor(ada())).unwrap();
    plain.write("mnt/b", "1").await.unwrap();
    plain.write("c", "1").await.unwrap();
    assert_eq!(actors(&other_log), ["person:ada"]);
    assert_eq!(actors(&base_log), ["person:ada"]);
    let scope = plain.narrow(Narrow::scope(path("dir"))).unwrap();
    scope.write("d", "1").await.unwrap();
    assert!(actors(&base_log).iter().all(|actor| actor == "person:ada"));
    failure(scope.read("../c").await, Kind::Escape);
    assert_eq!(actors(&base_log), ["person:ada"], "refused paths name the actor too");
    base.write("e", "1").await.unwrap();
    assert_eq!(actors(&base_log), ["base"], "the handle it came from is unchanged");
}

#[tokio::test]
async fn a_narrowed_overlay_shares_its_changes() {
    let (lower, _) = journaled("lower");
    let (upper, _) = journaled("upper");
    let view = lower.overlay(&upper).unwrap();
    let handle = view.backend().narrow(Narrow::actor(ada())).unwrap();
    handle.write("a", "1").await.unwrap();
    assert_eq!(view.diff().await.unwrap().len(), 1);
    view.commit().await.unwrap();
    assert_eq!(&lower.read("a").await.unwrap()[..], b"1");
}

#[tokio::test]
async fn nothing_that_was_taken_comes_back() {
    let backend = Backend::new(Memory::new());
    for file in ["top", "dir/secret/key", "dir/kept", "dir/free"] {
        backend.write(file, "1").await.unwrap();
    }
    let restrictions = Restrictions {
        hidden: vec![path("secret")],
        read_only: vec![path("kept")],
        ..Restrictions::default()
    };
    let scope = Some(path("dir"));
    let narrow = Narrow { scope, restrictions, paths: PathStyle::Strict, ..Narrow::default() };
    let less = backend.narrow(narrow).unwrap();
    let further = [
        Narrow::default(),
        Narrow::actor(ada()),
        Narrow::scope(WsPath::root()),
        Narrow { paths: PathStyle::Lenient, ..Narrow::default() },
        Narrow { restrictions: Restrictions::default(), ..Narrow::actor(Actor::new("root")) },
    ];
    for narrow in further {
        let shown = format!("{narrow:?}");
        let handle = less.narrow(narrow).unwrap();
        let error = handle.read("secret/key").await.unwrap_err();
        assert_eq!(error.kind(), Kind::NotFound, "{shown}");
        let error = handle.write("kept", "2").await.unwrap_err();
        assert_eq!(error.kind(), Kind::PermissionDenied, "{shown}");
        assert!(handle.read("../top").await.is_err(), "{shown}");
        assert!(handle.read("/free").await.is_err(), "strict stays strict: {shown}");
        handle.write("free", "2").await.unwrap();
    }
}

#[tokio::test]
async fn guards_of_the_first_handle_see_every_call() {
    let log = Log::default();
    let gate = Arc::new(Gate::new(0, GateAnswer::Refuse, &log));
    let guards = Guards { policy: vec![gate], ..Guards::default() };
    let backend = Backend::assemble(
        Arc::new(Memory::new()),
        BackendOptions { guards, ..BackendOptions::default() },
    );
    let narrow =
        Narrow { scope: Some(path("a")), guards: Guards::default(), ..Narrow::actor(ada()) };
    let handle = backend.narrow(narrow).unwrap();
    assert!(handle.write("x", "1").await.is_err());
    assert!(handle.narrow(Narrow::default()).unwrap().write("x", "1").await.is_err());
}

#[tokio::test]
async fn env_without_a_scope_reaches_commands() {
    let driver = Recording::new();
    let backend = Backend::new(driver.clone());
    let env = [("A".to_owned(), "outer".to_owned()), ("B".to_owned(), "outer".to_owned())];
    let narrow = Narrow { env: env.into(), ..Narrow::default() };
    let handle = backend.narrow(narrow).unwrap();
    assert_eq!(handle.info().kind, backend.info().kind);
    let mut request = ab_core::process::ExecRequest::shell("true");
    request.env.insert("A".to_owned(), "own".to_owned());
    drop(handle.spawn(request).await.unwrap());
    let env = driver.last_exec().env;
    assert_eq!((env["A"].as_str(), env["B"].as_str()), ("own", "outer"));
}
