//! What only a memory workspace promises: keys, their prefixes, initial data, a limit in bytes.

use std::time::SystemTime;

use ab_core::backend::WriteContent;
use ab_core::memory::{DEFAULT_MEMORY_DRIVER_CAPACITY_BYTES, MemoryDriverOptions};
use ab_core::metadata::{DiskSpace, RemoveOutcome};
use ab_core::options::{FileAccess, FileCreationMode, OpenOptions, RemoveOptions, WriteOptions};
use ab_core::{Backend, BackendKind, Error, ErrorCode, ErrorKind, FileKind, MemoryDriver, Verb};
use ab_testkit::expect::{
    assert_content, assert_missing, expect_error, expect_error_on_path, list_tree,
};
use bytes::Bytes;

fn memory() -> Backend {
    Backend::new(MemoryDriver::new())
}

fn options(data: &[(&str, &str)]) -> MemoryDriverOptions {
    let data =
        data.iter().map(|(key, text)| ((*key).to_owned(), WriteContent::from(*text))).collect();
    MemoryDriverOptions { initial_files: data, ..MemoryDriverOptions::default() }
}

fn holding(data: &[(&str, &str)]) -> Backend {
    Backend::new(MemoryDriver::with_options(options(data)).unwrap())
}

fn misconfigured(options: MemoryDriverOptions) -> Error {
    let error = MemoryDriver::with_options(options).unwrap_err();
    assert_eq!((error.code(), error.kind()), (ErrorCode::InvalidConfiguration, ErrorKind::Invalid));
    assert_eq!(error.backend_kind(), Some(BackendKind::Memory));
    error
}

#[tokio::test]
async fn initial_data_is_there() {
    let backend = holding(&[("a", "1"), ("/b/c", "2"), ("./d/../e", "3"), ("empty", "")]);
    for (path, text) in [("a", "1"), ("b/c", "2"), ("e", "3"), ("empty", "")] {
        assert_content(&backend, path, text).await;
    }
    assert_eq!(backend.readdir(".").await.unwrap(), ["a", "b", "e", "empty"]);
}

#[test]
fn contradicting_initial_keys_are_misconfigured() {
    for keys in [["a", "a/b"], ["a/b", "a"], ["a/b/c", "a/b"], ["/x/y", "x"]] {
        let error = misconfigured(options(&keys.map(|key| (key, ""))));
        assert!(error.message().contains(keys[1]), "{error}");
    }
}

#[test]
fn impossible_settings_are_misconfigured() {
    for key in ["", "../out", "nul\0", ".", "/", ".ab-tmp-1"] {
        misconfigured(options(&[(key, "x")]));
    }
    misconfigured(MemoryDriverOptions { max_bytes: 3, ..options(&[("a", "12"), ("b", "34")]) });
    misconfigured(MemoryDriverOptions { root: "not/absolute".to_owned(), ..options(&[]) });
}

#[tokio::test]
async fn root_prefix_is_an_alias_of_the_root() {
    let options = MemoryDriverOptions {
        root: "/data/store".to_owned(),
        ..options(&[("/data/store/in/side", "1"), ("/other", "2")])
    };
    let backend = Backend::new(MemoryDriver::with_options(options).unwrap());
    assert_eq!(backend.info().root_aliases, ["/data/store"]);
    for path in ["/data/store/in/side", "in/side", "/in/side"] {
        assert_content(&backend, path, "1").await;
    }
    assert_content(&backend, "other", "2").await;
    let out = "/data/store/../side";
    expect_error_on_path(backend.read(out).await, ErrorKind::PathEscape, out);
}

#[test]
fn root_prefix_defaults_to_slash() {
    assert_eq!(memory().info().root_aliases, ["/"]);
    assert_eq!(MemoryDriverOptions::default().root, "/");
}

#[tokio::test]
async fn directories_are_where_keys_are() {
    let backend = memory();
    backend.write("a/b/c", "x").await.unwrap();
    assert_eq!(backend.stat("a/b").await.unwrap().kind, FileKind::Dir);
    backend.rm("a/b/c", RemoveOptions::default()).await.unwrap();
    for path in ["a/b/c", "a/b", "a"] {
        assert_missing(&backend, path).await;
    }
}

