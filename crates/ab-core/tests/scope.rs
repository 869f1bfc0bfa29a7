//! Scopes: paths, environment, working directory, processes, and a root that is made once.

use std::collections::BTreeMap;
use std::time::SystemTime;

use ab_core::options::{FileAccess, FileCreationMode, LinkHandling, OpenOptions, StatOptions};
use ab_core::process::{ExecRequest, ProcessId, ProcessInfo};
use ab_core::{
    Backend, BackendKind, ErrorCode, ErrorKind, FileKind, MemoryDriver, ScopeOptions, Verb,
};
use ab_testkit::expect::{assert_content, expect_error, expect_error_on_path, list_tree};
use ab_testkit::{RecordedCall, RecordingDriver, crowd, every_call};
use bytes::Bytes;
use futures_util::future::join_all;

fn world() -> (RecordingDriver, Backend) {
    let driver = RecordingDriver::new();
    (driver.clone(), Backend::new(driver))
}

fn scope(parent: &Backend, path: &str) -> Backend {
    parent.scope(path, ScopeOptions::default()).unwrap()
}

fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn with_env(parent: &Backend, path: &str, pairs: &[(&str, &str)]) -> Backend {
    let options = ScopeOptions { env: variables(pairs), ..ScopeOptions::default() };
    parent.scope(path, options).unwrap()
}

#[tokio::test]
async fn env_reaches_every_command() {
    let (driver, root) = world();
    let scope = with_env(&root, "scope", &[("TENANT", "a"), ("LEVEL", "1")]);
    scope.exec("first").await.unwrap();
    scope.exec("second").await.unwrap();
    assert_eq!(driver.last_exec().env, variables(&[("TENANT", "a"), ("LEVEL", "1")]));
    root.exec("outside").await.unwrap();
    assert_eq!(driver.last_exec().env, BTreeMap::new());
}

#[tokio::test]
async fn command_env_wins() {
    let (driver, root) = world();
    let scope = with_env(&root, "scope", &[("A", "scope"), ("B", "scope")]);
    let request = ExecRequest {
        env: variables(&[("B", "command"), ("C", "command")]),
        ..ExecRequest::shell("run")
    };
    scope.spawn(request).await.unwrap();
    let merged = [("A", "scope"), ("B", "command"), ("C", "command")];
    assert_eq!(driver.last_exec().env, variables(&merged));
}

#[tokio::test]
async fn deeper_env_wins() {
    let (driver, root) = world();
    let outer = with_env(&root, "outer", &[("A", "outer"), ("B", "outer"), ("C", "outer")]);
    let inner = with_env(&outer, "inner", &[("B", "inner"), ("C", "inner"), ("D", "")]);
    let request = ExecRequest { env: variables(&[("C", "command")]), ..ExecRequest::shell("run") };
    inner.spawn(request).await.unwrap();
    let merged = [("A", "outer"), ("B", "inner"), ("C", "command"), ("D", "")];
    assert_eq!(driver.last_exec().env, variables(&merged));
}

#[tokio::test]
async fn exec_cwd_is_the_scope_root() {
    let (driver, root) = world();
    let inner = scope(&scope(&root, "outer"), "inner");
    inner.exec("pwd").await.unwrap();
    let expect = RecordedCall {
        verb: Verb::Exec,
        path: Some("outer/inner".to_owned()),
        scope_root: Some("outer/inner".to_owned()),
        to: None,
        command: Some("pwd".to_owned()),
        env: BTreeMap::new(),
        restrictions: ab_core::process::PathRestrictions::default(),
    };
    assert_eq!(driver.last_exec(), expect);

    let cwd = inner.parse_path("sub/dir").unwrap();
    inner.spawn(ExecRequest { cwd, ..ExecRequest::shell("pwd") }).await.unwrap();
    let expect = RecordedCall { path: Some("outer/inner/sub/dir".to_owned()), ..expect };
    assert_eq!(driver.last_exec(), expect);
}

