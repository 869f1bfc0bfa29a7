//! Handles through which some paths are hidden and others cannot be changed.

use ab_core::options::{
    self, FileCreationMode, ListOptions, OpenOptions, OverwriteMode, RemoveDepth, RemoveOptions,
    RenameOptions,
};
use ab_core::process::{ExecRequest, HostDirectory, HostDirectoryAccess, PathRestrictions};
use ab_core::{
    Backend, ErrorCode, ErrorKind, MAX_PATH_RESTRICTIONS, MemoryDriver, ScopeOptions, WsPath,
};
use ab_testkit::recording::RecordingDriver;

fn paths(paths: &[&str]) -> Vec<WsPath> {
    let rules = ab_core::PathParser::lenient();
    paths.iter().map(|path| rules.parse(path).unwrap()).collect()
}

fn restrictions(hidden: &[&str], read_only: &[&str]) -> PathRestrictions {
    PathRestrictions {
        hidden: paths(hidden),
        read_only: paths(read_only),
        host_directories: Vec::new(),
    }
}

async fn workspace() -> (Backend, Backend) {
    let backend = Backend::new(MemoryDriver::new());
    for path in ["secret/key", "secrets", "kept/a", "kept/b/c", "free/d", "free/.env"] {
        backend.write(path, "old").await.unwrap();
    }
    let limits = restrictions(&["secret", "free/.env"], &["kept"]);
    let handle = backend.restrict(limits).unwrap();
    (backend, handle)
}

#[tokio::test]
async fn what_is_hidden_is_not_there() {
    let (backend, handle) = workspace().await;
    for path in ["secret", "secret/key", "free/.env", "secret/none"] {
        assert!(!handle.exists(path).await.unwrap(), "{path}");
        assert_eq!(handle.read(path).await.unwrap_err().kind(), ErrorKind::NotFound, "{path}");
    }
    assert_eq!(handle.readdir(".").await.unwrap(), ["free", "kept", "secrets"]);
    assert_eq!(handle.readdir("free").await.unwrap(), ["d"]);
    let all =
        handle.list(".", ListOptions { max_depth: 9, ..ListOptions::default() }).await.unwrap();
    let names: Vec<String> = all.entries.iter().map(|entry| entry.path.to_string()).collect();
    assert!(!names.iter().any(|name| name.starts_with("secret/") || name == "free/.env"));
    let found = handle.grep("old", Default::default()).await.unwrap();
    let found: Vec<String> = found.matches.iter().map(|it| it.path().to_string()).collect();
    assert!(!found.iter().any(|path| path.contains("key") || path.contains(".env")), "{found:?}");
    assert_eq!(backend.read("secret/key").await.unwrap(), "old");
}

#[tokio::test]
async fn what_is_kept_is_read_and_never_changed() {
    let (backend, handle) = workspace().await;
    assert_eq!(handle.read("kept/a").await.unwrap(), "old");
    let denied = |result: ab_core::Result<()>, what: &str| {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::PermissionDenied, "{what}");
    };
    let recursive = RemoveOptions { depth: RemoveDepth::Recursive, ..RemoveOptions::default() };
    let create = OpenOptions {
        access: options::FileAccess::ReadWrite,
        create: FileCreationMode::IfMissing,
        ..OpenOptions::default()
    };
    for path in ["kept/a", "kept/new", "secret/key", "secret/new", "free/.env"] {
        denied(handle.write(path, "new").await.map(drop), path);
        denied(handle.touch(path).await.map(drop), path);
        denied(handle.mkdir(path).await, path);
        denied(handle.rm(path, recursive).await.map(drop), path);
        denied(handle.rename("free/d", path).await.map(drop), path);
        denied(handle.rename(path, "free/e").await.map(drop), path);
        denied(handle.open(path, create).await.map(drop), path);
    }
    // What holds something restricted cannot be moved or removed from around it.
    denied(handle.rm("free", recursive).await.map(drop), "free");
    denied(handle.rename("free", "elsewhere").await.map(drop), "free");
    denied(handle.rm("kept", recursive).await.map(drop), "kept");
    let replace = RenameOptions { overwrite: OverwriteMode::Replace };
    denied(handle.rename_with("secrets", "kept", replace).await.map(drop), "onto kept");
    handle.write("free/d", "new").await.unwrap();
    for path in ["secret/key", "kept/a", "kept/b/c", "free/.env"] {
        assert_eq!(backend.read(path).await.unwrap(), "old", "{path}");
    }
}

