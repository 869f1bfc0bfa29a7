//! Records which version of which files a caller has read. The caller may only overwrite or edit
//! these versions.
//!
//! A model that overwrites a file it never read, or one that changed after the read, destroys work.
//! With a [`ReadLedger`] such a call is refused with a hint. New files need no read.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ab_core::options::{WriteMode, WriteOptions};
use ab_core::{Backend, EditOptions, Error, ErrorKind, FileVersion, Verb, WsPath};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Maximum number of files in a ledger. The oldest are removed, and have to be read again.
pub const MAX_REMEMBERED_FILES: usize = 10_000;
/// Number of locks for writers, shared by all paths.
const TURNS: usize = 64;

/// The files that one caller has read. Parallel calls share it.
pub struct ReadLedger {
    files: Mutex<Files>,
    turns: [Semaphore; TURNS],
}

#[derive(Default)]
struct Files {
    versions: HashMap<String, FileVersion>,
    /// In the order of the first read; may contain files that were removed since.
    order: VecDeque<String>,
}

impl ReadLedger {
    pub fn new() -> ReadLedger {
        let turns = std::array::from_fn(|_| Semaphore::new(1));
        ReadLedger { files: Mutex::default(), turns }
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for ReadLedger {
    fn default() -> Self {
        ReadLedger::new()
    }
}

impl fmt::Debug for ReadLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadLedger").field("files", &self.lock().versions.len()).finish()
    }
}

/// A ledger for tools that work below one directory.
#[derive(Clone, Debug)]
pub(crate) struct LedgerView {
    ledger: Arc<ReadLedger>,
    root: WsPath,
}

impl LedgerView {
    pub(crate) fn new(ledger: Arc<ReadLedger>, root: WsPath) -> LedgerView {
        LedgerView { ledger, root }
    }

    fn key(&self, path: &WsPath) -> String {
        self.root.join(path).as_str().to_owned()
    }

    /// Records that the caller has read this version of the file at `path`.
    pub(crate) fn remember(&self, path: &WsPath, version: FileVersion) {
        let key = self.key(path);
        let mut files = self.ledger.lock();
        if files.versions.insert(key.clone(), version).is_none() {
            files.order.push_back(key);
        }
        while files.order.len() > MAX_REMEMBERED_FILES {
            if let Some(oldest) = files.order.pop_front() {
                files.versions.remove(&oldest);
            }
        }
    }

    /// The same for a path that the workspace has already accepted.
    pub(crate) fn remember_text(&self, backend: &Backend, path: &str, version: FileVersion) {
        if let Ok(path) = backend.parse_path(path) {
            self.remember(&path, version);
        }
    }

    pub(crate) fn forget(&self, backend: &Backend, path: &str) {
        if let Ok(path) = backend.parse_path(path) {
            self.ledger.lock().versions.remove(&self.key(&path));
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
        // The semaphores are never closed.
        self.ledger.turns[stripe].acquire().await.ok()
    }

    /// Writes a whole file: a new one, or one that is unchanged since the caller read it.
    pub(crate) async fn write(
        &self,
        backend: &Backend,
        path: &WsPath,
        content: String,
    ) -> Result<(), Error> {
        let _turn = self.turn(path).await;
        let seen = self.seen(path);
        let mode = match seen {
            Some(_) => WriteMode::CreateOrReplace,
            None => WriteMode::CreateNew,
        };
        let options = WriteOptions { mode, expected_version: seen, ..WriteOptions::default() };
        match backend.write_with(path, content, options).await {
            Ok(stat) => {
                self.remember(path, stat.version);
                Ok(())
            }
            Err(error) if seen.is_none() && error.kind() == ErrorKind::AlreadyExists => {
                Err(unread(path))
            }
            Err(error) => Err(self.stale(path, error)),
        }
    }

    /// The options and the lock for an edit. The file must be unchanged since the caller read it.
    pub(crate) async fn begin_edit(
        &self,
        backend: &Backend,
        path: &WsPath,
    ) -> Result<(EditOptions, Option<SemaphorePermit<'_>>), Error> {
        let turn = self.turn(path).await;
        let Some(version) = self.seen(path) else {
            // A missing file gets its own error.
            backend.stat(path).await.map_err(|error| error.with_verb(Verb::Write))?;
            return Err(unread(path));
        };
        let options = EditOptions { expected_version: Some(version), ..EditOptions::default() };
        Ok((options, turn))
    }

    /// Converts the error of a change. A file that changed meanwhile has to be read again.
    pub(crate) fn stale(&self, path: &WsPath, error: Error) -> Error {
        if error.kind() != ErrorKind::Conflict {
            return error;
        }
        self.ledger.lock().versions.remove(&self.key(path));
        let message = "the file changed since it was read in this session";
        Error::for_path(Verb::Write, path, ErrorKind::Conflict, message)
            .with_hint("read it again with read_text_file, then repeat the change")
    }
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
        let ledger = Arc::new(ReadLedger::new());
        let view = LedgerView::new(ledger, WsPath::root());
        let path = |number: usize| WsPath::root().child(&number.to_string()).unwrap();
        for number in 0..=MAX_REMEMBERED_FILES {
            view.remember(&path(number), FileVersion::new(1));
        }
        assert_eq!(view.seen(&path(0)), None);
        assert_eq!(view.seen(&path(1)), Some(FileVersion::new(1)));
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
