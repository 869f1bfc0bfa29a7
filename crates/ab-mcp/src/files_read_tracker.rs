//! Records which files a caller has read, and in which version. The caller can overwrite or edit
//! only these versions.
//!
//! A model destroys work if it overwrites a file that it has not read, or a file that has changed
//! since the model read it. A [`FilesReadTracker`] refuses such a call with a hint. New files can
//! be written without reading.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ab_core::options::{WriteMode, WriteOptions};
use ab_core::{Backend, EditOptions, Error, ErrorKind, FileVersion, Stat, Verb, WsPath};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Maximum number of files that are recorded. The oldest are removed and must be read again.
pub const MAX_TRACKED_READ_FILES: usize = 10_000;
/// Number of locks that serialize changes. The lock of a file is chosen by the hash of its path.
const TURNS: usize = 64;
/// Maximum number of links that the resolution of one path may follow.
const MAX_LINKS: usize = 40;

/// The files that one caller has read. All calls of this caller must share the value.
pub struct FilesReadTracker {
    files: Mutex<Files>,
    turns: [Semaphore; TURNS],
}

#[derive(Default)]
struct Files {
    versions: HashMap<String, FileVersion>,
    /// The files in the order in which they were first read. May contain files that have been
    /// removed since then.
    order: VecDeque<String>,
}

impl FilesReadTracker {
    pub fn new() -> FilesReadTracker {
        let turns = std::array::from_fn(|_| Semaphore::new(1));
        FilesReadTracker { files: Mutex::default(), turns }
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Files {
    fn insert(&mut self, key: String, version: FileVersion) {
        if self.versions.insert(key.clone(), version).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > MAX_TRACKED_READ_FILES {
            if let Some(oldest) = self.order.pop_front() {
                self.versions.remove(&oldest);
            }
        }
    }

    /// Removes the record of `key` and of all files below it, and returns the records.
    fn take_tree(&mut self, key: &str) -> Vec<(String, FileVersion)> {
        let is_below = |other: &String| match other.strip_prefix(key) {
            Some(rest) => key.is_empty() || rest.is_empty() || rest.starts_with('/'),
            None => false,
        };
        let taken: Vec<_> = self.versions.extract_if(|other, _| is_below(other)).collect();
        self.order.retain(|other| !is_below(other));
        taken
    }

    /// The paths of other files whose recorded version is `version`.
    fn with_version(&self, version: FileVersion, key: &str) -> Vec<String> {
        let same = self.versions.iter().filter(|(other, it)| **it == version && *other != key);
        same.map(|(other, _)| other.clone()).collect()
    }
}

impl Default for FilesReadTracker {
    fn default() -> Self {
        FilesReadTracker::new()
    }
}

impl fmt::Debug for FilesReadTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilesReadTracker").field("files", &self.lock().versions.len()).finish()
    }
}

/// The record of a caller's files, for tools that work below one directory of the workspace.
#[derive(Clone, Debug)]
pub(crate) struct LedgerView {
    ledger: Arc<FilesReadTracker>,
    root: WsPath,
}

impl LedgerView {
    pub(crate) fn new(ledger: Arc<FilesReadTracker>, root: WsPath) -> LedgerView {
        LedgerView { ledger, root }
    }

    fn key(&self, path: &WsPath) -> String {
        self.root.join(path).as_str().to_owned()
    }

    /// Records that the caller has read this version of the file at `path`.
    pub(crate) fn remember(&self, path: &WsPath, version: FileVersion) {
        self.ledger.lock().insert(self.key(path), version);
    }

    /// Like `remember`, for a path as text that the workspace has already accepted.
    pub(crate) fn remember_text(&self, backend: &Backend, path: &str, version: FileVersion) {
        if let Ok(path) = backend.parse_path(path) {
            self.remember(&path, version);
        }
    }

    /// Removes the record of the file at `path`. If `path` was a directory, removes the records of
    /// all files below it.
    pub(crate) fn forget(&self, backend: &Backend, path: &str) {
        if let Ok(path) = backend.parse_path(path) {
            self.ledger.lock().take_tree(&self.key(&path));
        }
    }

    /// The attributes of the file that is about to be moved. `None` unless the caller has read its
    /// current version.
    pub(crate) async fn before_move(&self, backend: &Backend, source: &str) -> Option<Stat> {
        let path = backend.parse_path(source).ok()?;
        let seen = self.seen(&path)?;
        backend.stat(&path).await.ok().filter(|stat| stat.version == seen)
    }