#[tokio::test]
async fn restrictions_only_grow_and_move_with_scopes() {
    let (_, handle) = workspace().await;
    let more = handle.restrict(restrictions(&["kept/b"], &[])).unwrap();
    assert_eq!(more.readdir("kept").await.unwrap(), ["a"]);
    assert!(!more.exists("secret/key").await.unwrap());
    let scope = handle.scope("free", ScopeOptions::default()).unwrap();
    assert_eq!(scope.readdir(".").await.unwrap(), ["d"]);
    assert_eq!(scope.read(".env").await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn commands_carry_them_as_the_driver_knows_the_paths() {
    let driver = RecordingDriver::new();
    let backend = Backend::new(driver.clone());
    let scope = backend.scope("tenant", ScopeOptions::default()).unwrap();
    let bind =
        HostDirectory { path: "/opt/tools".to_owned(), access: HostDirectoryAccess::ReadOnly };
    let outer = scope.restrict(restrictions(&["secret"], &[])).unwrap();
    let limits =
        PathRestrictions { host_directories: vec![bind.clone()], ..restrictions(&[], &["kept"]) };
    let inner = outer.restrict(limits).unwrap();
    drop(inner.spawn(ExecRequest::shell("true")).await);
    let seen = driver.last_exec().restrictions;
    assert_eq!(seen.host_directories, [bind]);
    let text = |paths: &[WsPath]| paths.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(text(&seen.hidden), ["tenant/secret"]);
    assert_eq!(text(&seen.read_only), ["tenant/kept"]);
}

#[tokio::test]
async fn commands_run_in_a_scope_that_the_handle_may_only_read() {
    let driver = RecordingDriver::new();
    let backend = Backend::new(driver.clone());
    backend.write("kept/deep/file", "old").await.unwrap();
    let handle = backend.restrict(restrictions(&[], &["kept"])).unwrap();
    let scope = |path: &str| handle.scope(path, ScopeOptions::default()).unwrap();
    scope("kept/deep").exec("ls").await.unwrap();
    assert_eq!(driver.last_exec().path.as_deref(), Some("kept/deep"));
    for path in ["kept/new", "kept/deep/file"] {
        let error = scope(path).exec("ls").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{path}: {error}");
    }
    assert!(!backend.exists("kept/new").await.unwrap());
}

#[tokio::test]
async fn senseless_ones_are_refused() {
    let backend = Backend::new(MemoryDriver::new());
    let relative = HostDirectory { path: "opt".to_owned(), access: HostDirectoryAccess::ReadOnly };
    let many: Vec<String> = (0..=MAX_PATH_RESTRICTIONS).map(|n| n.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for senseless in [
        restrictions(&["."], &[]),
        restrictions(&many, &[]),
        PathRestrictions { host_directories: vec![relative], ..PathRestrictions::default() },
    ] {
        let error = backend.restrict(senseless).unwrap_err();
        assert_eq!(
            (error.code(), error.kind()),
            (ErrorCode::InvalidConfiguration, ErrorKind::Invalid)
        );
    }
    // The whole workspace may be read-only.
    let frozen = backend.restrict(restrictions(&[], &["."])).unwrap();
    assert_eq!(frozen.write("a", "b").await.unwrap_err().kind(), ErrorKind::PermissionDenied);
}
