//! Open files: access at offsets, and handles that outlive their path.

use std::time::{Duration, SystemTime};

use ab_core::options::{
    AttributeChanges, ExistingContentHandling, FileAccess, FileCreationMode, OpenOptions,
    RemoveOptions, WritePosition,
};
use ab_core::{Backend, ErrorKind, File, FileKind};
use bytes::Bytes;

use crate::crowd;
use crate::expect::{
    assert_all_different, assert_content, assert_missing, expect_error, expect_error_on_path,
    list_tree,
};

const READ_WRITE: OpenOptions = OpenOptions {
    access: FileAccess::ReadWrite,
    create: FileCreationMode::IfMissing,
    existing: ExistingContentHandling::Keep,
    position: WritePosition::AtOffset,
    permissions: None,
};

async fn read_all(file: &dyn File) -> Bytes {
    file.read_at(0, 1 << 20).await.unwrap()
}

/// Without creation, a missing file is `NotFound`.
pub async fn missing_is_not_found(backend: &Backend) {
    for access in [FileAccess::Read, FileAccess::Write, FileAccess::ReadWrite] {
        let options = OpenOptions { access, ..OpenOptions::default() };
        expect_error_on_path(
            backend.open("missing", options).await,
            ErrorKind::NotFound,
            "missing",
        );
        expect_error_on_path(backend.open("no/dir", options).await, ErrorKind::NotFound, "no/dir");
    }
    assert_eq!(list_tree(backend).await, []);
}

/// With creation, the file and its directories are created.
pub async fn creates_with_parents(backend: &Backend) {
    for (path, create) in
        [("a/b/if-missing", FileCreationMode::IfMissing), ("c/always", FileCreationMode::MustBeNew)]
    {
        let file = backend.open(path, OpenOptions { create, ..READ_WRITE }).await.unwrap();
        assert_content(backend, path, "").await;
        file.write_at(0, Bytes::from("made")).await.unwrap();
        assert_content(backend, path, "made").await;
    }
}

/// `FileCreationMode::IfMissing` keeps existing content.
pub async fn keeps_content_unless_told(backend: &Backend) {
    backend.write("file", "kept").await.unwrap();
    let file = backend.open("file", READ_WRITE).await.unwrap();
    assert_eq!(read_all(&*file).await, "kept");
}

/// `FileCreationMode::MustBeNew` on an existing path is `AlreadyExists`.
pub async fn create_always_refuses_existing(backend: &Backend) {
    backend.write("file", "kept").await.unwrap();
    let always = OpenOptions {
        create: FileCreationMode::MustBeNew,
        existing: ExistingContentHandling::Truncate,
        ..READ_WRITE
    };
    expect_error_on_path(backend.open("file", always).await, ErrorKind::AlreadyExists, "file");
    assert_content(backend, "file", "kept").await;
}

/// `ExistingContentHandling::Truncate` starts empty.
pub async fn truncates_when_asked(backend: &Backend) {
    let before = backend.write("file", "old content").await.unwrap();
    let truncate = OpenOptions { existing: ExistingContentHandling::Truncate, ..READ_WRITE };
    let file = backend.open("file", truncate).await.unwrap();
    assert_eq!(file.stat().await.unwrap().size, 0);
    assert_content(backend, "file", "").await;
    let after = backend.stat("file").await.unwrap();
    assert_ne!(after.version, before.version, "truncation is a write");
}

/// A directory is `IsADirectory`.
pub async fn a_directory_is_refused(backend: &Backend) {
    backend.write("dir/file", "kept").await.unwrap();
    for access in [FileAccess::Read, FileAccess::Write, FileAccess::ReadWrite] {
        for create in
            [FileCreationMode::Never, FileCreationMode::IfMissing, FileCreationMode::MustBeNew]
        {
            let options = OpenOptions { access, create, ..OpenOptions::default() };
            expect_error_on_path(
                backend.open("dir", options).await,
                ErrorKind::IsADirectory,
                "dir",
            );
            expect_error_on_path(backend.open(".", options).await, ErrorKind::IsADirectory, ".");
        }
    }
}

/// A parent that is a file is `NotADirectory`.
pub async fn through_a_file_is_refused(backend: &Backend) {
    backend.write("file", "kept").await.unwrap();
    expect_error_on_path(
        backend.open("file/below", READ_WRITE).await,
        ErrorKind::NotADirectory,
        "file/below",
    );
    assert_content(backend, "file", "kept").await;
}