    /// Records that `source`, with everything below it, is now at `destination`. `before` is the
    /// result of [`before_move`](Self::before_move). It is needed because the version of a file
    /// changes when the file is moved.
    pub(crate) async fn moved(
        &self,
        backend: &Backend,
        source: &str,
        destination: &str,
        before: Option<Stat>,
    ) {
        let (Ok(source), Ok(destination)) =
            (backend.parse_path(source), backend.parse_path(destination))
        else {
            return;
        };
        let after = match &before {
            Some(before) => backend
                .stat(&destination)
                .await
                .ok()
                .filter(|after| (after.size, after.modified) == (before.size, before.modified)),
            None => None,
        };
        let (from, to) = (self.key(&source), self.key(&destination));
        let mut files = self.ledger.lock();
        files.take_tree(&to);
        for (key, version) in files.take_tree(&from) {
            match (key.strip_prefix(&from), &after) {
                (Some(""), Some(after)) => files.insert(to.clone(), after.version),
                (Some(""), None) | (None, _) => {}
                (Some(below), _) => files.insert(format!("{to}{below}"), version),
            }
        }
    }

    fn seen(&self, path: &WsPath) -> Option<FileVersion> {
        self.ledger.lock().versions.get(&self.key(path)).copied()
    }

    /// Waits until no other call of this caller is changing `path`.
    async fn turn(&self, path: &WsPath) -> Option<SemaphorePermit<'_>> {
        let mut hasher = DefaultHasher::new();
        self.key(path).hash(&mut hasher);
        let stripe = (hasher.finish() % TURNS as u64) as usize;
        // The semaphores are never closed, so this always returns a permit.
        self.ledger.turns[stripe].acquire().await.ok()
    }

    /// The path under which the caller has read the file at `path`. If the caller has read the file
    /// through a link, this is a different path.
    async fn known_as(&self, backend: &Backend, path: &WsPath) -> WsPath {
        if self.seen(path).is_some() {
            return path.clone();
        }
        let Ok(stat) = backend.stat(path).await else { return path.clone() };
        let other = self.same_file(backend, path, stat.version).await.into_iter().next();
        other.unwrap_or_else(|| path.clone())
    }

    /// Other paths under which the caller has read this version of the file at `path`.
    async fn same_file(
        &self,
        backend: &Backend,
        path: &WsPath,
        version: FileVersion,
    ) -> Vec<WsPath> {
        let keys = self.ledger.lock().with_version(version, &self.key(path));
        if keys.is_empty() {
            return Vec::new();
        }
        // Some servers give the same version to different files, so equal versions alone do not
        // prove that the files are the same.
        let real = without_links(backend, path).await;
        let mut same = Vec::new();
        for key in keys {
            let Some(other) = self.path_of(backend, &key) else { continue };
            if real.is_some() && without_links(backend, &other).await == real {
                same.push(other);
            }
        }
        same
    }

    /// Converts a recorded path to a path relative to the root of these tools. `None` if the path
    /// is not below this root.
    fn path_of(&self, backend: &Backend, key: &str) -> Option<WsPath> {
        let below = match self.root.as_str() {
            "" => key,
            root => key.strip_prefix(root)?.strip_prefix('/')?,
        };
        backend.parse_path(below).ok()
    }

    /// Records a write by the caller itself to the file at `path`. `before` is the version of the
    /// file before the write.
    pub(crate) async fn wrote(
        &self,
        backend: &Backend,
        path: &WsPath,
        before: Option<FileVersion>,
        now: FileVersion,
    ) {
        self.remember(path, now);
        let Some(before) = before else { return };
        for other in self.same_file(backend, path, before).await {
            self.remember(&other, now);
        }
    }

    /// Writes a whole file. The file must be new, or unchanged since the caller read it.
    pub(crate) async fn write(
        &self,
        backend: &Backend,
        path: &WsPath,
        content: String,
    ) -> Result<(), Error> {
        let known = self.known_as(backend, path).await;
        let _turn = self.turn(&known).await;
        let seen = self.seen(&known);
        let mode = match seen {
            Some(_) => WriteMode::CreateOrReplace,
            None => WriteMode::CreateNew,
        };
        let options = WriteOptions { mode, expected_version: seen, ..WriteOptions::default() };
        match backend.write_with(path, content, options).await {
            Ok(stat) => {
                self.wrote(backend, &known, seen, stat.version).await;
                Ok(())
            }
            Err(error) if seen.is_none() && error.kind() == ErrorKind::AlreadyExists => {
                Err(unread(path))
            }
            Err(error) => Err(self.stale(path, &known, error)),
        }
    }

    /// Takes the lock for an edit and returns it with the version that the caller has read. Fails
    /// if the caller has not read the file.
    pub(crate) async fn begin_edit(
        &self,
        backend: &Backend,
        path: &WsPath,
    ) -> Result<LedgerEdit<'_>, Error> {
        let known = self.known_as(backend, path).await;
        let turn = self.turn(&known).await;
        let Some(version) = self.seen(&known) else {
            // If the file does not exist, return that error instead of "was not read".
            backend.stat(path).await.map_err(|error| error.with_verb(Verb::Write))?;
            return Err(unread(path));
        };
        Ok(LedgerEdit { known, version, _turn: turn })
    }

    /// Converts the error of a change. If the file has changed since the caller read it, the error
    /// tells the caller to read it again.
    pub(crate) fn stale(&self, path: &WsPath, known: &WsPath, error: Error) -> Error {
        if error.kind() != ErrorKind::Conflict {
            return error;
        }
        self.ledger.lock().versions.remove(&self.key(known));
        let message = "the file changed since it was read in this session";
        Error::for_path(Verb::Write, path, ErrorKind::Conflict, message)
            .with_hint("read it again with read_text_file, then repeat the change")
    }
}

