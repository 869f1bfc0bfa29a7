//! The handle that callers use. It offers more operations than the small [`Driver`] trait.
//!
//! Callers pass paths as text, and the handle parses them once. Actor, scope and guards are bound
//! to a handle when it is created. A handle that is derived from another one never has more rights.

mod exec;
mod links;
mod narrow;
mod search;
mod streams;
mod text;
mod views;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream;

use crate::call::{Actor, Verb};
use crate::driver::{BackendInfo, Driver, File};
use crate::error::{Error, ErrorKind, Result};
use crate::guard::{Guard, Guards, RefusedPath};
use crate::journal::JournalGuard;
use crate::life::{Closeable, CloseableId, Life};
use crate::locator::WorkspaceLocator;
use crate::lost_call::{LostCallEffect, LostCallId};
use crate::metadata::{DiskSpace, FileContent, Listing, RemoveOutcome, RenameOutcome, Stat};
use crate::mounts::Mounts;
use crate::options::{
    AttributeChanges, ListOptions, OpenOptions, ReadOptions, RemoveOptions, RenameOptions,
    StatOptions, WriteMode, WriteOptions,
};
use crate::path::{PathInput, PathParser, WsPath};
use crate::search::{SearchQuery, SearchResults};
use crate::stack::Stack;
use crate::status::{ConnectionStatus, ConnectionStatusChange, StatusSubscription};

pub use exec::{CapturedOutput, DEFAULT_MAX_EXEC_OUTPUT_BYTES, ExecOptions, ExecOutput};
pub use narrow::NarrowOptions;
pub use search::{DirectoryTree, GlobOptions, GlobResults, GrepOptions, TreeNode, TreeOptions};
pub use streams::{ReadStreamOptions, SINGLE_CALL_WRITE_LIMIT_BYTES};
pub use text::{FileChunks, LineWindow};
pub use views::OverlayWorkspace;

/// Maximum number of files of a batch that are processed at the same time.
const BATCH_CONCURRENCY: usize = 16;

/// A handle to a workspace of any kind. Cheap to clone: clones share one lifetime.
#[derive(Clone)]
pub struct Backend {
    stack: Stack,
    rules: Arc<PathParser>,
    actor: Actor,
    life: Arc<Life>,
    /// The guards of this handle and of the handles from which it was derived. They are also told
    /// about paths that the parser refuses. No call is made for such a path.
    guards: Arc<[Arc<dyn Guard>]>,
    /// The driver, if it is a tree of mounts. A further mount is then added to this tree.
    mounts: Option<Arc<Mounts>>,
    recipe: Option<WorkspaceLocator>,
}

/// The actor, the guards and the locator of a new handle.
#[derive(Clone, Debug, Default)]
pub struct BackendOptions {
    pub actor: Actor,
    pub guards: Guards,
    /// How another process can open the same workspace. Ignored if there are guards.
    pub locator: Option<WorkspaceLocator>,
}

#[derive(Clone, Debug, Default)]
pub struct ScopeOptions {
    /// Environment variables of every command in the scope. The variables of a single command take
    /// precedence.
    pub env: BTreeMap<String, String>,
    /// Records the calls of the scope, with paths relative to the scope.
    pub journal: Option<Arc<JournalGuard>>,
}

impl Backend {
    /// Creates a handle without guards.
    pub fn new(driver: impl Driver) -> Self {
        Self::with_options(Arc::new(driver), BackendOptions::default())
    }

    /// Creates a handle whose calls pass the guards in `options` before they reach the driver.
    pub fn with_options(driver: Arc<dyn Driver>, options: BackendOptions) -> Self {
        let rules = driver
            .info()
            .root_aliases
            .iter()
            .fold(PathParser::lenient(), |rules, alias| rules.with_root_alias(alias));
        let life = Life::root(driver.clone());
        let BackendOptions { actor, guards, locator: recipe } = options;
        let guards: Arc<[Arc<dyn Guard>]> = guards.in_order().into();
        let stack = Stack::base(driver).guarded(&actor, guards.clone());
        let recipe = recipe.filter(|_| guards.is_empty());
        Self { stack, rules: Arc::new(rules), actor, life, guards, mounts: None, recipe }
    }

