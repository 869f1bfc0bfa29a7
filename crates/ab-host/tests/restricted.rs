//! Hidden and read-only paths of a handle on real files, while links change under it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ab_core::backend::{GlobOptions, GrepOptions};
use ab_core::options::{
    AttributeChanges, FileAccess, FileCreationMode, ListOptions, OpenOptions, RemoveOptions,
    RenameOptions,
};
use ab_core::process::PathRestrictions;
use ab_core::search::{DotfileVisibility, IgnoreFileHandling};
use ab_core::{Backend, ErrorKind, ScopeOptions};
use ab_host::{LocalDriver, LocalDriverOptions, PathResolutionMode};
use rustix::fs::{CWD, RenameFlags, renameat_with};

const SECRET: &str = "hidden words";
const KEPT: &str = "kept words";

struct Fixture {
    _keep: tempfile::TempDir,
    root: PathBuf,
    backend: Backend,
}

fn fixtures() -> [Fixture; 2] {
    [PathResolutionMode::Auto, PathResolutionMode::StepByStep].map(|resolution| {
        let keep = tempfile::tempdir().unwrap();
        let root = keep.path().join("ws");
        for directory in ["secret", "kept", "swap"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        fs::write(root.join("secret/file"), SECRET).unwrap();
        fs::write(root.join("kept/file"), KEPT).unwrap();
        fs::write(root.join("swap/file"), "harmless").unwrap();
        let options =
            LocalDriverOptions { path_resolution: resolution, ..LocalDriverOptions::default() };
        let backend = Backend::new(LocalDriver::open(&root, options).unwrap());
        Fixture { _keep: keep, root, backend }
    })
}

fn restrict(backend: &Backend, hidden: &[&str], read_only: &[&str]) -> Backend {
    let paths =
        |texts: &[&str]| texts.iter().map(|text| backend.parse_path(text).unwrap()).collect();
    let (hidden, read_only) = (paths(hidden), paths(read_only));
    backend.restrict(PathRestrictions { hidden, read_only, ..PathRestrictions::default() }).unwrap()
}

fn untouched(fixture: &Fixture) {
    for (directory, content) in [("secret", SECRET), ("kept", KEPT)] {
        let directory = fixture.root.join(directory);
        let names: Vec<_> =
            fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["file"], "something was made or removed in {}", directory.display());
        let file = directory.join("file");
        assert_eq!(fs::read_to_string(&file).unwrap(), content);
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(file).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o644, "its mode was changed");
    }
}

fn rounds() -> usize {
    std::env::var("AB_RACE_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1_500)
}

/// A directory is swapped for a link to a hidden or a read-only one, over and over, while every
/// operation of a restricted handle goes through it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn swap_race() {
    for fixture in fixtures() {
        race(&fixture, "secret").await;
        race(&fixture, "kept").await;
    }
}

