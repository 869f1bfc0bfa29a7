//! Descriptions of files, directories and the root, and disk space.

use std::time::{Duration, SystemTime};

use ab_core::options::RemoveOptions;
use ab_core::{Backend, ErrorKind, FileKind};

use crate::expect::{assert_all_different, expect_error_on_path};

/// A file has its kind, its size and a modification time.
pub async fn file(backend: &Backend) {
    let before = SystemTime::now();
    let written = backend.write("dir/file", "12345").await.unwrap();
    let after = SystemTime::now();
    let stat = backend.stat("dir/file").await.unwrap();
    assert_eq!((stat.kind, stat.size), (FileKind::File, 5));
    assert_eq!(stat, written);
    // The clocks of file systems are coarser and may lag behind.
    let slack = Duration::from_secs(2);
    assert!(stat.modified >= before - slack && stat.modified <= after + slack, "{stat:?}");
    assert_eq!(stat.mode.is_some(), backend.info().capabilities.file_modes);
}

/// Directories and files are distinguished.
pub async fn directory(backend: &Backend) {
    backend.write("dir/inner/file", "x").await.unwrap();
    for path in ["dir", "dir/inner", "dir/", "/dir/inner/"] {
        let stat = backend.stat(path).await.unwrap();
        assert_eq!((stat.kind, stat.size), (FileKind::Dir, 0), "{path:?}");
    }
}

/// The root always exists and is a directory.
pub async fn root(backend: &Backend) {
    for root in [".", "/", "./.", "dir/.."] {
        assert_eq!(backend.stat(root).await.unwrap().kind, FileKind::Dir, "{root:?}");
    }
    backend.write("file", "x").await.unwrap();
    assert_eq!(backend.stat(".").await.unwrap().kind, FileKind::Dir);
    backend.rm("file", RemoveOptions::default()).await.unwrap();
    assert_eq!(backend.stat(".").await.unwrap().kind, FileKind::Dir);
    assert!(backend.exists(".").await.unwrap());
}

/// A missing path is `NotFound`.
pub async fn missing_is_not_found(backend: &Backend) {
    backend.write("dir/file", "x").await.unwrap();
    for path in ["missing", "dir/missing", "no/such/dir"] {
        expect_error_on_path(backend.stat(path).await, ErrorKind::NotFound, path);
    }
}

/// A path through a file is `NotADirectory`.
pub async fn below_a_file_is_not_a_directory(backend: &Backend) {
    backend.write("file", "x").await.unwrap();
    for path in ["file/below", "file/far/below"] {
        expect_error_on_path(backend.stat(path).await, ErrorKind::NotADirectory, path);
    }
}

/// Every write creates a new version, also with the same bytes and in quick succession, and no
/// version repeats.
pub async fn version_changes_with_each_write(backend: &Backend) {
    let mut versions = Vec::new();
    for _ in 0..32 {
        let written = backend.write("file", "same").await.unwrap();
        assert_eq!(backend.stat("file").await.unwrap().version, written.version);
        versions.push(written.version);
    }
    backend.rm("file", RemoveOptions::default()).await.unwrap();
    versions.push(backend.write("file", "same").await.unwrap().version);
    assert_all_different(&versions);
}

/// Reading does not change the version.
pub async fn version_stays_without_a_write(backend: &Backend) {
    let version = backend.write("file", "x").await.unwrap().version;
    backend.write("other", "x").await.unwrap();
    backend.read("file").await.unwrap();
    backend.readdir(".").await.unwrap();
    assert_eq!(backend.stat("file").await.unwrap().version, version);
}

/// Files and directories exist. A missing path, or a path below a file, does not exist. This is not
/// an error.
pub async fn exists_answers_yes_or_no(backend: &Backend) {
    backend.write("dir/file", "x").await.unwrap();
    for (path, expect) in [
        ("dir/file", true),
        ("dir", true),
        (".", true),
        ("missing", false),
        ("dir/missing/deep", false),
        ("dir/file/below", false),
    ] {
        assert_eq!(backend.exists(path).await.unwrap(), expect, "{path:?}");
    }
    expect_error_on_path(backend.exists("../out").await, ErrorKind::PathEscape, "../out");
}

/// The available space is at most the total.
pub async fn space_adds_up(backend: &Backend) {
    backend.write("file", vec![7; 10_000]).await.unwrap();
    let space = backend.disk_space().await.unwrap();
    assert!(space.available <= space.total, "{space:?}");
    assert!(space.total >= 10_000, "{space:?}");
}
