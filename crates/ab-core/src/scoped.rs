//! A view that shows a subdirectory as a whole workspace.
//!
//! The view puts the path of the subdirectory before each path that goes to the driver. It marks
//! this prefix as a scope root, so that not even a link can lead outside. It removes the prefix
//! from paths that come back, including paths in errors. The caller therefore learns nothing about
//! the directories above.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::OnceCell;

use crate::call::Verb;
use crate::driver::{BackendInfo, BackendKind, Driver, File};
use crate::effective_policy::EffectivePolicy;
use crate::error::{Error, ErrorCode, ErrorKind, Result};
use crate::lost_call::{LostCallEffect, LostCallId};
use crate::metadata::{
    DiskSpace, FileContent, FileKind, FileVersion, Listing, RemoveOutcome, RenameOutcome, Stat,
    WalkProblem,
};
use crate::options::{
    AttributeChanges, FileCreationMode, ListOptions, OpenOptions, ReadOptions, RemoveOptions,
    RenameOptions, StatOptions, WriteOptions,
};
use crate::path::{MAX_PATH_BYTES, WsPath};
use crate::process::{ExecRequest, Process, ProcessId, ProcessInfo};
use crate::search::{SearchQuery, SearchResults};
use crate::status::StatusPublisher;

#[derive(Debug)]
pub(crate) struct Scoped {
    inner: Arc<dyn Driver>,
    /// The path of the subdirectory, with a scope root at its end.
    prefix: WsPath,
    env: BTreeMap<String, String>,
    /// Whether the subdirectory has been created. Shared with the views of the same scope for other
    /// actors.
    root_made: Arc<OnceCell<()>>,
}

impl Scoped {
    pub(crate) fn new(
        inner: Arc<dyn Driver>,
        prefix: &WsPath,
        env: BTreeMap<String, String>,
    ) -> Self {
        Self { inner, prefix: prefix.clone().into_scope_root(), env, root_made: Arc::default() }
    }

    /// The same scope over `inner`, which is another driver of the same workspace.
    pub(crate) fn over(&self, inner: Arc<dyn Driver>) -> Self {
        let (prefix, env) = (self.prefix.clone(), self.env.clone());
        Self { inner, prefix, env, root_made: self.root_made.clone() }
    }

    fn outward(&self, path: &WsPath) -> Result<WsPath> {
        let joined = self.prefix.join(path);
        if joined.as_str().len() > MAX_PATH_BYTES {
            let message = format!("longer than {MAX_PATH_BYTES} bytes inside its scope");
            return Err(Error::new(ErrorCode::InvalidPath, ErrorKind::InvalidPath, message)
                .with_path(path.to_string()));
        }
        Ok(joined)
    }

    fn inward(&self, path: &WsPath) -> WsPath {
        path.strip_prefix(&self.prefix).unwrap_or_else(|| path.clone())
    }

    fn inward_text(&self, text: &str) -> Option<String> {
        without_prefix(&self.prefix, text)
    }

    fn shown_problems(&self, problems: &mut [WalkProblem]) {
        for problem in problems {
            if let Some(path) = self.inward_text(&problem.path) {
                problem.path = path;
            }
            problem.error = problem.error.clone().map_path(|path| self.inward_text(path));
        }
    }

    fn shown<T>(&self, result: Result<T>) -> Result<T> {
        shown(&self.prefix, result)
    }

    /// Fails if the path is the root of the scope. The root counts as a directory even before it is
    /// created.
    fn refuse_dir(verb: Verb, path: &WsPath) -> Result<()> {
        if path.is_root() {
            Err(Error::for_path(verb, path, ErrorKind::IsADirectory, "is a directory"))
        } else {
            Ok(())
        }
    }

    /// Creates the directory of the scope before the first change. Concurrent callers create it
    /// only once.
    async fn ensure_root(&self) -> Result<()> {
        let made = self.root_made.get_or_try_init(|| self.make_root()).await;
        self.shown(made.map(|_| ()).map_err(|error| match error.kind() {
            // The operation that needs the root did not try to create a directory.
            ErrorKind::AlreadyExists => {
                let message = "the scope is a file, not a directory";
                Error::new(error.code(), ErrorKind::NotADirectory, message)
                    .with_hint("choose a directory for the scope")
            }
            _ => error,
        }))
    }

