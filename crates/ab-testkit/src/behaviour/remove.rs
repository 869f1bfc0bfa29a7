//! Removing files and directories.

use ab_core::metadata::RemoveOutcome;
use ab_core::options::RemoveOptions;
use ab_core::{Backend, ErrorKind};

use crate::expect::{assert_content, assert_missing, expect_error, expect_error_on_path};

fn one() -> RemoveOptions {
    RemoveOptions::default()
}

/// A file is removed and counted.
pub async fn a_file(backend: &Backend) {
    backend.write("dir/file", "x").await.unwrap();
    backend.write("dir/other", "kept").await.unwrap();
    assert_eq!(backend.rm("dir/file", one()).await.unwrap(), RemoveOutcome { count: 1 });
    assert_missing(backend, "dir/file").await;
    assert_content(backend, "dir/other", "kept").await;
    backend.write("alone", "x").await.unwrap();
    let removed = backend.rm("alone", RemoveOptions::recursive()).await.unwrap();
    assert_eq!(removed, RemoveOutcome { count: 1 });
    assert_missing(backend, "alone").await;
}

/// A missing path is `NotFound`.
pub async fn missing_is_not_found(backend: &Backend) {
    for options in [one(), RemoveOptions::recursive()] {
        expect_error_on_path(backend.rm("missing", options).await, ErrorKind::NotFound, "missing");
        expect_error_on_path(backend.rm("no/such", options).await, ErrorKind::NotFound, "no/such");
    }
}

/// With `missing_ok` a missing path is not an error.
pub async fn missing_can_be_ignored(backend: &Backend) {
    for options in [one().missing_ok(), RemoveOptions::recursive().missing_ok()] {
        assert_eq!(backend.rm("missing", options).await.unwrap(), RemoveOutcome { count: 0 });
        assert_eq!(backend.rm("no/such", options).await.unwrap(), RemoveOutcome { count: 0 });
        backend.write("there", "x").await.unwrap();
        assert_eq!(backend.rm("there", options).await.unwrap(), RemoveOutcome { count: 1 });
    }
}

/// Without recursion a non-empty directory is `NotEmpty`.
pub async fn full_directory_needs_recursion(backend: &Backend) {
    backend.write("dir/inner/file", "kept").await.unwrap();
    for path in ["dir", "dir/inner"] {
        expect_error_on_path(backend.rm(path, one()).await, ErrorKind::NotEmpty, path);
    }
    assert_content(backend, "dir/inner/file", "kept").await;
}

/// An empty directory needs no recursion. Without empty directories it does not exist.
pub async fn an_empty_directory(backend: &Backend) {
    backend.mkdir("dir").await.unwrap();
    if backend.info().capabilities.empty_dirs {
        assert_eq!(backend.rm("dir", one()).await.unwrap(), RemoveOutcome { count: 1 });
    } else {
        expect_error_on_path(backend.rm("dir", one()).await, ErrorKind::NotFound, "dir");
    }
    assert_missing(backend, "dir").await;
}

/// Recursion removes the directory and everything below it.
pub async fn recursion_takes_everything(backend: &Backend) {
    for path in ["dir/one", "dir/inner/two", "dir/inner/deep/three", "other/kept"] {
        backend.write(path, "kept").await.unwrap();
    }
    let removed = backend.rm("dir", RemoveOptions::recursive()).await.unwrap();
    assert_eq!(removed, RemoveOutcome { count: 6 });
    assert_eq!(backend.readdir(".").await.unwrap(), ["other"]);
    assert_content(backend, "other/kept", "kept").await;
    expect_error_on_path(backend.readdir("dir").await, ErrorKind::NotFound, "dir");
}

/// Removing `a` does not remove `ab`.
pub async fn names_with_the_same_beginning_stay(backend: &Backend) {
    for path in ["a/x", "ab/x", "a.txt", "a b", "aa", "a-/x"] {
        backend.write(path, "kept").await.unwrap();
    }
    backend.rm("a", RemoveOptions::recursive()).await.unwrap();
    assert_eq!(backend.readdir(".").await.unwrap(), ["a b", "a-", "a.txt", "aa", "ab"]);
}

/// The root cannot be removed.
pub async fn the_root_is_refused(backend: &Backend) {
    backend.write("file", "kept").await.unwrap();
    for root in [".", "/", "dir/.."] {
        for options in [one(), RemoveOptions::recursive(), RemoveOptions::recursive().missing_ok()]
        {
            expect_error(backend.rm(root, options).await, ErrorKind::Invalid);
        }
    }
    assert_content(backend, "file", "kept").await;
}

/// A path through a file is `NotADirectory`.
pub async fn below_a_file_is_not_a_directory(backend: &Backend) {
    backend.write("file", "kept").await.unwrap();
    expect_error_on_path(
        backend.rm("file/below", one()).await,
        ErrorKind::NotADirectory,
        "file/below",
    );
    assert_content(backend, "file", "kept").await;
}
