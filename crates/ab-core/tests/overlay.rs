//! Overlays: what shows, what is written where, and that nothing reaches the lower layer but by a
//! commit.

mod change;
mod commit;
mod diff;
mod same;

use ab_core::backend::{GlobOptions, GrepOptions};
use ab_core::metadata::TruncationCause;
use ab_core::options::{
    ByteRange, EntryDetailLevel, FileAccess, FileCreationMode, ListOptions, OpenOptions,
    ReadOptions, RemoveOptions,
};
use ab_core::{
    Backend, BackendKind, ConnectionStatus, ErrorCode, ErrorKind, FileKind, MemoryDriver,
    OverlayWorkspace, ScopeOptions, Verb,
};
use ab_testkit::expect::{
    assert_content, assert_missing, expect_error, expect_error_on_path, list_tree, listing_paths,
};
use ab_testkit::{RecordingDriver, every_call};

fn memory() -> Backend {
    Backend::new(MemoryDriver::new())
}

/// A workspace where each file holds its own path.
async fn filled(files: &[&str]) -> Backend {
    let backend = memory();
    for path in files {
        backend.write(path, *path).await.unwrap();
    }
    backend
}

/// Both layers and the view, with `files` in the lower one.
struct Layers {
    lower: Backend,
    upper: Backend,
    overlaid: OverlayWorkspace,
    view: Backend,
}

async fn layers(files: &[&str]) -> Layers {
    over(filled(files).await, memory())
}

fn over(lower: Backend, upper: Backend) -> Layers {
    let overlaid = lower.overlay(&upper).unwrap();
    let view = overlaid.backend().clone();
    Layers { lower, upper, overlaid, view }
}

fn recorded() -> (RecordingDriver, Backend) {
    let driver = RecordingDriver::new();
    (driver.clone(), Backend::new(driver))
}

async fn rm(backend: &Backend, path: &str) {
    backend.rm(path, RemoveOptions::recursive()).await.unwrap();
}

fn whole() -> ListOptions {
    ListOptions { max_depth: usize::MAX, ..ListOptions::default() }
}

async fn names(backend: &Backend) -> Vec<String> {
    list_tree(backend).await.into_iter().map(|(path, _)| path).collect()
}

/// Everything in a workspace: files with what they hold, directories with nothing.
async fn content(backend: &Backend) -> Vec<(String, Option<String>)> {
    let mut all = Vec::new();
    for (path, kind) in list_tree(backend).await {
        let text = match kind {
            FileKind::File => Some(backend.read_text(&path).await.unwrap()),
            FileKind::Dir | FileKind::Symlink | FileKind::Other => None,
        };
        all.push((path, text));
    }
    all
}

#[tokio::test]
async fn making_one_touches_nothing() {
    let ((below, lower), (above, upper)) = (recorded(), recorded());
    let overlaid = lower.overlay(&upper).unwrap();
    assert_eq!((below.recorded_calls(), above.recorded_calls()), (vec![], vec![]));
    assert_eq!(overlaid.backend().info().kind, BackendKind::Overlay);
    assert_eq!(overlaid.backend().info().root_aliases, lower.info().root_aliases);
}

#[tokio::test]
async fn nothing_but_reading_reaches_the_lower_layer() {
    let (below, lower) = recorded();
    for path in ["dir/file", "dir/other", "file", "from/a/b"] {
        lower.write(path, path).await.unwrap();
    }
    let before = content(&lower).await;
    let view = lower.overlay(&memory()).unwrap().backend().clone();
    let start = below.recorded_calls().len();
    for path in ["dir/file", "dir", "file", "new/file", "."] {
        every_call::try_every_call_on(&view, path).await;
    }
    view.rename("from", "to").await.unwrap();
    let reading = [Verb::Stat, Verb::List, Verb::Read, Verb::Open, Verb::ReadLink, Verb::Search];
    for seen in &below.recorded_calls()[start..] {
        assert!(reading.contains(&seen.verb), "{} came for {:?}", seen.verb, seen.path);
    }
    assert_eq!(content(&lower).await, before);
    assert_ne!(content(&view).await, before);
}

