//! Mounts: whose a path is, what shows where, renames from one workspace to another, and who ends
//! what.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ab_core::backend::GlobOptions;
use ab_core::metadata::{Removed, Renamed, Truncated};
use ab_core::options::{
    Attributes, Detail, ListOptions, OpenOptions, Overwrite, RemoveOptions, RenameOptions,
    StatOptions, WriteMode, WriteOptions,
};
use ab_core::process::{ExecRequest, ProcessId, ProcessInfo};
use ab_core::search::IgnoreFiles;
use ab_core::{
    Backend, BackendKind, Code, Edit, EditOptions, Error, FileKind, Kind, Memory, MemoryOptions,
    ScopeOptions, Status, Verb,
};
use ab_testkit::expect::{failure, failure_on, holds, nothing, paths, tree};
use ab_testkit::{Recording, Script, crowd, every_call};
use bytes::Bytes;

const REPLACE: RenameOptions = RenameOptions { overwrite: Overwrite::Replace };
const LONG: usize = 1024 * 1024;

fn memory() -> Backend {
    Backend::new(Memory::new())
}

fn small(limit: u64) -> Backend {
    Backend::new(Memory::with(MemoryOptions { limit, ..MemoryOptions::default() }).unwrap())
}

async fn filled(files: &[&str]) -> Backend {
    let backend = memory();
    for path in files {
        backend.write(path, *path).await.unwrap();
    }
    backend
}

fn recorded() -> (Recording, Backend) {
    let driver = Recording::new();
    (driver.clone(), Backend::new(driver))
}

fn scope(parent: &Backend, path: &str) -> Backend {
    parent.scope(path, ScopeOptions::default()).unwrap()
}

fn whole() -> ListOptions {
    ListOptions { depth: usize::MAX, ..ListOptions::default() }
}

async fn names(backend: &Backend) -> Vec<String> {
    tree(backend).await.into_iter().map(|(path, _)| path).collect()
}

#[tokio::test]
async fn the_longest_point_owns_a_path_whatever_came_first() {
    let (outer, inner) = (memory(), memory());
    let base = memory();
    let one = base.mount("a", &outer).unwrap().mount("a/b", &inner).unwrap();
    let other = base.mount("a/b", &inner).unwrap().mount("a", &outer).unwrap();
    for (number, view) in [one, other].iter().enumerate() {
        let text = number.to_string();
        for path in ["x", "a2/x", "ab", "a/x", "a/bc", "a/b/x", "a/b/c/x"] {
            view.write(path, text.as_str()).await.unwrap();
            holds(view, path, &text).await;
        }
        assert_eq!(names(&base).await, ["a2", "a2/x", "ab", "x"]);
        assert_eq!(names(&outer).await, ["bc", "x"]);
        assert_eq!(names(&inner).await, ["c", "c/x", "x"]);
        let all = ["a", "a/b", "a/b/c", "a/b/c/x", "a/b/x", "a/bc", "a/x", "a2", "a2/x", "ab", "x"];
        assert_eq!(names(view).await, all);
        assert_eq!(view.info().kind, BackendKind::Mounts);
    }
}

#[tokio::test]
async fn places_that_make_no_sense_are_refused() {
    let (base, other) = (memory(), memory());
    for root in [".", "/", "a/.."] {
        let error = failure(base.mount(root, &other), Kind::Invalid);
        assert_eq!(error.code(), Code::InvalidConfiguration);
    }
    let view = base.mount("mnt", &other).unwrap();
    failure_on(view.mount("./mnt/", &memory()), Kind::Invalid, "mnt");
    failure_on(view.mount("../out", &other), Kind::Escape, "../out");
    failure_on(view.mount(".ab-wh-x", &other), Kind::InvalidPath, ".ab-wh-x");
}

