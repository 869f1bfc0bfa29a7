//! What a path means, and which are refused: the same for every call and at every level of scoping.

use ab_core::options::{ListOptions, RemoveOptions};
use ab_core::path::{MAX_NAME_BYTES, MAX_PATH_BYTES, RESERVED_PREFIX, WsPath};
use ab_core::{Backend, Code, FileKind, Kind, ScopeOptions};

use crate::every_call;
use crate::expect::{failure_on, holds, nothing, tree};

/// Checks that every call refuses `path`, names it as it was given, and leaves nothing behind.
async fn refused(backend: &Backend, path: &str, kind: Kind, code: Code) {
    backend.write("kept", "kept").await.unwrap();
    for (call, result) in every_call::on_path(backend, path).await {
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
    assert_eq!(tree(backend).await, [("kept".to_owned(), FileKind::File)], "after {path:?}");
    holds(backend, "kept", "kept").await;
}

/// A path that climbs out is `Escape`, however it is dressed.
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
        refused(backend, path, Kind::Escape, Code::PathEscapeAttempt).await;
    }
}

/// An absolute path that enters the workspace and climbs out again is an escape too.
pub async fn climbing_out_of_an_alias_is_refused(backend: &Backend) {
    for alias in backend.info().root_aliases {
        let path = format!("{}/../outside", alias.trim_end_matches('/'));
        refused(backend, &path, Kind::Escape, Code::PathEscapeAttempt).await;
    }
}

/// A NUL byte is `InvalidPath`.
pub async fn nul_is_refused(backend: &Backend) {
    for path in ["\0", "kept\0", "a/\0b/c", "kept\0/../../x"] {
        refused(backend, path, Kind::InvalidPath, Code::InvalidPath).await;
    }
}

/// The empty path is `InvalidPath`; the root has a name.
pub async fn empty_is_refused(backend: &Backend) {
    refused(backend, "", Kind::InvalidPath, Code::InvalidPath).await;
    assert_eq!(backend.stat(".").await.unwrap().kind, FileKind::Dir);
}

/// Names and paths beyond the limits are `InvalidPath`.
pub async fn over_long_is_refused(backend: &Backend) {
    let name = "n".repeat(MAX_NAME_BYTES + 1);
    let wide = "ü".repeat(MAX_NAME_BYTES / 2 + 1);
    let path = "d/".repeat(MAX_PATH_BYTES / 2 + 1);
    for path in [name.as_str(), wide.as_str(), &format!("a/{name}/b"), path.as_str()] {
        refused(backend, path, Kind::InvalidPath, Code::InvalidPath).await;
    }
}

/// Names that belong to writes in flight are `InvalidPath`.
pub async fn reserved_names_are_refused(backend: &Backend) {
    let own = format!("{RESERVED_PREFIX}1");
    for path in [own.clone(), format!("a/{own}"), format!("{own}/a"), RESERVED_PREFIX.to_owned()] {
        refused(backend, &path, Kind::InvalidPath, Code::InvalidPath).await;
    }
    backend.write("not.ab-tmp-1", "x").await.unwrap();
    holds(backend, "not.ab-tmp-1", "x").await;
}

/// Relative paths are below the root.
pub async fn relative_is_below_the_root(backend: &Backend) {
    backend.write("dir/file", "x").await.unwrap();
    for path in ["dir/file", "./dir/file", "dir//file", "dir/./file", "dir/file/"] {
        holds(backend, path, "x").await;
        assert_eq!(backend.resolve(path).unwrap().as_str(), "dir/file");
    }
}

/// Inner `..` is resolved as text: what it passes over need not be there.
pub async fn inner_dotdot_is_resolved(backend: &Backend) {
    backend.write("not-there/../dir/./a//../file", "x").await.unwrap();
    holds(backend, "dir/file", "x").await;
    holds(backend, "dir/file/..//file", "x").await;
    let whole = ListOptions { depth: usize::MAX, ..ListOptions::default() };
    assert_eq!(backend.list(".", whole).await.unwrap().entries.len(), 2);
}

