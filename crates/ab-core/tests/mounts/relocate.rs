//! Renames from one mount to another: a copy, then the removal of the source, and nothing lost.

use std::time::{Duration, SystemTime};

use ab_core::metadata::RenameOutcome;
use ab_core::options::{AttributeChanges, RenameOptions};
use ab_core::{Backend, Error, ErrorCode, ErrorKind, MemoryDriver, MemoryDriverOptions, Verb};
use ab_testkit::crowd;
use ab_testkit::expect::{
    assert_content, assert_missing, expect_error, expect_error_on_path, list_tree,
};

use super::{REPLACE, filled, memory, names, recorded, scope};

const LONG: usize = 1024 * 1024;

fn small(limit: u64) -> Backend {
    Backend::new(
        MemoryDriver::with_options(MemoryDriverOptions {
            max_bytes: limit,
            ..MemoryDriverOptions::default()
        })
        .unwrap(),
    )
}

#[tokio::test]
async fn renames_inside_one_mount_are_its_own() {
    let (driver, other) = recorded();
    other.write("dir/file", "x").await.unwrap();
    let view = memory().mount("mnt", &other).unwrap();
    assert_eq!(
        view.rename("mnt/dir", "mnt/new/dir").await.unwrap(),
        RenameOutcome { atomic: true }
    );
    assert_eq!(driver.call_count(Verb::Rename, "dir"), 1);
    assert_content(&other, "new/dir/file", "x").await;
    expect_error_on_path(view.rename("mnt/gone", "mnt/x").await, ErrorKind::NotFound, "mnt/gone");
}

#[tokio::test]
async fn renames_across_copy_then_remove() {
    let (base, other) = (memory(), memory());
    let view = base.mount("mnt", &other).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let attributes = AttributeChanges { mode: Some(0o751), modified: Some(time), accessed: None };
    view.write("file", "moved").await.unwrap();
    view.set_attributes("file", attributes).await.unwrap();
    assert_eq!(view.rename("file", "mnt/a/b").await.unwrap(), RenameOutcome { atomic: false });
    assert_missing(&base, "file").await;
    assert_content(&other, "a/b", "moved").await;
    let stat = other.stat("a/b").await.unwrap();
    assert_eq!((stat.mode, stat.modified), (Some(0o751), time));

    for path in ["dir/one", "dir/in/two", "dir/in/deep/three"] {
        view.write(&format!("mnt/{path}"), path).await.unwrap();
    }
    assert_eq!(view.rename("mnt/dir", "back/dir").await.unwrap(), RenameOutcome { atomic: false });
    assert_eq!(names(&other).await, ["a", "a/b"]);
    for path in ["dir/one", "dir/in/two", "dir/in/deep/three"] {
        assert_content(&base, &format!("back/{path}"), path).await;
    }
}

#[tokio::test]
async fn large_files_go_across_in_pieces() {
    let (driver, other) = recorded();
    let base = memory();
    let view = base.mount("mnt", &other).unwrap();
    let large: Vec<u8> = (0..=u8::MAX).cycle().take(LONG + 17).collect();
    view.write("large", large.as_slice()).await.unwrap();
    view.set_attributes(
        "large",
        AttributeChanges { mode: Some(0o600), ..AttributeChanges::default() },
    )
    .await
    .unwrap();
    view.rename("large", "mnt/dir/large").await.unwrap();
    assert!(view.read("mnt/dir/large").await.unwrap() == large, "the bytes changed on the way");
    assert_eq!(other.stat("dir/large").await.unwrap().mode, Some(0o600));
    assert_eq!(names(&other).await, ["dir", "dir/large"], "nothing is left beside it");
    assert_eq!(driver.call_count(Verb::Write, "dir/large"), 0);
    view.write("short", "replaces it").await.unwrap();
    view.rename_with("short", "mnt/dir/large", REPLACE).await.unwrap();
    assert_content(&other, "dir/large", "replaces it").await;
}

#[tokio::test]
async fn renames_across_keep_the_rules() {
    let view = filled(&["file", "dir/file", "wall"]).await;
    let view = view.mount("mnt", &filled(&["file", "dir/file", "wall"]).await).unwrap();
    let before = list_tree(&view).await;
    let refuse = RenameOptions::default();
    for (from, to, options, kind, named) in [
        ("missing", "mnt/x", refuse, ErrorKind::NotFound, "missing"),
        ("missing", "mnt/file", REPLACE, ErrorKind::NotFound, "missing"),
        ("wall/x", "mnt/x", refuse, ErrorKind::NotADirectory, "wall/x"),
        ("file", "mnt/file", refuse, ErrorKind::AlreadyExists, "mnt/file"),
        ("file", "mnt/dir", refuse, ErrorKind::AlreadyExists, "mnt/dir"),
        ("dir", "mnt/file", refuse, ErrorKind::AlreadyExists, "mnt/file"),
        ("file", "mnt/dir", REPLACE, ErrorKind::IsADirectory, "mnt/dir"),
        ("mnt/dir", "file", REPLACE, ErrorKind::NotADirectory, "file"),
        ("mnt/dir", "dir", REPLACE, ErrorKind::NotEmpty, "dir"),
        ("file", "mnt/wall/x", refuse, ErrorKind::NotADirectory, "mnt/wall/x"),
        ("dir", "mnt/wall/x", REPLACE, ErrorKind::NotADirectory, "mnt/wall/x"),
    ] {
        let error = expect_error_on_path(view.rename_with(from, to, options).await, kind, named);
        assert_eq!(error.verb(), Some(Verb::Rename), "{from} to {to}: {error:?}");
    }
    assert_eq!(list_tree(&view).await, before);
    view.rename_with("file", "mnt/file", REPLACE).await.unwrap();
    assert_content(&view, "mnt/file", "file").await;
    assert_missing(&view, "file").await;
}

