//! Mounts: whose a path is, what shows where, and who ends what.

mod processes;
mod relocate;

use std::sync::Arc;

use ab_core::backend::GlobOptions;
use ab_core::metadata::{RemoveOutcome, RenameOutcome, TruncationCause};
use ab_core::options::{
    AttributeChanges, EntryDetailLevel, ListOptions, OpenOptions, OverwriteMode, RemoveOptions,
    RenameOptions, StatOptions, WriteMode, WriteOptions,
};
use ab_core::search::IgnoreFileHandling;
use ab_core::{
    Backend, BackendKind, ConnectionStatus, Edit, EditOptions, Error, ErrorCode, ErrorKind,
    FileKind, MemoryDriver, ScopeOptions, Verb,
};
use ab_testkit::expect::{
    assert_content, expect_error, expect_error_on_path, list_tree, listing_paths,
};
use ab_testkit::{RecordingDriver, crowd, every_call};
use bytes::Bytes;

const REPLACE: RenameOptions = RenameOptions { overwrite: OverwriteMode::Replace };

fn memory() -> Backend {
    Backend::new(MemoryDriver::new())
}

async fn filled(files: &[&str]) -> Backend {
    let backend = memory();
    for path in files {
        backend.write(path, *path).await.unwrap();
    }
    backend
}

fn recorded() -> (RecordingDriver, Backend) {
    let driver = RecordingDriver::new();
    (driver.clone(), Backend::new(driver))
}

fn scope(parent: &Backend, path: &str) -> Backend {
    parent.scope(path, ScopeOptions::default()).unwrap()
}

fn whole() -> ListOptions {
    ListOptions { max_depth: usize::MAX, ..ListOptions::default() }
}

async fn names(backend: &Backend) -> Vec<String> {
    list_tree(backend).await.into_iter().map(|(path, _)| path).collect()
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
            assert_content(view, path, &text).await;
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
        let error = expect_error(base.mount(root, &other), ErrorKind::Invalid);
        assert_eq!(error.code(), ErrorCode::InvalidConfiguration);
    }
    let view = base.mount("mnt", &other).unwrap();
    expect_error_on_path(view.mount("./mnt/", &memory()), ErrorKind::Invalid, "mnt");
    expect_error_on_path(view.mount("../out", &other), ErrorKind::PathEscape, "../out");
    expect_error_on_path(view.mount(".ab-wh-x", &other), ErrorKind::InvalidPath, ".ab-wh-x");
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
    expect_error_on_path(view.readdir("m/n/other").await, ErrorKind::NotFound, "m/n/other");
    for path in ["m", "m/n", "m/n/data"] {
        expect_error_on_path(view.read(path).await, ErrorKind::IsADirectory, path);
        expect_error_on_path(view.write(path, "x").await, ErrorKind::IsADirectory, path);
        expect_error_on_path(view.touch(path).await, ErrorKind::IsADirectory, path);
        expect_error_on_path(
            view.open(path, OpenOptions::default()).await,
            ErrorKind::IsADirectory,
            path,
        );
        view.mkdir(path).await.unwrap();
    }
    view.write("m/n/beside", "in the base").await.unwrap();
    assert_content(&base, "m/n/beside", "in the base").await;
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
            let options = ListOptions {
                max_depth: depth,
                max_entries: limit,
                detail: EntryDetailLevel::Stat,
            };
            let listing = view.list(".", options).await.unwrap();
            let cut = (limit < within.len()).then_some(TruncationCause::Count);
            assert_eq!(
                (listing_paths(&listing), listing.truncated),
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
        let listing = view.list(".", ListOptions { max_entries: limit, ..whole() }).await.unwrap();
        assert_eq!(listing_paths(&listing), all[..limit], "limit {limit}");
        assert_eq!(listing.truncated.is_some(), limit < all.len(), "limit {limit}");
    }
    assert_eq!(view.stat("m/n").await.unwrap().kind, FileKind::Dir);
    assert_eq!(view.readdir("m/n").await.unwrap(), ["deep"]);
    expect_error_on_path(view.read("m/n").await, ErrorKind::IsADirectory, "m/n");
    expect_error_on_path(view.read("m/data/001").await, ErrorKind::NotFound, "m/data/001");
    view.mkdir("m/n").await.unwrap();
    assert_content(&base, "m/n", "covered by the way to a mount").await;
}