#[tokio::test]
async fn points_and_the_way_to_them_are_directories() {
    let base = filled(&["m/file", "x"]).await;
    let view = base.mount("m/n/data", &filled(&["inside/file"]).await).unwrap();
    for (path, kind) in [
        ("m", FileKind::Dir),
        ("m/n", FileKind::Dir),
        ("m/n/data", FileKind::Dir),
        ("m/n/data/inside", FileKind::Dir),
        ("m/file", FileKind::File),
    ] {
        assert_eq!(view.stat(path).await.unwrap().kind, kind, "{path}");
        assert!(view.exists(path).await.unwrap());
    }
    assert_eq!(view.readdir(".").await.unwrap(), ["m", "x"]);
    assert_eq!(view.readdir("m").await.unwrap(), ["file", "n"]);
    assert_eq!(view.readdir("m/n").await.unwrap(), ["data"]);
    assert_eq!(view.readdir("m/n/data").await.unwrap(), ["inside"]);
    failure_on(view.readdir("m/n/other").await, Kind::NotFound, "m/n/other");
    for path in ["m", "m/n", "m/n/data"] {
        failure_on(view.read(path).await, Kind::IsADirectory, path);
        failure_on(view.write(path, "x").await, Kind::IsADirectory, path);
        failure_on(view.touch(path).await, Kind::IsADirectory, path);
        failure_on(view.open(path, OpenOptions::default()).await, Kind::IsADirectory, path);
        view.mkdir(path).await.unwrap();
    }
    view.write("m/n/beside", "in the base").await.unwrap();
    holds(&base, "m/n/beside", "in the base").await;
    assert_eq!(view.readdir("m/n").await.unwrap(), ["beside", "data"]);
}

#[tokio::test]
async fn deep_listings_show_mounts_in_path_order_within_their_bounds() {
    let view = filled(&["a/1", "m.txt", "z"]).await;
    let view = view.mount("m/n/data", &filled(&["in/1", "x"]).await).unwrap();
    let view = view.mount("b", &filled(&["only"]).await).unwrap();
    let all = [
        "a",
        "a/1",
        "b",
        "b/only",
        "m",
        "m/n",
        "m/n/data",
        "m/n/data/in",
        "m/n/data/in/1",
        "m/n/data/x",
        "m.txt",
        "z",
    ];
    for depth in 0..6 {
        let within: Vec<&str> =
            all.into_iter().filter(|path| path.split('/').count() <= depth).collect();
        for limit in 0..=within.len() + 1 {
            let options = ListOptions { depth, limit, detail: Detail::Stat };
            let listing = view.list(".", options).await.unwrap();
            let cut = (limit < within.len()).then_some(Truncated::Count);
            assert_eq!(
                (paths(&listing), listing.truncated),
                (within[..limit.min(within.len())].to_vec(), cut),
                "depth {depth}, limit {limit}"
            );
            for entry in listing.entries {
                let stat = view.stat(entry.path.as_str()).await.unwrap();
                assert_eq!((entry.kind, entry.stat), (stat.kind, Some(stat)), "{}", entry.path);
            }
        }
    }
}

#[tokio::test]
async fn what_a_mount_covers_cannot_be_seen_and_takes_no_room() {
    let base = memory();
    for number in 0..100 {
        base.write(&format!("m/data/{number:03}"), "covered").await.unwrap();
    }
    base.write("m/n", "covered by the way to a mount").await.unwrap();
    base.write("z/last", "seen").await.unwrap();
    let view = base.mount("m/data", &filled(&["own"]).await).unwrap();
    let view = view.mount("m/n/deep", &filled(&["own"]).await).unwrap();
    let all = ["m", "m/data", "m/data/own", "m/n", "m/n/deep", "m/n/deep/own", "z", "z/last"];
    for limit in 1..=all.len() {
        let listing = view.list(".", ListOptions { limit, ..whole() }).await.unwrap();
        assert_eq!(paths(&listing), all[..limit], "limit {limit}");
        assert_eq!(listing.truncated.is_some(), limit < all.len(), "limit {limit}");
    }
    assert_eq!(view.stat("m/n").await.unwrap().kind, FileKind::Dir);
    assert_eq!(view.readdir("m/n").await.unwrap(), ["deep"]);
    failure_on(view.read("m/n").await, Kind::IsADirectory, "m/n");
    failure_on(view.read("m/data/001").await, Kind::NotFound, "m/data/001");
    view.mkdir("m/n").await.unwrap();
    holds(&base, "m/n", "covered by the way to a mount").await;
}