#[tokio::test]
async fn a_copy_that_fails_leaves_the_source_whole_and_nothing_else() {
    let base = filled(&["dir/a", "dir/b"]).await;
    base.write("dir/c", vec![7; 500]).await.unwrap();
    base.write("large", vec![7; LONG]).await.unwrap();
    let other = small(400);
    let view = base.mount("mnt", &other).unwrap();
    let before = list_tree(&base).await;
    expect_error_on_path(view.rename("dir", "mnt/dir").await, ErrorKind::NoSpace, "mnt/dir/c");
    expect_error_on_path(view.rename("dir/c", "mnt/c").await, ErrorKind::NoSpace, "mnt/c");
    expect_error_on_path(view.rename("large", "mnt/large").await, ErrorKind::NoSpace, "mnt/large");
    assert_eq!(list_tree(&base).await, before);
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
                driver.fail_next(verb, Error::new(ErrorCode::WriteFailed, ErrorKind::Io, "broken"));
                let at = format!("{verb} for {source} to {target}, at the source: {at_source}");
                if view.rename_with(source, target, options).await.is_ok() {
                    continue;
                }
                failed += 1;
                let own = ["dir", "dir/a", "dir/in", "dir/in/b", "large"];
                assert_eq!(names(&base).await, own, "{at}");
                assert_eq!(names(&other).await, ["old"], "{at}");
                assert_content(&other, "old", "mnt/old").await;
            }
        }
    }
    assert!(failed > 15, "{failed} of the calls were made");
}

#[tokio::test]
async fn a_source_that_cannot_be_removed_stays_or_leaves_a_whole_copy() {
    let broken = || Error::new(ErrorCode::WriteFailed, ErrorKind::Io, "broken");
    let (from, base) = recorded();
    let other = memory();
    let view = base.mount("mnt", &other).unwrap();
    view.write("file", "kept").await.unwrap();
    view.write("dir/file", "kept").await.unwrap();
    from.fail_next(Verb::Delete, broken());
    expect_error(view.rename("file", "mnt/file").await, ErrorKind::Io);
    assert_missing(&other, "file").await;
    from.fail_next(Verb::Delete, broken());
    let error = expect_error(view.rename("dir", "mnt/dir").await, ErrorKind::Io);
    assert!(error.hint().unwrap().contains("'mnt/dir' is complete"), "{error:?}");
    for path in ["file", "dir/file", "mnt/dir/file"] {
        assert_content(&view, path, "kept").await;
    }
}

#[tokio::test]
async fn one_workspace_under_two_names_loses_nothing() {
    let base = filled(&["dir/file", "dir/in/file", "file"]).await;
    let view = base.mount("same", &base).unwrap();
    let view = view.mount("part", &scope(&base, "dir")).unwrap();
    let before = list_tree(&base).await;
    expect_error_on_path(
        view.rename("file", "same/file").await,
        ErrorKind::AlreadyExists,
        "same/file",
    );
    view.rename_with("file", "same/file", REPLACE).await.unwrap();
    view.rename_with("same/dir/file", "part/file", REPLACE).await.unwrap();
    expect_error_on_path(view.rename("dir", "same/dir/sub").await, ErrorKind::Conflict, "dir");
    expect_error_on_path(view.rename("dir", "part/a/b").await, ErrorKind::Conflict, "dir");
    expect_error_on_path(
        view.rename_with("dir", "same/dir", REPLACE).await,
        ErrorKind::NotEmpty,
        "same/dir",
    );
    assert_eq!(list_tree(&base).await, before);
    view.rename("dir/in", "same/moved").await.unwrap();
    assert_content(&base, "moved/file", "dir/in/file").await;
    assert_missing(&base, "dir/in").await;
}

#[tokio::test]
async fn one_mover_wins() {
    let view = memory().mount("mnt", &memory()).unwrap();
    view.write("prize", "one").await.unwrap();
    let moved = crowd::run_on_threads(8, |_| {
        let view = view.clone();
        async move { view.rename("prize", "mnt/prize").await }
    })
    .await;
    assert_eq!(moved.iter().filter(|moved| moved.is_ok()).count(), 1, "{moved:?}");
    assert_content(&view, "mnt/prize", "one").await;
    assert_missing(&view, "prize").await;
}