#[tokio::test]
async fn the_upper_layer_shows_first() {
    let Layers { lower, upper, view, .. } = layers(&["dir/both", "dir/lower"]).await;
    upper.write("dir/both", "upper").await.unwrap();
    upper.write("dir/upper", "upper").await.unwrap();
    assert_content(&view, "dir/both", "upper").await;
    assert_content(&view, "dir/lower", "dir/lower").await;
    assert_content(&view, "dir/upper", "upper").await;
    assert_eq!(view.readdir("dir").await.unwrap(), ["both", "lower", "upper"]);
    let stat =
        |backend: Backend, path: &'static str| async move { backend.stat(path).await.unwrap() };
    assert_eq!(stat(view.clone(), "dir/both").await, stat(upper, "dir/both").await);
    assert_eq!(stat(view.clone(), "dir/lower").await, stat(lower, "dir/lower").await);
    let part =
        ReadOptions { range: Some(ByteRange { start: 4, length: 3 }), ..ReadOptions::default() };
    assert_eq!(view.read_with("dir/lower", part).await.unwrap().bytes, "low");
}

#[tokio::test]
async fn listings_merge_in_path_order_within_their_bounds() {
    let Layers { view, .. } =
        layers(&["a/1", "a/2", "b/x/1", "b/x/2", "b.txt", "c", "gone/1", "gone/2", "z"]).await;
    for path in ["a/15", "b/w/1", "b/x/15", "new/deep/1"] {
        view.write(path, path).await.unwrap();
    }
    for path in ["a/2", "gone", "c"] {
        rm(&view, path).await;
    }
    view.mkdir("empty").await.unwrap();
    let all = [
        "a",
        "a/1",
        "a/15",
        "b",
        "b/w",
        "b/w/1",
        "b/x",
        "b/x/1",
        "b/x/15",
        "b/x/2",
        "b.txt",
        "empty",
        "new",
        "new/deep",
        "new/deep/1",
        "z",
    ];
    for top in [".", "b"] {
        let below: Vec<&str> = match top {
            "." => all.to_vec(),
            _ => all.into_iter().filter(|path| path.starts_with("b/")).collect(),
        };
        let level = if top == "." { 0 } else { 1 };
        for depth in 0..4 {
            let near = |path: &&str| path.split('/').count() <= depth + level;
            let within: Vec<&str> = below.iter().copied().filter(near).collect();
            for limit in 0..=within.len() + 1 {
                let options = ListOptions {
                    max_depth: depth,
                    max_entries: limit,
                    detail: EntryDetailLevel::Stat,
                };
                let listing = view.list(top, options).await.unwrap();
                let cut = (limit < within.len()).then_some(TruncationCause::Count);
                assert_eq!(
                    (listing_paths(&listing), listing.truncated),
                    (within[..limit.min(within.len())].to_vec(), cut),
                    "{top}, depth {depth}, limit {limit}"
                );
                for entry in listing.entries {
                    let stat = view.stat(entry.path.as_str()).await.unwrap();
                    assert_eq!((entry.kind, entry.stat), (stat.kind, Some(stat)), "{}", entry.path);
                }
            }
        }
    }
    expect_error_on_path(view.readdir("gone").await, ErrorKind::NotFound, "gone");
    expect_error_on_path(view.readdir("z").await, ErrorKind::NotADirectory, "z");
}

#[tokio::test]
async fn untouched_directories_are_listed_by_the_lower_layer_at_once() {
    let (below, lower) = recorded();
    for number in 0..50 {
        lower.write(&format!("deep/{number}/file"), "x").await.unwrap();
    }
    let view = lower.overlay(&memory()).unwrap().backend().clone();
    let start = below.recorded_calls().len();
    assert_eq!(view.list("deep", whole()).await.unwrap().entries.len(), 100);
    let lists =
        below.verbs_and_paths()[start..].iter().filter(|(verb, _)| *verb == Verb::List).count();
    assert_eq!(lists, 1);
}

#[tokio::test]
async fn marks_cannot_be_seen_or_named() {
    let Layers { lower, upper, view, .. } = layers(&["dir/file", "dir/kept", "file"]).await;
    view.rm("file", RemoveOptions::default()).await.unwrap();
    view.rm("dir/file", RemoveOptions::default()).await.unwrap();
    view.mkdir("empty").await.unwrap();
    assert_eq!(names(&view).await, ["dir", "dir/kept", "empty"]);
    let marks = [".ab-wh-file", "dir", "dir/.ab-wh-file", "empty", "empty/.ab-keep"];
    assert_eq!(names(&upper).await, marks);
    for path in [".ab-wh-file", "dir/.ab-wh-file", ".ab-wh-", "empty/.ab-keep", "a/.ab-wh-x/b"] {
        for backend in [&lower, &upper, &view] {
            for (call, result) in every_call::try_every_call_on(backend, path).await {
                let error = expect_error(result, ErrorKind::InvalidPath);
                assert_eq!(
                    (error.code(), error.path()),
                    (ErrorCode::InvalidPath, Some(path)),
                    "{call}"
                );
            }
        }
    }
    view.write("not.ab-wh-x", "a name like any other").await.unwrap();
    assert_eq!(names(&view).await, ["dir", "dir/kept", "empty", "not.ab-wh-x"]);
}