/// An absolute path under an alias of the root is used as it is.
pub async fn absolute_under_an_alias_is_kept(backend: &Backend) {
    backend.write("dir/file", "x").await.unwrap();
    let aliases = backend.info().root_aliases;
    assert!(!aliases.is_empty(), "a backend must say which absolute path is its root");
    for alias in aliases {
        assert_eq!(backend.resolve(&alias).unwrap(), WsPath::root(), "{alias:?}");
        let path = format!("{}/dir/file", alias.trim_end_matches('/'));
        assert_eq!(backend.resolve(&path).unwrap().as_str(), "dir/file", "{path:?}");
        holds(backend, &path, "x").await;
    }
}

/// Any other absolute path is taken from the root.
pub async fn absolute_elsewhere_is_from_the_root(backend: &Backend) {
    backend.write("/etc/passwd", "ours").await.unwrap();
    holds(backend, "etc/passwd", "ours").await;
    backend.rename("/etc/passwd", "/moved").await.unwrap();
    holds(backend, "moved", "ours").await;
    for alias in backend.info().root_aliases {
        let sibling = format!("{}-beside/file", alias.trim_end_matches('/'));
        let below = sibling.trim_start_matches('/');
        if sibling.starts_with("/-") {
            continue;
        }
        backend.write(&sibling, "beside").await.unwrap();
        assert_eq!(backend.resolve(&sibling).unwrap().as_str(), below);
        holds(backend, below, "beside").await;
    }
}

/// The longest names work everywhere that any name works.
pub async fn names_at_the_limit_work(backend: &Backend) {
    let longest = "n".repeat(MAX_NAME_BYTES);
    let other = format!("{}x", "ü".repeat(MAX_NAME_BYTES / 2));
    assert_eq!(other.len(), MAX_NAME_BYTES);
    let path = format!("{longest}/{other}");
    backend.write(&path, "x").await.unwrap();
    holds(backend, &path, "x").await;
    assert_eq!(backend.readdir(&longest).await.unwrap().join("/"), other);
    backend.write(&path, "y").await.unwrap();
    backend.rename(&path, &longest.replace('n', "m")).await.unwrap();
    holds(backend, &"m".repeat(MAX_NAME_BYTES), "y").await;
    backend.rm(&"m".repeat(MAX_NAME_BYTES), RemoveOptions::default()).await.unwrap();
    nothing(backend, &"m".repeat(MAX_NAME_BYTES)).await;
}

/// Deep trees are trees.
pub async fn deep_paths_work(backend: &Backend) {
    let deep = vec!["level"; 100].join("/");
    backend.write(&format!("{deep}/file"), "x").await.unwrap();
    holds(backend, &format!("{deep}/file"), "x").await;
    assert_eq!(tree(backend).await.len(), 101);
    let removed = backend.rm("level", RemoveOptions::recursive()).await.unwrap();
    assert_eq!(removed.count, 101);
}

/// An error names the path from the caller's root, as a listing would, and the root too.
pub async fn errors_name_the_path(backend: &Backend) {
    for (given, named) in [("a/b", "a/b"), ("./a//b/", "a/b"), ("/a/b", "a/b"), ("x/../a/b", "a/b")]
    {
        let error = failure_on(backend.read(given).await, Kind::NotFound, named);
        assert!(error.to_string().contains("'a/b'"), "{error}");
    }
    failure_on(backend.read("/").await, Kind::IsADirectory, ".");
}

/// A scope confines every call, and what is beside it cannot be named.
pub async fn scope_confines(backend: &Backend) {
    backend.write("secret", "kept").await.unwrap();
    backend.write("room/own", "mine").await.unwrap();
    let scope = backend.scope("room", ScopeOptions::default()).unwrap();
    assert_eq!(tree(&scope).await, [("own".to_owned(), FileKind::File)]);
    for path in ["../secret", "/../secret", "own/../../secret", "x/../../room/own"] {
        for (call, result) in every_call::on_path(&scope, path).await {
            let kind = result.map_err(|error| error.kind());
            assert_eq!(kind, Err(Kind::Escape), "{call} of {path:?}");
        }
    }
    failure_on(scope.read("secret").await, Kind::NotFound, "secret");
    holds(backend, "secret", "kept").await;
    scope.write("/secret", "other").await.unwrap();
    holds(backend, "room/secret", "other").await;
    holds(backend, "secret", "kept").await;
}
