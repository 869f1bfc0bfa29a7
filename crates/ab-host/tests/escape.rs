//! Ways out of a workspace, each tried on the real file system with something outside to steal.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ab_core::backend::GrepOptions;
use ab_core::options::{
    AttributeChanges, EntryDetailLevel, FileAccess, FileCreationMode, LinkHandling, ListOptions,
    OpenOptions, RemoveOptions, StatOptions, WriteMode, WriteOptions,
};
use ab_core::search::SearchQuery;
use ab_core::{Backend, Edit, EditOptions, ErrorCode, ErrorKind, FileKind, ScopeOptions};
use ab_host::{LocalDriver, LocalDriverOptions, PathResolutionMode};
use rustix::fs::{CWD, RenameFlags, renameat_with};

const SECRET: &str = "the secret outside";

/// A workspace, and beside it a directory that nobody inside may reach.
struct Fixture {
    _keep: tempfile::TempDir,
    root: PathBuf,
    outside: PathBuf,
    backend: Backend,
}

/// The same fixture twice: with the kernel's help, and without.
fn fixtures() -> [Fixture; 2] {
    [fixture(PathResolutionMode::Auto), fixture(PathResolutionMode::StepByStep)]
}

fn fixture(resolution: PathResolutionMode) -> Fixture {
    let keep = tempfile::tempdir().unwrap();
    let (root, outside) = (keep.path().join("ws"), keep.path().join("ws-evil"));
    fs::create_dir(&root).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret.txt"), SECRET).unwrap();
    let backend = Backend::new(local(&root, resolution));
    Fixture { _keep: keep, root, outside, backend }
}

fn local(root: &Path, resolution: PathResolutionMode) -> LocalDriver {
    LocalDriver::open(
        root,
        LocalDriverOptions { path_resolution: resolution, ..LocalDriverOptions::default() },
    )
    .unwrap()
}

impl Fixture {
    fn untouched(&self) {
        let names: Vec<_> = fs::read_dir(&self.outside)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(names, ["secret.txt"], "something outside was made or removed");
        let secret = self.outside.join("secret.txt");
        assert_eq!(fs::read_to_string(&secret).unwrap(), SECRET);
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(secret).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o644, "its mode was changed");
    }

    fn no_temporaries(&self) {
        fn look(dir: &Path) {
            for entry in fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                let name = entry.file_name().into_string().unwrap();
                assert!(!name.starts_with(".ab-tmp-"), "{} was left", entry.path().display());
                if entry.file_type().unwrap().is_dir() {
                    look(&entry.path());
                }
            }
        }
        look(&self.root);
    }
}

fn open_for(access: FileAccess, create: FileCreationMode) -> OpenOptions {
    OpenOptions { access, create, ..OpenOptions::default() }
}

/// Every operation that takes a path, with the kind it must fail with.
async fn every_operation_fails(backend: &Backend, path: &str, expect: ErrorKind) {
    let create_new = WriteOptions { mode: WriteMode::CreateNew, ..WriteOptions::default() };
    let results = [
        ("read", backend.read(path).await.err()),
        ("read_text", backend.read_text(path).await.err()),
        ("lines", backend.read_lines(path, Default::default()).await.err()),
        ("write", backend.write(path, "planted").await.err()),
        ("create", backend.write_with(path, "planted", create_new).await.err()),
        ("touch", backend.touch(path).await.err()),
        ("open", backend.open(path, OpenOptions::default()).await.err()),
        (
            "open to write",
            backend
                .open(path, open_for(FileAccess::Write, FileCreationMode::IfMissing))
                .await
                .err(),
        ),
        ("stat", backend.stat(path).await.err()),
        (
            "edit",
            backend
                .edit(path, &[Edit::new("secret", "planted")], EditOptions::default())
                .await
                .err(),
        ),
        (
            "chmod",
            backend
                .set_attributes(
                    path,
                    AttributeChanges { mode: Some(0o777), ..AttributeChanges::default() },
                )
                .await
                .err(),
        ),
    ];
    for (what, error) in results {
        let error = error.unwrap_or_else(|| panic!("{what} of {path} went through"));
        assert_eq!(error.kind(), expect, "{what} of {path}: {error:?}");
        let text = format!("{error} {error:?}");
        assert!(!text.contains("ws-evil"), "{what} of {path} tells of outside: {text}");
    }
}