#[tokio::test]
async fn errors_name_paths_as_the_view_has_them() {
    let (driver, other) = recorded();
    other.write("dir/file", "text").await.unwrap();
    let view = memory().mount("mnt/data", &other).unwrap();
    failure_on(view.read("mnt/data/missing").await, Kind::NotFound, "mnt/data/missing");
    failure_on(view.read("mnt/data").await, Kind::IsADirectory, "mnt/data");
    failure_on(view.readdir("mnt/data/dir/file").await, Kind::NotADirectory, "mnt/data/dir/file");
    let file = view.open("mnt/data/dir/file", OpenOptions::default()).await.unwrap();
    let refused = file.write_at(0, Bytes::from("x")).await;
    failure_on(refused, Kind::PermissionDenied, "mnt/data/dir/file");
    failure_on(file.set_len(0).await, Kind::PermissionDenied, "mnt/data/dir/file");
    assert_eq!(file.read_at(0, 4).await.unwrap(), "text");
    let error = || Error::new(Code::ReadFailed, Kind::Io, "broken").with_path("dir");
    driver.fail_next(Verb::List, error());
    failure_on(view.readdir("mnt/data/dir").await, Kind::Io, "mnt/data/dir");
    driver.fail_next(Verb::List, error());
    let listing = view.list(".", whole()).await.unwrap();
    assert_eq!(paths(&listing), ["mnt", "mnt/data"], "the rest is there all the same");
    assert_eq!(listing.problems[0].path, "mnt/data");
    assert_eq!(listing.problems[0].error.path(), Some("mnt/data/dir"));
}

#[tokio::test]
async fn fences_move_along_or_become_the_mount() {
    let (base_driver, base) = recorded();
    let (driver, other) = recorded();
    let view = base.mount("a/mnt", &other).unwrap();
    let seen = |driver: &Recording| {
        let seen = driver.seen().into_iter().rev().find(|seen| seen.verb == Verb::Read).unwrap();
        (seen.path.unwrap(), seen.fence)
    };
    for (prefix, path, expect, fence) in [
        ("a", "mnt/x", "x", None),
        ("a/mnt", "x", "x", None),
        ("a/mnt/t", "x", "t/x", Some("t")),
        ("a/mnt/t/u", "x/y", "t/u/x/y", Some("t/u")),
    ] {
        let _ = scope(&view, prefix).read(path).await;
        assert_eq!(seen(&driver), (expect.to_owned(), fence.map(str::to_owned)), "{prefix}");
    }
    let _ = scope(&view, "a").read("x").await;
    assert_eq!(seen(&base_driver), ("a/x".to_owned(), Some("a".to_owned())));
}

#[tokio::test]
async fn every_call_inside_reaches_the_mount_and_nobody_else() {
    let (base_driver, base) = recorded();
    let (driver, other) = recorded();
    let view = base.mount("mnt", &other).unwrap();
    let inside = scope(&view, "mnt/room");
    every_call::on_path(&inside, "dir/file").await;
    assert_eq!(base_driver.seen(), []);
    assert!(driver.seen().len() > 20);
    for seen in driver.seen() {
        let path = seen.path.unwrap();
        assert!(path == "room" || path.starts_with("room/"), "{} came for {path}", seen.verb);
    }
}

#[tokio::test]
async fn what_holds_a_mount_stays() {
    let view = filled(&["m/file", "file", "dir/file"]).await;
    let view = view.mount("m/n/data", &filled(&["x"]).await).unwrap();
    for path in ["m", "m/n", "m/n/data"] {
        for options in [RemoveOptions::default(), RemoveOptions::recursive().missing_ok()] {
            let error = failure_on(view.rm(path, options).await, Kind::Invalid, path);
            assert!(error.message().contains("holds a mount"), "{error}");
        }
        failure_on(view.rename(path, "elsewhere").await, Kind::Invalid, path);
        failure_on(view.rename("file", path).await, Kind::AlreadyExists, path);
        failure_on(view.rename_with("file", path, REPLACE).await, Kind::IsADirectory, path);
        failure_on(view.rename_with("dir", path, REPLACE).await, Kind::Invalid, path);
        failure_on(view.rename("missing", path).await, Kind::NotFound, "missing");
        view.rename(path, path).await.unwrap();
    }
    failure_on(view.rm(".", RemoveOptions::recursive()).await, Kind::Invalid, ".");
    failure_on(view.rename("m", "m/n/data/below").await, Kind::Invalid, "m");
    holds(&view, "m/file", "m/file").await;
    holds(&view, "m/n/data/x", "x").await;
    let removed = view.rm("m/file", RemoveOptions::default()).await.unwrap();
    assert_eq!(removed, Removed { count: 1 });
    assert_eq!(view.readdir("m").await.unwrap(), ["n"], "the way to the mount is still there");
}

#[tokio::test]
async fn renames_inside_one_mount_are_its_own() {
    let (driver, other) = recorded();
    other.write("dir/file", "x").await.unwrap();
    let view = memory().mount("mnt", &other).unwrap();
    assert_eq!(view.rename("mnt/dir", "mnt/new/dir").await.unwrap(), Renamed { atomic: true });
    assert_eq!(driver.count(Verb::Rename, "dir"), 1);
    holds(&other, "new/dir/file", "x").await;
    failure_on(view.rename("mnt/gone", "mnt/x").await, Kind::NotFound, "mnt/gone");
}