#[tokio::test]
async fn errors_name_paths_as_the_view_has_them() {
    let (driver, other) = recorded();
    other.write("dir/file", "text").await.unwrap();
    let view = memory().mount("mnt/data", &other).unwrap();
    expect_error_on_path(
        view.read("mnt/data/missing").await,
        ErrorKind::NotFound,
        "mnt/data/missing",
    );
    expect_error_on_path(view.read("mnt/data").await, ErrorKind::IsADirectory, "mnt/data");
    expect_error_on_path(
        view.readdir("mnt/data/dir/file").await,
        ErrorKind::NotADirectory,
        "mnt/data/dir/file",
    );
    let file = view.open("mnt/data/dir/file", OpenOptions::default()).await.unwrap();
    let refused = file.write_at(0, Bytes::from("x")).await;
    expect_error_on_path(refused, ErrorKind::PermissionDenied, "mnt/data/dir/file");
    expect_error_on_path(file.set_len(0).await, ErrorKind::PermissionDenied, "mnt/data/dir/file");
    assert_eq!(file.read_at(0, 4).await.unwrap(), "text");
    let error = || Error::new(ErrorCode::ReadFailed, ErrorKind::Io, "broken").with_path("dir");
    driver.fail_next(Verb::List, error());
    expect_error_on_path(view.readdir("mnt/data/dir").await, ErrorKind::Io, "mnt/data/dir");
    driver.fail_next(Verb::List, error());
    let listing = view.list(".", whole()).await.unwrap();
    assert_eq!(listing_paths(&listing), ["mnt", "mnt/data"], "the rest is there all the same");
    assert_eq!(listing.problems[0].path, "mnt/data");
    assert_eq!(listing.problems[0].error.path(), Some("mnt/data/dir"));
}

#[tokio::test]
async fn scope_roots_move_along_or_become_the_mount() {
    let (base_driver, base) = recorded();
    let (driver, other) = recorded();
    let view = base.mount("a/mnt", &other).unwrap();
    let seen = |driver: &RecordingDriver| {
        let seen =
            driver.recorded_calls().into_iter().rev().find(|seen| seen.verb == Verb::Read).unwrap();
        (seen.path.unwrap(), seen.scope_root)
    };
    for (prefix, path, expect, scope_root) in [
        ("a", "mnt/x", "x", None),
        ("a/mnt", "x", "x", None),
        ("a/mnt/t", "x", "t/x", Some("t")),
        ("a/mnt/t/u", "x/y", "t/u/x/y", Some("t/u")),
    ] {
        let _ = scope(&view, prefix).read(path).await;
        assert_eq!(seen(&driver), (expect.to_owned(), scope_root.map(str::to_owned)), "{prefix}");
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
    every_call::try_every_call_on(&inside, "dir/file").await;
    assert_eq!(base_driver.recorded_calls(), []);
    assert!(driver.recorded_calls().len() > 20);
    for seen in driver.recorded_calls() {
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
            let error =
                expect_error_on_path(view.rm(path, options).await, ErrorKind::Invalid, path);
            assert!(error.message().contains("holds a mount"), "{error}");
        }
        expect_error_on_path(view.rename(path, "elsewhere").await, ErrorKind::Invalid, path);
        expect_error_on_path(view.rename("file", path).await, ErrorKind::AlreadyExists, path);
        expect_error_on_path(
            view.rename_with("file", path, REPLACE).await,
            ErrorKind::IsADirectory,
            path,
        );
        expect_error_on_path(
            view.rename_with("dir", path, REPLACE).await,
            ErrorKind::Invalid,
            path,
        );
        expect_error_on_path(view.rename("missing", path).await, ErrorKind::NotFound, "missing");
        view.rename(path, path).await.unwrap();
    }
    expect_error_on_path(view.rm(".", RemoveOptions::recursive()).await, ErrorKind::Invalid, ".");
    expect_error_on_path(view.rename("m", "m/n/data/below").await, ErrorKind::Invalid, "m");
    assert_content(&view, "m/file", "m/file").await;
    assert_content(&view, "m/n/data/x", "x").await;
    let removed = view.rm("m/file", RemoveOptions::default()).await.unwrap();
    assert_eq!(removed, RemoveOutcome { count: 1 });
    assert_eq!(view.readdir("m").await.unwrap(), ["n"], "the way to the mount is still there");
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
    let searches =
        || driver.recorded_calls().iter().filter(|seen| seen.verb == Verb::Search).count();
    let all = ["a.rs", "mnt/c.rs", "mnt/in/d.rs", "mnt/in/ignored.rs", "src/b.rs"];
    assert_eq!(found(&view, "**/*.rs", GlobOptions::default()).await, all);
    assert_eq!(searches(), 0);
    let inside = GlobOptions { root: "mnt/in".to_owned(), ..GlobOptions::default() };
    assert_eq!(found(&view, "*.rs", inside.clone()).await, all[2..4]);
    assert_eq!(searches(), 1, "a search inside one mount is that mount's");
    let honour = GlobOptions { ignore_files: IgnoreFileHandling::Honour, ..inside };
    assert_eq!(found(&view, "*.rs", honour).await, ["mnt/in/d.rs"]);
    assert_eq!(searches(), 1, "ignore files above the mount count too");
    let missing = GlobOptions { root: "mnt/gone".to_owned(), ..GlobOptions::default() };
    expect_error_on_path(view.glob("*", missing).await, ErrorKind::NotFound, "mnt/gone");
}

