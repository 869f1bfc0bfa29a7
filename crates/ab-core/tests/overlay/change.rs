//! Changes through an overlay: what is copied up and when, removals, renames, many at once.

use ab_core::metadata::{RemoveOutcome, RenameOutcome};
use ab_core::options::{
    AttributeChanges, ExistingContentHandling, FileAccess, FileCreationMode, OpenOptions,
    OverwriteMode, RemoveOptions, RenameOptions, WriteMode, WriteOptions,
};
use ab_core::{
    Backend, Edit, EditOptions, ErrorKind, FileKind, FileVersion, MemoryDriver,
    MemoryDriverOptions, Verb,
};
use ab_testkit::crowd;
use ab_testkit::expect::{assert_content, assert_missing, expect_error, expect_error_on_path};
use bytes::Bytes;

use super::{Layers, content, filled, layers, memory, names, over, recorded, rm};

const REPLACE: RenameOptions = RenameOptions { overwrite: OverwriteMode::Replace };
const WRITE: OpenOptions = OpenOptions {
    access: FileAccess::ReadWrite,
    create: FileCreationMode::Never,
    existing: ExistingContentHandling::Keep,
    position: ab_core::options::WritePosition::AtOffset,
    permissions: None,
};
const LONG: usize = 1024 * 1024;

fn mode(bits: u32) -> AttributeChanges {
    AttributeChanges { mode: Some(bits), ..AttributeChanges::default() }
}

fn in_mode(mode: WriteMode) -> WriteOptions {
    WriteOptions { mode, ..WriteOptions::default() }
}

fn expecting(version: FileVersion) -> WriteOptions {
    WriteOptions { expected_version: Some(version), ..WriteOptions::default() }
}

#[tokio::test]
async fn whole_writes_copy_no_bytes_and_keep_the_mode() {
    let (below, lower) = recorded();
    lower.write("dir/file", "old").await.unwrap();
    lower.set_attributes("dir/file", mode(0o750)).await.unwrap();
    let Layers { lower, upper, view, .. } = over(lower, memory());
    let start = below.recorded_calls().len();
    assert_eq!(view.write("dir/file", "new").await.unwrap().mode, Some(0o750));
    assert!(below.verbs_and_paths()[start..].iter().all(|(verb, _)| *verb == Verb::Stat));
    assert_content(&view, "dir/file", "new").await;
    assert_content(&upper, "dir/file", "new").await;
    assert_content(&lower, "dir/file", "old").await;
}

#[tokio::test]
async fn modes_and_versions_count_for_lower_files_too() {
    let Layers { lower, view, .. } = layers(&["file", "dir/x"]).await;
    let version = view.stat("file").await.unwrap().version;
    assert_eq!(version, lower.stat("file").await.unwrap().version);
    let new = view.write_with("file", "x", in_mode(WriteMode::CreateNew)).await;
    expect_error_on_path(new, ErrorKind::AlreadyExists, "file");
    let kept = view.write_with("file", "x", in_mode(WriteMode::CreateIfMissing)).await.unwrap();
    assert_eq!(kept.version, version);
    let stale = view.write_with("file", "x", expecting(FileVersion::new(7))).await;
    expect_error_on_path(stale, ErrorKind::Conflict, "file");
    let next = view.write_with("file", "next", expecting(version)).await.unwrap().version;
    assert_ne!(next, version);
    let stale = view.write_with("file", "x", expecting(version)).await;
    expect_error_on_path(stale, ErrorKind::Conflict, "file");
    view.write_with("file", "last", expecting(next)).await.unwrap();
    rm(&view, "file").await;
    let gone = view.write_with("file", "x", expecting(version)).await;
    expect_error_on_path(gone, ErrorKind::Conflict, "file");
    let gone = view.write_with("file", "x", in_mode(WriteMode::Replace)).await;
    expect_error_on_path(gone, ErrorKind::NotFound, "file");
    expect_error_on_path(view.write("dir", "x").await, ErrorKind::IsADirectory, "dir");
    expect_error_on_path(view.write("dir/x/y", "x").await, ErrorKind::NotADirectory, "dir/x/y");
    assert_content(&lower, "file", "file").await;
}

