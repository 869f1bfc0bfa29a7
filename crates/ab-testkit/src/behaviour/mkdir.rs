//! Making directories. Where directories are where keys are, making one changes nothing.

use ab_core::{Backend, FileKind, Kind};

use crate::expect::{failure_on, holds, tree};

/// Every missing directory on the way is made.
pub async fn makes_intermediates(backend: &Backend) {
    backend.mkdir("a/b/c").await.unwrap();
    let made = if backend.info().capabilities.empty_dirs {
        ["a", "a/b", "a/b/c"].map(|path| (path.to_owned(), FileKind::Dir)).to_vec()
    } else {
        Vec::new()
    };
    assert_eq!(tree(backend).await, made);
    backend.write("a/b/c/file", "x").await.unwrap();
    assert_eq!(backend.readdir("a/b/c").await.unwrap(), ["file"]);
}

/// A directory that is there is no error and keeps what it holds.
pub async fn existing_is_fine(backend: &Backend) {
    backend.write("dir/file", "kept").await.unwrap();
    for path in ["dir", "dir", ".", "/"] {
        backend.mkdir(path).await.unwrap();
    }
    holds(backend, "dir/file", "kept").await;
}

/// A file there is `AlreadyExists`.
pub async fn onto_a_file_is_refused(backend: &Backend) {
    backend.write("dir/file", "kept").await.unwrap();
    failure_on(backend.mkdir("dir/file").await, Kind::AlreadyExists, "dir/file");
    holds(backend, "dir/file", "kept").await;
}

/// A file on the way is `NotADirectory`.
pub async fn through_a_file_is_refused(backend: &Backend) {
    backend.write("file", "kept").await.unwrap();
    for path in ["file/below", "file/far/below"] {
        failure_on(backend.mkdir(path).await, Kind::NotADirectory, path);
    }
    holds(backend, "file", "kept").await;
}