    async fn make_root(&self) -> Result<()> {
        let Err(error) = self.inner.create_dir(&self.prefix).await else { return Ok(()) };
        // A handle that cannot change the directory can still use it, if it exists.
        match self.inner.stat(&self.prefix, StatOptions::default()).await {
            Ok(found) if found.kind == FileKind::Dir => Ok(()),
            Ok(_) | Err(_) => Err(error),
        }
    }
}

fn without_prefix(prefix: &WsPath, text: &str) -> Option<String> {
    if prefix.is_root() {
        return None;
    }
    let rest = text.strip_prefix(prefix.as_str())?;
    match rest.strip_prefix('/') {
        Some(below) => Some(below.to_owned()),
        None if rest.is_empty() => Some(WsPath::root().to_string()),
        None => None,
    }
}

/// Removes the prefix from the path in an error.
fn shown<T>(prefix: &WsPath, result: Result<T>) -> Result<T> {
    result.map_err(|error| error.map_path(|path| without_prefix(prefix, path)))
}

/// An open file. The prefix is removed from the paths in its errors.
#[derive(Debug)]
struct ScopedFile {
    inner: Box<dyn File>,
    prefix: WsPath,
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl File for ScopedFile {
    async fn read_at(&self, offset: u64, length: usize) -> Result<Bytes> {
        shown(&self.prefix, self.inner.read_at(offset, length).await)
    }

    async fn write_at(&self, offset: u64, bytes: Bytes) -> Result<()> {
        shown(&self.prefix, self.inner.write_at(offset, bytes).await)
    }

    async fn set_len(&self, length: u64) -> Result<()> {
        shown(&self.prefix, self.inner.set_len(length).await)
    }

    async fn stat(&self) -> Result<Stat> {
        shown(&self.prefix, self.inner.stat().await)
    }

    async fn set_attributes(&self, attributes: AttributeChanges) -> Result<Stat> {
        shown(&self.prefix, self.inner.set_attributes(attributes).await)
    }

    async fn sync(&self) -> Result<()> {
        shown(&self.prefix, self.inner.sync().await)
    }
}

fn refuse_root(verb: Verb, path: &WsPath) -> Result<()> {
    if path.is_root() {
        let message = "the root of a scope cannot be moved or removed";
        return Err(Error::for_path(verb, path, ErrorKind::Invalid, message));
    }
    Ok(())
}

/// The attributes of the root of a scope until the first write creates it.
fn virtual_root() -> Stat {
    Stat {
        kind: FileKind::Dir,
        size: 0,
        modified: SystemTime::UNIX_EPOCH,
        accessed: None,
        created: None,
        mode: None,
        version: FileVersion::new(0),
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Driver for Scoped {
    async fn stat(&self, path: &WsPath, options: StatOptions) -> Result<Stat> {
        match self.inner.stat(&self.outward(path)?, options).await {
            Err(error) if path.is_root() && error.kind() == ErrorKind::NotFound => {
                Ok(virtual_root())
            }
            result => self.shown(result),
        }
    }

    async fn list(&self, path: &WsPath, options: ListOptions) -> Result<Listing> {
        let mut listing = match self.inner.list(&self.outward(path)?, options).await {
            Err(error) if path.is_root() && error.kind() == ErrorKind::NotFound => {
                Listing::default()
            }
            result => self.shown(result)?,
        };
        for entry in &mut listing.entries {
            entry.path = self.inward(&entry.path);
        }
        self.shown_problems(&mut listing.problems);
        Ok(listing)
    }

    async fn search(&self, query: &SearchQuery) -> Result<SearchResults> {
        let query = SearchQuery { root: self.outward(&query.root)?, ..query.clone() };
        let mut found = self.shown(self.inner.search(&query).await)?;
        for item in &mut found.matches {
            *item.path_mut() = self.inward(item.path());
        }
        self.shown_problems(&mut found.problems);
        Ok(found)
    }

    async fn read(&self, path: &WsPath, options: ReadOptions) -> Result<FileContent> {
        Self::refuse_dir(Verb::Read, path)?;
        self.shown(self.inner.read(&self.outward(path)?, options).await)
    }

    async fn write(&self, path: &WsPath, content: Bytes, options: WriteOptions) -> Result<Stat> {
        Self::refuse_dir(Verb::Write, path)?;
        let path = self.outward(path)?;
        self.ensure_root().await?;
        self.shown(self.inner.write(&path, content, options).await)
    }

    async fn open(&self, path: &WsPath, options: OpenOptions) -> Result<Box<dyn File>> {
        Self::refuse_dir(Verb::Open, path)?;
        let path = self.outward(path)?;
        match options.create {
            FileCreationMode::Never => {}
            FileCreationMode::IfMissing | FileCreationMode::MustBeNew => self.ensure_root().await?,
        }
        let inner = self.shown(self.inner.open(&path, options).await)?;
        Ok(Box::new(ScopedFile { inner, prefix: self.prefix.clone() }))
    }

    async fn set_attributes(&self, path: &WsPath, attributes: AttributeChanges) -> Result<Stat> {
        self.shown(self.inner.set_attributes(&self.outward(path)?, attributes).await)
    }

    async fn read_link(&self, path: &WsPath) -> Result<String> {
        self.shown(self.inner.read_link(&self.outward(path)?).await)
    }

    async fn symlink(&self, path: &WsPath, target: &str) -> Result<()> {
        let path = self.outward(path)?;
        self.ensure_root().await?;
        self.shown(self.inner.symlink(&path, target).await)
    }

    async fn create_dir(&self, path: &WsPath) -> Result<()> {
        let path = self.outward(path)?;
        self.ensure_root().await?;
        self.shown(self.inner.create_dir(&path).await)
    }

    async fn remove(&self, path: &WsPath, options: RemoveOptions) -> Result<RemoveOutcome> {
        refuse_root(Verb::Delete, path)?;
        self.shown(self.inner.remove(&self.outward(path)?, options).await)
    }

    async fn rename(
        &self,
        from: &WsPath,
        to: &WsPath,
        options: RenameOptions,
    ) -> Result<RenameOutcome> {
        refuse_root(Verb::Rename, from)?;
        refuse_root(Verb::Rename, to)?;
        let (from, to) = (self.outward(from)?, self.outward(to)?);
        self.shown(self.inner.rename(&from, &to, options).await)
    }

    async fn disk_space(&self) -> Result<DiskSpace> {
        self.inner.disk_space().await
    }

    async fn exec(&self, mut request: ExecRequest) -> Result<Process> {
        request.cwd = self.outward(&request.cwd)?;
        request.restrictions = request.restrictions.map_paths(|path| self.prefix.join(path));
        self.ensure_root().await?;
        for (key, value) in &self.env {
            request.env.entry(key.clone()).or_insert_with(|| value.clone());
        }
        self.shown(self.inner.exec(request).await)
    }

    async fn processes(&self) -> Result<Vec<ProcessInfo>> {
        let mut processes = self.shown(self.inner.processes().await)?;
        processes.retain(|process| process.cwd.starts_with(&self.prefix));
        for process in &mut processes {
            process.cwd = self.inward(&process.cwd);
        }
        Ok(processes)
    }

    async fn attach(&self, id: &ProcessId, from: u64) -> Result<Process> {
        let own = self.processes().await?.iter().any(|process| process.id == *id);
        if !own {
            let message = format!("no process {id} in this scope");
            return Err(Error::new(ErrorCode::ExecError, ErrorKind::NotFound, message)
                .with_verb(Verb::Attach));
        }
        self.shown(self.inner.attach(id, from).await)
    }

    fn info(&self) -> BackendInfo {
        let inner = self.inner.info();
        let below = |alias: &String| {
            if self.prefix.is_root() {
                alias.clone()
            } else {
                format!("{}/{}", alias.trim_end_matches('/'), self.prefix)
            }
        };
        BackendInfo {
            kind: BackendKind::Scoped,
            root_aliases: inner.root_aliases.iter().map(below).collect(),
            capabilities: inner.capabilities,
        }
    }

    async fn effective_policy(&self) -> Result<EffectivePolicy> {
        self.inner.effective_policy().await
    }

    fn status_publisher(&self) -> &StatusPublisher {
        self.inner.status_publisher()
    }

    async fn query_lost_call(&self, ticket: &LostCallId) -> Result<LostCallEffect> {
        self.inner.query_lost_call(ticket).await
    }

    async fn connect(&self) -> Result<()> {
        self.inner.connect().await
    }

    /// Does nothing, because a scope must not destroy the workspace that it shows.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