#[tokio::test]
async fn opening_for_writing_copies_up_first() {
    let (below, lower) = recorded();
    lower.write("dir/file", "0123456789").await.unwrap();
    lower.set_attributes("dir/file", mode(0o640)).await.unwrap();
    let Layers { lower, upper, view, .. } = over(lower, memory());
    let reading = view.open("dir/file", OpenOptions::default()).await.unwrap();
    assert_missing(&upper, "dir/file").await;
    let file = view.open("dir/file", WRITE).await.unwrap();
    file.write_at(4, Bytes::from("x")).await.unwrap();
    assert_content(&view, "dir/file", "0123x56789").await;
    assert_content(&lower, "dir/file", "0123456789").await;
    let stat = view.stat("dir/file").await.unwrap();
    assert_eq!((stat.mode, stat.version), (Some(0o640), file.stat().await.unwrap().version));
    assert_eq!(reading.read_at(0, 100).await.unwrap(), "0123456789", "it was another file then");

    lower.write("other", "old").await.unwrap();
    let start = below.recorded_calls().len();
    let truncate = OpenOptions { existing: ExistingContentHandling::Truncate, ..WRITE };
    let file = view.open("other", truncate).await.unwrap();
    file.write_at(0, Bytes::from("new")).await.unwrap();
    assert_content(&view, "other", "new").await;
    assert!(below.verbs_and_paths()[start..].iter().all(|(verb, _)| *verb == Verb::Stat));
    let always = OpenOptions { create: FileCreationMode::MustBeNew, ..WRITE };
    expect_error_on_path(view.open("dir/file", always).await, ErrorKind::AlreadyExists, "dir/file");
    let if_missing =
        OpenOptions { access: FileAccess::Read, create: FileCreationMode::IfMissing, ..WRITE };
    lower.write("third", "kept").await.unwrap();
    let file = view.open("third", if_missing).await.unwrap();
    assert_eq!(file.read_at(0, 10).await.unwrap(), "kept");
    assert_missing(&upper, "third").await;
}

#[tokio::test]
async fn large_files_are_copied_up_whole() {
    let large: Vec<u8> = (0..=u8::MAX).cycle().take(LONG + 17).collect();
    let lower = memory();
    let before = lower.write("dir/large", large.as_slice()).await.unwrap();
    let Layers { upper, view, .. } = over(lower, memory());
    let file = view.open("dir/large", WRITE).await.unwrap();
    assert!(view.read("dir/large").await.unwrap() == large, "the bytes changed on the way");
    assert_eq!(view.stat("dir/large").await.unwrap().modified, before.modified);
    assert_eq!(names(&upper).await, ["dir", "dir/large"], "nothing is left beside it");
    drop(file);
    view.rename("dir/large", "moved").await.unwrap();
    assert!(view.read("moved").await.unwrap() == large, "the bytes changed on the way");
}

#[tokio::test]
async fn attributes_copy_up_what_they_change() {
    let Layers { lower, upper, view, .. } = layers(&["dir/file", "dir/in/x"]).await;
    view.set_attributes("dir/file", AttributeChanges::default()).await.unwrap();
    assert_eq!(names(&upper).await, Vec::<String>::new(), "nothing to change, nothing to copy");
    let set = view.set_attributes("dir/file", mode(0o600)).await.unwrap();
    assert_eq!(view.stat("dir/file").await.unwrap(), set);
    assert_eq!(set.mode, Some(0o600));
    assert_content(&view, "dir/file", "dir/file").await;
    assert_eq!(lower.stat("dir/file").await.unwrap().mode, Some(0o644));
    for (path, bits) in [("dir/in", 0o700), (".", 0o750)] {
        let set = view.set_attributes(path, mode(bits)).await.unwrap();
        assert_eq!((set.kind, set.mode), (FileKind::Dir, Some(bits)));
        assert_eq!(view.stat(path).await.unwrap(), set, "{path}");
    }
    assert_eq!(names(&view).await, ["dir", "dir/file", "dir/in", "dir/in/x"]);
    expect_error_on_path(view.set_attributes("dir", mode(0o7777)).await, ErrorKind::Invalid, "dir");
    expect_error_on_path(
        view.set_attributes("gone", mode(0o700)).await,
        ErrorKind::NotFound,
        "gone",
    );
}

