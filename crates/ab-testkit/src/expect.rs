//! Assertions for cases: errors by kind and path, contents, names, whole trees.

use std::fmt::Debug;

use ab_core::options::{EntryDetailLevel, ListOptions};
use ab_core::{Backend, Error, ErrorKind, FileKind, Listing, Result, Stat};

/// The error of a call that must fail with `kind`.
#[track_caller]
pub fn expect_error<T>(result: Result<T>, kind: ErrorKind) -> Error {
    match result {
        Ok(_) => panic!("the call went through, but had to fail with {kind:?}"),
        Err(error) => {
            assert_eq!(error.kind(), kind, "failed with another kind: {error:?}");
            error
        }
    }
}

/// Like [`expect_error`]. In addition, the error must name `path` in the form in which the caller
/// wrote it.
#[track_caller]
pub fn expect_error_on_path<T>(result: Result<T>, kind: ErrorKind, path: &str) -> Error {
    let error = expect_error(result, kind);
    assert_eq!(error.path(), Some(path), "the error names another path: {error:?}");
    error
}

/// The paths of a listing, in its order.
pub fn listing_paths(listing: &Listing) -> Vec<&str> {
    listing.entries.iter().map(|entry| entry.path.as_str()).collect()
}

/// All paths of the workspace with their kinds, in path order.
pub async fn list_tree(backend: &Backend) -> Vec<(String, FileKind)> {
    let whole = ListOptions {
        max_depth: usize::MAX,
        detail: EntryDetailLevel::Kind,
        ..ListOptions::default()
    };
    let listing = backend.list(".", whole).await.unwrap();
    assert_eq!(listing.truncated, None, "the tree was cut");
    listing.entries.iter().map(|entry| (entry.path.to_string(), entry.kind)).collect()
}

/// Checks that the content of `path` is exactly `text`.
pub async fn assert_content(backend: &Backend, path: &str, text: &str) {
    let found = backend.read(path).await.unwrap();
    let found = String::from_utf8_lossy(&found);
    assert_eq!(found, text, "{path:?} holds something else");
}

/// Checks that nothing exists at `path`.
pub async fn assert_missing(backend: &Backend, path: &str) {
    assert!(!backend.exists(path).await.unwrap(), "something is at {path:?}");
}

/// A stat without the access time, because reads change the access time.
pub fn without_access_time(stat: Stat) -> Stat {
    Stat { accessed: None, ..stat }
}

/// Checks that `values` are all different.
#[track_caller]
pub fn assert_all_different<T: PartialEq + Debug>(values: &[T]) {
    for (at, value) in values.iter().enumerate() {
        let earlier = values[..at].iter().position(|other| other == value);
        assert_eq!(earlier, None, "number {at} is the same again: {value:?}");
    }
}
