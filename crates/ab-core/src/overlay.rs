//! An overlay of one workspace over another. Reads use the upper layer if it has the path, and
//! otherwise the lower layer. Writes are made only in the upper layer.
//!
//! - Creating an overlay changes nothing, and the size of the lower layer does not make calls
//!   slower.
//! - Marker files in the upper layer hide paths of the lower layer. A new overlay over the same two
//!   layers therefore shows the same files.
//! - Links are resolved here in the merged tree, no matter in which layer they are stored. Paths
//!   that are passed to a layer never contain a link.
//! - Changes through one overlay are serialized where necessary, so that a check and its change are
//!   one step. Two overlays over the same upper layer do not share locks.
//! - If a file of the lower layer is open for reading, the handle keeps its content when the file
//!   is copied to the upper layer.
//! - Directories may be empty, even if the layers do not support this.
//!
//! See `docs/decisions/0003-overlay.md`.

mod change;
mod commit;
mod diff;
mod look;
mod marks;
mod rename;
mod upper;
mod walk;

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{Mutex, MutexGuard, RwLock};

use crate::call::{Actor, Verb};
use crate::driver::{BackendInfo, BackendKind, Capabilities, Driver, File};
use crate::effective_policy::EffectivePolicy;
use crate::error::{Error, ErrorKind, Result};
use crate::life::Life;
use crate::lost_call::{LostCallEffect, LostCallId};
use crate::metadata::{
    DiskSpace, FileContent, FileKind, Listing, RemoveOutcome, RenameOutcome, Stat,
};
use crate::options::{
    AttributeChanges, LinkHandling, ListOptions, OpenOptions, ReadOptions, RemoveOptions,
    RenameOptions, StatOptions, WriteMode, WriteOptions,
};
use crate::path::WsPath;
use crate::process::{ExecRequest, Process, ProcessId, ProcessInfo};
use crate::search::{SearchQuery, SearchResults};
use crate::stack::Stack;
use crate::status::StatusPublisher;

pub use diff::{MAX_OVERLAY_DIFF_FILE_BYTES, OverlayChange, OverlayChangeKind};

/// Number of locks for files. Files with different locks can be changed at the same time.
const STRIPES: usize = 64;
/// How often a read is repeated if the file is moved to the other layer during the read.
const LAYER_CHANGES: usize = 4;

/// The permission bits that the owner of a directory needs to change the directory's entries.
const OPEN: u32 = 0o700;

pub(crate) struct Overlay {
    lower: Arc<dyn Driver>,
    upper: Arc<dyn Driver>,
    /// The drivers of the lower and the upper layer, with their guards and views.
    stacks: (Stack, Stack),
    /// The lifetime of the handle of the upper layer, which its owner may destroy.
    upper_life: Arc<Life>,
    capabilities: Capabilities,
    root_aliases: Vec<String>,
    /// Absolute paths of the roots of both layers, as segments. Absolute links may use them.
    link_roots: Vec<Vec<String>>,
    /// Whether either layer may hold links.
    has_links: bool,
    /// Whether the upper layer supports empty directories. If it does not, a marker file (a keeper)
    /// in each directory represents the directory.
    has_real_dirs: bool,
    /// Shared with the overlays that were derived from this one for other actors.
    locks: Arc<Locks>,
}

/// The locks that serialize the changes of one overlay.
struct Locks {
    /// Held in shared mode while one file is changed, and exclusively while the tree is changed.
    tree: RwLock<()>,
    /// Each lock serializes the changes of some files. The lock of a file is chosen by the hash of
    /// its path.
    files: [Mutex<()>; STRIPES],
    /// The number of file changes that have begun, plus the number that have ended.
    turns: AtomicU64,
}

impl Overlay {
    pub(crate) fn new(lower: Stack, upper: Stack, upper_life: Arc<Life>) -> Self {
        let locks = Locks {
            tree: RwLock::default(),
            files: [const { Mutex::const_new(()) }; STRIPES],
            turns: AtomicU64::new(0),
        };
        Self::with_locks((lower, upper), upper_life, Arc::new(locks))
    }

    /// The same overlay for another actor.
    pub(crate) fn acting_as(&self, actor: &Actor) -> Self {
        let (lower, upper) = &self.stacks;
        let stacks = (lower.acting_as(actor), upper.acting_as(actor));
        Self::with_locks(stacks, self.upper_life.clone(), self.locks.clone())
    }