/// A running edit of a file that the caller has read. Other edits of the file wait until this value
/// is dropped.
#[derive(Debug)]
pub(crate) struct LedgerEdit<'a> {
    /// The path under which the caller has read the file.
    pub(crate) known: WsPath,
    pub(crate) version: FileVersion,
    _turn: Option<SemaphorePermit<'a>>,
}

impl LedgerEdit<'_> {
    pub(crate) fn options(&self) -> EditOptions {
        EditOptions { expected_version: Some(self.version), ..EditOptions::default() }
    }
}

/// The path of the same file with all links resolved. `None` if the links form a cycle or lead out
/// of the workspace.
async fn without_links(backend: &Backend, path: &WsPath) -> Option<WsPath> {
    let mut todo: Vec<String> = path.segments().rev().map(str::to_owned).collect();
    let mut done = WsPath::root();
    let mut links = 0;
    while let Some(segment) = todo.pop() {
        if segment == ".." {
            done = done.parent()?;
            continue;
        }
        let next = done.child(&segment).ok()?;
        let Ok(target) = backend.read_link(&next).await else {
            done = next;
            continue;
        };
        links += 1;
        if links > MAX_LINKS {
            return None;
        }
        let target = if target.starts_with('/') {
            done = WsPath::root();
            backend.parse_path(&target).ok()?.as_str().to_owned()
        } else {
            target
        };
        let segments = target.split('/').filter(|it| !it.is_empty() && *it != ".");
        todo.extend(segments.rev().map(str::to_owned));
    }
    Some(done)
}

fn unread(path: &WsPath) -> Error {
    let message = "the file exists and was not read in this session";
    Error::for_path(Verb::Write, path, ErrorKind::Conflict, message)
        .with_hint("read it with read_text_file first, then repeat the change")
}

#[cfg(test)]
mod tests {
    use ab_core::MemoryDriver;

    use super::*;

    #[test]
    fn the_oldest_files_are_forgotten() {
        let ledger = Arc::new(FilesReadTracker::new());
        let view = LedgerView::new(ledger, WsPath::root());
        let path = |number: usize| WsPath::root().child(&number.to_string()).unwrap();
        for number in 0..=MAX_TRACKED_READ_FILES {
            view.remember(&path(number), FileVersion::new(1));
        }
        assert_eq!(view.seen(&path(0)), None);
        assert_eq!(view.seen(&path(1)), Some(FileVersion::new(1)));
    }

    #[tokio::test]
    async fn what_was_read_follows_moves_and_deletions() {
        let backend = Backend::new(MemoryDriver::new());
        let view = LedgerView::new(Arc::default(), WsPath::root());
        let path = |text: &str| backend.parse_path(text).unwrap();
        for name in ["d/a", "d/deep/b", "dd/c"] {
            view.write(&backend, &path(name), name.to_owned()).await.unwrap();
        }
        let before = view.before_move(&backend, "d").await;
        backend.rename("d", "e").await.unwrap();
        view.moved(&backend, "d", "e", before).await;
        assert!(view.seen(&path("d/a")).is_none() && view.seen(&path("dd/c")).is_some());
        view.write(&backend, &path("e/a"), "changed".to_owned()).await.unwrap();
        view.write(&backend, &path("e/deep/b"), "changed".to_owned()).await.unwrap();
        let before = view.before_move(&backend, "e/a").await;
        assert!(before.is_some());
        backend.rename("e/a", "a").await.unwrap();
        view.moved(&backend, "e/a", "a", before).await;
        view.write(&backend, &path("a"), "again".to_owned()).await.unwrap();
        backend.rm("e", ab_core::options::RemoveOptions::recursive()).await.unwrap();
        view.forget(&backend, "e");
        assert_eq!(view.seen(&path("e/deep/b")), None);
        // Another file is now at this path, and it was never read.
        backend.write("e/deep/b", "of another").await.unwrap();
        let error = view.write(&backend, &path("e/deep/b"), "x".to_owned()).await.unwrap_err();
        assert!(error.message().contains("was not read"), "{error}");
    }

    #[tokio::test]
    async fn a_file_that_vanished_can_be_made_again() {
        let backend = Backend::new(MemoryDriver::new());
        let view = LedgerView::new(Arc::default(), WsPath::root());
        let path = backend.parse_path("a").unwrap();
        view.write(&backend, &path, "one".to_owned()).await.unwrap();
        backend.rm("a", Default::default()).await.unwrap();
        let error = view.write(&backend, &path, "two".to_owned()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        view.write(&backend, &path, "two".to_owned()).await.unwrap();
    }
}