#[tokio::test]
async fn renames_across_copy_then_remove() {
    let (base, other) = (memory(), memory());
    let view = base.mount("mnt", &other).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let attributes = Attributes { mode: Some(0o751), modified: Some(time), accessed: None };
    view.write("file", "moved").await.unwrap();
    view.set_attributes("file", attributes).await.unwrap();
    assert_eq!(view.rename("file", "mnt/a/b").await.unwrap(), Renamed { atomic: false });
    nothing(&base, "file").await;
    holds(&other, "a/b", "moved").await;
    let stat = other.stat("a/b").await.unwrap();
    assert_eq!((stat.mode, stat.modified), (Some(0o751), time));

    for path in ["dir/one", "dir/in/two", "dir/in/deep/three"] {
        view.write(&format!("mnt/{path}"), path).await.unwrap();
    }
    assert_eq!(view.rename("mnt/dir", "back/dir").await.unwrap(), Renamed { atomic: false });
    assert_eq!(names(&other).await, ["a", "a/b"]);
    for path in ["dir/one", "dir/in/two", "dir/in/deep/three"] {
        holds(&base, &format!("back/{path}"), path).await;
    }
}

#[tokio::test]
async fn large_files_go_across_in_pieces() {
    let (driver, other) = recorded();
    let base = memory();
    let view = base.mount("mnt", &other).unwrap();
    let large: Vec<u8> = (0..=u8::MAX).cycle().take(LONG + 17).collect();
    view.write("large", large.as_slice()).await.unwrap();
    view.set_attributes("large", Attributes { mode: Some(0o600), ..Attributes::default() })
        .await
        .unwrap();
    view.rename("large", "mnt/dir/large").await.unwrap();
    assert!(view.read("mnt/dir/large").await.unwrap() == large, "the bytes changed on the way");
    assert_eq!(other.stat("dir/large").await.unwrap().mode, Some(0o600));
    assert_eq!(names(&other).await, ["dir", "dir/large"], "nothing is left beside it");
    assert_eq!(driver.count(Verb::Write, "dir/large"), 0);
    view.write("short", "replaces it").await.unwrap();
    view.rename_with("short", "mnt/dir/large", REPLACE).await.unwrap();
    holds(&other, "dir/large", "replaces it").await;
}

#[tokio::test]
async fn renames_across_keep_the_rules() {
    let view = filled(&["file", "dir/file", "wall"]).await;
    let view = view.mount("mnt", &filled(&["file", "dir/file", "wall"]).await).unwrap();
    let before = tree(&view).await;
    let refuse = RenameOptions::default();
    for (from, to, options, kind, named) in [
        ("missing", "mnt/x", refuse, Kind::NotFound, "missing"),
        ("missing", "mnt/file", REPLACE, Kind::NotFound, "missing"),
        ("wall/x", "mnt/x", refuse, Kind::NotADirectory, "wall/x"),
        ("file", "mnt/file", refuse, Kind::AlreadyExists, "mnt/file"),
        ("file", "mnt/dir", refuse, Kind::AlreadyExists, "mnt/dir"),
        ("dir", "mnt/file", refuse, Kind::AlreadyExists, "mnt/file"),
        ("file", "mnt/dir", REPLACE, Kind::IsADirectory, "mnt/dir"),
        ("mnt/dir", "file", REPLACE, Kind::NotADirectory, "file"),
        ("mnt/dir", "dir", REPLACE, Kind::NotEmpty, "dir"),
        ("file", "mnt/wall/x", refuse, Kind::NotADirectory, "mnt/wall/x"),
        ("dir", "mnt/wall/x", REPLACE, Kind::NotADirectory, "mnt/wall/x"),
    ] {
        let error = failure_on(view.rename_with(from, to, options).await, kind, named);
        assert_eq!(error.verb(), Some(Verb::Rename), "{from} to {to}: {error:?}");
    }
    assert_eq!(tree(&view).await, before);
    view.rename_with("file", "mnt/file", REPLACE).await.unwrap();
    holds(&view, "mnt/file", "file").await;
    nothing(&view, "file").await;
}