#[tokio::test]
async fn link_to_a_file_outside() {
    for fixture in fixtures() {
        link_to_a_file_outside_in(&fixture).await;
    }
}

async fn link_to_a_file_outside_in(fixture: &Fixture) {
    symlink(fixture.outside.join("secret.txt"), fixture.root.join("absolute")).unwrap();
    symlink("../ws-evil/secret.txt", fixture.root.join("relative")).unwrap();
    symlink("relative", fixture.root.join("chain")).unwrap();
    for link in ["absolute", "relative", "chain"] {
        every_operation_fails(&fixture.backend, link, ErrorKind::PathEscape).await;
        let kept = StatOptions { links: LinkHandling::NoFollow };
        assert_eq!(fixture.backend.stat_with(link, kept).await.unwrap().kind, FileKind::Symlink);
    }
    fixture.untouched();
}

#[tokio::test]
async fn link_to_a_directory_outside() {
    for fixture in fixtures() {
        link_to_a_directory_outside_in(&fixture).await;
    }
}

async fn link_to_a_directory_outside_in(fixture: &Fixture) {
    symlink(&fixture.outside, fixture.root.join("absolute")).unwrap();
    symlink("../ws-evil", fixture.root.join("relative")).unwrap();
    for link in ["absolute", "relative"] {
        for path in [format!("{link}/secret.txt"), format!("{link}/new.txt")] {
            every_operation_fails(&fixture.backend, &path, ErrorKind::PathEscape).await;
        }
        let new = format!("{link}/new");
        let backend = &fixture.backend;
        assert_eq!(backend.readdir(link).await.unwrap_err().kind(), ErrorKind::PathEscape);
        assert_eq!(backend.mkdir(&new).await.unwrap_err().kind(), ErrorKind::PathEscape);
        assert_eq!(backend.symlink(&new, "x").await.unwrap_err().kind(), ErrorKind::PathEscape);
        let secret = format!("{link}/secret.txt");
        let recursive = RemoveOptions::recursive();
        assert_eq!(backend.rm(&secret, recursive).await.unwrap_err().kind(), ErrorKind::PathEscape);
        assert_eq!(
            backend.rename(&secret, "mine").await.unwrap_err().kind(),
            ErrorKind::PathEscape
        );
        backend.write("own.txt", "mine").await.unwrap();
        assert_eq!(
            backend.rename("own.txt", &new).await.unwrap_err().kind(),
            ErrorKind::PathEscape
        );
    }
    fixture.untouched();
}

#[tokio::test]
async fn dangling_link_as_a_write_target() {
    for fixture in fixtures() {
        dangling_link_as_a_write_target_in(&fixture).await;
    }
}

async fn dangling_link_as_a_write_target_in(fixture: &Fixture) {
    symlink(fixture.outside.join("planted"), fixture.root.join("leaves")).unwrap();
    symlink("../ws-evil/planted", fixture.root.join("climbs")).unwrap();
    symlink("missing.txt", fixture.root.join("stays")).unwrap();
    symlink("missing/dir", fixture.root.join("deep")).unwrap();
    for link in ["leaves", "climbs"] {
        every_operation_fails(&fixture.backend, link, ErrorKind::PathEscape).await;
    }
    for link in ["stays", "deep", "deep/file"] {
        every_operation_fails(&fixture.backend, link, ErrorKind::NotFound).await;
    }
    assert!(!fixture.backend.exists("stays").await.unwrap());
    assert_eq!(fixture.backend.mkdir("deep").await.unwrap_err().kind(), ErrorKind::NotFound);
    let mut names = fixture.backend.readdir(".").await.unwrap();
    names.sort();
    assert_eq!(names, ["climbs", "deep", "leaves", "stays"]);
    fixture.untouched();
}