#[tokio::test]
async fn calls_reach_the_parent_translated() {
    let (driver, root) = world();
    let inner = scope(&scope(&root, "outer"), "in/ner");
    every_call::try_every_call_on(&inner, "dir/file").await;
    for seen in driver.recorded_calls() {
        let path = seen.path.expect("every call here has a path");
        let own = ["outer/in/ner/dir/file", "outer/in/ner/elsewhere", "outer/in/ner/kept"];
        match seen.verb {
            Verb::Mkdir if path == "outer" || path == "outer/in/ner" => continue,
            _ => assert!(own.contains(&path.as_str()), "{} came for {path:?}", seen.verb),
        }
        assert_eq!(seen.scope_root.as_deref(), Some("outer/in/ner"), "{}", seen.verb);
        if seen.verb == Verb::Rename {
            assert!(own.contains(&seen.to.as_deref().unwrap()), "{:?}", seen.to);
        }
    }
}

#[tokio::test]
async fn nested_paths_join() {
    let (_, root) = world();
    let inner = scope(&scope(&scope(&root, "a/b"), "./c"), "d/../e");
    inner.write("file", "deep").await.unwrap();
    assert_content(&root, "a/b/c/e/file", "deep").await;
    assert_eq!(inner.info().root_aliases, ["/a/b/c/e"]);
    assert_eq!(inner.info().kind, BackendKind::Scoped);
    assert_eq!(inner.info().capabilities, root.info().capabilities);
    assert_eq!(scope(&root, ".").info().root_aliases, ["/"]);
    assert_eq!(scope(&scope(&root, "a"), ".").info().root_aliases, ["/a"]);
}

#[tokio::test]
async fn absolute_paths_know_the_scopes_alias() {
    let options =
        ab_core::memory::MemoryDriverOptions { root: "/srv/ws".to_owned(), ..Default::default() };
    let root = Backend::new(MemoryDriver::with_options(options).unwrap());
    let inner = scope(&scope(&root, "outer"), "/srv/ws/outer/inner");
    assert_eq!(inner.info().root_aliases, ["/srv/ws/outer/inner"]);
    inner.write("/srv/ws/outer/inner/file", "x").await.unwrap();
    assert_content(&inner, "file", "x").await;
    assert_content(&inner, "/file", "x").await;
    expect_error_on_path(
        inner.read("/srv/ws/outer/file").await,
        ErrorKind::NotFound,
        "srv/ws/outer/file",
    );
    let out = "/srv/ws/outer/inner/../file";
    expect_error_on_path(inner.read(out).await, ErrorKind::PathEscape, out);
}

#[tokio::test]
async fn escaping_scope_path_is_refused() {
    let (driver, root) = world();
    let outer = scope(&root, "outer");
    for (parent, path, code) in [
        (&root, "..", ErrorCode::PathEscapeAttempt),
        (&root, "a/../../b", ErrorCode::PathEscapeAttempt),
        (&outer, "../other", ErrorCode::PathEscapeAttempt),
        (&outer, "inner/../../outer", ErrorCode::PathEscapeAttempt),
        (&root, "", ErrorCode::InvalidPath),
        (&root, "nul\0", ErrorCode::InvalidPath),
        (&root, ".ab-tmp-x", ErrorCode::InvalidPath),
    ] {
        let error = parent.scope(path, ScopeOptions::default()).unwrap_err();
        assert_eq!((error.code(), error.path()), (code, Some(path)));
    }
    assert_eq!((root.open_scope_count(), outer.open_scope_count()), (1, 0));
    assert_eq!(driver.recorded_calls(), []);
}

#[tokio::test]
async fn inside_the_parent_is_still_outside() {
    let (driver, root) = world();
    root.write("users/b/secret", "kept").await.unwrap();
    let (a, b) = (scope(&root, "users/a"), scope(&root, "users/b"));
    assert_content(&b, "secret", "kept").await;
    let before = driver.recorded_calls().len();
    for path in ["../b/secret", "/../b/secret", "x/../../b/secret"] {
        let error = expect_error_on_path(a.read(path).await, ErrorKind::PathEscape, path);
        assert_eq!(error.code(), ErrorCode::PathEscapeAttempt);
    }
    assert_eq!(driver.recorded_calls().len(), before, "an escape reaches nobody");
    for path in ["secret", "b/secret", "/users/b/secret"] {
        expect_error(a.read(path).await, ErrorKind::NotFound);
    }
    assert_eq!(list_tree(&a).await, []);
}

