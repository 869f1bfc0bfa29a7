//! A workspace in memory: a map from paths as keys to contents.
//!
//! Directories are not stored. A directory exists while there is a key below it. Therefore no
//! directory is ever empty, and `a` and `a/b` cannot both be keys. Commands and links are not
//! supported.

mod store;

use std::fmt;
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use async_trait::async_trait;
use bytes::Bytes;

use crate::backend::WriteContent;
use crate::call::Verb;
use crate::driver::{BackendInfo, BackendKind, Capabilities, Driver, File};
use crate::effective_policy::EffectivePolicy;
use crate::error::{Error, ErrorCode, ErrorKind, Result};
use crate::lost_call::{LostCallEffect, LostCallId};
use crate::metadata::{DiskSpace, FileContent, Listing, RemoveOutcome, RenameOutcome, Stat};
use crate::options::{
    AttributeChanges, ListOptions, OpenOptions, ReadOptions, RemoveOptions, RenameOptions,
    StatOptions, WriteOptions,
};
use crate::path::{PathParser, WsPath};
use crate::process::{ExecRequest, Process, ProcessId, ProcessInfo};
use crate::search::{SearchQuery, SearchResults};
use crate::status::{ConnectionStatus, StatusPublisher};

use store::Store;

/// Default of the maximum number of bytes in a store.
pub const DEFAULT_MEMORY_DRIVER_CAPACITY_BYTES: u64 = 1024 * 1024 * 1024;

#[derive(Clone, Debug)]
pub struct MemoryDriverOptions {
    /// The absolute path of the root.
    pub root: String,
    /// The initial files, as paths and contents.
    pub initial_files: Vec<(String, WriteContent)>,
    /// Maximum number of bytes of all contents together.
    pub max_bytes: u64,
}

impl Default for MemoryDriverOptions {
    fn default() -> Self {
        Self {
            root: "/".to_owned(),
            initial_files: Vec::new(),
            max_bytes: DEFAULT_MEMORY_DRIVER_CAPACITY_BYTES,
        }
    }
}

/// The driver of memory workspaces.
pub struct MemoryDriver {
    root: String,
    store: RwLock<Store>,
    hub: StatusPublisher,
}

impl MemoryDriver {
    pub fn new() -> Self {
        Self::empty("/".to_owned(), DEFAULT_MEMORY_DRIVER_CAPACITY_BYTES)
    }

    /// Creates a workspace with initial files. Fails with `INVALID_CONFIGURATION` if a path is
    /// invalid, or if two paths conflict with each other, such as `a` and `a/b`.
    pub fn with_options(options: MemoryDriverOptions) -> Result<Self> {
        if !options.root.starts_with('/') {
            return Err(misconfigured(format!("the root '{}' is not absolute", options.root)));
        }
        let rules = PathParser::lenient().with_root_alias(&options.root);
        let memory = Self::empty(options.root, options.max_bytes);
        for (key, body) in options.initial_files {
            let stored = rules
                .parse(&key)
                .and_then(|path| memory.edit().put(&path, body.0, WriteOptions::default()));
            if let Err(error) = stored {
                let message = format!("initial key '{key}': {}", error.message());
                return Err(misconfigured(message).with_source(error));
            }
        }
        Ok(memory)
    }

    fn empty(root: String, limit: u64) -> Self {
        let store = RwLock::new(Store::new(limit));
        Self { root, store, hub: StatusPublisher::new(ConnectionStatus::Connected) }
    }

    fn view(&self) -> RwLockReadGuard<'_, Store> {
        self.store.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn edit(&self) -> RwLockWriteGuard<'_, Store> {
        self.store.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn alive(&self, verb: Verb) -> Result<()> {
        match self.hub.current() {
            ConnectionStatus::Destroyed => Err(Error::for_destroyed_backend(verb)),
            ConnectionStatus::Connected
            | ConnectionStatus::Connecting
            | ConnectionStatus::Disconnected
            | ConnectionStatus::Reconnecting => Ok(()),
        }
    }