#[tokio::test]
async fn a_copy_that_fails_leaves_the_source_whole_and_nothing_else() {
    let base = filled(&["dir/a", "dir/b"]).await;
    base.write("dir/c", vec![7; 500]).await.unwrap();
    base.write("large", vec![7; LONG]).await.unwrap();
    let other = small(400);
    let view = base.mount("mnt", &other).unwrap();
    let before = tree(&base).await;
    failure_on(view.rename("dir", "mnt/dir").await, Kind::NoSpace, "mnt/dir/c");
    failure_on(view.rename("dir/c", "mnt/c").await, Kind::NoSpace, "mnt/c");
    failure_on(view.rename("large", "mnt/large").await, Kind::NoSpace, "mnt/large");
    assert_eq!(tree(&base).await, before);
    assert_eq!(names(&other).await, Vec::<String>::new());
    assert_eq!(other.space().await.unwrap().available, 400, "every byte was given back");
}

#[tokio::test]
async fn failures_at_any_call_lose_nothing() {
    let calls = [Verb::Stat, Verb::List, Verb::Read, Verb::Open, Verb::Write, Verb::Mkdir];
    let mut failed = 0;
    for verb in calls.into_iter().chain([Verb::SetAttributes, Verb::Rename]) {
        for at_source in [true, false] {
            for (source, target, options) in [
                ("dir", "mnt/dir", RenameOptions::default()),
                ("large", "mnt/large", RenameOptions::default()),
                ("large", "mnt/old", REPLACE),
            ] {
                let ((from, base), (to, other)) = (recorded(), recorded());
                let view = base.mount("mnt", &other).unwrap();
                for path in ["dir/a", "dir/in/b", "mnt/old"] {
                    view.write(path, path).await.unwrap();
                }
                view.write("large", vec![7; LONG]).await.unwrap();
                let driver = if at_source { from } else { to };
                driver.fail_next(verb, Error::new(Code::WriteFailed, Kind::Io, "broken"));
                let at = format!("{verb} for {source} to {target}, at the source: {at_source}");
                if view.rename_with(source, target, options).await.is_ok() {
                    continue;
                }
                failed += 1;
                let own = ["dir", "dir/a", "dir/in", "dir/in/b", "large"];
                assert_eq!(names(&base).await, own, "{at}");
                assert_eq!(names(&other).await, ["old"], "{at}");
                holds(&other, "old", "mnt/old").await;
            }
        }
    }
    assert!(failed > 15, "{failed} of the calls were made");
}

#[tokio::test]
async fn a_source_that_cannot_be_removed_stays_or_leaves_a_whole_copy() {
    let broken = || Error::new(Code::WriteFailed, Kind::Io, "broken");
    let (from, base) = recorded();
    let other = memory();
    let view = base.mount("mnt", &other).unwrap();
    view.write("file", "kept").await.unwrap();
    view.write("dir/file", "kept").await.unwrap();
    from.fail_next(Verb::Delete, broken());
    failure(view.rename("file", "mnt/file").await, Kind::Io);
    nothing(&other, "file").await;
    from.fail_next(Verb::Delete, broken());
    let error = failure(view.rename("dir", "mnt/dir").await, Kind::Io);
    assert!(error.hint().unwrap().contains("'mnt/dir' is complete"), "{error:?}");
    for path in ["file", "dir/file", "mnt/dir/file"] {
        holds(&view, path, "kept").await;
    }
}

#[tokio::test]
async fn one_workspace_under_two_names_loses_nothing() {
    let base = filled(&["dir/file", "dir/in/file", "file"]).await;
    let view = base.mount("same", &base).unwrap();
    let view = view.mount("part", &scope(&base, "dir")).unwrap();
    let before = tree(&base).await;
    failure_on(view.rename("file", "same/file").await, Kind::AlreadyExists, "same/file");
    view.rename_with("file", "same/file", REPLACE).await.unwrap();
    view.rename_with("same/dir/file", "part/file", REPLACE).await.unwrap();
    failure_on(view.rename("dir", "same/dir/sub").await, Kind::Conflict, "dir");
    failure_on(view.rename("dir", "part/a/b").await, Kind::Conflict, "dir");
    failure_on(view.rename_with("dir", "same/dir", REPLACE).await, Kind::NotEmpty, "same/dir");
    assert_eq!(tree(&base).await, before);
    view.rename("dir/in", "same/moved").await.unwrap();
    holds(&base, "moved/file", "dir/in/file").await;
    nothing(&base, "dir/in").await;
}

