//! Symbolic links: created, read, followed, never entered by a walk, never leading outside.
//!
//! If the backend has no links, creating and reading one is `Unsupported`, and each case checks
//! that.

use ab_core::options::{LinkHandling, ListOptions, RemoveOptions, StatOptions};
use ab_core::{Backend, ErrorCode, ErrorKind, FileKind};

use crate::expect::{
    assert_content, assert_missing, expect_error, expect_error_on_path, list_tree,
};

const KEEP: StatOptions = StatOptions { links: LinkHandling::NoFollow };
const FOLLOW: StatOptions = StatOptions { links: LinkHandling::Follow };

/// Whether the backend has links. If not, checks that calls fail with `Unsupported`.
async fn are_there(backend: &Backend) -> bool {
    if backend.info().capabilities.symlinks {
        return true;
    }
    backend.write("target", "kept").await.unwrap();
    let made = expect_error(backend.symlink("link", "target").await, ErrorKind::Unsupported);
    let read = expect_error(backend.read_link("target").await, ErrorKind::Unsupported);
    assert_eq!((made.code(), read.code()), (ErrorCode::NotImplemented, ErrorCode::NotImplemented));
    assert_missing(backend, "link").await;
    false
}

/// The target is returned unchanged, and the link leads there.
pub async fn text_is_kept(backend: &Backend) {
    if !are_there(backend).await {
        return;
    }
    backend.write("dir/file", "content").await.unwrap();
    for (link, target) in
        [("plain", "dir/file"), ("dir/near", "file"), ("dir/odd", ".//../dir/./file")]
    {
        backend.symlink(link, target).await.unwrap();
        assert_eq!(backend.read_link(link).await.unwrap(), target);
        assert_content(backend, link, "content").await;
    }
}

/// Anything but a link is `Invalid`, and a missing path is `NotFound`.
pub async fn reading_a_file_as_a_link_is_invalid(backend: &Backend) {
    if !are_there(backend).await {
        return;
    }
    backend.write("dir/file", "content").await.unwrap();
    for path in ["dir/file", "dir"] {
        expect_error_on_path(backend.read_link(path).await, ErrorKind::Invalid, path);
    }
    expect_error_on_path(backend.read_link("missing").await, ErrorKind::NotFound, "missing");
}

/// A target outside is `PathEscape`.
pub async fn leaving_the_workspace_is_refused(backend: &Backend) {
    if !are_there(backend).await {
        return;
    }
    backend.write("dir/file", "content").await.unwrap();
    for (link, target) in [
        ("link", "../outside"),
        ("dir/link", "../../outside"),
        ("dir/link", "file/../../../outside"),
        ("link", "/etc/passwd"),
    ] {
        expect_error_on_path(backend.symlink(link, target).await, ErrorKind::PathEscape, link);
        expect_error_on_path(backend.stat_with(link, KEEP).await, ErrorKind::NotFound, link);
    }
}

/// An existing `path` is `AlreadyExists`.
pub async fn existing_name_is_refused(backend: &Backend) {
    if !are_there(backend).await {
        return;
    }
    backend.write("dir/file", "kept").await.unwrap();
    backend.write("other", "x").await.unwrap();
    backend.symlink("link", "other").await.unwrap();
    for path in ["dir/file", "dir", "link"] {
        expect_error_on_path(backend.symlink(path, "other").await, ErrorKind::AlreadyExists, path);
    }
    assert_content(backend, "dir/file", "kept").await;
}

/// A link is followed unless the caller asks for the link itself.
pub async fn stat_follows_or_keeps(backend: &Backend) {
    if !are_there(backend).await {
        return;
    }
    backend.write("dir/file", "12345").await.unwrap();
    backend.symlink("to-file", "dir/file").await.unwrap();
    backend.symlink("to-dir", "dir").await.unwrap();
    let file = backend.stat("dir/file").await.unwrap();
    assert_eq!(backend.stat_with("to-file", FOLLOW).await.unwrap(), file);
    assert_eq!(backend.stat_with("to-dir", FOLLOW).await.unwrap().kind, FileKind::Dir);
    for link in ["to-file", "to-dir"] {
        assert_eq!(backend.stat_with(link, KEEP).await.unwrap().kind, FileKind::Symlink);
    }
    assert_eq!(backend.stat_with("to-dir/file", KEEP).await.unwrap().kind, FileKind::File);
}

