//! The keys of a memory workspace and the operations on them. Not async.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};

use crate::call::Verb;
use crate::driver::{BackendKind, File};
use crate::error::{Error, ErrorCode, ErrorKind, Result};
use crate::metadata::{
    DirEntry, DiskSpace, FileContent, FileKind, FileVersion, Listing, RemoveOutcome, RenameOutcome,
    Stat, TruncationCause,
};
use crate::options::{
    AttributeChanges, EntryDetailLevel, ExistingContentHandling, FileAccess, FileCreationMode,
    ListOptions, OnMissingTarget, OpenOptions, OverwriteMode, ReadOptions, RemoveDepth,
    RemoveOptions, RenameOptions, WriteMode, WriteOptions, WritePosition,
};
use crate::path::WsPath;

const DEFAULT_MODE: u32 = 0o644;

pub(super) struct Store {
    files: BTreeMap<Key, Arc<Node>>,
    made: SystemTime,
    room: Arc<Room>,
}

/// A path in a form that sorts in path order when it is compared as text. In path order, the
/// entries of a directory come before names that only begin with the name of the directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key(String);

/// Replaces the slash in a key. No name contains this character, and no character is smaller.
const SEPARATOR: char = '\0';

impl Key {
    fn of(path: &WsPath) -> Self {
        Self(path.as_str().replace('/', "\0"))
    }

    /// The common prefix of all keys below `path`.
    fn above_children(path: &WsPath) -> String {
        if path.is_root() { String::new() } else { Self::of(path).0 + "\0" }
    }