#[tokio::test]
async fn commands_run_in_the_part_that_owns_their_directory() {
    let (base_driver, base) = recorded();
    let (driver, other) = recorded();
    let view = base.mount("srv/mnt", &other).unwrap();
    driver.play(Script::exits(0).stdout("from the mount"));
    let cwd = view.resolve("srv/mnt/work").unwrap();
    let process = view.spawn(ExecRequest { cwd, ..ExecRequest::shell("here") }).await.unwrap();
    assert_eq!(process.id.as_str(), "srv/mnt:process-1");
    assert_eq!(driver.last_exec().path.as_deref(), Some("work"));
    view.exec("there").await.unwrap();
    let seen = base_driver.last_exec();
    assert_eq!((seen.path.as_deref(), seen.command.as_deref()), (Some("."), Some("there")));
    scope(&view, "srv/mnt/room").exec("inside").await.unwrap();
    let seen = driver.last_exec();
    assert_eq!((seen.path.as_deref(), seen.fence.as_deref()), (Some("room"), Some("room")));
}

#[tokio::test]
async fn a_part_without_commands_says_so_in_the_name_of_the_whole() {
    let (driver, base) = recorded();
    let view = base.mount("mnt", &memory()).unwrap();
    assert!(view.info().capabilities.exec, "as the base does");
    let cwd = view.resolve("mnt").unwrap();
    let spawned = view.spawn(ExecRequest { cwd, ..ExecRequest::shell("x") }).await;
    let error = failure(spawned, Kind::Unsupported);
    assert_eq!(error.backend(), Some(BackendKind::Mounts));
    assert_eq!(driver.seen(), []);
    let view = memory().mount("mnt", &memory()).unwrap();
    failure(view.exec("x").await, Kind::Unsupported);
    failure(view.processes().await, Kind::Unsupported);
    failure(view.attach(&ProcessId::new("1"), 0).await, Kind::Unsupported);
}

fn process(id: &str, root: &Backend, cwd: &str) -> ProcessInfo {
    ProcessInfo {
        id: ProcessId::new(id),
        command: format!("run {id}"),
        cwd: root.resolve(cwd).unwrap(),
        started: SystemTime::UNIX_EPOCH,
        exit: None,
    }
}

#[tokio::test]
async fn processes_of_all_parts_have_ids_of_their_own() {
    let (base_driver, base) = recorded();
    let (driver, other) = recorded();
    let view = base.mount("mnt", &other).unwrap();
    base_driver.show_processes(vec![
        process("1", &base, "."),
        process("mnt:1", &base, "dir"),
        process("2", &base, "mnt/covered"),
    ]);
    driver.show_processes(vec![process("1", &other, "."), process("2", &other, "work")]);
    let shown: Vec<(String, String)> = view
        .processes()
        .await
        .unwrap()
        .iter()
        .map(|process| (process.id.to_string(), process.cwd.to_string()))
        .collect();
    let expect = [("1", "."), (".:mnt:1", "dir"), ("mnt:1", "mnt"), ("mnt:2", "mnt/work")]
        .map(|(id, cwd)| (id.to_owned(), cwd.to_owned()));
    assert_eq!(shown, expect);

    let attached =
        |driver: &Recording| driver.seen().iter().filter(|seen| seen.verb == Verb::Attach).count();
    for (id, in_base, in_mount) in [("1", 1, 0), (".:mnt:1", 2, 0), ("mnt:1", 2, 1)] {
        let process = view.attach(&ProcessId::new(id), 0).await.unwrap();
        assert!(process.id.as_str().ends_with(":process-1") || in_mount == 0, "{}", process.id);
        assert_eq!((attached(&base_driver), attached(&driver)), (in_base, in_mount), "{id}");
    }
    failure(view.attach(&ProcessId::new("elsewhere:1"), 0).await, Kind::NotFound);
    let inside = scope(&view, "mnt/work");
    let own: Vec<String> =
        inside.processes().await.unwrap().iter().map(|p| p.id.to_string()).collect();
    assert_eq!(own, ["mnt:2"]);
    inside.attach(&ProcessId::new("mnt:2"), 0).await.unwrap();
    failure(inside.attach(&ProcessId::new("mnt:1"), 0).await, Kind::NotFound);
}

async fn found(backend: &Backend, glob: &str, options: GlobOptions) -> Vec<String> {
    let names = backend.glob(glob, options).await.unwrap();
    names.entries.iter().map(|entry| entry.path.to_string()).collect()
}