#[tokio::test]
async fn a_mounted_view_is_a_workspace_like_any_other() {
    let inner = filled(&["x"]).await.mount("deep", &filled(&["y"]).await).unwrap();
    let view = filled(&["z"]).await.mount("in", &inner).unwrap();
    let view = view.mount("in/deep/er", &filled(&["w"]).await).unwrap();
    let all = ["in", "in/deep", "in/deep/er", "in/deep/er/w", "in/deep/y", "in/x", "z"];
    assert_eq!(names(&view).await, all);
    assert_eq!(view.rename("in/deep/y", "in/y").await.unwrap(), RenameOutcome { atomic: false });
    assert_eq!(view.rename("in/y", "y").await.unwrap(), RenameOutcome { atomic: false });
    assert_content(&view, "y", "y").await;
    expect_error_on_path(view.read("in/deep/gone").await, ErrorKind::NotFound, "in/deep/gone");
    expect_error_on_path(
        view.rm("in/deep", RemoveOptions::recursive()).await,
        ErrorKind::Invalid,
        "in/deep",
    );
}

#[tokio::test]
async fn a_view_ends_nothing_and_ends_with_its_base() {
    let (base_driver, base) = recorded();
    let (driver, other) = recorded();
    let view = base.mount("mnt", &other).unwrap();
    assert_eq!((base.open_scope_count(), view.status()), (1, ConnectionStatus::Connected));
    let second = view.mount("mnt2", &other).unwrap();
    view.destroy().await.unwrap();
    assert_eq!((base_driver.close_count(), driver.close_count()), (0, 0));
    expect_error(view.read("x").await, ErrorKind::Destroyed);
    expect_error(second.read("x").await, ErrorKind::Destroyed);
    expect_error(view.mount("more", &other), ErrorKind::Destroyed);
    other.write("x", "still here").await.unwrap();

    let view = base.mount("mnt", &other).unwrap();
    base.destroy().await.unwrap();
    assert_eq!(view.status(), ConnectionStatus::Destroyed);
    expect_error(view.read("mnt/x").await, ErrorKind::Destroyed);
    assert_content(&other, "x", "still here").await;
}