#[tokio::test]
async fn removals_hide_the_lower_layer() {
    let Layers { lower, view, .. } = layers(&["dir/in/a", "dir/in/b", "dir/c", "file"]).await;
    view.write("dir/in/own", "x").await.unwrap();
    let one = RemoveOptions::default();
    expect_error_on_path(view.rm("dir", one).await, ErrorKind::NotEmpty, "dir");
    assert_eq!(view.rm("file", one).await.unwrap(), RemoveOutcome { count: 1 });
    assert_eq!(view.rm("dir/in/a", one).await.unwrap(), RemoveOutcome { count: 1 });
    expect_error_on_path(view.rm("dir/in/a", one).await, ErrorKind::NotFound, "dir/in/a");
    assert_eq!(view.rm("dir/in/a", one.missing_ok()).await.unwrap(), RemoveOutcome { count: 0 });
    expect_error_on_path(view.read("file").await, ErrorKind::NotFound, "file");
    expect_error_on_path(view.stat("file/below").await, ErrorKind::NotFound, "file/below");
    let removed = view.rm("dir", RemoveOptions::recursive()).await.unwrap();
    assert_eq!(removed, RemoveOutcome { count: 5 }, "dir, in, b, own, c");
    assert_eq!(names(&view).await, Vec::<String>::new());
    assert_eq!(names(&lower).await.len(), 6);
}

#[tokio::test]
async fn a_directory_made_again_shows_nothing_of_the_old_one() {
    let Layers { view, overlaid, .. } = layers(&["dir/in/a", "dir/b", "x/y"]).await;
    rm(&view, "dir").await;
    view.mkdir("dir/in").await.unwrap();
    assert_eq!(names(&view).await, ["dir", "dir/in", "x", "x/y"]);
    assert_missing(&view, "dir/in/a").await;
    assert_missing(&view, "dir/b").await;
    view.write("dir/b", "new").await.unwrap();
    view.write("dir/in/c", "new").await.unwrap();
    assert_eq!(names(&view).await, ["dir", "dir/b", "dir/in", "dir/in/c", "x", "x/y"]);
    rm(&view, "dir").await;
    assert_missing(&view, "dir").await;
    view.write("dir/z", "again").await.unwrap();
    assert_eq!(view.readdir("dir").await.unwrap(), ["z"]);
    overlaid.discard().await.unwrap();
    assert_eq!(names(&view).await, ["dir", "dir/b", "dir/in", "dir/in/a", "x", "x/y"]);
}

#[tokio::test]
async fn names_change_what_they_are() {
    let Layers { view, .. } = layers(&["dir/a/b", "file"]).await;
    rm(&view, "dir").await;
    view.write("dir", "now a file").await.unwrap();
    assert_content(&view, "dir", "now a file").await;
    expect_error_on_path(view.read("dir/a/b").await, ErrorKind::NotADirectory, "dir/a/b");
    rm(&view, "file").await;
    view.write("file/x/y", "now a directory").await.unwrap();
    assert_eq!(names(&view).await, ["dir", "file", "file/x", "file/x/y"]);
    rm(&view, "dir").await;
    view.mkdir("dir").await.unwrap();
    rm(&view, "file").await;
    view.touch("file").await.unwrap();
    assert_eq!(names(&view).await, ["dir", "file"]);
    assert_eq!(view.readdir("dir").await.unwrap(), Vec::<String>::new());
}

#[tokio::test]
async fn directories_stay_when_their_last_file_goes() {
    let Layers { view, .. } = layers(&["lower/file"]).await;
    view.write("upper/in/file", "x").await.unwrap();
    rm(&view, "upper/in/file").await;
    rm(&view, "lower/file").await;
    assert_eq!(names(&view).await, ["lower", "upper", "upper/in"]);
    view.write("upper/a", "x").await.unwrap();
    view.rename("upper/a", "lower/a").await.unwrap();
    view.rename("lower/a", "b").await.unwrap();
    assert_eq!(names(&view).await, ["b", "lower", "upper", "upper/in"]);
    assert_eq!(view.rm("upper/in", RemoveOptions::default()).await.unwrap().count, 1);
    assert_eq!(view.rm("lower", RemoveOptions::default()).await.unwrap().count, 1);
    assert_eq!(names(&view).await, ["b", "upper"]);
}