/// Reads work in any order and are cut at the end.
pub async fn reads_at_offsets(backend: &Backend) {
    backend.write("digits", "0123456789").await.unwrap();
    let file = backend.open("digits", OpenOptions::default()).await.unwrap();
    for (offset, length, expect) in [
        (8, 2, "89"),
        (0, 3, "012"),
        (5, 1, "5"),
        (7, 100, "789"),
        (10, 4, ""),
        (1000, 4, ""),
        (3, 0, ""),
        (u64::MAX, 1, ""),
    ] {
        let bytes = file.read_at(offset, length).await.unwrap();
        assert_eq!(bytes, expect, "{length} bytes at {offset}");
    }
}

/// Writes work in any order and extend the file; gaps are filled with zeros.
pub async fn writes_at_offsets(backend: &Backend) {
    let file = backend.open("file", READ_WRITE).await.unwrap();
    for (offset, text, expect) in [
        (2, "cd", "\0\0cd"),
        (0, "ab", "abcd"),
        (1, "XY", "aXYd"),
        (4, "ef", "aXYdef"),
        (8, "!", "aXYdef\0\0!"),
        (20, "", "aXYdef\0\0!"),
    ] {
        file.write_at(offset, Bytes::from(text)).await.unwrap();
        assert_eq!(read_all(&*file).await, expect, "after {text:?} at {offset}");
        assert_content(backend, "file", expect).await;
    }
}

/// An append handle writes at the current end and ignores the offset.
pub async fn appends_when_told(backend: &Backend) {
    backend.write("log", "one ").await.unwrap();
    let append = OpenOptions { position: WritePosition::End, ..READ_WRITE };
    let file = backend.open("log", append).await.unwrap();
    file.write_at(0, Bytes::from("two ")).await.unwrap();
    assert_content(backend, "log", "one two ").await;
    let other = backend.open("log", append).await.unwrap();
    other.write_at(1, Bytes::from("three ")).await.unwrap();
    file.write_at(u64::from(u32::MAX), Bytes::from("four")).await.unwrap();
    assert_content(backend, "log", "one two three four").await;
    assert_eq!(file.read_at(4, 3).await.unwrap(), "two");
    file.set_len(3).await.unwrap();
    other.write_at(9, Bytes::from("!")).await.unwrap();
    assert_content(backend, "log", "one!").await;

    let fresh = OpenOptions { existing: ExistingContentHandling::Truncate, ..append };
    let file = backend.open("log", fresh).await.unwrap();
    file.write_at(7, Bytes::from("new")).await.unwrap();
    assert_content(backend, "log", "new").await;
}

/// The change applies to the opened file, even if its path has changed. A handle without write
/// access cannot change attributes.
pub async fn attributes_are_of_the_file(backend: &Backend) {
    let file = backend.open("before", READ_WRITE).await.unwrap();
    backend.rename("before", "after").await.unwrap();
    backend.write("before", "another").await.unwrap();
    let other = backend.stat("before").await.unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_001);
    let times = AttributeChanges { modified: Some(time), accessed: Some(time), mode: None };
    let set = file.set_attributes(times).await.unwrap();
    assert_eq!((set.modified, set.accessed), (time, Some(time)));
    assert_eq!(backend.stat("after").await.unwrap().modified, time);
    let mode = |bits| AttributeChanges { mode: Some(bits), ..AttributeChanges::default() };
    if backend.info().capabilities.file_modes {
        assert_eq!(file.set_attributes(mode(0o640)).await.unwrap().mode, Some(0o640));
        assert_eq!(backend.stat("after").await.unwrap().mode, Some(0o640));
        let failed = file.set_attributes(mode(0o4755)).await;
        expect_error(failed, ErrorKind::Invalid);
    } else {
        expect_error(file.set_attributes(mode(0o640)).await, ErrorKind::Unsupported);
    }
    let reader = backend.open("after", OpenOptions::default()).await.unwrap();
    expect_error(reader.set_attributes(times).await, ErrorKind::PermissionDenied);
    assert_eq!(backend.stat("before").await.unwrap(), other);
}