    /// Returns a handle on the same workspace that accepts the file names that are reserved for
    /// views and for temporary files. It is used when a view on another machine accesses this
    /// workspace over a connection.
    pub fn with_reserved_names_allowed(&self) -> Backend {
        let rules = Arc::new((*self.rules).clone().allow_reserved_names());
        Backend { rules, ..self.clone() }
    }

    fn driver(&self) -> &Arc<dyn Driver> {
        self.stack.driver()
    }

    /// How another process can open the same workspace. `None` if it cannot.
    pub fn workspace_locator(&self) -> Option<&WorkspaceLocator> {
        self.recipe.as_ref()
    }

    /// The number of scopes that were derived from this handle and still exist.
    pub fn open_scope_count(&self) -> usize {
        self.life.scopes()
    }

    pub fn info(&self) -> BackendInfo {
        self.driver().info()
    }

    pub fn actor(&self) -> &Actor {
        &self.actor
    }

    /// Parses a path by the rules of this handle, without access to the workspace.
    pub fn parse_path<'p>(&self, path: impl Into<PathInput<'p>>) -> Result<WsPath> {
        self.rules.parse_input(path.into())
    }

    pub async fn read<'p>(&self, path: impl Into<PathInput<'p>>) -> Result<Bytes> {
        Ok(self.read_with(path, ReadOptions::default()).await?.bytes)
    }

    pub async fn read_with<'p>(
        &self,
        path: impl Into<PathInput<'p>>,
        options: ReadOptions,
    ) -> Result<FileContent> {
        let path = self.parse(Verb::Read, path)?;
        self.driver().read(&path, options).await
    }

    /// Reads several files. Each has its own result. The results are in the order of the paths.
    pub async fn read_many<P>(&self, paths: &[P]) -> Vec<Result<Bytes>>
    where
        for<'p> &'p P: Into<PathInput<'p>>,
    {
        stream::iter(paths).map(|path| self.read(path)).buffered(BATCH_CONCURRENCY).collect().await
    }

    /// Writes a whole file and creates its parent directories.
    pub async fn write<'p>(
        &self,
        path: impl Into<PathInput<'p>>,
        content: impl Into<WriteContent>,
    ) -> Result<Stat> {
        self.write_with(path, content, WriteOptions::default()).await
    }

    pub async fn write_with<'p>(
        &self,
        path: impl Into<PathInput<'p>>,
        content: impl Into<WriteContent>,
        options: WriteOptions,
    ) -> Result<Stat> {
        let path = self.parse(Verb::Write, path)?;
        self.driver().write(&path, content.into().0, options).await
    }

    /// Writes several files. Returns one result per file, in the order of the files. If a path
    /// occurs twice, either content may be written last.
    pub async fn write_many<P>(&self, files: Vec<(P, WriteContent)>) -> Vec<Result<Stat>>
    where
        for<'p> &'p P: Into<PathInput<'p>>,
    {
        stream::iter(files)
            .map(|(path, body)| async move { self.write(&path, body).await })
            .buffered(BATCH_CONCURRENCY)
            .collect()
            .await
    }

    pub async fn open<'p>(
        &self,
        path: impl Into<PathInput<'p>>,
        options: OpenOptions,
    ) -> Result<Box<dyn File>> {
        let path = self.parse(Verb::Open, path)?;
        let inner = self.driver().open(&path, options).await?;
        Ok(Box::new(LivingFile { inner, life: self.life.clone() }))
    }

    /// The sorted names of the children of a directory. Fails if there are too many. In this case,
    /// use [`list`](Self::list) with a limit.
    pub async fn readdir<'p>(&self, path: impl Into<PathInput<'p>>) -> Result<Vec<String>> {
        let parsed = self.parse(Verb::List, path)?;
        let listing = self.driver().list(&parsed, ListOptions::default()).await?;
        if listing.truncated.is_some() {
            let message = format!("more than {} entries", listing.entries.len());
            return Err(Error::for_path(Verb::List, &parsed, ErrorKind::TooLarge, message)
                .with_hint("list it with a limit"));
        }
        Ok(listing.entries.iter().filter_map(|e| e.path.name()).map(str::to_owned).collect())
    }

    pub async fn list<'p>(
        &self,
        path: impl Into<PathInput<'p>>,
        options: ListOptions,
    ) -> Result<Listing> {
        let path = self.parse(Verb::List, path)?;
        self.driver().list(&path, options).await
    }

    /// Finds names or text, if the driver supports searching.
    pub async fn search(&self, query: &SearchQuery) -> Result<SearchResults> {
        self.life.check(Verb::Search)?;
        self.driver().search(query).await
    }

    /// Creates a directory and its parents. An existing directory is not an error.
    pub async fn mkdir<'p>(&self, path: impl Into<PathInput<'p>>) -> Result<()> {
        let path = self.parse(Verb::Mkdir, path)?;
        self.driver().create_dir(&path).await
    }

    /// Whether something exists at the path. Returns `false` for a dangling link.
    pub async fn exists<'p>(&self, path: impl Into<PathInput<'p>>) -> Result<bool> {
        match self.stat(path).await {
            Ok(_) => Ok(true),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    pub async fn stat<'p>(&self, path: impl Into<PathInput<'p>>) -> Result<Stat> {
        self.stat_with(path, StatOptions::default()).await
    }

    pub async fn stat_with<'p>(
        &self,
        path: impl Into<PathInput<'p>>,
        options: StatOptions,
    ) -> Result<Stat> {
        let path = self.parse(Verb::Stat, path)?;
        self.driver().stat(&path, options).await
    }

    pub async fn rm<'p>(
        &self,
        path: impl Into<PathInput<'p>>,
        options: RemoveOptions,
    ) -> Result<RemoveOutcome> {
        let path = self.parse(Verb::Delete, path)?;
        self.driver().remove(&path, options).await
    }

    /// Renames a file or directory. An existing `to` is an error.
    pub async fn rename<'p>(
        &self,
        from: impl Into<PathInput<'p>>,
        to: impl Into<PathInput<'p>>,
    ) -> Result<RenameOutcome> {
        self.rename_with(from, to, RenameOptions::default()).await
    }

    pub async fn rename_with<'p>(
        &self,
        from: impl Into<PathInput<'p>>,
        to: impl Into<PathInput<'p>>,
        options: RenameOptions,
    ) -> Result<RenameOutcome> {
        let from = self.parse(Verb::Rename, from)?;
        let to = self.parse(Verb::Rename, to)?;
        self.driver().rename(&from, &to, options).await
    }

    /// Creates an empty file if nothing exists at the path.
    pub async fn touch<'p>(&self, path: impl Into<PathInput<'p>>) -> Result<Stat> {
        let path = self.parse(Verb::Touch, path)?;
        let options = WriteOptions { mode: WriteMode::CreateIfMissing, ..WriteOptions::default() };
        self.driver().write(&path, Bytes::new(), options).await
    }

    pub async fn set_attributes<'p>(
        &self,
        path: impl Into<PathInput<'p>>,
        attributes: AttributeChanges,
    ) -> Result<Stat> {
        let path = self.parse(Verb::SetAttributes, path)?;
        self.driver().set_attributes(&path, attributes).await
    }

    pub async fn read_link<'p>(&self, path: impl Into<PathInput<'p>>) -> Result<String> {
        let path = self.parse(Verb::ReadLink, path)?;
        self.driver().read_link(&path).await
    }

    /// Creates a symbolic link at `path` with the target `target`.
    pub async fn symlink<'p>(&self, path: impl Into<PathInput<'p>>, target: &str) -> Result<()> {
        let path = self.parse(Verb::Symlink, path)?;
        self.driver().symlink(&path, target).await
    }

    pub async fn disk_space(&self) -> Result<DiskSpace> {
        self.life.check(Verb::DiskSpace)?;
        self.driver().disk_space().await
    }

    pub fn status(&self) -> ConnectionStatus {
        self.life.status()
    }

    /// Calls `listener` for every change of the status, in order, until the subscription is
    /// dropped.
    pub fn on_status_change(
        &self,
        listener: impl Fn(&ConnectionStatusChange) + Send + Sync + 'static,
    ) -> StatusSubscription {
        self.life.hub().subscribe(listener)
    }

    /// Connects a remote workspace. Does nothing for other kinds.
    pub async fn connect(&self) -> Result<()> {
        self.life.check(Verb::Connect)?;
        self.driver().connect().await
    }

    /// Returns whether a call took effect if its answer was lost. The id comes from the error of
    /// this call ([`Error::lost_call_id`]). Connects first if necessary.
    pub async fn query_lost_call(&self, id: &LostCallId) -> Result<LostCallEffect> {
        self.life.check(Verb::Connect)?;
        self.driver().query_lost_call(id).await
    }

    /// Registers a resource that [`destroy`](Self::destroy) closes. Resources are closed in the
    /// reverse order of their registration. If this handle is a scope, the resource is registered
    /// with the backend from which the scope was derived.
    pub async fn register_closeable(&self, resource: Arc<dyn Closeable>) -> Result<CloseableId> {
        self.life.track(resource).await
    }

    /// Removes a registered resource and returns it without closing it.
    pub fn unregister_closeable(&self, id: CloseableId) -> Option<Arc<dyn Closeable>> {
        self.life.untrack(id)
    }

    /// Destroys the backend: closes the registered resources and then the driver. A second call has
    /// no effect. Destroying a scope ends only the scope.
    pub async fn destroy(&self) -> Result<()> {
        self.life.destroy().await
    }

    /// Parses a path for an operation. Fails if the backend was destroyed.
    fn parse<'p>(&self, verb: Verb, path: impl Into<PathInput<'p>>) -> Result<WsPath> {
        self.life.check(verb)?;
        let path = path.into();
        self.rules.parse_input(path).map_err(|error| {
            let error = error.with_verb(verb);
            let path = path.as_str();
            for guard in self.guards.iter() {
                guard.on_refused_path(&RefusedPath {
                    actor: &self.actor,
                    verb,
                    path,
                    error: &error,
                });
            }
            error
        })
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("kind", &self.info().kind)
            .field("actor", &self.actor)
            .field("life", &self.life)
            .finish_non_exhaustive()
    }
}