#[tokio::test]
async fn links_that_stay_inside_work() {
    for fixture in fixtures() {
        links_that_stay_inside_work_in(&fixture).await;
    }
}

async fn links_that_stay_inside_work_in(fixture: &Fixture) {
    let backend = &fixture.backend;
    backend.write("data/real.txt", "inside").await.unwrap();
    symlink(fixture.root.join("data/real.txt"), fixture.root.join("absolute")).unwrap();
    symlink(fixture.root.join("data"), fixture.root.join("directory")).unwrap();
    symlink("../data/../data/real.txt", fixture.root.join("data/winding")).unwrap();
    symlink("data/winding", fixture.root.join("chain")).unwrap();
    for path in ["absolute", "directory/real.txt", "data/winding", "chain", "directory/winding"] {
        assert_eq!(backend.read_text(path).await.unwrap(), "inside", "{path}");
        backend.write(path, "through").await.unwrap();
        assert_eq!(backend.read_text("data/real.txt").await.unwrap(), "through", "{path}");
        backend
            .edit(path, &[Edit::new("through", "inside")], EditOptions::default())
            .await
            .unwrap();
    }
    assert_eq!(backend.readdir("directory").await.unwrap(), ["real.txt", "winding"]);
    backend.write("directory/new/file", "made").await.unwrap();
    assert_eq!(backend.read_text("data/new/file").await.unwrap(), "made");
    for link in ["absolute", "directory", "chain"] {
        let kept = StatOptions { links: LinkHandling::NoFollow };
        assert_eq!(backend.stat_with(link, kept).await.unwrap().kind, FileKind::Symlink, "{link}");
    }
    fixture.no_temporaries();
}

#[tokio::test]
async fn link_circles_end() {
    for fixture in fixtures() {
        link_circles_end_in(&fixture).await;
    }
}

async fn link_circles_end_in(fixture: &Fixture) {
    symlink("b", fixture.root.join("a")).unwrap();
    symlink("a", fixture.root.join("b")).unwrap();
    symlink(fixture.root.join("self"), fixture.root.join("self")).unwrap();
    for link in ["a", "self"] {
        every_operation_fails(&fixture.backend, link, ErrorKind::LinkLoop).await;
    }
    symlink(".", fixture.root.join("here")).unwrap();
    fixture.backend.write("f", "x").await.unwrap();
    assert_eq!(fixture.backend.read_text("here/here/here/f").await.unwrap(), "x");
    let everything = ListOptions { max_depth: usize::MAX, ..ListOptions::default() };
    let listing = fixture.backend.list(".", everything).await.unwrap();
    assert_eq!(listing.entries.len(), 5, "a link is listed, not entered");
}

/// A link inside one tenant's scope that leads to another's stays inside the workspace, and must
/// still lead nowhere.
#[tokio::test]
async fn link_out_of_a_scope() {
    for fixture in fixtures() {
        link_out_of_a_scope_in(&fixture).await;
    }
}

