//! Restricted handles: hidden and read-only paths, by every name that leads to them.
//!
//! Each case uses several handles with the same restrictions: restricted inside a scope, a scope of
//! a restricted handle, restricted twice, and scopes that are reached by a link.

use ab_core::backend::{GlobOptions, GrepOptions, TreeOptions};
use ab_core::options::{
    AttributeChanges, FileAccess, FileCreationMode, ListOptions, OpenOptions, OverwriteMode,
    RemoveOptions, RenameOptions,
};
use ab_core::process::PathRestrictions;
use ab_core::search::{DotfileVisibility, EntryKindFilter};
use ab_core::{Backend, ErrorKind, Result, ScopeOptions, WsPath};

use crate::expect::{assert_content, expect_error, listing_paths};

const SECRET: &str = "hidden words";
const KEPT: &str = "kept words";
const FREE: &str = "free words";

/// The hidden and the read-only paths in the directory `top`, which contains everything.
const HIDDEN: [&str; 3] = ["secret", "free/.env", "absent"];
const READ_ONLY: [&str; 2] = ["kept", "free/locked"];

struct Fixture {
    /// A handle on `top` without restrictions.
    whole: Backend,
    /// Restricted handles, each with a name for messages.
    handles: Vec<(&'static str, Backend)>,
    links: bool,
}

impl Fixture {
    async fn new(backend: &Backend) -> Self {
        let whole = backend.scope("top", ScopeOptions::default()).unwrap();
        for path in ["secret/key", "secret/deep/key", "free/.env"] {
            whole.write(path, SECRET).await.unwrap();
        }
        for path in ["kept/file", "kept/deep/file", "free/locked"] {
            whole.write(path, KEPT).await.unwrap();
        }
        whole.write("free/file", FREE).await.unwrap();
        let links = backend.info().capabilities.symlinks;
        if links {
            for (link, target) in [
                ("here", "."),
                ("to-secret", "secret"),
                ("chain", "to-secret"),
                ("to-key", "secret/key"),
                ("to-env", "here/free/.env"),
                ("to-kept", "kept"),
                ("to-kept-file", "to-kept/file"),
                ("to-absent", "absent"),
                ("free/up", ".."),
            ] {
                whole.symlink(link, target).await.unwrap();
            }
            if let Some(root) = whole.info().root_aliases.first() {
                let _ = whole.symlink("absolute", root).await;
            }
            backend.symlink("alias", "top").await.unwrap();
        }
        let at = |base: &str, hidden: &[&str], read_only: &[&str]| {
            let place = |paths: &[&str]| -> Vec<WsPath> {
                let parse = |path: &&str| backend.parse_path(&format!("{base}/{path}")).unwrap();
                paths.iter().map(parse).collect()
            };
            let (hidden, read_only) = (place(hidden), place(read_only));
            PathRestrictions { hidden, read_only, ..PathRestrictions::default() }
        };
        let scoped =
            |backend: &Backend, path| backend.scope(path, ScopeOptions::default()).unwrap();
        let outer = backend.restrict(at("top", &HIDDEN, &READ_ONLY)).unwrap();
        let twice = whole.restrict(at(".", &HIDDEN, &[])).unwrap();
        let mut handles = vec![
            ("in a scope", whole.restrict(at(".", &HIDDEN, &READ_ONLY)).unwrap()),
            ("a scope of it", scoped(&outer, "top")),
            ("twice", twice.restrict(at(".", &[], &READ_ONLY)).unwrap()),
        ];
        if links {
            let alias = scoped(backend, "alias");
            handles.extend([
                ("in a linked scope", alias.restrict(at(".", &HIDDEN, &READ_ONLY)).unwrap()),
                ("a linked scope of it", scoped(&outer, "alias")),
            ]);
        }
        Self { whole, handles, links }
    }

    /// `plain`, and `linked` if the backend has links.
    fn ways(&self, plain: &[&'static str], linked: &[&'static str]) -> Vec<&'static str> {
        let linked = if self.links { linked } else { &[] };
        plain.iter().chain(linked).copied().collect()
    }