    fn with_locks(stacks: (Stack, Stack), upper_life: Arc<Life>, locks: Arc<Locks>) -> Self {
        let (lower, upper) = (stacks.0.driver().clone(), stacks.1.driver().clone());
        let (below, above) = (lower.info(), upper.info());
        let (l, u) = (below.capabilities, above.capabilities);
        let capabilities = Capabilities {
            exec: false,
            detached_processes: false,
            search: true,
            symlinks: l.symlinks && u.symlinks,
            file_modes: l.file_modes && u.file_modes,
            empty_dirs: true,
            jail: l.jail && u.jail,
            atomic_write: u.atomic_write,
            exact_error_kinds: l.exact_error_kinds && u.exact_error_kinds,
        };
        let segments = |alias: &String| -> Vec<String> {
            alias.split('/').filter(|s| !s.is_empty()).map(str::to_owned).collect()
        };
        let link_roots =
            below.root_aliases.iter().chain(&above.root_aliases).map(segments).collect();
        Self {
            lower,
            upper,
            stacks,
            upper_life,
            capabilities,
            root_aliases: below.root_aliases,
            link_roots,
            has_links: l.symlinks || u.symlinks,
            has_real_dirs: u.empty_dirs,
            locks,
        }
    }

    /// Fails if the owner of the upper layer has destroyed it.
    fn alive(&self, verb: Verb) -> Result<()> {
        let hint = "the backend that is the upper layer was destroyed";
        self.upper_life.check(verb).map_err(|error| error.with_hint(hint))
    }

    fn lacks<T>(&self, verb: Verb) -> Result<T> {
        self.alive(verb)?;
        Err(Error::for_unsupported_verb(BackendKind::Overlay, verb))
    }

    fn layer(&self, layer: Layer) -> &dyn Driver {
        match layer {
            Layer::Upper => &*self.upper,
            Layer::Lower => &*self.lower,
        }
    }

    /// Locks one file for a change. Also returns the value of the change counter before the change.
    async fn turn(&self, path: &WsPath) -> (Turn<'_>, u64) {
        let mut hasher = DefaultHasher::new();
        path.hash(&mut hasher);
        let held = self.locks.files[hasher.finish() as usize % STRIPES].lock().await;
        let before = self.locks.turns.fetch_add(1, Ordering::AcqRel);
        (Turn { _held: held, turns: &self.locks.turns }, before)
    }
}

/// The lock on a file during a change.
struct Turn<'a> {
    _held: MutexGuard<'a, ()>,
    turns: &'a AtomicU64,
}

impl Drop for Turn<'_> {
    /// Increments the change counter before the lock is released.
    fn drop(&mut self) {
        self.turns.fetch_add(1, Ordering::AcqRel);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    Upper,
    Lower,
}

/// Replaces the path in an error of a layer by the path that the caller used.
fn named<T>(verb: Verb, path: &WsPath, result: Result<T>) -> Result<T> {
    result.map_err(|error| error.with_verb(verb).with_path(path.to_string()))
}

fn missing(verb: Verb, path: &WsPath) -> Error {
    Error::for_path(verb, path, ErrorKind::NotFound, "no such file or directory")
}

fn exists(verb: Verb, path: &WsPath) -> Error {
    Error::for_path(verb, path, ErrorKind::AlreadyExists, "the path already exists")
}

fn is_a_directory(verb: Verb, path: &WsPath) -> Error {
    Error::for_path(verb, path, ErrorKind::IsADirectory, "is a directory")
}

