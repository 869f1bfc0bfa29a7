//! Touching: an empty file where there was none.

use ab_core::{Backend, FileKind, Kind};

use crate::expect::{failure_on, holds, unread};

/// Where nothing was, there is an empty file, in directories that are made.
pub async fn creates_an_empty_file(backend: &Backend) {
    for path in ["file", "a/b/file"] {
        let stat = backend.touch(path).await.unwrap();
        assert_eq!((stat.kind, stat.size), (FileKind::File, 0), "{path:?}");
        assert_eq!(unread(backend.stat(path).await.unwrap()), unread(stat), "{path:?}");
        holds(backend, path, "").await;
    }
}

/// A file that is there keeps its content and its version.
pub async fn keeps_existing_content(backend: &Backend) {
    let written = backend.write("file", "kept").await.unwrap();
    let touched = backend.touch("file").await.unwrap();
    assert_eq!((touched.size, touched.version), (written.size, written.version));
    holds(backend, "file", "kept").await;
}

/// A directory is no file and cannot become one.
pub async fn a_directory_is_refused(backend: &Backend) {
    backend.write("dir/file", "kept").await.unwrap();
    failure_on(backend.touch("dir").await, Kind::IsADirectory, "dir");
    failure_on(backend.touch(".").await, Kind::IsADirectory, ".");
    holds(backend, "dir/file", "kept").await;
}

/// A parent that is a file is `NotADirectory`.
pub async fn through_a_file_is_refused(backend: &Backend) {
    backend.write("file", "kept").await.unwrap();
    failure_on(backend.touch("file/below").await, Kind::NotADirectory, "file/below");
    holds(backend, "file", "kept").await;
}

/// Touching at the same time makes one file, and nobody fails.
pub async fn many_at_once_make_one_file(backend: &Backend) {
    let touched = crate::crowd::of(8, |_| {
        let backend = backend.clone();
        async move { backend.touch("a/file").await }
    });
    for stat in touched.await {
        assert_eq!(stat.unwrap().size, 0);
    }
    assert_eq!(backend.readdir("a").await.unwrap(), ["file"]);
}