#[tokio::test]
async fn searches_rooted_above_go_into_mounts() {
    let base = filled(&["a.rs", "src/b.rs", "mnt/covered.rs", ".gitignore"]).await;
    base.write(".gitignore", "ignored.rs\n").await.unwrap();
    let (driver, other) = recorded();
    for path in ["c.rs", "in/d.rs", "in/ignored.rs"] {
        other.write(path, path).await.unwrap();
    }
    let view = base.mount("mnt", &other).unwrap();
    let searches = || driver.seen().iter().filter(|seen| seen.verb == Verb::Search).count();
    let all = ["a.rs", "mnt/c.rs", "mnt/in/d.rs", "mnt/in/ignored.rs", "src/b.rs"];
    assert_eq!(found(&view, "**/*.rs", GlobOptions::default()).await, all);
    assert_eq!(searches(), 0);
    let inside = GlobOptions { root: "mnt/in".to_owned(), ..GlobOptions::default() };
    assert_eq!(found(&view, "*.rs", inside.clone()).await, all[2..4]);
    assert_eq!(searches(), 1, "a search inside one mount is that mount's");
    let honour = GlobOptions { ignore_files: IgnoreFiles::Honour, ..inside };
    assert_eq!(found(&view, "*.rs", honour).await, ["mnt/in/d.rs"]);
    assert_eq!(searches(), 1, "ignore files above the mount count too");
    let missing = GlobOptions { root: "mnt/gone".to_owned(), ..GlobOptions::default() };
    failure_on(view.glob("*", missing).await, Kind::NotFound, "mnt/gone");
}

#[tokio::test]
async fn a_mounted_view_is_a_workspace_like_any_other() {
    let inner = filled(&["x"]).await.mount("deep", &filled(&["y"]).await).unwrap();
    let view = filled(&["z"]).await.mount("in", &inner).unwrap();
    let view = view.mount("in/deep/er", &filled(&["w"]).await).unwrap();
    let all = ["in", "in/deep", "in/deep/er", "in/deep/er/w", "in/deep/y", "in/x", "z"];
    assert_eq!(names(&view).await, all);
    assert_eq!(view.rename("in/deep/y", "in/y").await.unwrap(), Renamed { atomic: false });
    assert_eq!(view.rename("in/y", "y").await.unwrap(), Renamed { atomic: false });
    holds(&view, "y", "y").await;
    failure_on(view.read("in/deep/gone").await, Kind::NotFound, "in/deep/gone");
    failure_on(view.rm("in/deep", RemoveOptions::recursive()).await, Kind::Invalid, "in/deep");
}

#[tokio::test]
async fn a_view_ends_nothing_and_ends_with_its_base() {
    let (base_driver, base) = recorded();
    let (driver, other) = recorded();
    let view = base.mount("mnt", &other).unwrap();
    assert_eq!((base.scopes(), view.status()), (1, Status::Connected));
    let second = view.mount("mnt2", &other).unwrap();
    view.destroy().await.unwrap();
    assert_eq!((base_driver.closes(), driver.closes()), (0, 0));
    failure(view.read("x").await, Kind::Destroyed);
    failure(second.read("x").await, Kind::Destroyed);
    failure(view.mount("more", &other), Kind::Destroyed);
    other.write("x", "still here").await.unwrap();

    let view = base.mount("mnt", &other).unwrap();
    base.destroy().await.unwrap();
    assert_eq!(view.status(), Status::Destroyed);
    failure(view.read("mnt/x").await, Kind::Destroyed);
    holds(&other, "x", "still here").await;
}

#[tokio::test]
async fn what_its_owner_has_ended_is_not_served() {
    let base = filled(&["file"]).await;
    let other = filled(&["room/x"]).await;
    let room = scope(&other, "room");
    let view = base.mount("mnt", &room).unwrap();
    holds(&view, "mnt/x", "room/x").await;
    room.destroy().await.unwrap();
    for (call, result) in every_call::on_path(&view, "mnt/x").await {
        if call == "scope" || call == "rename to" {
            continue;
        }
        let error = failure(result, Kind::Destroyed);
        assert_eq!(error.path(), Some("mnt"), "{call}");
    }
    failure(view.connect().await, Kind::Destroyed);
    let listing = view.list(".", whole()).await.unwrap();
    assert_eq!(paths(&listing), ["file", "mnt"]);
    assert_eq!(listing.problems[0].path, "mnt");
    holds(&view, "file", "file").await;
    failure(base.mount("again", &room), Kind::Destroyed);
}

#[tokio::test]
async fn connect_reaches_every_part() {
    let (base_driver, base) = recorded();
    let (driver, other) = recorded();
    let view = base.mount("mnt", &other).unwrap();
    view.connect().await.unwrap();
    for driver in [base_driver, driver] {
        assert_eq!(driver.calls(), [(Verb::Connect, String::new())]);
    }
}

