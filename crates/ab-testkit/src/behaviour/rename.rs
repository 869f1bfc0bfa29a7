//! Moving files and directories.

use ab_core::options::{Overwrite, RenameOptions};
use ab_core::{Backend, Kind};

use crate::expect::{failure, failure_on, holds, nothing, tree, unread};

const REFUSE: RenameOptions = RenameOptions { overwrite: Overwrite::Refuse };
const REPLACE: RenameOptions = RenameOptions { overwrite: Overwrite::Replace };

/// The bytes are there and not here.
pub async fn a_file(backend: &Backend) {
    let before = backend.write("old", "moved").await.unwrap();
    backend.rename("old", "new").await.unwrap();
    holds(backend, "new", "moved").await;
    nothing(backend, "old").await;
    let after = backend.stat("new").await.unwrap();
    assert_eq!((after.size, after.modified), (before.size, before.modified));
}

/// Everything below goes along.
pub async fn a_directory_with_its_content(backend: &Backend) {
    for path in ["from/one", "from/inner/two", "fromage/kept"] {
        backend.write(path, path).await.unwrap();
    }
    backend.rename("from", "to").await.unwrap();
    holds(backend, "to/one", "from/one").await;
    holds(backend, "to/inner/two", "from/inner/two").await;
    holds(backend, "fromage/kept", "fromage/kept").await;
    assert_eq!(backend.readdir(".").await.unwrap(), ["fromage", "to"]);
}

/// Missing directories of the target are made.
pub async fn makes_parents(backend: &Backend) {
    backend.write("file", "moved").await.unwrap();
    backend.rename("file", "a/b/c").await.unwrap();
    holds(backend, "a/b/c", "moved").await;
    backend.rename("a/b", "d/e/f").await.unwrap();
    holds(backend, "d/e/f/c", "moved").await;
}

/// Nothing there is `NotFound`, and nothing is made for it.
pub async fn missing_is_not_found(backend: &Backend) {
    for options in [REFUSE, REPLACE] {
        let result = backend.rename_with("missing", "dir/new", options).await;
        failure_on(result, Kind::NotFound, "missing");
    }
    assert_eq!(tree(backend).await, []);
}

/// `AlreadyExists` unless overwriting.
pub async fn existing_target_is_refused(backend: &Backend) {
    backend.write("file", "one").await.unwrap();
    backend.write("other", "two").await.unwrap();
    backend.write("dir/inner", "three").await.unwrap();
    failure_on(backend.rename("file", "other").await, Kind::AlreadyExists, "other");
    failure_on(backend.rename("file", "dir").await, Kind::AlreadyExists, "dir");
    failure_on(backend.rename("dir", "file").await, Kind::AlreadyExists, "file");
    holds(backend, "file", "one").await;
    holds(backend, "other", "two").await;
    holds(backend, "dir/inner", "three").await;
}

/// With `Replace` the target's bytes are the source's.
pub async fn overwrite_replaces_a_file(backend: &Backend) {
    backend.write("file", "wins").await.unwrap();
    backend.write("other", "loses and is longer").await.unwrap();
    backend.rename_with("file", "other", REPLACE).await.unwrap();
    holds(backend, "other", "wins").await;
    assert_eq!(backend.readdir(".").await.unwrap(), ["other"]);
}

/// `IsADirectory`, also when overwriting.
pub async fn file_onto_directory_is_refused(backend: &Backend) {
    backend.write("file", "kept").await.unwrap();
    backend.write("dir/inner", "kept").await.unwrap();
    for from in ["file", "dir/inner"] {
        let result = backend.rename_with(from, "dir", REPLACE).await;
        failure_on(result, Kind::IsADirectory, "dir");
    }
    holds(backend, "file", "kept").await;
    holds(backend, "dir/inner", "kept").await;
}

/// `NotADirectory`, also when overwriting.
pub async fn directory_onto_file_is_refused(backend: &Backend) {
    backend.write("file", "kept").await.unwrap();
    backend.write("dir/inner", "kept").await.unwrap();
    let result = backend.rename_with("dir", "file", REPLACE).await;
    failure_on(result, Kind::NotADirectory, "file");
    holds(backend, "file", "kept").await;
    holds(backend, "dir/inner", "kept").await;
}

/// A full directory is not replaced by another.
pub async fn full_directory_is_not_replaced(backend: &Backend) {
    backend.write("from/one", "one").await.unwrap();
    backend.write("to/two", "two").await.unwrap();
    failure_on(backend.rename_with("from", "to", REPLACE).await, Kind::NotEmpty, "to");
    holds(backend, "from/one", "one").await;
    holds(backend, "to/two", "two").await;
}

/// A directory cannot move below itself.
pub async fn into_itself_is_refused(backend: &Backend) {
    backend.write("dir/file", "kept").await.unwrap();
    for to in ["dir/inner", "dir/far/inner"] {
        for options in [REFUSE, REPLACE] {
            failure(backend.rename_with("dir", to, options).await, Kind::Invalid);
        }
    }
    assert_eq!(backend.readdir("dir").await.unwrap(), ["file"]);
    holds(backend, "dir/file", "kept").await;
}

/// The same path twice is fine.
pub async fn onto_itself_changes_nothing(backend: &Backend) {
    let before = backend.write("dir/file", "kept").await.unwrap();
    for options in [REFUSE, REPLACE] {
        backend.rename_with("dir/file", "dir/./file", options).await.unwrap();
        backend.rename_with("dir", "dir/", options).await.unwrap();
    }
    assert_eq!(unread(backend.stat("dir/file").await.unwrap()), unread(before));
    holds(backend, "dir/file", "kept").await;
    failure_on(backend.rename("missing", "missing").await, Kind::NotFound, "missing");
}

/// The workspace itself stays.
pub async fn the_root_is_refused(backend: &Backend) {
    backend.write("file", "kept").await.unwrap();
    for options in [REFUSE, REPLACE] {
        failure_on(backend.rename_with(".", "elsewhere", options).await, Kind::Invalid, ".");
        failure_on(backend.rename_with("file", "/", options).await, Kind::Invalid, ".");
    }
    holds(backend, "file", "kept").await;
    assert_eq!(backend.readdir(".").await.unwrap(), ["file"]);
}

/// A target below a file is `NotADirectory`.
pub async fn target_below_a_file_is_refused(backend: &Backend) {
    backend.write("file", "kept").await.unwrap();
    backend.write("wall", "kept").await.unwrap();
    let result = backend.rename("file", "wall/below").await;
    failure(result, Kind::NotADirectory);
    holds(backend, "file", "kept").await;
    holds(backend, "wall", "kept").await;
}