#[tokio::test]
async fn listing_shows_first_segments_once() {
    let backend = holding(&[("a/x/1", ""), ("a/x/2", ""), ("a/y", ""), ("ab/z", ""), ("b", "")]);
    assert_eq!(backend.readdir(".").await.unwrap(), ["a", "ab", "b"]);
    assert_eq!(backend.readdir("a").await.unwrap(), ["x", "y"]);
    assert_eq!(backend.readdir("a/x").await.unwrap(), ["1", "2"]);
}

#[tokio::test]
async fn missing_key_is_key_not_found() {
    let backend = memory();
    for (verb, result) in [
        (Verb::Read, backend.read("no/key").await.map(drop)),
        (Verb::Stat, backend.stat("no/key").await.map(drop)),
        (Verb::List, backend.readdir("no/key").await.map(drop)),
        (Verb::Open, backend.open("no/key", OpenOptions::default()).await.map(drop)),
        (Verb::Delete, backend.rm("no/key", RemoveOptions::default()).await.map(drop)),
        (Verb::Rename, backend.rename("no/key", "other").await.map(drop)),
    ] {
        let error = expect_error_on_path(result, ErrorKind::NotFound, "no/key");
        assert_eq!((error.code(), error.verb()), (ErrorCode::KeyNotFound, Some(verb)));
        assert_eq!(error.backend_kind(), Some(BackendKind::Memory));
    }
}

#[tokio::test]
async fn a_key_cannot_be_a_directory_too() {
    let backend = memory();
    backend.write("a", "file").await.unwrap();
    backend.write("dir/b", "file").await.unwrap();
    expect_error_on_path(backend.write("a/b", "x").await, ErrorKind::NotADirectory, "a/b");
    expect_error_on_path(backend.write("dir", "x").await, ErrorKind::IsADirectory, "dir");
    expect_error(backend.rename("a", "dir/b/c").await, ErrorKind::NotADirectory);
    expect_error(backend.rename("dir", "a/dir").await, ErrorKind::NotADirectory);
    let create = OpenOptions { create: FileCreationMode::IfMissing, ..OpenOptions::default() };
    expect_error_on_path(backend.open("a/b", create).await, ErrorKind::NotADirectory, "a/b");
    expect_error_on_path(backend.open("dir", create).await, ErrorKind::IsADirectory, "dir");
    assert_eq!(list_tree(&backend).await.len(), 3);
}

#[tokio::test]
async fn recursive_remove_takes_the_prefix() {
    let backend = holding(&[("a/1", ""), ("a/b/2", ""), ("ab/3", ""), ("a.txt", "")]);
    let removed = backend.rm("a", RemoveOptions::recursive()).await.unwrap();
    assert_eq!(removed, RemoveOutcome { count: 4 });
    assert_eq!(backend.readdir(".").await.unwrap(), ["a.txt", "ab"]);
}

#[tokio::test]
async fn recursive_remove_takes_the_key() {
    let backend = holding(&[("a", ""), ("b", "")]);
    let removed = backend.rm("a", RemoveOptions::recursive()).await.unwrap();
    assert_eq!(removed, RemoveOutcome { count: 1 });
    assert_eq!(backend.readdir(".").await.unwrap(), ["b"]);
}

#[tokio::test]
async fn mkdir_is_a_no_op() {
    let backend = memory();
    backend.mkdir("a/b").await.unwrap();
    assert_eq!(list_tree(&backend).await, []);
    assert!(!backend.info().capabilities.empty_dirs);
}

#[tokio::test]
async fn stat_is_synthetic() {
    let before = SystemTime::now();
    let backend = memory();
    let written = backend.write("dir/key", "12345").await.unwrap();
    let after = SystemTime::now();
    let stat = backend.stat("dir/key").await.unwrap();
    assert_eq!((stat.kind, stat.size, stat.mode), (FileKind::File, 5, Some(0o644)));
    assert!(before <= stat.modified && stat.modified <= after);
    assert_eq!(stat, written);
    let dir = backend.stat("dir").await.unwrap();
    assert_eq!((dir.kind, dir.size, dir.mode), (FileKind::Dir, 0, Some(0o755)));
    assert!(before <= dir.modified && dir.modified <= after);
}

