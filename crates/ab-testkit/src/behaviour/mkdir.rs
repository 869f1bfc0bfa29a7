//! Creating directories. Where directories are implied by files, it changes nothing.

use ab_core::{Backend, ErrorKind, FileKind};

use crate::expect::{assert_content, expect_error_on_path, list_tree};

/// Every missing parent is created.
pub async fn makes_intermediates(backend: &Backend) {
    backend.mkdir("a/b/c").await.unwrap();
    let made = if backend.info().capabilities.empty_dirs {
        ["a", "a/b", "a/b/c"].map(|path| (path.to_owned(), FileKind::Dir)).to_vec()
    } else {
        Vec::new()
    };
    assert_eq!(list_tree(backend).await, made);
    backend.write("a/b/c/file", "x").await.unwrap();
    assert_eq!(backend.readdir("a/b/c").await.unwrap(), ["file"]);
}

/// An existing directory is not an error and keeps its contents.
pub async fn existing_is_fine(backend: &Backend) {
    backend.write("dir/file", "kept").await.unwrap();
    for path in ["dir", "dir", ".", "/"] {
        backend.mkdir(path).await.unwrap();
    }
    assert_content(backend, "dir/file", "kept").await;
}

/// An existing file is `AlreadyExists`.
pub async fn onto_a_file_is_refused(backend: &Backend) {
    backend.write("dir/file", "kept").await.unwrap();
    expect_error_on_path(backend.mkdir("dir/file").await, ErrorKind::AlreadyExists, "dir/file");
    assert_content(backend, "dir/file", "kept").await;
}

/// A parent that is a file is `NotADirectory`.
pub async fn through_a_file_is_refused(backend: &Backend) {
    backend.write("file", "kept").await.unwrap();
    for path in ["file/below", "file/far/below"] {
        expect_error_on_path(backend.mkdir(path).await, ErrorKind::NotADirectory, path);
    }
    assert_content(backend, "file", "kept").await;
}
