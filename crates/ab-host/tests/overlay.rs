//! Overlays over real files: links of both layers, and changes at the same time.

use ab_core::options::{
    FileAccess, FileCreationMode, OpenOptions, RemoveOptions, WriteMode, WriteOptions,
};
use ab_core::{Backend, Edit, EditOptions, ErrorKind, OverlayWorkspace};
use ab_host::{LocalDriver, LocalDriverOptions};
use ab_testkit::crowd;
use ab_testkit::expect::{assert_content, expect_error, expect_error_on_path};
use tempfile::TempDir;

struct Layers {
    lower: Backend,
    view: Backend,
    overlaid: OverlayWorkspace,
    keep: (TempDir, TempDir),
}

fn layers() -> Layers {
    let keep = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let open = |at: &TempDir| LocalDriver::open(at.path(), LocalDriverOptions::default()).unwrap();
    let (lower, upper) = (Backend::new(open(&keep.0)), Backend::new(open(&keep.1)));
    let overlaid = lower.overlay(&upper).unwrap();
    Layers { lower, view: overlaid.backend().clone(), overlaid, keep }
}

#[tokio::test]
async fn links_of_the_lower_layer_lead_through_what_shows() {
    let Layers { lower, view, keep: _keep, .. } = layers();
    lower.write("a/file", "old").await.unwrap();
    lower.symlink("dir", "a").await.unwrap();
    lower.symlink("way", "a/file").await.unwrap();
    view.write("dir/file", "new").await.unwrap();
    for path in ["a/file", "dir/file", "way"] {
        assert_content(&view, path, "new").await;
        assert_content(&lower, path, "old").await;
    }
    view.rm("a/file", RemoveOptions::default()).await.unwrap();
    expect_error(view.read("way").await, ErrorKind::NotFound);
    view.rm("a", RemoveOptions::recursive()).await.unwrap();
    view.write("a/file", "again").await.unwrap();
    assert_content(&view, "way", "again").await;
    assert_content(&lower, "way", "old").await;
}

#[tokio::test]
async fn a_link_is_not_made_where_one_is() {
    let Layers { lower, view, keep: _keep, .. } = layers();
    lower.write("file", "").await.unwrap();
    lower.symlink("dangling", "nowhere").await.unwrap();
    lower.symlink("link", "file").await.unwrap();
    lower.symlink("round", "round").await.unwrap();
    for path in ["dangling", "link", "round", "file"] {
        expect_error_on_path(view.symlink(path, "elsewhere").await, ErrorKind::AlreadyExists, path);
    }
    view.symlink("own", "nowhere").await.unwrap();
    expect_error_on_path(view.symlink("own", "elsewhere").await, ErrorKind::AlreadyExists, "own");
    expect_error(view.write("own", "through").await, ErrorKind::NotFound);
}

#[tokio::test]
async fn changes_by_every_name_take_turns() {
    let Layers { lower, view, keep: _keep, .. } = layers();
    let text: String = (0..32).map(|number| format!("line {number}: old\n")).collect();
    lower.write("dir/file", text.as_str()).await.unwrap();
    lower.symlink("other", "dir").await.unwrap();
    lower.symlink("link", "dir/file").await.unwrap();
    crowd::run_on_threads(32, |number| {
        let view = view.clone();
        async move {
            let path = ["dir/file", "other/file", "link"][number % 3];
            let old = format!("line {number}: old\n");
            let edits = [Edit::new(old, format!("line {number}: new\n"))];
            view.edit(path, &edits, EditOptions::default()).await.unwrap();
        }
    })
    .await;
    let expect: String = (0..32).map(|number| format!("line {number}: new\n")).collect();
    assert_content(&view, "link", &expect).await;
    assert_content(&lower, "link", &text).await;
}

#[tokio::test]
async fn one_of_many_makers_wins() {
    let Layers { view, keep: _keep, .. } = layers();
    let made = crowd::run_on_threads(16, |number| {
        let view = view.clone();
        async move {
            match number % 2 {
                0 => {
                    let options =
                        WriteOptions { mode: WriteMode::CreateNew, ..WriteOptions::default() };
                    view.write_with("dir/new", "x", options).await.is_ok()
                }
                _ => {
                    let options = OpenOptions {
                        access: FileAccess::ReadWrite,
                        create: FileCreationMode::MustBeNew,
                        ..OpenOptions::default()
                    };
                    view.open("dir/new", options).await.is_ok()
                }
            }
        }
    })
    .await;
    assert_eq!(made.iter().filter(|made| **made).count(), 1, "{made:?}");
}

#[tokio::test]
async fn links_are_compared_and_committed_as_links() {
    let Layers { lower, view, overlaid, keep: _keep } = layers();
    lower.write("file", "text").await.unwrap();
    lower.symlink("link", "file").await.unwrap();
    view.rm("link", RemoveOptions::default()).await.unwrap();
    view.symlink("link", "elsewhere").await.unwrap();
    view.symlink("more", "file").await.unwrap();
    let changes = overlaid.diff().await.unwrap();
    let shown: Vec<_> =
        changes.iter().map(|change| (change.path.as_str(), change.kind.as_str())).collect();
    assert_eq!(shown, [("link", "changed"), ("more", "added")]);
    overlaid.commit().await.unwrap();
    assert_eq!(lower.read_link("link").await.unwrap(), "elsewhere");
    assert_content(&lower, "more", "text").await;
    assert!(overlaid.diff().await.unwrap().is_empty());
}