/// Links are listed, not entered.
pub async fn list_does_not_follow(backend: &Backend) {
    if !are_there(backend).await {
        return;
    }
    backend.write("dir/file", "x").await.unwrap();
    backend.symlink("dir/up", "..").await.unwrap();
    backend.symlink("to-dir", "dir").await.unwrap();
    let expect = [
        ("dir".to_owned(), FileKind::Dir),
        ("dir/file".to_owned(), FileKind::File),
        ("dir/up".to_owned(), FileKind::Symlink),
        ("to-dir".to_owned(), FileKind::Symlink),
    ];
    assert_eq!(list_tree(backend).await, expect);
}

/// A link inside the workspace stays a link.
pub async fn write_goes_to_the_target(backend: &Backend) {
    if !are_there(backend).await {
        return;
    }
    backend.write("dir/file", "old").await.unwrap();
    backend.symlink("link", "dir/file").await.unwrap();
    backend.symlink("to-dir", "dir").await.unwrap();
    backend.write("link", "new").await.unwrap();
    assert_content(backend, "dir/file", "new").await;
    assert_eq!(backend.read_link("link").await.unwrap(), "dir/file");
    backend.write("to-dir/second", "also").await.unwrap();
    assert_content(backend, "dir/second", "also").await;
    assert_eq!(backend.read_link("to-dir").await.unwrap(), "dir");
}

/// A link's target stays, also with recursion.
pub async fn removal_takes_the_link_only(backend: &Backend) {
    if !are_there(backend).await {
        return;
    }
    backend.write("kept/file", "kept").await.unwrap();
    backend.symlink("to-file", "kept/file").await.unwrap();
    backend.symlink("to-dir", "kept").await.unwrap();
    backend.write("gone/file", "x").await.unwrap();
    backend.symlink("gone/to-dir", "../kept").await.unwrap();
    backend.rm("to-file", RemoveOptions::default()).await.unwrap();
    backend.rm("to-dir", RemoveOptions::recursive()).await.unwrap();
    let removed = backend.rm("gone", RemoveOptions::recursive()).await.unwrap();
    assert_eq!(removed.count, 3);
    assert_content(backend, "kept/file", "kept").await;
    assert_eq!(backend.readdir(".").await.unwrap(), ["kept"]);
}

/// A rename moves the link itself.
pub async fn rename_moves_the_link(backend: &Backend) {
    if !are_there(backend).await {
        return;
    }
    backend.write("file", "kept").await.unwrap();
    backend.symlink("before", "file").await.unwrap();
    backend.rename("before", "after").await.unwrap();
    assert_eq!(backend.read_link("after").await.unwrap(), "file");
    assert_content(backend, "file", "kept").await;
    assert_eq!(backend.readdir(".").await.unwrap(), ["after", "file"]);
}

/// A dangling link exists, but its target does not.
pub async fn dangling_leads_nowhere(backend: &Backend) {
    if !are_there(backend).await {
        return;
    }
    backend.symlink("link", "nowhere").await.unwrap();
    expect_error_on_path(backend.stat("link").await, ErrorKind::NotFound, "link");
    expect_error_on_path(backend.read("link").await, ErrorKind::NotFound, "link");
    assert!(!backend.exists("link").await.unwrap());
    assert_eq!(backend.stat_with("link", KEEP).await.unwrap().kind, FileKind::Symlink);
    assert_eq!(backend.readdir(".").await.unwrap(), ["link"]);
}

/// Links in a loop are `LinkLoop`. A listing is not affected.
pub async fn circles_are_refused(backend: &Backend) {
    if !are_there(backend).await {
        return;
    }
    backend.symlink("one", "two").await.unwrap();
    backend.symlink("two", "one").await.unwrap();
    expect_error_on_path(backend.read("one").await, ErrorKind::LinkLoop, "one");
    expect_error_on_path(backend.stat("two").await, ErrorKind::LinkLoop, "two");
    let whole = ListOptions { max_depth: usize::MAX, ..ListOptions::default() };
    assert_eq!(backend.list(".", whole).await.unwrap().entries.len(), 2);
}