#[tokio::test]
async fn exec_is_not_implemented() {
    let error = expect_error(memory().exec("ls").await, ErrorKind::Unsupported);
    assert_eq!(error.code().as_str(), "NOT_IMPLEMENTED");
    assert_eq!((error.verb(), error.backend_kind()), (Some(Verb::Exec), Some(BackendKind::Memory)));
    assert_eq!(error.message(), "exec is not supported by a memory backend");
}

/// A store that holds ten bytes, six of them in use.
async fn nearly_full() -> Backend {
    let options = MemoryDriverOptions { max_bytes: 10, ..options(&[("old", "123456")]) };
    Backend::new(MemoryDriver::with_options(options).unwrap())
}

#[tokio::test]
async fn a_full_store_keeps_what_it_has() {
    let backend = nearly_full().await;
    let error =
        expect_error_on_path(backend.write("new", "12345").await, ErrorKind::NoSpace, "new");
    assert_eq!(error.code(), ErrorCode::WriteFailed);
    expect_error_on_path(backend.write("old", "12345678901").await, ErrorKind::NoSpace, "old");
    assert_content(&backend, "old", "123456").await;
    assert_missing(&backend, "new").await;
    assert_eq!(backend.disk_space().await.unwrap(), DiskSpace { total: 10, available: 4 });
}

#[tokio::test]
async fn room_is_given_back() {
    let backend = nearly_full().await;
    let space = async || backend.disk_space().await.unwrap().available;
    backend.write("old", "12345678").await.unwrap();
    assert_eq!(space().await, 2);
    backend.write("old", "1").await.unwrap();
    assert_eq!(space().await, 9);
    backend.write("dir/new", "12345").await.unwrap();
    backend.rename("dir", "moved").await.unwrap();
    assert_eq!(space().await, 4);
    backend.rm("moved", RemoveOptions::recursive()).await.unwrap();
    assert_eq!(space().await, 9);
    backend.write("new", "123").await.unwrap();
    let replace =
        ab_core::options::RenameOptions { overwrite: ab_core::options::OverwriteMode::Replace };
    backend.rename_with("new", "old", replace).await.unwrap();
    assert_eq!(space().await, 7);
    backend.rm("old", RemoveOptions::default()).await.unwrap();
    assert_eq!(space().await, 10);
}

#[tokio::test]
async fn open_files_count_while_they_have_a_name() {
    let backend = nearly_full().await;
    let access = OpenOptions {
        access: FileAccess::ReadWrite,
        create: FileCreationMode::IfMissing,
        ..OpenOptions::default()
    };
    let file = backend.open("old", access).await.unwrap();
    file.write_at(6, Bytes::from("7890")).await.unwrap();
    expect_error_on_path(file.write_at(10, Bytes::from("x")).await, ErrorKind::NoSpace, "old");
    expect_error_on_path(file.set_len(11).await, ErrorKind::NoSpace, "old");
    expect_error_on_path(
        file.write_at(u64::MAX, Bytes::from("x")).await,
        ErrorKind::NoSpace,
        "old",
    );
    assert_content(&backend, "old", "1234567890").await;
    file.set_len(2).await.unwrap();
    assert_eq!(backend.disk_space().await.unwrap().available, 8);
    backend.rm("old", RemoveOptions::default()).await.unwrap();
    assert_eq!(backend.disk_space().await.unwrap().available, 10);
    file.write_at(0, Bytes::from("nameless")).await.unwrap();
    assert_eq!(backend.disk_space().await.unwrap().available, 10);
}

#[tokio::test]
async fn the_limit_has_a_default() {
    let space = memory().disk_space().await.unwrap();
    assert_eq!(
        space,
        DiskSpace {
            total: DEFAULT_MEMORY_DRIVER_CAPACITY_BYTES,
            available: DEFAULT_MEMORY_DRIVER_CAPACITY_BYTES
        }
    );
}

#[tokio::test]
async fn a_refused_conditional_write_takes_no_room() {
    let backend = nearly_full().await;
    let stale = backend.stat("old").await.unwrap().version;
    backend.write("old", "123456").await.unwrap();
    let expecting = WriteOptions { expected_version: Some(stale), ..WriteOptions::default() };
    expect_error_on_path(
        backend.write_with("old", "1", expecting).await,
        ErrorKind::Conflict,
        "old",
    );
    assert_eq!(backend.disk_space().await.unwrap().available, 4);
}