#[tokio::test]
async fn a_lower_layer_that_was_an_upper_one_hides_its_marks() {
    let Layers { upper, view, .. } = layers(&["a/x", "b"]).await;
    rm(&view, "a/x").await;
    rm(&view, "b").await;
    view.write("a/y", "own").await.unwrap();
    let second = upper.overlay(&memory()).unwrap().backend().clone();
    assert_eq!(names(&second).await, ["a", "a/y"]);
    second.write("a/z", "own").await.unwrap();
    assert_eq!(names(&second).await, ["a", "a/y", "a/z"]);
    assert_eq!(second.readdir("a").await.unwrap(), ["y", "z"]);
}

#[tokio::test]
async fn a_view_made_again_shows_the_same() {
    let Layers { lower, upper, view, .. } = layers(&["a/b/c", "a/d", "e", "f/g"]).await;
    rm(&view, "a/b").await;
    view.write("a/b/new", "new").await.unwrap();
    view.rename("f", "h").await.unwrap();
    view.write("e", "changed").await.unwrap();
    view.mkdir("empty").await.unwrap();
    let again = lower.overlay(&upper).unwrap().backend().clone();
    assert_eq!(content(&again).await, content(&view).await);
    assert_eq!(names(&again).await, ["a", "a/b", "a/b/new", "a/d", "e", "empty", "h", "h/g"]);
}

#[tokio::test]
async fn the_longest_names_can_be_removed() {
    let long = "n".repeat(255);
    let other = format!("{}x", "ü".repeat(127));
    let imitation = format!("{}~00112233445566778899aabbccddeeff", "n".repeat(215));
    let files: Vec<String> =
        [&long, &other, &imitation].iter().map(|name| format!("dir/{name}")).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let Layers { lower, overlaid, view, .. } = layers(&files).await;
    for (left, path) in [2, 1, 0].into_iter().zip(&files) {
        rm(&view, path).await;
        assert_missing(&view, path).await;
        assert_eq!(view.readdir("dir").await.unwrap().len(), left);
    }
    assert_eq!(overlaid.diff().await.unwrap().len(), 3);
    view.write(files[0], "again").await.unwrap();
    overlaid.commit().await.unwrap();
    assert_eq!(names(&lower).await, ["dir", files[0]]);
    assert_content(&view, files[0], "again").await;
}

#[tokio::test]
async fn searches_see_what_shows() {
    let Layers { view, .. } = layers(&["src/a.rs", "src/b.rs", "src/gone.rs", "old/c.rs"]).await;
    view.write("src/b.rs", "needle, changed").await.unwrap();
    view.write("src/new.rs", "needle, new").await.unwrap();
    rm(&view, "src/gone.rs").await;
    view.rename("old", "moved").await.unwrap();
    let found = view.glob("**/*.rs", GlobOptions::default()).await.unwrap();
    let found: Vec<&str> = found.entries.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(found, ["moved/c.rs", "src/a.rs", "src/b.rs", "src/new.rs"]);
    let lines = view.grep("needle", GrepOptions::default()).await.unwrap();
    let found: Vec<&str> = lines.matches.iter().map(|item| item.path().as_str()).collect();
    assert_eq!(found, ["src/b.rs", "src/new.rs"]);
    let old = view.grep("old/c.rs", GrepOptions::default()).await.unwrap();
    assert_eq!(old.matches[0].path().as_str(), "moved/c.rs");
}

#[tokio::test]
async fn an_overlay_over_an_overlay_is_one_over_what_that_shows() {
    let Layers { lower, upper, view: first, overlaid } = layers(&["a/1", "a/2", "b", "c"]).await;
    rm(&first, "a/1").await;
    first.write("b", "first").await.unwrap();
    let second = first.overlay(&memory()).unwrap();
    let view = second.backend().clone();
    assert_eq!(names(&view).await, ["a", "a/2", "b", "c"]);
    view.write("a/1", "second").await.unwrap();
    rm(&view, "b").await;
    view.rename("a", "d").await.unwrap();
    assert_eq!(names(&view).await, ["c", "d", "d/1", "d/2"]);
    assert_eq!(names(&first).await, ["a", "a/2", "b", "c"], "the first knows nothing of it");
    second.commit().await.unwrap();
    assert_eq!(content(&first).await, content(&view).await);
    assert_eq!(names(&lower).await, ["a", "a/1", "a/2", "b", "c"]);
    overlaid.commit().await.unwrap();
    assert_eq!(names(&lower).await, ["c", "d", "d/1", "d/2"]);
    assert_eq!(names(&upper).await, Vec::<String>::new());
    assert_content(&lower, "d/1", "second").await;
}