#[tokio::test]
async fn first_write_makes_the_root() {
    let (driver, root) = world();
    let scope = scope(&root, "rooms/a");
    assert_eq!(scope.readdir(".").await.unwrap(), Vec::<String>::new());
    expect_error_on_path(scope.read("file").await, ErrorKind::NotFound, "file");
    assert!(!scope.exists("file").await.unwrap());
    assert_eq!(driver.call_count(Verb::Mkdir, "rooms/a"), 0, "reading makes nothing");
    scope.write("file", "x").await.unwrap();
    scope.write("file", "y").await.unwrap();
    scope.mkdir("dir").await.unwrap();
    scope.touch("other").await.unwrap();
    assert_eq!(driver.call_count(Verb::Mkdir, "rooms/a"), 1);
    let mkdir = driver.verbs_and_paths().iter().position(|(verb, _)| *verb == Verb::Mkdir);
    let write = driver.verbs_and_paths().iter().position(|(verb, _)| *verb == Verb::Write);
    assert!(mkdir < write, "the root comes before what it holds");
}

#[tokio::test]
async fn a_fresh_scope_has_a_root_before_its_first_write() {
    let (_, root) = world();
    let scope = scope(&root, "rooms/a");
    for links in [LinkHandling::Follow, LinkHandling::NoFollow] {
        let stat = scope.stat_with(".", StatOptions { links }).await.unwrap();
        assert_eq!((stat.kind, stat.size), (FileKind::Dir, 0));
    }
    assert!(scope.exists("/").await.unwrap());
    expect_error_on_path(scope.read(".").await, ErrorKind::IsADirectory, ".");
    expect_error_on_path(scope.write(".", "x").await, ErrorKind::IsADirectory, ".");
    expect_error_on_path(scope.touch(".").await, ErrorKind::IsADirectory, ".");
    let create = OpenOptions {
        access: FileAccess::ReadWrite,
        create: FileCreationMode::IfMissing,
        ..OpenOptions::default()
    };
    expect_error_on_path(scope.open(".", create).await, ErrorKind::IsADirectory, ".");
    assert_eq!(list_tree(&root).await, [], "the scope's root did not become a file");
}

#[tokio::test]
async fn concurrent_first_writes_make_the_root_once() {
    let (driver, root) = world();
    driver.yield_on_each_call();
    let in_turns = scope(&root, "turns");
    let names: Vec<String> = (0..32).map(|number| format!("{number:02}")).collect();
    let writes = join_all(names.iter().map(|name| in_turns.write(name, name.as_str())));
    for written in writes.await {
        written.unwrap();
    }
    assert_eq!(driver.call_count(Verb::Mkdir, "turns"), 1);
    assert_eq!(in_turns.readdir(".").await.unwrap(), names);

    let (driver, root) = world();
    let on_threads = scope(&root, "threads");
    let written = crowd::run_on_threads(32, |number| {
        let scope = on_threads.clone();
        async move { scope.write(&format!("{number:02}"), "x").await }
    });
    for written in written.await {
        written.unwrap();
    }
    assert_eq!(driver.call_count(Verb::Mkdir, "threads"), 1);
    assert_eq!(on_threads.readdir(".").await.unwrap(), names);
}

#[tokio::test]
async fn a_root_that_could_not_be_made_is_tried_again() {
    let (driver, root) = world();
    let scope = scope(&root, "rooms/a");
    let full = ab_core::Error::new(ErrorCode::WriteFailed, ErrorKind::NoSpace, "full")
        .with_path("rooms/a")
        .with_verb(Verb::Mkdir);
    driver.fail_next(Verb::Mkdir, full);
    expect_error_on_path(scope.write("file", "x").await, ErrorKind::NoSpace, ".");
    scope.write("file", "x").await.unwrap();
    assert_eq!(driver.call_count(Verb::Mkdir, "rooms/a"), 2);
}