    /// Directories that can be listed, by all their names.
    fn directories(&self) -> Vec<&'static str> {
        self.ways(&[".", "free"], &["here", "here/here", "free/up", "here/free", "free/up/here"])
    }

    async fn is_unchanged(&self, name: &str) {
        for path in ["secret/key", "secret/deep/key", "free/.env"] {
            assert_eq!(self.whole.read_text(path).await.unwrap(), SECRET, "{name}: {path}");
        }
        for path in ["kept/file", "kept/deep/file", "free/locked"] {
            assert_eq!(self.whole.read_text(path).await.unwrap(), KEPT, "{name}: {path}");
        }
        assert_eq!(self.whole.readdir("secret").await.unwrap(), ["deep", "key"], "{name}");
        assert_eq!(self.whole.readdir("kept").await.unwrap(), ["deep", "file"], "{name}");
        assert!(!self.whole.exists("absent").await.unwrap(), "{name}");
    }
}

/// Hidden files can be neither read nor described, by any name that leads to them.
pub async fn hidden_files_are_not_there(backend: &Backend) {
    let fixture = Fixture::new(backend).await;
    let ways = fixture.ways(
        &["secret/key", "secret", "secret/deep/key", "free/.env", "secret/none"],
        &[
            "here/secret/key",
            "here/here/secret",
            "to-secret/key",
            "to-secret",
            "chain/deep/key",
            "to-key",
            "to-env",
            "free/up/secret/key",
        ],
    );
    for (name, handle) in &fixture.handles {
        for way in &ways {
            let gone = |result: Result<()>, act: &str| match result {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                other => panic!("{name}: {act} {way}: {other:?}"),
            };
            gone(handle.read(way).await.map(drop), "read");
            gone(handle.stat(way).await.map(drop), "stat");
            gone(handle.open(way, OpenOptions::default()).await.map(drop), "open");
            gone(handle.list(way, ListOptions::default()).await.map(drop), "list");
            let root = (*way).to_owned();
            let grep = GrepOptions { root, ..GrepOptions::default() };
            gone(handle.grep("words", grep).await.map(drop), "grep");
        }
        if fixture.links {
            // The link itself exists, with its text.
            assert_eq!(handle.read_link("to-secret").await.unwrap(), "secret", "{name}");
        }
        assert_content(handle, "free/file", FREE).await;
        assert_content(handle, "kept/file", KEPT).await;
    }
}

/// Listings, trees, globs and searches contain nothing that is hidden, wherever they start.
pub async fn listings_leave_hidden_files_out(backend: &Backend) {
    let fixture = Fixture::new(backend).await;
    let told = |name: &str, root: &str, path: &str| {
        let names: Vec<&str> = path.split('/').collect();
        let hidden = ["secret", ".env", "key"].iter().any(|hidden| names.contains(hidden));
        assert!(!hidden, "{name}: {root} shows {path}");
    };
    for (name, handle) in &fixture.handles {
        for root in fixture.directories() {
            let whole = ListOptions { max_depth: 9, ..ListOptions::default() };
            let listing = handle.list(root, whole).await.unwrap();
            assert!(!listing.entries.is_empty(), "{name}: {root}");
            for path in listing_paths(&listing) {
                told(name, root, path);
            }
            let tree = handle.tree(root, TreeOptions::default()).await.unwrap();
            told(name, root, &format!("{tree:?}").replace('"', "/"));
            if !backend.info().capabilities.search {
                continue;
            }
            let (root, hidden) = (root.to_owned(), DotfileVisibility::Include);
            let glob = GlobOptions {
                root: root.clone(),
                kinds: EntryKindFilter::All,
                dotfiles: hidden,
                ..Default::default()
            };
            for entry in handle.glob("**", glob).await.unwrap().entries {
                told(name, &root, entry.path.as_str());
            }
            let grep =
                GrepOptions { root: root.clone(), dotfiles: hidden, ..GrepOptions::default() };
            let found = handle.grep("words", grep).await.unwrap();
            assert!(!found.matches.is_empty() && found.problems.is_empty(), "{name}: {root}");
            for item in &found.matches {
                told(name, &root, item.path().as_str());
                assert!(!format!("{item:?}").contains(SECRET), "{name}: {root}");
            }
        }
        // Hidden entries do not count for the limit.
        let one = ListOptions { max_entries: 1, ..ListOptions::default() };
        let first = handle.list("free", one).await.unwrap();
        assert_eq!(listing_paths(&first), ["free/file"], "{name}");
    }
}