#[tokio::test]
async fn layers_that_make_no_sense_are_refused() {
    let Layers { lower, upper, view, .. } = layers(&["file"]).await;
    let refused = |result: ab_core::Result<OverlayWorkspace>| {
        let error = expect_error(result, ErrorKind::Invalid);
        assert_eq!(error.code(), ErrorCode::InvalidConfiguration);
    };
    refused(lower.overlay(&lower));
    refused(upper.overlay(&view));
    // What cannot be seen from outside is found out by the first mark that is asked for.
    let hidden = view.scope("room", ScopeOptions::default()).unwrap();
    let second = filled(&["old"]).await.overlay(&hidden).unwrap();
    expect_error_on_path(second.backend().read("old").await, ErrorKind::InvalidPath, "old");
}

#[tokio::test]
async fn commands_are_not_for_overlays() {
    let view = recorded().1.overlay(&recorded().1).unwrap().backend().clone();
    assert!(!view.info().capabilities.exec);
    let error = expect_error(view.exec("true").await, ErrorKind::Unsupported);
    assert_eq!(
        (error.backend_kind(), error.verb()),
        (Some(BackendKind::Overlay), Some(Verb::Exec))
    );
    expect_error(view.detached_processes().await, ErrorKind::Unsupported);
}

#[tokio::test]
async fn a_view_ends_nothing_and_ends_with_its_lower_layer() {
    let ((below, lower), (above, upper)) = (recorded(), recorded());
    let overlaid = lower.overlay(&upper).unwrap();
    let view = overlaid.backend().clone();
    view.connect().await.unwrap();
    assert_eq!(
        (below.verbs_and_paths(), above.verbs_and_paths()),
        (below.verbs_and_paths(), below.verbs_and_paths())
    );
    view.destroy().await.unwrap();
    assert_eq!((below.close_count(), above.close_count()), (0, 0));
    expect_error(overlaid.diff().await, ErrorKind::Destroyed);
    expect_error(overlaid.commit().await, ErrorKind::Destroyed);
    expect_error(overlaid.discard().await, ErrorKind::Destroyed);
    lower.write("x", "alive").await.unwrap();

    let view = lower.overlay(&upper).unwrap().backend().clone();
    lower.destroy().await.unwrap();
    assert_eq!(view.status(), ConnectionStatus::Destroyed);
    expect_error(view.read("x").await, ErrorKind::Destroyed);
    upper.write("x", "alive").await.unwrap();
}

#[tokio::test]
async fn an_upper_layer_that_its_owner_has_ended_is_not_written_to() {
    let lower = filled(&["file"]).await;
    let space = memory();
    let room = space.scope("room", ScopeOptions::default()).unwrap();
    let overlaid = lower.overlay(&room).unwrap();
    overlaid.backend().write("own", "x").await.unwrap();
    room.destroy().await.unwrap();
    for (call, result) in every_call::try_every_call_on(overlaid.backend(), "file").await {
        if call != "scope" {
            let error = expect_error(result, ErrorKind::Destroyed);
            assert!(error.hint().is_some_and(|hint| hint.contains("upper layer")), "{call}");
        }
    }
    expect_error(overlaid.commit().await, ErrorKind::Destroyed);
    expect_error(lower.overlay(&room), ErrorKind::Destroyed);
    assert_eq!(names(&space).await, ["room", "room/own"]);
}

#[tokio::test]
async fn scopes_of_a_view_stay_inside() {
    let Layers { view, .. } = layers(&["a/x", "b/x"]).await;
    let a = view.scope("a", ScopeOptions::default()).unwrap();
    a.write("y", "own").await.unwrap();
    rm(&a, "x").await;
    assert_eq!(names(&a).await, ["y"]);
    expect_error_on_path(a.read("x").await, ErrorKind::NotFound, "x");
    assert_eq!(names(&view).await, ["a", "a/y", "b", "b/x"]);
    let create = OpenOptions {
        access: FileAccess::Write,
        create: FileCreationMode::MustBeNew,
        ..OpenOptions::default()
    };
    expect_error_on_path(a.open("y", create).await, ErrorKind::AlreadyExists, "y");
}