    /// The smallest text that is greater than all keys below `names`.
    fn after_children(prefix: &str, names: &[&str]) -> String {
        format!("{prefix}{}\u{1}", names.join("\0"))
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The limit on the bytes of a store and the number in use. Shared by the store and its open files.
struct Room {
    limit: u64,
    used: AtomicU64,
}

/// A file. If its key is removed or replaced, open handles keep the file.
struct Node {
    room: Arc<Room>,
    state: Mutex<State>,
}

struct State {
    bytes: Bytes,
    stat: Stat,
    /// Whether a key refers to this file. Only then do its bytes count towards the limit.
    linked: bool,
}

enum Place {
    File(Arc<Node>),
    Dir,
}

impl Store {
    pub(super) fn new(limit: u64) -> Self {
        let room = Arc::new(Room { limit, used: AtomicU64::new(0) });
        Self { files: BTreeMap::new(), made: SystemTime::now(), room }
    }

    pub(super) fn keys(&self) -> usize {
        self.files.len()
    }

    pub(super) fn space(&self) -> DiskSpace {
        let used = self.room.used.load(Ordering::Relaxed);
        DiskSpace { total: self.room.limit, available: self.room.limit.saturating_sub(used) }
    }

    pub(super) fn stat(&self, path: &WsPath) -> Result<Stat> {
        Ok(self.find(Verb::Stat, path)?.stat(self.made))
    }

    pub(super) fn read(&self, path: &WsPath, options: ReadOptions) -> Result<FileContent> {
        let node = self.file(Verb::Read, path)?;
        let state = node.lock();
        let size = state.bytes.len() as u64;
        let (start, length) = match options.range {
            Some(range) => {
                (range.start.min(size), range.length.min(size.saturating_sub(range.start)))
            }
            None => (0, size),
        };
        if length > options.max_bytes {
            let message = format!("{length} bytes, more than the limit of {}", options.max_bytes);
            return Err(Error::for_path(Verb::Read, path, ErrorKind::TooLarge, message)
                .with_hint("read a range, or in chunks"));
        }
        let bytes = state.bytes.slice(start as usize..(start + length) as usize);
        Ok(FileContent { bytes, stat: state.stat.clone() })
    }

    pub(super) fn list(&self, path: &WsPath, options: ListOptions) -> Result<Listing> {
        if let Place::File(_) = self.find(Verb::List, path)? {
            return Err(Error::for_path(
                Verb::List,
                path,
                ErrorKind::NotADirectory,
                "not a directory",
            ));
        }
        if options.max_depth == 0 {
            return Ok(Listing::default());
        }
        let prefix = Key::above_children(path);
        let mut entries: Vec<DirEntry> = Vec::new();
        let mut add = |below: &[&str], place: Place| {
            let path = path.join(&WsPath::from_key(&below.join("/")));
            if path.is_hidden() {
                return false;
            }
            let stat = match options.detail {
                EntryDetailLevel::Kind => None,
                EntryDetailLevel::Stat => Some(place.stat(self.made)),
            };
            entries.push(DirEntry { path, kind: place.kind(), stat });
            entries.len() > options.max_entries
        };
        let mut truncated = None;
        let mut before: Vec<&str> = Vec::new();
        let mut from = Bound::Included(prefix.clone());
        'keys: while let Some((key, node)) = self.next_below(from, &prefix) {
            let names: Vec<&str> = key.0[prefix.len()..].split(SEPARATOR).collect();
            let known = names.iter().zip(&before).take_while(|(a, b)| a == b).count();
            for depth in known + 1..=names.len().min(options.max_depth) {
                let place =
                    if depth == names.len() { Place::File(node.clone()) } else { Place::Dir };
                if add(&names[..depth], place) {
                    truncated = Some(TruncationCause::Count);
                    break 'keys;
                }
            }
            // Skip all entries that are too deep in a single step.
            from = if names.len() > options.max_depth {
                Bound::Included(Key::after_children(&prefix, &names[..options.max_depth]))
            } else {
                Bound::Excluded(key.0.clone())
            };
            before = names;
        }
        entries.truncate(options.max_entries);
        Ok(Listing { entries, truncated, problems: Vec::new() })
    }

    pub(super) fn put(
        &mut self,
        path: &WsPath,
        content: Bytes,
        options: WriteOptions,
    ) -> Result<Stat> {
        let verb = match options.mode {
            WriteMode::CreateIfMissing => Verb::Touch,
            WriteMode::CreateOrReplace | WriteMode::CreateNew | WriteMode::Replace => Verb::Write,
        };
        let existing = self.target(verb, path)?;
        // Hold the lock from the check to the replacement, so that no handle can write in between.
        let mut held = existing.as_ref().map(|node| node.lock());
        if let Some(expected) = options.expected_version
            && held.as_ref().is_none_or(|state| state.stat.version != expected)
        {
            let message = "the file does not have the expected version";
            return Err(Error::for_path(verb, path, ErrorKind::Conflict, message));
        }
        let mode = match (&mut held, options.mode) {
            (Some(_), WriteMode::CreateNew) => return Err(exists(verb, path)),
            (Some(state), WriteMode::CreateIfMissing) => return Ok(state.stat.clone()),
            (None, WriteMode::Replace) => return Err(missing(verb, path)),
            (Some(state), WriteMode::CreateOrReplace | WriteMode::Replace) => {
                self.room.resize(verb, path, state.bytes.len(), content.len())?;
                state.linked = false;
                state.stat.mode.unwrap_or(DEFAULT_MODE)
            }
            (
                None,
                WriteMode::CreateOrReplace | WriteMode::CreateNew | WriteMode::CreateIfMissing,
            ) => {
                self.room.resize(verb, path, 0, content.len())?;
                options.permissions.unwrap_or(DEFAULT_MODE)
            }
        };
        drop(held);
        let node = Arc::new(Node::new(self.room.clone(), content, mode));
        let stat = node.lock().stat.clone();
        self.files.insert(Key::of(path), node);
        Ok(stat)
    }

    pub(super) fn open(&mut self, path: &WsPath, options: OpenOptions) -> Result<MemoryFile> {
        let existing = match self.target(Verb::Open, path)? {
            Some(_) if options.create == FileCreationMode::MustBeNew => {
                return Err(exists(Verb::Open, path));
            }
            Some(node) => node,
            None if options.create == FileCreationMode::Never => {
                return Err(missing(Verb::Open, path));
            }
            None => {
                let mode = options.permissions.unwrap_or(DEFAULT_MODE);
                let node = Arc::new(Node::new(self.room.clone(), Bytes::new(), mode));
                self.files.insert(Key::of(path), node.clone());
                node
            }
        };
        let file = MemoryFile {
            node: existing,
            path: path.clone(),
            access: options.access,
            placement: options.position,
        };
        if options.existing == ExistingContentHandling::Truncate && options.access.can_write() {
            file.change(|_| 0, |_| {})?;
        }
        Ok(file)
    }

    pub(super) fn set_attributes(
        &self,
        path: &WsPath,
        attributes: AttributeChanges,
    ) -> Result<Stat> {
        let verb = Verb::SetAttributes;
        check_mode(path, attributes)?;
        match self.find(verb, path)? {
            Place::Dir => {
                let message = "an in-memory workspace has no empty directories";
                Err(Error::for_path(verb, path, ErrorKind::Unsupported, message))
            }
            Place::File(node) => Ok(node.describe(attributes)),
        }
    }

    pub(super) fn check_dir(&self, path: &WsPath) -> Result<()> {
        match self.find(Verb::Mkdir, path) {
            Ok(Place::Dir) => Ok(()),
            Ok(Place::File(_)) => Err(exists(Verb::Mkdir, path)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) fn remove(
        &mut self,
        path: &WsPath,
        options: RemoveOptions,
    ) -> Result<RemoveOutcome> {
        let verb = Verb::Delete;
        if path.is_root() {
            return Err(Error::for_path(verb, path, ErrorKind::Invalid, ROOT_STAYS));
        }
        match self.find(verb, path) {
            Err(error)
                if error.kind() == ErrorKind::NotFound
                    && options.missing == OnMissingTarget::Ignore =>
            {
                Ok(RemoveOutcome::default())
            }
            Err(error) => Err(error),
            Ok(Place::File(_)) => {
                self.take(&Key::of(path));
                Ok(RemoveOutcome { count: 1 })
            }
            Ok(Place::Dir) if options.depth == RemoveDepth::NonRecursive => {
                Err(Error::for_path(verb, path, ErrorKind::NotEmpty, "the directory is not empty"))
            }
            Ok(Place::Dir) => {
                let whole = ListOptions {
                    max_depth: usize::MAX,
                    max_entries: usize::MAX,
                    detail: EntryDetailLevel::Kind,
                };
                let count = self.list(path, whole)?.entries.len() as u64 + 1;
                for key in self.keys_below(path) {
                    self.take(&key);
                }
                Ok(RemoveOutcome { count })
            }
        }
    }

    pub(super) fn rename(
        &mut self,
        from: &WsPath,
        to: &WsPath,
        options: RenameOptions,
    ) -> Result<RenameOutcome> {
        let verb = Verb::Rename;
        if let Some(root) = [from, to].into_iter().find(|path| path.is_root()) {
            return Err(Error::for_path(verb, root, ErrorKind::Invalid, ROOT_STAYS));
        }
        let source = self.find(verb, from)?;
        if from == to {
            return Ok(RenameOutcome { atomic: true });
        }
        if to.starts_with(from) {
            let message = match source {
                Place::Dir => "a directory cannot move into itself",
                Place::File(_) => {
                    return Err(Error::for_path(
                        verb,
                        to,
                        ErrorKind::NotADirectory,
                        NOT_A_DIRECTORY,
                    ));
                }
            };
            return Err(Error::for_path(verb, from, ErrorKind::Invalid, message));
        }
        match (self.find(verb, to), &source) {
            (Err(error), _) if error.kind() == ErrorKind::NotFound => {}
            (Err(error), _) => return Err(error),
            (Ok(_), _) if options.overwrite == OverwriteMode::Refuse => {
                return Err(exists(verb, to));
            }
            (Ok(Place::Dir), Place::File(_)) => {
                return Err(Error::for_path(
                    verb,
                    to,
                    ErrorKind::IsADirectory,
                    "the target is a directory",
                ));
            }
            (Ok(Place::File(_)), Place::Dir) => {
                return Err(Error::for_path(
                    verb,
                    to,
                    ErrorKind::NotADirectory,
                    "the target is a file",
                ));
            }
            (Ok(Place::Dir), Place::Dir) => {
                return Err(Error::for_path(
                    verb,
                    to,
                    ErrorKind::NotEmpty,
                    "the target is not empty",
                ));
            }
            (Ok(Place::File(_)), Place::File(_)) => self.take(&Key::of(to)),
        }
        let moved: Vec<Key> = match source {
            Place::File(_) => vec![Key::of(from)],
            Place::Dir => self.keys_below(from),
        };
        for key in moved {
            if let Some(node) = self.files.remove(&key) {
                let below = &key.0[from.as_str().len()..];
                self.files.insert(Key(Key::of(to).0 + below), node);
            }
        }
        Ok(RenameOutcome { atomic: true })
    }

    /// The file or directory at `path`.
    fn find(&self, verb: Verb, path: &WsPath) -> Result<Place> {
        if let Some(node) = self.files.get(&Key::of(path)) {
            return Ok(Place::File(node.clone()));
        }
        let prefix = Key::above_children(path);
        if path.is_root() || self.next_below(Bound::Included(prefix.clone()), &prefix).is_some() {
            return Ok(Place::Dir);
        }
        self.check_ancestors(verb, path)?;
        Err(missing(verb, path))
    }

    fn file(&self, verb: Verb, path: &WsPath) -> Result<Arc<Node>> {
        match self.find(verb, path)? {
            Place::File(node) => Ok(node),
            Place::Dir => {
                Err(Error::for_path(verb, path, ErrorKind::IsADirectory, "is a directory"))
            }
        }
    }

    /// The file that a write to `path` would replace. `None` if there is none.
    fn target(&self, verb: Verb, path: &WsPath) -> Result<Option<Arc<Node>>> {
        match self.file(verb, path) {
            Ok(node) => Ok(Some(node)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn check_ancestors(&self, verb: Verb, path: &WsPath) -> Result<()> {
        let key = Key::of(path).0;
        let blocked =
            key.match_indices(SEPARATOR).any(|(end, _)| self.files.contains_key(&key[..end]));
        if blocked {
            return Err(Error::for_path(verb, path, ErrorKind::NotADirectory, NOT_A_DIRECTORY));
        }
        Ok(())
    }

    /// The first key that begins with `prefix` and is not before `from`.
    fn next_below(&self, from: Bound<String>, prefix: &str) -> Option<(&Key, &Arc<Node>)> {
        let from = from.as_ref().map(String::as_str);
        let next = self.files.range::<str, _>((from, Bound::Unbounded)).next();
        next.filter(|(key, _)| key.0.starts_with(prefix))
    }

    fn keys_below(&self, path: &WsPath) -> Vec<Key> {
        let prefix = Key::above_children(path);
        let from = (Bound::Included(prefix.as_str()), Bound::Unbounded);
        let below = self.files.range::<str, _>(from);
        below.map(|(key, _)| key.clone()).take_while(|key| key.0.starts_with(&prefix)).collect()
    }

    fn take(&mut self, key: &Key) {
        if let Some(node) = self.files.remove(key) {
            self.room.release(&mut node.lock());
        }
    }
}

const ROOT_STAYS: &str = "the root of the workspace cannot be moved or removed";
const NOT_A_DIRECTORY: &str = "a parent is a file, not a directory";

impl Place {
    fn kind(&self) -> FileKind {
        match self {
            Place::File(_) => FileKind::File,
            Place::Dir => FileKind::Dir,
        }
    }

    fn stat(&self, store_made: SystemTime) -> Stat {
        match self {
            Place::File(node) => node.lock().stat.clone(),
            Place::Dir => Stat {
                kind: FileKind::Dir,
                size: 0,
                modified: store_made,
                accessed: None,
                created: None,
                mode: Some(0o755),
                version: FileVersion::new(0),
            },
        }
    }
}

impl Node {
    fn new(room: Arc<Room>, bytes: Bytes, mode: u32) -> Self {
        let now = SystemTime::now();
        let stat = Stat {
            kind: FileKind::File,
            size: bytes.len() as u64,
            modified: now,
            accessed: Some(now),
            created: Some(now),
            mode: Some(mode & 0o777),
            version: next_version(),
        };
        Self { room, state: Mutex::new(State { bytes, stat, linked: true }) }
    }

    fn describe(&self, attributes: AttributeChanges) -> Stat {
        let mut state = self.lock();
        let stat = &mut state.stat;
        stat.mode = attributes.mode.or(stat.mode);
        stat.modified = attributes.modified.unwrap_or(stat.modified);
        stat.accessed = attributes.accessed.or(stat.accessed);
        stat.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A new version number. Numbers are unique among all stores, so a version never occurs again.
fn next_version() -> FileVersion {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    FileVersion::new(NEXT.fetch_add(1, Ordering::Relaxed).into())
}

impl Room {
    fn resize(&self, verb: Verb, path: &WsPath, from: usize, to: usize) -> Result<()> {
        let (from, to) = (from as u64, to as u64);
        let fits = |used: u64| {
            let next = used.saturating_sub(from) + to;
            (to <= from || next <= self.limit).then_some(next)
        };
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(_) => {
                let message = format!("the store is limited to {} bytes", self.limit);
                Err(Error::for_path(verb, path, ErrorKind::NoSpace, message))
            }
        }
    }

    fn release(&self, state: &mut State) {
        state.linked = false;
        self.used.fetch_sub(state.bytes.len() as u64, Ordering::Relaxed);
    }
}

fn missing(verb: Verb, path: &WsPath) -> Error {
    Error::new(ErrorCode::KeyNotFound, ErrorKind::NotFound, "no such key")
        .with_verb(verb)
        .with_path(path.to_string())
        .with_backend_kind(BackendKind::Memory)
}

fn exists(verb: Verb, path: &WsPath) -> Error {
    Error::for_path(verb, path, ErrorKind::AlreadyExists, "the path already exists")
}

fn check_mode(path: &WsPath, attributes: AttributeChanges) -> Result<()> {
    if attributes.mode.is_some_and(|mode| mode > 0o777) {
        let message = "only permission bits up to 777 can be set";
        return Err(Error::for_path(Verb::SetAttributes, path, ErrorKind::Invalid, message));
    }
    Ok(())
}

/// An open file.
pub(super) struct MemoryFile {
    node: Arc<Node>,
    path: WsPath,
    access: FileAccess,
    placement: WritePosition,
}

impl MemoryFile {
    /// Changes the bytes. `length` computes the new length from the old one. If the limit would be
    /// exceeded, nothing is changed.
    fn change(
        &self,
        length: impl FnOnce(usize) -> usize,
        change: impl FnOnce(&mut BytesMut),
    ) -> Result<()> {
        if !self.access.can_write() {
            let message = "the file is open for reading only";
            return Err(Error::for_path(
                Verb::Write,
                &self.path,
                ErrorKind::PermissionDenied,
                message,
            ));
        }
        let mut state = self.node.lock();
        let length = length(state.bytes.len());
        if state.linked {
            self.node.room.resize(Verb::Write, &self.path, state.bytes.len(), length)?;
        }
        let before = std::mem::take(&mut state.bytes);
        let mut buffer = before.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        buffer.resize(length, 0);
        change(&mut buffer);
        state.bytes = buffer.freeze();
        state.stat.size = length as u64;
        state.stat.modified = SystemTime::now();
        state.stat.version = next_version();
        Ok(())
    }

    fn sized(&self, length: u64) -> Result<usize> {
        let limit = self.node.room.limit;
        match usize::try_from(length) {
            Ok(size) if length <= limit => Ok(size),
            _ => {
                let message = format!("the store is limited to {limit} bytes");
                Err(Error::for_path(Verb::Write, &self.path, ErrorKind::NoSpace, message))
            }
        }
    }
}

impl std::fmt::Debug for MemoryFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryFile").field("path", &self.path).finish_non_exhaustive()
    }
}

#[async_trait]
impl File for MemoryFile {
    async fn read_at(&self, offset: u64, length: usize) -> Result<Bytes> {
        if !self.access.can_read() {
            let message = "the file is open for writing only";
            return Err(Error::for_path(
                Verb::Read,
                &self.path,
                ErrorKind::PermissionDenied,
                message,
            ));
        }
        let state = self.node.lock();
        let start = usize::try_from(offset).map_or(state.bytes.len(), |o| o.min(state.bytes.len()));
        let end = start.saturating_add(length).min(state.bytes.len());
        Ok(state.bytes.slice(start..end))
    }

    async fn write_at(&self, offset: u64, bytes: Bytes) -> Result<()> {
        if bytes.is_empty() && self.access.can_write() {
            // As on a disk, an empty write does not extend the file.
            return Ok(());
        }
        if self.placement == WritePosition::End {
            let added = self.sized(bytes.len() as u64)?;
            return self.change(
                |current| current.saturating_add(added),
                |buffer| {
                    let start = buffer.len() - added;
                    buffer[start..].copy_from_slice(&bytes);
                },
            );
        }
        let end = self.sized(offset.saturating_add(bytes.len() as u64))?;
        self.change(
            |current| current.max(end),
            |buffer| buffer[end - bytes.len()..end].copy_from_slice(&bytes),
        )
    }

    async fn set_len(&self, length: u64) -> Result<()> {
        let length = self.sized(length)?;
        self.change(|_| length, |_| {})
    }

    async fn stat(&self) -> Result<Stat> {
        Ok(self.node.lock().stat.clone())
    }

    async fn set_attributes(&self, attributes: AttributeChanges) -> Result<Stat> {
        if !self.access.can_write() {
            let message = "the file is open for reading only";
            return Err(Error::for_path(
                Verb::SetAttributes,
                &self.path,
                ErrorKind::PermissionDenied,
                message,
            ));
        }
        check_mode(&self.path, attributes)?;
        Ok(self.node.describe(attributes))
    }

    async fn sync(&self) -> Result<()> {
        Ok(())
    }
}