async fn link_out_of_a_scope_in(fixture: &Fixture) {
    fixture.backend.write("tenants/b/secret.txt", SECRET).await.unwrap();
    fixture.backend.mkdir("tenants/a").await.unwrap();
    let a = fixture.root.join("tenants/a");
    symlink("../b/secret.txt", a.join("relative")).unwrap();
    symlink(fixture.root.join("tenants/b/secret.txt"), a.join("absolute")).unwrap();
    symlink("../b", a.join("directory")).unwrap();
    symlink(fixture.root.join("tenants/a/own.txt"), a.join("inside")).unwrap();
    let scope = fixture.backend.scope("tenants/a", ScopeOptions::default()).unwrap();
    for link in ["relative", "absolute", "directory/secret.txt", "directory/planted"] {
        every_operation_fails(&scope, link, ErrorKind::PathEscape).await;
    }
    assert_eq!(scope.readdir("directory").await.unwrap_err().kind(), ErrorKind::PathEscape);
    scope.write("own.txt", "mine").await.unwrap();
    assert_eq!(scope.read_text("inside").await.unwrap(), "mine");
    assert_eq!(scope.symlink("new", "../b").await.unwrap_err().kind(), ErrorKind::PathEscape);
    let target = fixture.root.join("tenants/b").into_os_string().into_string().unwrap();
    assert_eq!(scope.symlink("new", &target).await.unwrap_err().kind(), ErrorKind::PathEscape);
    assert_eq!(fixture.backend.readdir("tenants/b").await.unwrap(), ["secret.txt"]);
    assert_eq!(fixture.backend.read_text("tenants/b/secret.txt").await.unwrap(), SECRET);
    // A scope of the scope is no way around: each scope root holds for what is named beneath it.
    for link in ["directory", "relative"] {
        let nested = scope.scope(link, ScopeOptions::default()).unwrap();
        every_operation_fails(&nested, "secret.txt", ErrorKind::PathEscape).await;
        assert_eq!(nested.readdir(".").await.unwrap_err().kind(), ErrorKind::PathEscape);
        assert_eq!(nested.mkdir("planted").await.unwrap_err().kind(), ErrorKind::PathEscape);
    }
    scope.mkdir("real").await.unwrap();
    let nested = scope.scope("real", ScopeOptions::default()).unwrap();
    nested.write("own.txt", "mine").await.unwrap();
    fs::remove_dir_all(a.join("real")).unwrap();
    symlink("../b", a.join("real")).unwrap();
    every_operation_fails(&nested, "secret.txt", ErrorKind::PathEscape).await;
    let query =
        SearchQuery::for_names(scope.parse_path("directory").unwrap().into_scope_root(), "*");
    assert_eq!(scope.search(&query).await.unwrap_err().kind(), ErrorKind::PathEscape);
    // The parent holds more and may follow the same link.
    assert_eq!(fixture.backend.read_text("tenants/a/relative").await.unwrap(), SECRET);
}

#[tokio::test]
async fn sibling_with_the_same_beginning() {
    for fixture in fixtures() {
        sibling_with_the_same_beginning_in(&fixture).await;
    }
}

async fn sibling_with_the_same_beginning_in(fixture: &Fixture) {
    let sibling = format!("{}/secret.txt", fixture.outside.display());
    let error = fixture.backend.read(&sibling).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "taken from the root, where it is not");
    for path in ["../ws-evil/secret.txt", "a/../../ws-evil/secret.txt", "/../ws-evil/secret.txt"] {
        let error = fixture.backend.read(path).await.unwrap_err();
        assert_eq!((error.code(), error.path()), (ErrorCode::PathEscapeAttempt, Some(path)));
    }
    for path in ["ws-evil ", "ws-evil.", "//ws-evil/secret.txt", "..."] {
        assert_eq!(
            fixture.backend.read(path).await.unwrap_err().kind(),
            ErrorKind::NotFound,
            "{path}"
        );
    }
    fixture.untouched();
}

#[tokio::test]
async fn hard_linked_file_is_replaced_not_written_through() {
    for fixture in fixtures() {
        hard_linked_file_is_replaced_not_written_through_in(&fixture).await;
    }
}