#[tokio::test]
async fn errors_never_show_the_prefix() {
    let (_, root) = world();
    root.write("hidden/blocked", "a file in the way").await.unwrap();
    root.write("hidden/room/dir/file", "text").await.unwrap();
    let inner = scope(&scope(&root, "hidden"), "room");
    let blocked = scope(&root, "hidden/blocked/room");
    let mut errors = Vec::new();
    for scope in [&inner, &blocked] {
        for path in ["missing", "dir", "dir/file", "dir/file/below", ".", "../out", "nul\0"] {
            errors.extend(every_call::try_every_call_on(scope, path).await);
        }
        errors.extend(every_call::try_every_pathless_call(scope).await);
    }
    inner.write("opened", "text").await.unwrap();
    let file = inner.open("opened", OpenOptions::default()).await.unwrap();
    errors.push(("write_at", file.write_at(0, Bytes::from("x")).await));
    errors.push(("set_len", file.set_len(0).await));
    let mut failures = 0;
    for (call, result) in errors {
        let Err(error) = result else { continue };
        failures += 1;
        let everything = format!("{error} {error:?}");
        assert!(!everything.contains("hidden"), "{call} tells: {everything}");
    }
    assert!(failures > 100, "{failures} calls failed");
}

#[tokio::test]
async fn a_path_too_long_inside_its_scope_touches_nothing() {
    let (driver, root) = world();
    let scope = scope(&root, &vec!["directory"; 20].join("/"));
    let path = vec!["d".repeat(200); 20].join("/");
    assert!(scope.parse_path(&path).is_ok(), "on its own it is short enough");
    for (call, result) in every_call::try_every_call_on(&scope, &path).await {
        if call == "scope" {
            continue;
        }
        let error = expect_error(result, ErrorKind::InvalidPath);
        assert_eq!(
            (error.code(), error.path()),
            (ErrorCode::InvalidPath, Some(path.as_str())),
            "{call}"
        );
    }
    assert_eq!(driver.recorded_calls(), []);
}

fn process(id: &str, root: &Backend, cwd: &str) -> ProcessInfo {
    ProcessInfo {
        id: ProcessId::new(id),
        command: format!("run {id}"),
        cwd: root.parse_path(cwd).unwrap(),
        started: SystemTime::UNIX_EPOCH,
        exit: None,
    }
}

#[tokio::test]
async fn processes_of_others_do_not_show() {
    let (driver, root) = world();
    let places = [("1", "."), ("2", "a"), ("3", "a/b"), ("4", "ab"), ("5", "a/b/c"), ("6", "b")];
    driver.set_processes(places.map(|(id, cwd)| process(id, &root, cwd)).to_vec());
    let a = scope(&root, "a");
    let shown = |processes: Vec<ProcessInfo>| -> Vec<(String, String)> {
        processes.iter().map(|p| (p.id.to_string(), p.cwd.to_string())).collect()
    };
    let pairs = |list: &[(&str, &str)]| -> Vec<(String, String)> {
        list.iter().map(|(id, cwd)| ((*id).to_owned(), (*cwd).to_owned())).collect()
    };
    assert_eq!(shown(root.detached_processes().await.unwrap()), pairs(&places));
    let of_a = pairs(&[("2", "."), ("3", "b"), ("5", "b/c")]);
    assert_eq!(shown(a.detached_processes().await.unwrap()), of_a);
    let of_b = pairs(&[("3", "."), ("5", "c")]);
    assert_eq!(shown(scope(&a, "b").detached_processes().await.unwrap()), of_b);

    a.attach(&ProcessId::new("3"), 0).await.unwrap();
    for foreign in ["1", "4", "6", "unknown"] {
        let error = expect_error(a.attach(&ProcessId::new(foreign), 0).await, ErrorKind::NotFound);
        assert_eq!((error.code(), error.verb()), (ErrorCode::ExecError, Some(Verb::Attach)));
    }
}