#[tokio::test]
async fn renames_of_lower_files_move_what_shows() {
    let Layers { lower, view, .. } = layers(&["a", "dir/b", "dir/c/d", "kept"]).await;
    let before = view.stat("a").await.unwrap();
    assert_eq!(view.rename("a", "new/a").await.unwrap(), RenameOutcome { atomic: true });
    let after = view.stat("new/a").await.unwrap();
    assert_eq!((after.mode, after.modified), (before.mode, before.modified));
    view.write("dir/own", "own").await.unwrap();
    rm(&view, "dir/b").await;
    assert_eq!(view.rename("dir", "moved").await.unwrap(), RenameOutcome { atomic: true });
    let all = ["kept", "moved", "moved/c", "moved/c/d", "moved/own", "new", "new/a"];
    assert_eq!(names(&view).await, all);
    assert_content(&view, "moved/c/d", "dir/c/d").await;
    assert_missing(&view, "dir").await;
    view.mkdir("dir").await.unwrap();
    assert_eq!(view.readdir("dir").await.unwrap(), Vec::<String>::new());
    expect_error_on_path(
        view.rename("kept", "moved/own").await,
        ErrorKind::AlreadyExists,
        "moved/own",
    );
    view.rename_with("moved/own", "kept", REPLACE).await.unwrap();
    assert_content(&view, "kept", "own").await;
    rm(&view, "kept").await;
    assert_missing(&view, "kept").await;
    assert_eq!(names(&lower).await, ["a", "dir", "dir/b", "dir/c", "dir/c/d", "kept"]);
}

#[tokio::test]
async fn chains_of_renames_end_where_they_should() {
    let Layers { view, overlaid, .. } = layers(&["a/x", "b/y", "c"]).await;
    // The two directories change places, by way of a third name.
    for (from, to) in [("a", "t"), ("b", "a"), ("t", "b")] {
        view.rename(from, to).await.unwrap();
    }
    assert_eq!(names(&view).await, ["a", "a/y", "b", "b/x", "c"]);
    assert_content(&view, "a/y", "b/y").await;
    // There and back again.
    for (from, to) in [("c", "d"), ("d", "a/c"), ("a/c", "c"), ("a", "e"), ("e", "a")] {
        view.rename(from, to).await.unwrap();
    }
    assert_eq!(names(&view).await, ["a", "a/y", "b", "b/x", "c"]);
    let changed: Vec<String> =
        overlaid.diff().await.unwrap().iter().map(|c| c.path.to_string()).collect();
    assert_eq!(changed, ["a/x", "a/y", "b/x", "b/y"], "c is what it was");
}

#[tokio::test]
async fn directories_replace_empty_ones_and_are_not_merged_with_them() {
    let Layers { view, .. } = layers(&["to/old", "from/new", "to2/in/old"]).await;
    expect_error_on_path(view.rename_with("from", "to", REPLACE).await, ErrorKind::NotEmpty, "to");
    rm(&view, "to/old").await;
    view.rename_with("from", "to", REPLACE).await.unwrap();
    assert_eq!(view.readdir("to").await.unwrap(), ["new"]);
    rm(&view, "to2/in/old").await;
    view.rename_with("to", "to2/in", REPLACE).await.unwrap();
    assert_eq!(names(&view).await, ["to2", "to2/in", "to2/in/new"]);
    assert_content(&view, "to2/in/new", "from/new").await;
}

#[tokio::test]
async fn an_upper_layer_without_room_changes_nothing() {
    let lower = filled(&["dir/a", "file"]).await;
    lower.write("dir/large", vec![7; LONG]).await.unwrap();
    lower.write("dir/z", "z").await.unwrap();
    let options = MemoryDriverOptions { max_bytes: 100, ..MemoryDriverOptions::default() };
    let small = Backend::new(MemoryDriver::with_options(options).unwrap());
    let Layers { view, overlaid, .. } = over(lower, small);
    let before = names(&view).await;
    expect_error_on_path(view.rename("dir", "moved").await, ErrorKind::NoSpace, "dir");
    expect_error_on_path(view.rename("dir/large", "moved").await, ErrorKind::NoSpace, "dir/large");
    expect_error_on_path(view.open("dir/large", WRITE).await, ErrorKind::NoSpace, "dir/large");
    expect_error_on_path(view.write("file", vec![7; 200]).await, ErrorKind::NoSpace, "file");
    assert_eq!(names(&view).await, before);
    assert_eq!(overlaid.diff().await.unwrap(), [], "what was copied up is no change");
    view.rename("file", "moved").await.unwrap();
    assert_eq!(view.rm("dir", RemoveOptions::recursive()).await.unwrap().count, 4);
}