/// An open file that stops working when its backend or scope is destroyed.
#[derive(Debug)]
struct LivingFile {
    inner: Box<dyn File>,
    life: Arc<Life>,
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl File for LivingFile {
    async fn read_at(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.life.check(Verb::Read)?;
        self.inner.read_at(offset, length).await
    }

    async fn write_at(&self, offset: u64, bytes: Bytes) -> Result<()> {
        self.life.check(Verb::Write)?;
        self.inner.write_at(offset, bytes).await
    }

    async fn set_len(&self, length: u64) -> Result<()> {
        self.life.check(Verb::Write)?;
        self.inner.set_len(length).await
    }

    async fn stat(&self) -> Result<Stat> {
        self.life.check(Verb::Stat)?;
        self.inner.stat().await
    }

    async fn set_attributes(&self, attributes: AttributeChanges) -> Result<Stat> {
        self.life.check(Verb::SetAttributes)?;
        self.inner.set_attributes(attributes).await
    }

    async fn sync(&self) -> Result<()> {
        self.life.check(Verb::Write)?;
        self.inner.sync().await
    }
}

/// The bytes of a write. Texts and byte arrays of several types convert to it.
#[derive(Clone, Debug, Default)]
pub struct WriteContent(pub Bytes);

impl From<Bytes> for WriteContent {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl From<Vec<u8>> for WriteContent {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<String> for WriteContent {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<&String> for WriteContent {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<&str> for WriteContent {
    fn from(text: &str) -> Self {
        Self(Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<&[u8]> for WriteContent {
    fn from(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }
}

impl<const N: usize> From<&[u8; N]> for WriteContent {
    fn from(bytes: &[u8; N]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }
}