async fn hard_linked_file_is_replaced_not_written_through_in(fixture: &Fixture) {
    let outside = fixture.outside.join("secret.txt");
    for (name, change) in [("write", 0), ("edit", 1), ("open", 2), ("truncate", 3), ("chmod", 4)] {
        fs::hard_link(&outside, fixture.root.join(name)).unwrap();
        let backend = &fixture.backend;
        assert_eq!(backend.read_text(name).await.unwrap(), SECRET, "reading is fine");
        match change {
            0 => drop(backend.write(name, "new").await.unwrap()),
            1 => {
                let edit = Edit::new("secret", "new");
                drop(backend.edit(name, &[edit], EditOptions::default()).await.unwrap());
            }
            2 | 3 => {
                let mut options = open_for(FileAccess::ReadWrite, FileCreationMode::Never);
                if change == 3 {
                    options.existing = ab_core::options::ExistingContentHandling::Truncate;
                }
                let file = backend.open(name, options).await.unwrap();
                let expect = if change == 3 { "" } else { SECRET };
                assert_eq!(file.read_at(0, 100).await.unwrap(), expect);
                file.write_at(0, "new"[..].into()).await.unwrap();
            }
            _ => {
                let attributes =
                    AttributeChanges { mode: Some(0o600), ..AttributeChanges::default() };
                backend.set_attributes(name, attributes).await.unwrap();
                assert_eq!(backend.read_text(name).await.unwrap(), SECRET);
            }
        }
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&outside).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o644, "{name}");
        fixture.untouched();
    }
    fixture.no_temporaries();
}

#[tokio::test]
async fn removal_does_not_cross_links() {
    for fixture in fixtures() {
        removal_does_not_cross_links_in(&fixture).await;
    }
}

async fn removal_does_not_cross_links_in(fixture: &Fixture) {
    symlink(&fixture.outside, fixture.root.join("link")).unwrap();
    fs::create_dir_all(fixture.root.join("dir/sub")).unwrap();
    symlink(&fixture.outside, fixture.root.join("dir/sub/link")).unwrap();
    symlink(fixture.outside.join("secret.txt"), fixture.root.join("dir/file")).unwrap();
    assert_eq!(fixture.backend.rm("link", RemoveOptions::recursive()).await.unwrap().count, 1);
    assert_eq!(fixture.backend.rm("dir", RemoveOptions::recursive()).await.unwrap().count, 4);
    fixture.untouched();
    assert!(fixture.backend.readdir(".").await.unwrap().is_empty());
}

#[tokio::test]
async fn names_that_are_not_text() {
    for fixture in fixtures() {
        names_that_are_not_text_in(&fixture).await;
    }
}

async fn names_that_are_not_text_in(fixture: &Fixture) {
    use std::os::unix::ffi::OsStrExt;
    let odd = std::ffi::OsStr::from_bytes(b"caf\xe9");
    fs::create_dir(fixture.root.join("dir")).unwrap();
    fs::write(fixture.root.join("dir").join(odd), "x").unwrap();
    symlink(odd, fixture.root.join("link")).unwrap();
    let listing = fixture.backend.list("dir", ListOptions::default()).await.unwrap();
    assert!(listing.entries.is_empty());
    assert_eq!(listing.problems.len(), 1, "reported, not dropped");
    assert_eq!(listing.problems[0].path, "dir/caf\u{fffd}");
    assert_eq!(listing.problems[0].error.kind(), ErrorKind::InvalidPath);
    assert!(fixture.backend.read("link").await.is_err());
    assert_eq!(fixture.backend.rm("dir", RemoveOptions::recursive()).await.unwrap().count, 2);
}

/// Rounds of the race: a few in the ordinary run, many when asked for.
fn rounds() -> usize {
    std::env::var("AB_RACE_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2_000)
}

/// A directory is swapped for a link to the outside, over and over, while every operation goes
/// through it. Whatever happens inside, nothing outside is read, made, changed or removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn swap_race() {
    for fixture in fixtures() {
        race(&fixture).await;
    }
}