/// A handle without write access is `PermissionDenied`.
pub async fn read_only_refuses_writes(backend: &Backend) {
    backend.write("file", "kept").await.unwrap();
    let file = backend.open("file", OpenOptions::default()).await.unwrap();
    let path = "file";
    expect_error_on_path(
        file.write_at(0, Bytes::from("x")).await,
        ErrorKind::PermissionDenied,
        path,
    );
    expect_error_on_path(file.set_len(0).await, ErrorKind::PermissionDenied, path);
    assert_content(backend, "file", "kept").await;
}

/// Truncation drops bytes, extension adds zeros.
pub async fn sets_the_length(backend: &Backend) {
    backend.write("file", "0123456789").await.unwrap();
    let file = backend.open("file", READ_WRITE).await.unwrap();
    for (length, expect) in [(4, "0123"), (6, "0123\0\0"), (6, "0123\0\0"), (0, "")] {
        file.set_len(length).await.unwrap();
        assert_eq!(read_all(&*file).await, expect, "at length {length}");
        assert_content(backend, "file", expect).await;
    }
}

/// Size and version reflect the writes.
pub async fn describes_itself(backend: &Backend) {
    let file = backend.open("file", READ_WRITE).await.unwrap();
    let mut versions = Vec::new();
    for (text, size) in [("", 0), ("abc", 3), ("abc", 3), ("abcdef", 6)] {
        if !text.is_empty() {
            file.write_at(0, Bytes::from(text)).await.unwrap();
        }
        let stat = file.stat().await.unwrap();
        assert_eq!((stat.kind, stat.size), (FileKind::File, size));
        let by_name = backend.stat("file").await.unwrap();
        assert_eq!((by_name.size, by_name.version), (size, stat.version));
        versions.push(stat.version);
    }
    assert_all_different(&versions);
}

/// Returns when the data is synced.
pub async fn syncs(backend: &Backend) {
    let file = backend.open("file", READ_WRITE).await.unwrap();
    file.write_at(0, Bytes::from("safe")).await.unwrap();
    file.sync().await.unwrap();
    assert_content(backend, "file", "safe").await;
}

/// A file that was replaced or removed can still be read through its handle, and differs from the
/// new file.
pub async fn handle_outlives_its_name(backend: &Backend) {
    backend.write("file", "old").await.unwrap();
    let file = backend.open("file", READ_WRITE).await.unwrap();
    backend.write("file", "new").await.unwrap();
    assert_eq!(read_all(&*file).await, "old");
    file.write_at(0, Bytes::from("odd")).await.unwrap();
    assert_eq!(read_all(&*file).await, "odd");
    assert_content(backend, "file", "new").await;

    let second = backend.open("file", READ_WRITE).await.unwrap();
    backend.rm("file", RemoveOptions::default()).await.unwrap();
    assert_eq!(read_all(&*second).await, "new");
    second.write_at(3, Bytes::from("er")).await.unwrap();
    assert_eq!(read_all(&*second).await, "newer");
    assert_missing(backend, "file").await;
}

/// A renamed file stays the same file.
pub async fn handle_follows_a_rename(backend: &Backend) {
    let file = backend.open("before", READ_WRITE).await.unwrap();
    backend.rename("before", "after").await.unwrap();
    file.write_at(0, Bytes::from("moved")).await.unwrap();
    assert_content(backend, "after", "moved").await;
    assert_missing(backend, "before").await;
}

/// Concurrent writers at different offsets do not overwrite each other, even while the file grows.
pub async fn concurrent_writers_keep_apart(backend: &Backend) {
    const WRITERS: usize = 8;
    const ROUNDS: usize = 300;
    backend.write("shared", "").await.unwrap();
    crowd::run_on_threads(WRITERS, |number| {
        let backend = backend.clone();
        async move {
            let file = backend.open("shared", READ_WRITE).await.unwrap();
            for round in 0..ROUNDS {
                let at = (round * WRITERS + number) as u64;
                file.write_at(at, Bytes::from(vec![b'a' + number as u8])).await.unwrap();
            }
        }
    })
    .await;
    let found = backend.read("shared").await.unwrap();
    let expect: Vec<u8> = (0..ROUNDS * WRITERS).map(|at| b'a' + (at % WRITERS) as u8).collect();
    assert!(found == expect, "bytes of one writer were lost to another");
}
