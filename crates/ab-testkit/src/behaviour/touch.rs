//! Touch: creates an empty file unless one exists.

use ab_core::{Backend, ErrorKind, FileKind};

use crate::expect::{assert_content, expect_error_on_path, without_access_time};

/// Creates an empty file and its parent directories.
pub async fn creates_an_empty_file(backend: &Backend) {
    for path in ["file", "a/b/file"] {
        let stat = backend.touch(path).await.unwrap();
        assert_eq!((stat.kind, stat.size), (FileKind::File, 0), "{path:?}");
        assert_eq!(
            without_access_time(backend.stat(path).await.unwrap()),
            without_access_time(stat),
            "{path:?}"
        );
        assert_content(backend, path, "").await;
    }
}

/// An existing file keeps its content and its version.
pub async fn keeps_existing_content(backend: &Backend) {
    let written = backend.write("file", "kept").await.unwrap();
    let touched = backend.touch("file").await.unwrap();
    assert_eq!((touched.size, touched.version), (written.size, written.version));
    assert_content(backend, "file", "kept").await;
}

/// A directory is refused.
pub async fn a_directory_is_refused(backend: &Backend) {
    backend.write("dir/file", "kept").await.unwrap();
    expect_error_on_path(backend.touch("dir").await, ErrorKind::IsADirectory, "dir");
    expect_error_on_path(backend.touch(".").await, ErrorKind::IsADirectory, ".");
    assert_content(backend, "dir/file", "kept").await;
}

/// A parent that is a file is `NotADirectory`.
pub async fn through_a_file_is_refused(backend: &Backend) {
    backend.write("file", "kept").await.unwrap();
    expect_error_on_path(backend.touch("file/below").await, ErrorKind::NotADirectory, "file/below");
    assert_content(backend, "file", "kept").await;
}

/// Concurrent calls create one file, and all succeed.
pub async fn many_at_once_make_one_file(backend: &Backend) {
    let touched = crate::crowd::run_on_threads(8, |_| {
        let backend = backend.clone();
        async move { backend.touch("a/file").await }
    });
    for stat in touched.await {
        assert_eq!(stat.unwrap().size, 0);
    }
    assert_eq!(backend.readdir("a").await.unwrap(), ["file"]);
}