#[tokio::test]
async fn what_its_owner_has_ended_is_not_served() {
    let base = filled(&["file"]).await;
    let other = filled(&["room/x"]).await;
    let room = scope(&other, "room");
    let view = base.mount("mnt", &room).unwrap();
    assert_content(&view, "mnt/x", "room/x").await;
    room.destroy().await.unwrap();
    for (call, result) in every_call::try_every_call_on(&view, "mnt/x").await {
        if call == "scope" || call == "rename to" {
            continue;
        }
        let error = expect_error(result, ErrorKind::Destroyed);
        assert_eq!(error.path(), Some("mnt"), "{call}");
    }
    expect_error(view.connect().await, ErrorKind::Destroyed);
    let listing = view.list(".", whole()).await.unwrap();
    assert_eq!(listing_paths(&listing), ["file", "mnt"]);
    assert_eq!(listing.problems[0].path, "mnt");
    assert_content(&view, "file", "file").await;
    expect_error(base.mount("again", &room), ErrorKind::Destroyed);
}

#[tokio::test]
async fn connect_reaches_every_part() {
    let (base_driver, base) = recorded();
    let (driver, other) = recorded();
    let view = base.mount("mnt", &other).unwrap();
    view.connect().await.unwrap();
    for driver in [base_driver, driver] {
        assert_eq!(driver.verbs_and_paths(), [(Verb::Connect, String::new())]);
    }
}

#[tokio::test]
async fn guards_of_both_handles_see_their_calls() {
    let log = ab_testkit::GuardLog::default();
    let guarded = |number| {
        let gate =
            Arc::new(ab_testkit::ScriptedGuard::allow_all(number, &log)) as Arc<dyn ab_core::Guard>;
        let guards = ab_core::Guards { policy: vec![gate], ..ab_core::Guards::default() };
        let assembly = ab_core::BackendOptions { guards, ..ab_core::BackendOptions::default() };
        Backend::with_options(Arc::new(MemoryDriver::new()), assembly)
    };
    let view = guarded(1).mount("mnt", &guarded(2)).unwrap();
    view.write("mnt/x", "x").await.unwrap();
    assert_eq!(log.admitting_guard_numbers(), [2]);
    view.write("x", "x").await.unwrap();
    assert_eq!(log.admitting_guard_numbers(), [2, 1]);
}

#[tokio::test]
async fn attributes_of_the_way_to_a_mount_are_not_kept() {
    let view = memory().mount("a/mnt", &filled(&["file"]).await).unwrap();
    let mode = AttributeChanges { mode: Some(0o700), ..AttributeChanges::default() };
    expect_error_on_path(view.set_attributes("a", mode).await, ErrorKind::Unsupported, "a");
    assert_eq!(view.set_attributes("a/mnt/file", mode).await.unwrap().mode, Some(0o700));
    expect_error_on_path(view.set_attributes("a/gone", mode).await, ErrorKind::NotFound, "a/gone");
    let keep = StatOptions { links: ab_core::options::LinkHandling::NoFollow };
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
    crowd::run_on_threads(32, |number| {
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
    assert_content(&view, "mnt/file", &expect).await;
    assert_eq!(view.readdir("mnt/moved").await.unwrap().len(), 32);
    assert_eq!(view.readdir(".").await.unwrap(), ["mnt"]);
}

#[tokio::test]
async fn writes_into_mounts_keep_their_modes() {
    let view = memory().mount("mnt", &memory()).unwrap();
    let new = WriteOptions { mode: WriteMode::CreateNew, ..WriteOptions::default() };
    view.write_with("mnt/x", "1", new).await.unwrap();
    expect_error_on_path(
        view.write_with("mnt/x", "2", new).await,
        ErrorKind::AlreadyExists,
        "mnt/x",
    );
    let version = view.stat("mnt/x").await.unwrap().version;
    let expecting = WriteOptions { expected_version: Some(version), ..WriteOptions::default() };
    view.write_with("mnt/x", "3", expecting).await.unwrap();
    expect_error_on_path(
        view.write_with("mnt/x", "4", expecting).await,
        ErrorKind::Conflict,
        "mnt/x",
    );
}
