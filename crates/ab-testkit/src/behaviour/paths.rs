//! Which file a path means, and which paths are refused. This is the same for every call and in
//! every scope.

use ab_core::options::{ListOptions, RemoveOptions};
use ab_core::path::{MAX_PATH_BYTES, MAX_PATH_SEGMENT_BYTES, TEMP_FILE_PREFIX, WsPath};
use ab_core::{Backend, ErrorCode, ErrorKind, FileKind, ScopeOptions};

use crate::every_call;
use crate::expect::{assert_content, assert_missing, expect_error_on_path, list_tree};

/// Checks that every call refuses `path`, names the path in the caller's form, and creates nothing.
async fn refused(backend: &Backend, path: &str, kind: ErrorKind, code: ErrorCode) {
    backend.write("kept", "kept").await.unwrap();
    for (call, result) in every_call::try_every_call_on(backend, path).await {
        let error = match result {
            Ok(()) => panic!("{call} took {path:?}"),
            Err(error) => error,
        };
        assert_eq!(
            (error.kind(), error.code(), error.path()),
            (kind, code, Some(path)),
            "{call} of {path:?}: {error:?}"
        );
    }
    assert_eq!(list_tree(backend).await, [("kept".to_owned(), FileKind::File)], "after {path:?}");
    assert_content(backend, "kept", "kept").await;
}

/// A path that leaves the workspace is `PathEscape`, in every spelling.
pub async fn escapes_are_refused(backend: &Backend) {
    for path in [
        "..",
        "../outside",
        "./../outside",
        "a/../../outside",
        "a/b/../../../kept",
        "/..",
        "/../etc/passwd",
        "//..//outside",
        "a/../..",
        "../../../../../../etc/passwd",
    ] {
        refused(backend, path, ErrorKind::PathEscape, ErrorCode::PathEscapeAttempt).await;
    }
}

/// An absolute path that enters the workspace and leaves it again is an escape too.
pub async fn climbing_out_of_an_alias_is_refused(backend: &Backend) {
    for alias in backend.info().root_aliases {
        let path = format!("{}/../outside", alias.trim_end_matches('/'));
        refused(backend, &path, ErrorKind::PathEscape, ErrorCode::PathEscapeAttempt).await;
    }
}

/// A NUL byte is `InvalidPath`.
pub async fn nul_is_refused(backend: &Backend) {
    for path in ["\0", "kept\0", "a/\0b/c", "kept\0/../../x"] {
        refused(backend, path, ErrorKind::InvalidPath, ErrorCode::InvalidPath).await;
    }
}

/// The empty path is `InvalidPath`. The root is `.`.
pub async fn empty_is_refused(backend: &Backend) {
    refused(backend, "", ErrorKind::InvalidPath, ErrorCode::InvalidPath).await;
    assert_eq!(backend.stat(".").await.unwrap().kind, FileKind::Dir);
}

/// Names and paths beyond the limits are `InvalidPath`.
pub async fn over_long_is_refused(backend: &Backend) {
    let name = "n".repeat(MAX_PATH_SEGMENT_BYTES + 1);
    let wide = "ü".repeat(MAX_PATH_SEGMENT_BYTES / 2 + 1);
    let path = "d/".repeat(MAX_PATH_BYTES / 2 + 1);
    for path in [name.as_str(), wide.as_str(), &format!("a/{name}/b"), path.as_str()] {
        refused(backend, path, ErrorKind::InvalidPath, ErrorCode::InvalidPath).await;
    }
}

/// The reserved names of temporary files are `InvalidPath`.
pub async fn reserved_names_are_refused(backend: &Backend) {
    let own = format!("{TEMP_FILE_PREFIX}1");
    for path in [own.clone(), format!("a/{own}"), format!("{own}/a"), TEMP_FILE_PREFIX.to_owned()] {
        refused(backend, &path, ErrorKind::InvalidPath, ErrorCode::InvalidPath).await;
    }
    backend.write("not.ab-tmp-1", "x").await.unwrap();
    assert_content(backend, "not.ab-tmp-1", "x").await;
}

/// Relative paths are below the root.
pub async fn relative_is_below_the_root(backend: &Backend) {
    backend.write("dir/file", "x").await.unwrap();
    for path in ["dir/file", "./dir/file", "dir//file", "dir/./file", "dir/file/"] {
        assert_content(backend, path, "x").await;
        assert_eq!(backend.parse_path(path).unwrap().as_str(), "dir/file");
    }
}

/// Inner `..` is resolved as text, so the directory before it does not need to exist.
pub async fn inner_dotdot_is_resolved(backend: &Backend) {
    backend.write("not-there/../dir/./a//../file", "x").await.unwrap();
    assert_content(backend, "dir/file", "x").await;
    assert_content(backend, "dir/file/..//file", "x").await;
    let whole = ListOptions { max_depth: usize::MAX, ..ListOptions::default() };
    assert_eq!(backend.list(".", whole).await.unwrap().entries.len(), 2);
}