    fn lacks<T>(&self, verb: Verb) -> Result<T> {
        self.alive(verb)?;
        Err(Error::for_unsupported_verb(BackendKind::Memory, verb))
    }
}

impl Default for MemoryDriver {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("root", &self.root)
            .field("keys", &self.view().keys())
            .field("status", &self.hub.current())
            .finish_non_exhaustive()
    }
}

fn misconfigured(message: String) -> Error {
    Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
        .with_backend_kind(BackendKind::Memory)
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Driver for MemoryDriver {
    async fn stat(&self, path: &WsPath, _: StatOptions) -> Result<Stat> {
        self.alive(Verb::Stat)?;
        self.view().stat(path)
    }

    async fn list(&self, path: &WsPath, options: ListOptions) -> Result<Listing> {
        self.alive(Verb::List)?;
        self.view().list(path, options)
    }

    async fn search(&self, query: &SearchQuery) -> Result<SearchResults> {
        self.alive(Verb::Search)?;
        crate::search::search_by_listing(self, query).await
    }

    async fn read(&self, path: &WsPath, options: ReadOptions) -> Result<FileContent> {
        self.alive(Verb::Read)?;
        self.view().read(path, options)
    }

    async fn write(&self, path: &WsPath, content: Bytes, options: WriteOptions) -> Result<Stat> {
        self.alive(Verb::Write)?;
        self.edit().put(path, content, options)
    }

    async fn open(&self, path: &WsPath, options: OpenOptions) -> Result<Box<dyn File>> {
        self.alive(Verb::Open)?;
        Ok(Box::new(self.edit().open(path, options)?))
    }

    async fn set_attributes(&self, path: &WsPath, attributes: AttributeChanges) -> Result<Stat> {
        self.alive(Verb::SetAttributes)?;
        self.view().set_attributes(path, attributes)
    }

    async fn read_link(&self, _: &WsPath) -> Result<String> {
        self.lacks(Verb::ReadLink)
    }

    async fn symlink(&self, _: &WsPath, _: &str) -> Result<()> {
        self.lacks(Verb::Symlink)
    }

    /// Changes nothing, because directories are not stored. Fails if a file has this path or the
    /// path of a parent directory.
    async fn create_dir(&self, path: &WsPath) -> Result<()> {
        self.alive(Verb::Mkdir)?;
        self.view().check_dir(path)
    }

    async fn remove(&self, path: &WsPath, options: RemoveOptions) -> Result<RemoveOutcome> {
        self.alive(Verb::Delete)?;
        self.edit().remove(path, options)
    }

    async fn rename(
        &self,
        from: &WsPath,
        to: &WsPath,
        options: RenameOptions,
    ) -> Result<RenameOutcome> {
        self.alive(Verb::Rename)?;
        self.edit().rename(from, to, options)
    }

    async fn disk_space(&self) -> Result<DiskSpace> {
        self.alive(Verb::DiskSpace)?;
        Ok(self.view().space())
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
            kind: BackendKind::Memory,
            root_aliases: vec![self.root.clone()],
            capabilities: Capabilities {
                search: true,
                file_modes: true,
                jail: true,
                atomic_write: true,
                exact_error_kinds: true,
                ..Capabilities::default()
            },
        }
    }

    async fn effective_policy(&self) -> Result<EffectivePolicy> {
        self.alive(Verb::Exec)?;
        Ok(EffectivePolicy::default())
    }

    fn status_publisher(&self) -> &StatusPublisher {
        &self.hub
    }

    async fn query_lost_call(&self, _: &LostCallId) -> Result<LostCallEffect> {
        self.alive(Verb::Connect)?;
        Ok(LostCallEffect::Unknown)
    }

    async fn connect(&self) -> Result<()> {
        self.alive(Verb::Connect)
    }

    async fn close(&self) -> Result<()> {
        self.hub.set(ConnectionStatus::Destroyed, None);
        Ok(())
    }
}
