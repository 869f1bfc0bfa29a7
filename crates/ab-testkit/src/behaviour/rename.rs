//! Renaming files and directories.

use ab_core::options::{OverwriteMode, RenameOptions};
use ab_core::{Backend, ErrorKind};

use crate::expect::{
    assert_content, assert_missing, expect_error, expect_error_on_path, list_tree,
    without_access_time,
};

const REFUSE: RenameOptions = RenameOptions { overwrite: OverwriteMode::Refuse };
const REPLACE: RenameOptions = RenameOptions { overwrite: OverwriteMode::Replace };

/// The bytes are at the new path and not at the old one.
pub async fn a_file(backend: &Backend) {
    let before = backend.write("old", "moved").await.unwrap();
    backend.rename("old", "new").await.unwrap();
    assert_content(backend, "new", "moved").await;
    assert_missing(backend, "old").await;
    let after = backend.stat("new").await.unwrap();
    assert_eq!((after.size, after.modified), (before.size, before.modified));
}

/// A directory moves with everything below it.
pub async fn a_directory_with_its_content(backend: &Backend) {
    for path in ["from/one", "from/inner/two", "fromage/kept"] {
        backend.write(path, path).await.unwrap();
    }
    backend.rename("from", "to").await.unwrap();
    assert_content(backend, "to/one", "from/one").await;
    assert_content(backend, "to/inner/two", "from/inner/two").await;
    assert_content(backend, "fromage/kept", "fromage/kept").await;
    assert_eq!(backend.readdir(".").await.unwrap(), ["fromage", "to"]);
}

/// Missing parents of the target are created.
pub async fn makes_parents(backend: &Backend) {
    backend.write("file", "moved").await.unwrap();
    backend.rename("file", "a/b/c").await.unwrap();
    assert_content(backend, "a/b/c", "moved").await;
    backend.rename("a/b", "d/e/f").await.unwrap();
    assert_content(backend, "d/e/f/c", "moved").await;
}

/// A missing source is `NotFound`, and nothing is created.
pub async fn missing_is_not_found(backend: &Backend) {
    for options in [REFUSE, REPLACE] {
        let result = backend.rename_with("missing", "dir/new", options).await;
        expect_error_on_path(result, ErrorKind::NotFound, "missing");
    }
    assert_eq!(list_tree(backend).await, []);
}

/// An existing target is `AlreadyExists` unless it is overwritten.
pub async fn existing_target_is_refused(backend: &Backend) {
    backend.write("file", "one").await.unwrap();
    backend.write("other", "two").await.unwrap();
    backend.write("dir/inner", "three").await.unwrap();
    expect_error_on_path(backend.rename("file", "other").await, ErrorKind::AlreadyExists, "other");
    expect_error_on_path(backend.rename("file", "dir").await, ErrorKind::AlreadyExists, "dir");
    expect_error_on_path(backend.rename("dir", "file").await, ErrorKind::AlreadyExists, "file");
    assert_content(backend, "file", "one").await;
    assert_content(backend, "other", "two").await;
    assert_content(backend, "dir/inner", "three").await;
}

/// With `Replace` the target has the bytes of the source.
pub async fn overwrite_replaces_a_file(backend: &Backend) {
    backend.write("file", "wins").await.unwrap();
    backend.write("other", "loses and is longer").await.unwrap();
    backend.rename_with("file", "other", REPLACE).await.unwrap();
    assert_content(backend, "other", "wins").await;
    assert_eq!(backend.readdir(".").await.unwrap(), ["other"]);
}

/// A file onto a directory is `IsADirectory`, also when overwriting.
pub async fn file_onto_directory_is_refused(backend: &Backend) {
    backend.write("file", "kept").await.unwrap();
    backend.write("dir/inner", "kept").await.unwrap();
    for from in ["file", "dir/inner"] {
        let result = backend.rename_with(from, "dir", REPLACE).await;
        expect_error_on_path(result, ErrorKind::IsADirectory, "dir");
    }
    assert_content(backend, "file", "kept").await;
    assert_content(backend, "dir/inner", "kept").await;
}

/// A directory onto a file is `NotADirectory`, also when overwriting.
pub async fn directory_onto_file_is_refused(backend: &Backend) {
    backend.write("file", "kept").await.unwrap();
    backend.write("dir/inner", "kept").await.unwrap();
    let result = backend.rename_with("dir", "file", REPLACE).await;
    expect_error_on_path(result, ErrorKind::NotADirectory, "file");
    assert_content(backend, "file", "kept").await;
    assert_content(backend, "dir/inner", "kept").await;
}

/// A non-empty directory is not replaced by another.
pub async fn full_directory_is_not_replaced(backend: &Backend) {
    backend.write("from/one", "one").await.unwrap();
    backend.write("to/two", "two").await.unwrap();
    expect_error_on_path(
        backend.rename_with("from", "to", REPLACE).await,
        ErrorKind::NotEmpty,
        "to",
    );
    assert_content(backend, "from/one", "one").await;
    assert_content(backend, "to/two", "two").await;
}

/// A directory cannot move below itself.
pub async fn into_itself_is_refused(backend: &Backend) {
    backend.write("dir/file", "kept").await.unwrap();
    for to in ["dir/inner", "dir/far/inner"] {
        for options in [REFUSE, REPLACE] {
            expect_error(backend.rename_with("dir", to, options).await, ErrorKind::Invalid);
        }
    }
    assert_eq!(backend.readdir("dir").await.unwrap(), ["file"]);
    assert_content(backend, "dir/file", "kept").await;
}

/// The same path twice is not an error.
pub async fn onto_itself_changes_nothing(backend: &Backend) {
    let before = backend.write("dir/file", "kept").await.unwrap();
    for options in [REFUSE, REPLACE] {
        backend.rename_with("dir/file", "dir/./file", options).await.unwrap();
        backend.rename_with("dir", "dir/", options).await.unwrap();
    }
    assert_eq!(
        without_access_time(backend.stat("dir/file").await.unwrap()),
        without_access_time(before)
    );
    assert_content(backend, "dir/file", "kept").await;
    expect_error_on_path(
        backend.rename("missing", "missing").await,
        ErrorKind::NotFound,
        "missing",
    );
}

/// The root cannot be renamed.
pub async fn the_root_is_refused(backend: &Backend) {
    backend.write("file", "kept").await.unwrap();
    for options in [REFUSE, REPLACE] {
        expect_error_on_path(
            backend.rename_with(".", "elsewhere", options).await,
            ErrorKind::Invalid,
            ".",
        );
        expect_error_on_path(
            backend.rename_with("file", "/", options).await,
            ErrorKind::Invalid,
            ".",
        );
    }
    assert_content(backend, "file", "kept").await;
    assert_eq!(backend.readdir(".").await.unwrap(), ["file"]);
}

/// A target below a file is `NotADirectory`.
pub async fn target_below_a_file_is_refused(backend: &Backend) {
    backend.write("file", "kept").await.unwrap();
    backend.write("wall", "kept").await.unwrap();
    let result = backend.rename("file", "wall/below").await;
    expect_error(result, ErrorKind::NotADirectory);
    assert_content(backend, "file", "kept").await;
    assert_content(backend, "wall", "kept").await;
}
