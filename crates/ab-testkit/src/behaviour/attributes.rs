//! Permission bits and times.

use std::time::{Duration, SystemTime};

use ab_core::options::{AttributeChanges, FileAccess, FileCreationMode, OpenOptions, WriteOptions};
use ab_core::{Backend, ErrorKind};

use crate::expect::{assert_content, expect_error, expect_error_on_path};

fn long_ago(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + seconds)
}

fn mode(bits: u32) -> AttributeChanges {
    AttributeChanges { mode: Some(bits), ..AttributeChanges::default() }
}

/// `stat` reports what was set. Without permission bits, setting them is `Unsupported`.
pub async fn mode_and_times_are_kept(backend: &Backend) {
    backend.write("file", "kept").await.unwrap();
    let times =
        AttributeChanges { mode: None, modified: Some(long_ago(1)), accessed: Some(long_ago(2)) };
    let set = backend.set_attributes("file", times).await.unwrap();
    assert_eq!((set.modified, set.accessed), (long_ago(1), Some(long_ago(2))));
    assert_eq!(backend.stat("file").await.unwrap(), set);

    if !backend.info().capabilities.file_modes {
        expect_error(backend.set_attributes("file", mode(0o640)).await, ErrorKind::Unsupported);
        return;
    }
    for bits in [0o640, 0o755, 0o600] {
        let set = backend.set_attributes("file", mode(bits)).await.unwrap();
        assert_eq!(set.mode, Some(bits));
        assert_eq!((set.modified, set.accessed), (long_ago(1), Some(long_ago(2))));
        assert_eq!(backend.stat("file").await.unwrap(), set);
    }
    assert_content(backend, "file", "kept").await;
}

/// Attributes that are not set stay unchanged.
pub async fn absent_ones_stay(backend: &Backend) {
    backend.write("file", "kept").await.unwrap();
    let before = backend.stat("file").await.unwrap();
    let same = backend.set_attributes("file", AttributeChanges::default()).await.unwrap();
    assert_eq!((same.mode, same.modified), (before.mode, before.modified));
    let only = AttributeChanges { modified: Some(long_ago(3)), ..AttributeChanges::default() };
    let after = backend.set_attributes("file", only).await.unwrap();
    assert_eq!((after.mode, after.modified), (before.mode, long_ago(3)));
    assert_eq!(after.size, before.size);
}

/// A missing path is `NotFound`.
pub async fn missing_is_not_found(backend: &Backend) {
    let times = AttributeChanges { modified: Some(long_ago(0)), ..AttributeChanges::default() };
    expect_error_on_path(
        backend.set_attributes("missing", times).await,
        ErrorKind::NotFound,
        "missing",
    );
}

/// Set-uid, set-gid and sticky bits are refused.
pub async fn bits_beyond_permissions_are_refused(backend: &Backend) {
    let before = backend.write("file", "x").await.unwrap();
    let refused = if backend.info().capabilities.file_modes {
        ErrorKind::Invalid
    } else {
        ErrorKind::Unsupported
    };
    for bits in [0o4755, 0o2755, 0o1777, 0o100_644, u32::MAX] {
        expect_error(backend.set_attributes("file", mode(bits)).await, refused);
    }
    assert_eq!(backend.stat("file").await.unwrap().mode, before.mode);
}

/// A new file gets the bits with which it was written or opened. An existing file keeps its bits.
pub async fn writes_keep_the_mode(backend: &Backend) {
    let with = |bits| WriteOptions { permissions: Some(bits), ..WriteOptions::default() };
    let expect = backend.info().capabilities.file_modes.then_some(0o700);
    let made = backend.write_with("tool", "one", with(0o700)).await.unwrap();
    assert_eq!(made.mode, expect);
    let again = backend.write_with("tool", "two", with(0o600)).await.unwrap();
    assert_eq!(again.mode, expect);
    backend.write("tool", "three").await.unwrap();
    assert_eq!(backend.stat("tool").await.unwrap().mode, expect);
    assert_content(backend, "tool", "three").await;

    // More bits than the umask of most processes allows.
    let shared = OpenOptions {
        access: FileAccess::Write,
        create: FileCreationMode::MustBeNew,
        permissions: Some(0o666),
        ..OpenOptions::default()
    };
    let opened = backend.open("shared", shared).await.unwrap().stat().await.unwrap();
    assert_eq!(opened.mode, backend.info().capabilities.file_modes.then_some(0o666));
}