fn root_stays(verb: Verb, path: &WsPath) -> Result<()> {
    if path.is_root() {
        let message = "the root of the workspace cannot be moved or removed";
        return Err(Error::for_path(verb, path, ErrorKind::Invalid, message));
    }
    Ok(())
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Overlay")
            .field("upper", &self.upper)
            .field("lower", &self.lower)
            .finish_non_exhaustive()
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Driver for Overlay {
    async fn stat(&self, path: &WsPath, options: StatOptions) -> Result<Stat> {
        let spot = self.look(Verb::Stat, path, options.links).await?;
        match self.describe(&spot).await {
            Ok(Some(stat)) => Ok(stat),
            Ok(None) => Err(missing(Verb::Stat, path)),
            Err(error) => named(Verb::Stat, path, Err(error)),
        }
    }

    async fn list(&self, path: &WsPath, options: ListOptions) -> Result<Listing> {
        let spot = self.look(Verb::List, path, LinkHandling::Follow).await?;
        match spot.kind() {
            Some(FileKind::Dir) => {
                named(Verb::List, path, self.list_dir(&spot, path, options).await)
            }
            Some(FileKind::File | FileKind::Symlink | FileKind::Other) => {
                Err(Error::for_path(Verb::List, path, ErrorKind::NotADirectory, "not a directory"))
            }
            None => Err(missing(Verb::List, path)),
        }
    }

    async fn search(&self, query: &SearchQuery) -> Result<SearchResults> {
        crate::search::search_by_listing(self, query).await
    }

    async fn read(&self, path: &WsPath, options: ReadOptions) -> Result<FileContent> {
        let verb = Verb::Read;
        for _ in 0..LAYER_CHANGES {
            let spot = self.look(verb, path, LinkHandling::Follow).await?;
            let Some(layer) = spot.layer() else { break };
            match self.layer(layer).read(&spot.path, options).await {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                result => return named(verb, path, result),
            }
        }
        Err(missing(verb, path))
    }

    async fn write(&self, path: &WsPath, content: Bytes, options: WriteOptions) -> Result<Stat> {
        let verb = match options.mode {
            WriteMode::CreateIfMissing => Verb::Touch,
            WriteMode::CreateOrReplace | WriteMode::CreateNew | WriteMode::Replace => Verb::Write,
        };
        self.write_file(verb, path, content, options).await
    }

    async fn open(&self, path: &WsPath, options: OpenOptions) -> Result<Box<dyn File>> {
        self.open_file(path, options).await
    }

    async fn set_attributes(&self, path: &WsPath, attributes: AttributeChanges) -> Result<Stat> {
        self.change_attributes(path, attributes).await
    }

    async fn read_link(&self, path: &WsPath) -> Result<String> {
        let verb = Verb::ReadLink;
        let spot = self.look(verb, path, LinkHandling::NoFollow).await?;
        match (spot.kind(), spot.layer()) {
            (Some(FileKind::Symlink), Some(layer)) => {
                named(verb, path, self.layer(layer).read_link(&spot.path).await)
            }
            _ if !self.capabilities.symlinks => self.lacks(verb),
            (Some(_), _) => Err(Error::for_path(verb, path, ErrorKind::Invalid, "not a link")),
            (None, _) => Err(missing(verb, path)),
        }
    }

    async fn symlink(&self, path: &WsPath, target: &str) -> Result<()> {
        self.make_link(path, target).await
    }

    async fn create_dir(&self, path: &WsPath) -> Result<()> {
        self.make_dir(path).await
    }

    async fn remove(&self, path: &WsPath, options: RemoveOptions) -> Result<RemoveOutcome> {
        root_stays(Verb::Delete, path)?;
        self.take_away(path, options).await
    }

    async fn rename(
        &self,
        from: &WsPath,
        to: &WsPath,
        options: RenameOptions,
    ) -> Result<RenameOutcome> {
        root_stays(Verb::Rename, from)?;
        root_stays(Verb::Rename, to)?;
        self.move_within(from, to, options).await
    }

    /// The disk space of the upper layer, in which all writes are made.
    async fn disk_space(&self) -> Result<DiskSpace> {
        self.alive(Verb::DiskSpace)?;
        self.upper.disk_space().await
    }

    async fn exec(&self, _: ExecRequest) -> Result<Process> {
        self.lacks(Verb::Exec)
    }

    async fn processes(&self) -> Result<Vec<ProcessInfo>> {
        self.lacks(Verb::Processes)
    }

    async fn attach(&self, _: &ProcessId, _: u64) -> Result<Process> {
        self.lacks(Verb::Attach)
    }

    fn info(&self) -> BackendInfo {
        BackendInfo {
            kind: BackendKind::Overlay,
            root_aliases: self.root_aliases.clone(),
            capabilities: self.capabilities,
        }
    }

    async fn effective_policy(&self) -> Result<EffectivePolicy> {
        self.alive(Verb::Exec)?;
        Ok(EffectivePolicy::default())
    }

    fn status_publisher(&self) -> &StatusPublisher {
        self.lower.status_publisher()
    }

    async fn query_lost_call(&self, ticket: &LostCallId) -> Result<LostCallEffect> {
        self.alive(Verb::Connect)?;
        match self.upper.query_lost_call(ticket).await? {
            LostCallEffect::Unknown => self.lower.query_lost_call(ticket).await,
            known => Ok(known),
        }
    }

    async fn connect(&self) -> Result<()> {
        self.alive(Verb::Connect)?;
        self.lower.connect().await?;
        self.upper.connect().await
    }

    /// Does nothing, because a view must not destroy the workspaces that it shows.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