/// Hidden and read-only paths are not changed, created, moved or removed. This holds for every name
/// that leads to them.
pub async fn kept_files_do_not_change(backend: &Backend) {
    let fixture = Fixture::new(backend).await;
    // The files themselves, by names that do not end in a link.
    let files = fixture.ways(
        &["kept/file", "secret/key", "free/.env", "free/locked"],
        &[
            "here/kept/file",
            "to-kept/file",
            "chain/key",
            "free/up/kept/deep/file",
            "here/free/.env",
        ],
    );
    let missing = fixture.ways(
        &["kept/new", "secret/new/er", "absent", "absent/new"],
        &["to-kept/new", "to-secret/new", "here/absent", "here/kept/new/er", "free/up/absent/new"],
    );
    let linked = fixture.ways(&[], &["to-key", "to-env", "to-kept-file", "to-absent"]);
    // Moving or removing these would affect restricted paths.
    let around =
        fixture.ways(&["free", "kept", "secret"], &["here/free", "here/kept", "free/up/free"]);
    let create = OpenOptions {
        access: FileAccess::ReadWrite,
        create: FileCreationMode::IfMissing,
        ..OpenOptions::default()
    };
    let look_or_make = OpenOptions { access: FileAccess::Read, ..create };
    let replace = RenameOptions { overwrite: OverwriteMode::Replace };
    let mode = AttributeChanges { mode: Some(0o600), ..AttributeChanges::default() };
    for (name, handle) in &fixture.handles {
        let refused = |result: Result<()>, act: &str, path: &str| {
            let kinds = [ErrorKind::PermissionDenied, ErrorKind::NotFound];
            let refused = result.as_ref().is_err_and(|error| kinds.contains(&error.kind()));
            assert!(refused, "{name}: {act} {path}: {result:?}");
        };
        for path in files.iter().chain(&missing).chain(&linked) {
            refused(handle.write(path, "new").await.map(drop), "write", path);
            refused(handle.open(path, create).await.map(drop), "open", path);
            refused(handle.open(path, look_or_make).await.map(drop), "open or make", path);
            refused(handle.touch(path).await.map(drop), "touch", path);
            refused(handle.set_attributes(path, mode).await.map(drop), "set attributes of", path);
        }
        for path in files.iter().chain(&missing) {
            refused(handle.mkdir(path).await, "mkdir", path);
            refused(handle.rename_with("free/file", path, replace).await.map(drop), "onto", path);
            if fixture.links {
                refused(handle.symlink(path, "free").await, "symlink", path);
            }
        }
        for path in files.iter().chain(&around) {
            refused(handle.rm(path, RemoveOptions::recursive()).await.map(drop), "rm", path);
            refused(handle.rename(path, "moved").await.map(drop), "rename", path);
        }
        fixture.is_unchanged(name).await;
        assert_content(handle, "free/file", FREE).await;
        handle.write("free/file", FREE).await.unwrap();
        handle.write("free/new", FREE).await.unwrap();
        handle.rename("free/new", "renamed").await.unwrap();
        handle.rm("renamed", RemoveOptions::default()).await.unwrap();
        if fixture.links {
            handle.write("here/free/file", FREE).await.unwrap();
            handle.mkdir("here/made").await.unwrap();
            handle.rm("made", RemoveOptions::recursive().missing_ok()).await.unwrap();
        }
    }
}

/// The root of a workspace cannot be hidden, but the whole workspace may be read-only.
pub async fn a_whole_workspace_may_be_read_only(backend: &Backend) {
    backend.write("file", "as it was").await.unwrap();
    let root = vec![WsPath::root()];
    let hidden = PathRestrictions { hidden: root.clone(), ..PathRestrictions::default() };
    expect_error(backend.restrict(hidden), ErrorKind::Invalid);
    let read_only = PathRestrictions { read_only: root, ..PathRestrictions::default() };
    let handle = backend.restrict(read_only).unwrap();
    assert_content(&handle, "file", "as it was").await;
    expect_error(handle.write("file", "new").await, ErrorKind::PermissionDenied);
    expect_error(handle.mkdir("new").await, ErrorKind::PermissionDenied);
    expect_error(handle.rm("file", RemoveOptions::default()).await, ErrorKind::PermissionDenied);
    assert_eq!(handle.readdir(".").await.unwrap(), ["file"]);
}