#[tokio::test]
async fn conditional_writers_of_a_lower_file_lose_nothing() {
    let Layers { view, .. } = layers(&["file"]).await;
    let version = view.stat("file").await.unwrap().version;
    let answers = crowd::run_on_threads(32, |number| {
        let view = view.clone();
        async move { view.write_with("file", number.to_string(), expecting(version)).await }
    })
    .await;
    let winners: Vec<usize> = (0..32).filter(|number| answers[*number].is_ok()).collect();
    assert_eq!(winners.len(), 1, "{winners:?}");
    assert_content(&view, "file", &winners[0].to_string()).await;
    for answer in answers.into_iter().filter(Result::is_err) {
        expect_error_on_path(answer, ErrorKind::Conflict, "file");
    }
}

#[tokio::test]
async fn edits_of_a_lower_file_at_once_are_all_made() {
    let lower = memory();
    let text: String = (0..32).map(|number| format!("line {number}: old\n")).collect();
    lower.write("dir/file", text.as_str()).await.unwrap();
    let Layers { lower, view, .. } = over(lower, memory());
    crowd::run_on_threads(32, |number| {
        let view = view.clone();
        async move {
            let old = format!("line {number}: old\n");
            let edits = [Edit::new(old, format!("line {number}: new\n"))];
            view.edit("dir/file", &edits, EditOptions::default()).await.unwrap();
        }
    })
    .await;
    let expect: String = (0..32).map(|number| format!("line {number}: new\n")).collect();
    assert_content(&view, "dir/file", &expect).await;
    assert_content(&lower, "dir/file", &text).await;
}

#[tokio::test]
async fn all_who_open_a_lower_file_write_to_the_same_copy() {
    let lower = memory();
    lower.write("file", vec![b'.'; 32]).await.unwrap();
    let Layers { view, .. } = over(lower, memory());
    crowd::run_on_threads(32, |number| {
        let view = view.clone();
        async move {
            let file = view.open("file", WRITE).await.unwrap();
            file.write_at(number as u64, Bytes::from("x")).await.unwrap();
        }
    })
    .await;
    assert_content(&view, "file", &"x".repeat(32)).await;
}

#[tokio::test]
async fn one_of_many_removers_and_movers_wins() {
    for round in 0..16 {
        let Layers { view, .. } = layers(&["dir/a", "dir/b"]).await;
        let done = crowd::run_on_threads(8, |number| {
            let view = view.clone();
            async move {
                match number % 2 {
                    0 => view.rename("dir", &format!("moved-{number}")).await.map(drop),
                    _ => view.rm("dir", RemoveOptions::recursive()).await.map(drop),
                }
            }
        })
        .await;
        assert_eq!(done.iter().filter(|done| done.is_ok()).count(), 1, "round {round}: {done:?}");
        for answer in done.into_iter().filter(Result::is_err) {
            expect_error(answer, ErrorKind::NotFound);
        }
        let left = names(&view).await.len();
        assert!(left == 0 || left == 3, "round {round}: {left}");
    }
}

#[tokio::test]
async fn writers_beside_a_commit_lose_nothing() {
    let Layers { lower, upper, overlaid, view } = layers(&["dir/old"]).await;
    crowd::run_on_threads(16, |number| {
        let (view, overlaid) = (view.clone(), overlaid.clone());
        async move {
            for round in 0..8 {
                match number {
                    0 => overlaid.commit().await.unwrap(),
                    1 => assert_content(&view, "dir/old", "dir/old").await,
                    _ => {
                        let path = format!("dir/{number}-{round}");
                        view.write(&path, path.as_str()).await.unwrap();
                        assert_content(&view, &path, &path).await;
                    }
                }
            }
        }
    })
    .await;
    overlaid.commit().await.unwrap();
    assert_eq!(lower.readdir("dir").await.unwrap().len(), 14 * 8 + 1);
    assert_eq!(content(&upper).await, []);
}