/// An absolute path under an alias of the root is relative to that alias.
pub async fn absolute_under_an_alias_is_kept(backend: &Backend) {
    backend.write("dir/file", "x").await.unwrap();
    let aliases = backend.info().root_aliases;
    assert!(!aliases.is_empty(), "a backend must say which absolute path is its root");
    for alias in aliases {
        assert_eq!(backend.parse_path(&alias).unwrap(), WsPath::root(), "{alias:?}");
        let path = format!("{}/dir/file", alias.trim_end_matches('/'));
        assert_eq!(backend.parse_path(&path).unwrap().as_str(), "dir/file", "{path:?}");
        assert_content(backend, &path, "x").await;
    }
}

/// Any other absolute path is relative to the root.
pub async fn absolute_elsewhere_is_from_the_root(backend: &Backend) {
    backend.write("/etc/passwd", "ours").await.unwrap();
    assert_content(backend, "etc/passwd", "ours").await;
    backend.rename("/etc/passwd", "/moved").await.unwrap();
    assert_content(backend, "moved", "ours").await;
    for alias in backend.info().root_aliases {
        let sibling = format!("{}-beside/file", alias.trim_end_matches('/'));
        let below = sibling.trim_start_matches('/');
        if sibling.starts_with("/-") {
            continue;
        }
        backend.write(&sibling, "beside").await.unwrap();
        assert_eq!(backend.parse_path(&sibling).unwrap().as_str(), below);
        assert_content(backend, below, "beside").await;
    }
}

/// Names of maximum length work in every call.
pub async fn names_at_the_limit_work(backend: &Backend) {
    let longest = "n".repeat(MAX_PATH_SEGMENT_BYTES);
    let other = format!("{}x", "ü".repeat(MAX_PATH_SEGMENT_BYTES / 2));
    assert_eq!(other.len(), MAX_PATH_SEGMENT_BYTES);
    let path = format!("{longest}/{other}");
    backend.write(&path, "x").await.unwrap();
    assert_content(backend, &path, "x").await;
    assert_eq!(backend.readdir(&longest).await.unwrap().join("/"), other);
    backend.write(&path, "y").await.unwrap();
    backend.rename(&path, &longest.replace('n', "m")).await.unwrap();
    assert_content(backend, &"m".repeat(MAX_PATH_SEGMENT_BYTES), "y").await;
    backend.rm(&"m".repeat(MAX_PATH_SEGMENT_BYTES), RemoveOptions::default()).await.unwrap();
    assert_missing(backend, &"m".repeat(MAX_PATH_SEGMENT_BYTES)).await;
}

/// Deep directory trees work.
pub async fn deep_paths_work(backend: &Backend) {
    let deep = vec!["level"; 100].join("/");
    backend.write(&format!("{deep}/file"), "x").await.unwrap();
    assert_content(backend, &format!("{deep}/file"), "x").await;
    assert_eq!(list_tree(backend).await.len(), 101);
    let removed = backend.rm("level", RemoveOptions::recursive()).await.unwrap();
    assert_eq!(removed.count, 101);
}

/// An error names the path relative to the caller's root, as a listing would, and `.` for the root.
pub async fn errors_name_the_path(backend: &Backend) {
    for (given, named) in [("a/b", "a/b"), ("./a//b/", "a/b"), ("/a/b", "a/b"), ("x/../a/b", "a/b")]
    {
        let error = expect_error_on_path(backend.read(given).await, ErrorKind::NotFound, named);
        assert!(error.to_string().contains("'a/b'"), "{error}");
    }
    expect_error_on_path(backend.read("/").await, ErrorKind::IsADirectory, ".");
}

/// A scope confines every call: paths beside it cannot be named.
pub async fn scope_confines(backend: &Backend) {
    backend.write("secret", "kept").await.unwrap();
    backend.write("room/own", "mine").await.unwrap();
    let scope = backend.scope("room", ScopeOptions::default()).unwrap();
    assert_eq!(list_tree(&scope).await, [("own".to_owned(), FileKind::File)]);
    for path in ["../secret", "/../secret", "own/../../secret", "x/../../room/own"] {
        for (call, result) in every_call::try_every_call_on(&scope, path).await {
            let kind = result.map_err(|error| error.kind());
            assert_eq!(kind, Err(ErrorKind::PathEscape), "{call} of {path:?}");
        }
    }
    expect_error_on_path(scope.read("secret").await, ErrorKind::NotFound, "secret");
    assert_content(backend, "secret", "kept").await;
    scope.write("/secret", "other").await.unwrap();
    assert_content(backend, "room/secret", "other").await;
    assert_content(backend, "secret", "kept").await;
}
