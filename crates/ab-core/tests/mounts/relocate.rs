//! Renames from one mount to another: a copy, then the removal of the source, and nothing lost.

use std::time::{Duration, SystemTime};

use ab_core::metadata::Renamed;
use ab_core::options::{Attributes, RenameOptions};
use ab_core::{Backend, Code, Error, Kind, Memory, MemoryOptions, Verb};
use ab_testkit::crowd;
use ab_testkit::expect::{failure, failure_on, holds, nothing, tree};

use super::{REPLACE, filled, memory, names, recorded, scope};

const LONG: usize = 1024 * 1024;

fn small(limit: u64) -> Backend {
    Backend::new(Memory::with(MemoryOptions { limit, ..MemoryOptions::default() }).unwrap())
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
    assert_eq!(other.disk_space().await.unwrap().available, 400, "every byte was given back");
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