async fn race(fixture: &Fixture) {
    let (dir, link) = (fixture.root.join("swap"), fixture.root.join("other"));
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("secret.txt"), "harmless").unwrap();
    symlink("../ws-evil", &link).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = {
        let (stop, dir, link) = (stop.clone(), dir.clone(), link.clone());
        std::thread::spawn(move || {
            let mut swaps = 0u64;
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, &dir, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                swaps += 1;
            }
            swaps
        })
    };
    let scope = fixture.backend.scope("swap", ScopeOptions::default()).unwrap();
    let outer = fixture.backend.scope(".", ScopeOptions::default()).unwrap();
    let nested = outer.scope("swap", ScopeOptions::default()).unwrap();
    let (mut passed, mut refused) = (0u64, 0u64);
    let mut count = |ok: bool| if ok { passed += 1 } else { refused += 1 };
    for round in 0..rounds() {
        let backend = &fixture.backend;
        match round % 13 {
            0 | 1 => {
                let read = backend.read_text("swap/secret.txt").await;
                count(read.is_ok());
                assert_ne!(read.ok().as_deref(), Some(SECRET), "read the outside");
            }
            2 => count(backend.write("swap/planted", "x").await.is_ok()),
            3 => count(backend.rm("swap/secret.txt", RemoveOptions::default()).await.is_ok()),
            4 => count(backend.rename("swap/secret.txt", "swap/moved").await.is_ok()),
            5 => {
                let options = open_for(FileAccess::ReadWrite, FileCreationMode::IfMissing);
                if let Ok(file) = backend.open("swap/secret.txt", options).await {
                    let bytes = file.read_at(0, 100).await.unwrap();
                    assert_ne!(bytes, SECRET, "opened the outside");
                    file.write_at(0, "harmless"[..].into()).await.unwrap();
                    count(true);
                } else {
                    count(false);
                }
            }
            6 => {
                let details = ListOptions {
                    detail: EntryDetailLevel::Stat,
                    max_depth: 3,
                    ..Default::default()
                };
                if let Ok(listing) = backend.list("swap", details).await {
                    let outside = SECRET.len() as u64;
                    let leaked = listing.entries.iter().any(|e| {
                        e.kind == FileKind::File && e.stat.as_ref().unwrap().size == outside
                    });
                    assert!(!leaked, "listed the outside");
                    count(true);
                } else {
                    count(false);
                }
            }
            7 => {
                let read = scope.read_text("secret.txt").await;
                count(read.is_ok());
                assert_ne!(read.ok().as_deref(), Some(SECRET), "read the outside by a scope");
            }
            8 => {
                count(scope.write("deep/er/planted", "x").await.is_ok());
                count(backend.rm("swap/deep", RemoveOptions::recursive()).await.is_ok());
            }
            10 => {
                let found = nested.grep("secret outside", GrepOptions::default()).await;
                count(found.is_ok());
                let leaked = found.is_ok_and(|found| !found.matches.is_empty());
                assert!(!leaked, "searched the outside by two scopes");
                let read = nested.read_text("secret.txt").await;
                assert_ne!(read.ok().as_deref(), Some(SECRET), "read the outside by two scopes");
            }
            11 => {
                count(backend.mkdir("swap/planted.d").await.is_ok());
                count(backend.touch("swap/planted.t").await.is_ok());
                count(backend.symlink("swap/planted.l", "secret.txt").await.is_ok());
                for name in ["swap/planted.d", "swap/planted.t", "swap/planted.l"] {
                    let _ = backend.rm(name, RemoveOptions::default()).await;
                }
            }
            12 => {
                let mode = AttributeChanges { mode: Some(0o600), ..AttributeChanges::default() };
                count(backend.set_attributes("swap/secret.txt", mode).await.is_ok());
            }
            _ => {
                let edit = Edit::new("secret", "planted").replace_all();
                count(
                    backend.edit("swap/secret.txt", &[edit], EditOptions::default()).await.is_ok(),
                );
                count(backend.write("swap/secret.txt", "harmless").await.is_ok());
            }
        }
        if round % 1000 == 0 {
            fixture.untouched();
        }
    }
    stop.store(true, Ordering::Relaxed);
    let swaps = swapper.join().unwrap();
    fixture.untouched();
    println!(
        "{} rounds, {swaps} swaps, {passed} operations went through, {refused} were refused",
        rounds()
    );
    assert!(passed > 0 && refused > 0, "the race was never close: {passed} and {refused}");
}