#[tokio::test]
async fn guards_of_both_handles_see_their_calls() {
    let log = ab_testkit::Log::default();
    let guarded = |number| {
        let gate = Arc::new(ab_testkit::Gate::open(number, &log)) as Arc<dyn ab_core::Guard>;
        let guards = ab_core::Guards { policy: vec![gate], ..ab_core::Guards::default() };
        let assembly = ab_core::Assembly { guards, ..ab_core::Assembly::default() };
        Backend::assemble(Arc::new(Memory::new()), assembly)
    };
    let view = guarded(1).mount("mnt", &guarded(2)).unwrap();
    view.write("mnt/x", "x").await.unwrap();
    assert_eq!(log.passed(), [2]);
    view.write("x", "x").await.unwrap();
    assert_eq!(log.passed(), [2, 1]);
}

#[tokio::test]
async fn attributes_of_the_way_to_a_mount_are_not_kept() {
    let view = memory().mount("a/mnt", &filled(&["file"]).await).unwrap();
    let mode = Attributes { mode: Some(0o700), ..Attributes::default() };
    failure_on(view.set_attributes("a", mode).await, Kind::Unsupported, "a");
    assert_eq!(view.set_attributes("a/mnt/file", mode).await.unwrap().mode, Some(0o700));
    failure_on(view.set_attributes("a/gone", mode).await, Kind::NotFound, "a/gone");
    let keep = StatOptions { links: ab_core::options::Links::Keep };
    assert_eq!(view.stat_with("a", keep).await.unwrap().mode, Some(0o755));
}

#[tokio::test]
async fn batches_keep_their_order_across_mounts() {
    let view = memory().mount("mnt", &memory()).unwrap();
    let names: Vec<String> =
        (0..40).map(|n| if n % 2 == 0 { format!("{n}") } else { format!("mnt/{n}") }).collect();
    let files = names.iter().map(|name| (name.as_str(), name.into())).collect();
    for written in view.write_many(files).await {
        written.unwrap();
    }
    let asked: Vec<&str> = names.iter().rev().map(String::as_str).collect();
    let answers = view.read_many(&asked).await;
    for (name, answer) in asked.into_iter().zip(answers) {
        assert_eq!(answer.unwrap(), name);
    }
}

#[tokio::test]
async fn many_at_once_lose_nothing() {
    let view = memory().mount("mnt", &memory()).unwrap();
    let text: String = (0..32).map(|number| format!("line {number}: old\n")).collect();
    view.write("mnt/file", text).await.unwrap();
    crowd::of(32, |number| {
        let view = view.clone();
        async move {
            let old = format!("line {number}: old\n");
            let edits = [Edit::new(old, format!("line {number}: new\n"))];
            view.edit("mnt/file", &edits, EditOptions::default()).await.unwrap();
            let own = format!("{number:02}");
            view.write(&own, own.as_str()).await.unwrap();
            view.rename(&own, &format!("mnt/moved/{own}")).await.unwrap();
        }
    })
    .await;
    let expect: String = (0..32).map(|number| format!("line {number}: new\n")).collect();
    holds(&view, "mnt/file", &expect).await;
    assert_eq!(view.readdir("mnt/moved").await.unwrap().len(), 32);
    assert_eq!(view.readdir(".").await.unwrap(), ["mnt"]);
}

#[tokio::test]
async fn one_mover_wins() {
    let view = memory().mount("mnt", &memory()).unwrap();
    view.write("prize", "one").await.unwrap();
    let moved = crowd::of(8, |_| {
        let view = view.clone();
        async move { view.rename("prize", "mnt/prize").await }
    })
    .await;
    assert_eq!(moved.iter().filter(|moved| moved.is_ok()).count(), 1, "{moved:?}");
    holds(&view, "mnt/prize", "one").await;
    nothing(&view, "prize").await;
}

#[tokio::test]
async fn writes_into_mounts_keep_their_modes() {
    let view = memory().mount("mnt", &memory()).unwrap();
    let new = WriteOptions { mode: WriteMode::CreateNew, ..WriteOptions::default() };
    view.write_with("mnt/x", "1", new).await.unwrap();
    failure_on(view.write_with("mnt/x", "2", new).await, Kind::AlreadyExists, "mnt/x");
    let version = view.stat("mnt/x").await.unwrap().version;
    let expecting = WriteOptions { expect: Some(version), ..WriteOptions::default() };
    view.write_with("mnt/x", "3", expecting).await.unwrap();
    failure_on(view.write_with("mnt/x", "4", expecting).await, Kind::Conflict, "mnt/x");
}