async fn race(fixture: &Fixture, target: &str) {
    let (dir, link) = (fixture.root.join("swap"), fixture.root.join("other"));
    let _ = fs::remove_file(&link);
    symlink(target, &link).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let swapper = {
        let (stop, dir, link) = (stop.clone(), dir.clone(), link.clone());
        std::thread::spawn(move || {
            let mut swaps = 0u64;
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, &dir, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                swaps += 1;
            }
            // Back to how it was.
            if !dir.is_dir() || dir.is_symlink() {
                renameat_with(CWD, &dir, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
            swaps
        })
    };
    let handle = restrict(&fixture.backend, &["secret"], &["kept"]);
    let scoped = restrict(
        &fixture.backend.scope(".", ScopeOptions::default()).unwrap(),
        &["secret"],
        &["kept"],
    );
    let create = OpenOptions {
        access: FileAccess::ReadWrite,
        create: FileCreationMode::IfMissing,
        ..OpenOptions::default()
    };
    let mode = AttributeChanges { mode: Some(0o600), ..AttributeChanges::default() };
    for round in 0..rounds() {
        let backend = if round % 2 == 0 { &handle } else { &scoped };
        match round % 11 {
            0 | 1 => {
                let read = backend.read_text("swap/file").await;
                assert_ne!(read.ok().as_deref(), Some(SECRET), "read what is hidden");
            }
            2 => drop(backend.write("swap/file", "harmless").await),
            3 => drop(backend.rm("swap/file", RemoveOptions::default()).await),
            4 => {
                let _ = backend.rename("swap/file", "swap/moved").await;
                let _ =
                    backend.rename_with("swap/moved", "swap/file", RenameOptions::default()).await;
            }
            5 => {
                if let Ok(file) = backend.open("swap/file", create).await {
                    assert_ne!(
                        file.read_at(0, 100).await.unwrap(),
                        SECRET,
                        "opened what is hidden"
                    );
                    file.write_at(0, "harmless"[..].into()).await.unwrap();
                }
            }
            6 => {
                let deep = ListOptions { max_depth: 3, ..ListOptions::default() };
                let listing = backend.list(".", deep).await.unwrap();
                let leaked =
                    listing.entries.iter().any(|entry| entry.path.as_str() == "secret/file");
                assert!(!leaked, "listed what is hidden");
                let _ = backend.list("swap", ListOptions::default()).await;
            }
            7 => {
                let options = GrepOptions { root: "swap".to_owned(), ..GrepOptions::default() };
                let found = backend.grep(SECRET, options).await;
                assert!(
                    found.is_err() || found.unwrap().matches.is_empty(),
                    "searched what is hidden"
                );
            }
            8 => {
                let _ = backend.mkdir("swap/made/deep").await;
                let _ = backend.rm("swap/made", RemoveOptions::recursive()).await;
                let _ = backend.symlink("swap/link", "file").await;
                let _ = backend.rm("swap/link", RemoveOptions::default()).await;
            }
            9 => drop(backend.set_attributes("swap/file", mode).await),
            _ => drop(backend.touch("swap/touched").await),
        }
    }
    stop.store(true, Ordering::Relaxed);
    assert!(swapper.join().unwrap() > 0);
    untouched(fixture);
}

/// A restricted path that leads through a link restricts what it leads to, by every name.
#[tokio::test]
async fn restrictions_that_lead_through_links_hold_for_the_target() {
    for fixture in fixtures() {
        symlink("secret", fixture.root.join("a")).unwrap();
        symlink(fixture.root.join("kept"), fixture.root.join("b")).unwrap();
        let handle = restrict(&fixture.backend, &["a/file"], &["b/file", "b/new"]);
        for path in ["a/file", "secret/file"] {
            assert_eq!(handle.read(path).await.unwrap_err().kind(), ErrorKind::NotFound, "{path}");
        }
        assert_eq!(handle.readdir("secret").await.unwrap(), [""; 0]);
        for path in ["b/file", "kept/file", "kept/new", "b/new"] {
            let refused = handle.write(path, "x").await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{path}");
        }
        untouched(&fixture);
    }
}

/// An ignore file that is hidden has no say in a search.
#[tokio::test]
async fn hidden_ignore_files_are_not_read() {
    for fixture in fixtures() {
        fixture.backend.write(".gitignore", "swap\n").await.unwrap();
        fixture.backend.write("kept/.gitignore", "file\n").await.unwrap();
        let handle = restrict(&fixture.backend, &[".gitignore", "kept/.gitignore"], &[]);
        let names = |handle: Backend, root: &'static str| async move {
            let options = GlobOptions {
                root: root.to_owned(),
                dotfiles: DotfileVisibility::Include,
                ignore_files: IgnoreFileHandling::Honour,
                ..GlobOptions::default()
            };
            let found = handle.glob("**", options).await.unwrap();
            found.entries.iter().map(|entry| entry.path.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(handle.clone(), ".").await, ["kept/file", "secret/file", "swap/file"]);
        assert_eq!(names(handle, "kept").await, ["kept/file"]);
        let seen = names(fixture.backend.clone(), ".").await;
        assert_eq!(seen, [".gitignore", "kept/.gitignore", "secret/file"]);
    }
}
