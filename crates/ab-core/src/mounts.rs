//! Shows several workspaces as one tree. The tree consists of a base and of other workspaces that
//! are mounted at paths in the base.
//!
//! - A path belongs to the mount with the longest mount point that is a prefix of it, by whole
//!   segments.
//! - A mount point and its parent directories always exist. Files of the base at or below a mount
//!   point cannot be reached.
//! - A link is resolved by the driver in which it is stored, so it never leads into another mount.
//! - The tree has a capability ([`Capabilities`]) only if the base and all mounts have it.
//! - Mounted workspaces belong to their creators. The tree neither opens nor destroys them.

mod list;
mod parts;
mod processes;
mod relocate;

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;

use crate::call::{Actor, Verb};
use crate::driver::{BackendInfo, BackendKind, Capabilities, Driver, File};
use crate::effective_policy::EffectivePolicy;
use crate::error::{Error, ErrorCode, ErrorKind, Result};
use crate::life::Life;
use crate::lost_call::{LostCallEffect, LostCallId};
use crate::metadata::{
    DiskSpace, FileContent, FileKind, FileVersion, Listing, RemoveOutcome, RenameOutcome, Stat,
};
use crate::options::{
    AttributeChanges, LinkHandling, ListOptions, OpenOptions, OverwriteMode, ReadOptions,
    RemoveOptions, RenameOptions, StatOptions, WriteMode, WriteOptions,
};
use crate::path::WsPath;
use crate::process::{ExecRequest, Process, ProcessId, ProcessInfo};
use crate::search::{IgnoreFileHandling, SearchQuery, SearchResults};
use crate::stack::Stack;
use crate::status::StatusPublisher;

use parts::{MountedFile, Part};

const KEEP: StatOptions = StatOptions { links: LinkHandling::NoFollow };
const HOLDS_A_MOUNT: &str = "it holds a mount";

#[derive(Debug)]
pub(crate) struct Mounts {
    base: Stack,
    /// The mounts in path order.
    mounts: Vec<Mount>,
    /// The mount point of the base, which is the root.
    root: WsPath,
}

/// A workspace and its mount point.
#[derive(Clone, Debug)]
pub(crate) struct Mount {
    pub(crate) point: WsPath,
    pub(crate) stack: Stack,
    /// The lifetime of the mounted handle. If its owner destroys the handle, calls on this mount
    /// fail too.
    pub(crate) life: Arc<Life>,
}

impl Mounts {
    pub(crate) fn new(base: Stack, mount: Mount) -> Result<Self> {
        Self { base, mounts: Vec::new(), root: WsPath::root() }.with(mount)
    }

    /// The same tree with an additional mount. The order in which mounts are added does not matter.
    pub(crate) fn with(&self, mount: Mount) -> Result<Self> {
        let refused = |message: &str| {
            let path = mount.point.to_string();
            Err(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
                .with_path(path))
        };
        if mount.point.is_root() {
            return refused("the root of the workspace cannot be a mount point");
        }
        if self.mounts.iter().any(|other| other.point == mount.point) {
            return refused("the path is already a mount point");
        }
        let mut mounts: Vec<Mount> = self.mounts.iter().cloned().chain([mount]).collect();
        mounts.sort_by(|a, b| a.point.cmp(&b.point));
        Ok(Self { base: self.base.clone(), mounts, root: WsPath::root() })
    }

    /// The same tree for another actor.
    pub(crate) fn acting_as(&self, actor: &Actor) -> Self {
        let again = |mount: &Mount| Mount { stack: mount.stack.acting_as(actor), ..mount.clone() };
        let mounts = self.mounts.iter().map(again).collect();
        Self { base: self.base.acting_as(actor), mounts, root: WsPath::root() }
    }

    /// The base or mount that contains `path`. Fails if its workspace was destroyed.
    fn part(&self, verb: Verb, path: &WsPath) -> Result<Part<'_>> {
        let part = self.owner(path);
        part.check(verb)?;
        Ok(part)
    }

    fn owner(&self, path: &WsPath) -> Part<'_> {
        let over = self.mounts.iter().filter(|mount| path.starts_with(&mount.point));
        let nearest = over.max_by_key(|mount| mount.point.as_str().len());
        nearest.map_or_else(|| self.base_part(), Part::of)
    }

    fn base_part(&self) -> Part<'_> {
        Part { driver: &**self.base.driver(), point: &self.root, life: None }
    }

    fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        [self.base_part()].into_iter().chain(self.mounts.iter().map(Part::of))
    }

    /// The mounts strictly below `path`.
    fn below<'a>(&'a self, path: &'a WsPath) -> impl Iterator<Item = &'a Mount> {
        self.mounts.iter().filter(move |m| m.point != *path && m.point.starts_with(path))
    }

    /// Whether `path` is a parent directory of a mount point.
    fn leads_to_a_mount(&self, path: &WsPath) -> bool {
        self.below(path).next().is_some()
    }

    /// Whether `path` is a mount point or a parent directory of one.
    fn holds_a_mount(&self, path: &WsPath) -> bool {
        self.mounts.iter().any(|mount| mount.point.starts_with(path))
    }

    /// Fails if `path` is a parent directory of a mount point. Such a path is a directory, even if
    /// the workspace that contains it has a file there.
    fn refuse_dir(&self, verb: Verb, path: &WsPath) -> Result<()> {
        if self.leads_to_a_mount(path) {
            Err(Error::for_path(verb, path, ErrorKind::IsADirectory, "is a directory"))
        } else {
            Ok(())
        }
    }

    fn virtual_dir(&self) -> Stat {
        Stat {
            kind: FileKind::Dir,
            size: 0,
            modified: SystemTime::UNIX_EPOCH,
            accessed: None,
            created: None,
            mode: self.base.driver().info().capabilities.file_modes.then_some(0o755),
            version: FileVersion::new(0),
        }
    }

    /// Refuses renames that would move or replace mount points.
    async fn refuse_moving_mounts(
        &self,
        from: &WsPath,
        to: &WsPath,
        options: RenameOptions,
    ) -> Result<()> {
        let verb = Verb::Rename;
        if let Some(root) = [from, to].into_iter().find(|path| path.is_root()) {
            let message = "the root of the workspace cannot be moved or removed";
            return Err(Error::for_path(verb, root, ErrorKind::Invalid, message));
        }
        if self.holds_a_mount(from) && from != to {
            return Err(Error::for_path(verb, from, ErrorKind::Invalid, HOLDS_A_MOUNT));
        }
        if !self.holds_a_mount(to) || from == to {
            return Ok(());
        }
        let source = self.stat(from, KEEP).await.map_err(|error| error.with_verb(verb))?;
        Err(match (options.overwrite, source.kind) {
            (OverwriteMode::Refuse, _) => {
                Error::for_path(verb, to, ErrorKind::AlreadyExists, "the path already exists")
            }
            (OverwriteMode::Replace, FileKind::Dir) => {
                Error::for_path(verb, to, ErrorKind::Invalid, HOLDS_A_MOUNT)
            }
            (OverwriteMode::Replace, FileKind::File | FileKind::Symlink | FileKind::Other) => {
                Error::for_path(verb, to, ErrorKind::IsADirectory, "the target is a directory")
            }
        })
    }
}

fn nothing_there(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Driver for Mounts {
    async fn stat(&self, path: &WsPath, options: StatOptions) -> Result<Stat> {
        let part = self.part(Verb::Stat, path)?;
        let inward = part.inward(path);
        if !self.leads_to_a_mount(path) {
            return part.shown(part.driver.stat(&inward, options).await);
        }
        match part.driver.stat(&inward, KEEP).await {
            Ok(stat) if stat.kind.is_dir() => Ok(stat),
            Ok(_) => Ok(self.virtual_dir()),
            Err(error) if nothing_there(&error) => Ok(self.virtual_dir()),
            Err(error) => part.shown(Err(error)),
        }
    }

    async fn list(&self, path: &WsPath, options: ListOptions) -> Result<Listing> {
        let part = self.part(Verb::List, path)?;
        if self.leads_to_a_mount(path) {
            return list::merged(self, part, path, options).await;
        }
        let listing = part.driver.list(&part.inward(path), options).await;
        part.shown(listing).map(|listing| part.shown_listing(listing))
    }

    async fn search(&self, query: &SearchQuery) -> Result<SearchResults> {
        let part = self.part(Verb::Search, &query.root)?;
        // Ignore files apply from the root of the whole tree downwards. The driver of a mount can
        // read only the ignore files inside the mount.
        let ignores_begin_there = match query.ignore_files {
            IgnoreFileHandling::Disregard => true,
            IgnoreFileHandling::Honour => part.point.is_root(),
        };
        let whole = ignores_begin_there && !self.leads_to_a_mount(&query.root);
        if !whole || !part.driver.info().capabilities.search {
            return crate::search::search_by_listing(self, query).await;
        }
        let inward = SearchQuery { root: part.inward(&query.root), ..query.clone() };
        let mut found = part.shown(part.driver.search(&inward).await)?;
        for item in &mut found.matches {
            *item.path_mut() = part.outward(item.path());
        }
        part.show_problems(&mut found.problems);
        Ok(found)
    }

    async fn read(&self, path: &WsPath, options: ReadOptions) -> Result<FileContent> {
        self.refuse_dir(Verb::Read, path)?;
        let part = self.part(Verb::Read, path)?;
        part.shown(part.driver.read(&part.inward(path), options).await)
    }

    async fn write(&self, path: &WsPath, content: Bytes, options: WriteOptions) -> Result<Stat> {
        let verb = match options.mode {
            WriteMode::CreateIfMissing => Verb::Touch,
            WriteMode::CreateOrReplace | WriteMode::CreateNew | WriteMode::Replace => Verb::Write,
        };
        self.refuse_dir(verb, path)?;
        let part = self.part(verb, path)?;
        part.shown(part.driver.write(&part.inward(path), content, options).await)
    }

    async fn open(&self, path: &WsPath, options: OpenOptions) -> Result<Box<dyn File>> {
        self.refuse_dir(Verb::Open, path)?;
        let part = self.part(Verb::Open, path)?;
        let inner = part.shown(part.driver.open(&part.inward(path), options).await)?;
        if part.point.is_root() {
            return Ok(inner);
        }
        Ok(Box::new(MountedFile { inner, point: part.point.clone() }))
    }

    async fn set_attributes(&self, path: &WsPath, attributes: AttributeChanges) -> Result<Stat> {
        let verb = Verb::SetAttributes;
        let part = self.part(verb, path)?;
        let inward = part.inward(path);
        match part.driver.set_attributes(&inward, attributes).await {
            Err(error) if nothing_there(&error) && self.leads_to_a_mount(path) => {
                let message = "the directory exists only because of a mount and cannot hold files";
                Err(Error::for_path(verb, path, ErrorKind::Unsupported, message))
            }
            result => part.shown(result),
        }
    }

    async fn read_link(&self, path: &WsPath) -> Result<String> {
        let part = self.part(Verb::ReadLink, path)?;
        if self.leads_to_a_mount(path) {
            return Err(Error::for_path(Verb::ReadLink, path, ErrorKind::Invalid, "not a link"));
        }
        part.shown(part.driver.read_link(&part.inward(path)).await)
    }

    async fn symlink(&self, path: &WsPath, target: &str) -> Result<()> {
        let part = self.part(Verb::Symlink, path)?;
        if self.leads_to_a_mount(path) {
            let message = "the path already exists";
            return Err(Error::for_path(Verb::Symlink, path, ErrorKind::AlreadyExists, message));
        }
        part.shown(part.driver.symlink(&part.inward(path), target).await)
    }

    async fn create_dir(&self, path: &WsPath) -> Result<()> {
        let part = self.part(Verb::Mkdir, path)?;
        match part.driver.create_dir(&part.inward(path)).await {
            // The base has a file at this path. It is hidden, because a mount below makes the path
            // a directory.
            Err(error)
                if matches!(error.kind(), ErrorKind::AlreadyExists | ErrorKind::NotADirectory)
                    && self.leads_to_a_mount(path) =>
            {
                Ok(())
            }
            result => part.shown(result),
        }
    }

    async fn remove(&self, path: &WsPath, options: RemoveOptions) -> Result<RemoveOutcome> {
        let part = self.part(Verb::Delete, path)?;
        if self.holds_a_mount(path) && !path.is_root() {
            return Err(Error::for_path(Verb::Delete, path, ErrorKind::Invalid, HOLDS_A_MOUNT));
        }
        part.shown(part.driver.remove(&part.inward(path), options).await)
    }

    async fn rename(
        &self,
        from: &WsPath,
        to: &WsPath,
        options: RenameOptions,
    ) -> Result<RenameOutcome> {
        let (source, target) = (self.part(Verb::Rename, from)?, self.part(Verb::Rename, to)?);
        self.refuse_moving_mounts(from, to, options).await?;
        if from == to {
            self.stat(from, KEEP).await.map_err(|error| error.with_verb(Verb::Rename))?;
            return Ok(RenameOutcome { atomic: true });
        }
        let (inward_from, inward_to) = (source.inward(from), target.inward(to));
        if source.point != target.point {
            return relocate::run((source, &inward_from), (target, &inward_to), options).await;
        }
        source.shown(source.driver.rename(&inward_from, &inward_to, options).await)
    }

    /// The disk space of the base. The mounts have disk space of their own.
    async fn disk_space(&self) -> Result<DiskSpace> {
        self.base.driver().disk_space().await
    }

    async fn exec(&self, request: ExecRequest) -> Result<Process> {
        processes::exec(self, request).await
    }

    async fn processes(&self) -> Result<Vec<ProcessInfo>> {
        processes::all(self).await
    }

    async fn attach(&self, id: &ProcessId, from: u64) -> Result<Process> {
        processes::attach(self, id, from).await
    }

    fn info(&self) -> BackendInfo {
        let base = self.base.driver().info();
        let everywhere = |a: Capabilities, b: Capabilities| Capabilities {
            // A command runs in the workspace that contains its working directory. By default this
            // is the base.
            exec: a.exec,
            detached_processes: a.detached_processes,
            // This view searches workspaces whose drivers cannot search.
            search: true,
            symlinks: a.symlinks && b.symlinks,
            file_modes: a.file_modes && b.file_modes,
            empty_dirs: a.empty_dirs && b.empty_dirs,
            jail: a.jail && b.jail,
            atomic_write: a.atomic_write && b.atomic_write,
            exact_error_kinds: a.exact_error_kinds && b.exact_error_kinds,
        };
        let capabilities = self
            .mounts
            .iter()
            .map(|mount| mount.stack.driver().info().capabilities)
            .fold(base.capabilities, everywhere);
        BackendInfo { kind: BackendKind::Mounts, root_aliases: base.root_aliases, capabilities }
    }

    async fn effective_policy(&self) -> Result<EffectivePolicy> {
        self.base.driver().effective_policy().await
    }

    fn status_publisher(&self) -> &StatusPublisher {
        self.base.driver().status_publisher()
    }

    async fn query_lost_call(&self, ticket: &LostCallId) -> Result<LostCallEffect> {
        for part in self.parts() {
            part.check(Verb::Connect)?;
            match part.driver.query_lost_call(ticket).await? {
                LostCallEffect::Unknown => {}
                known => return Ok(known),
            }
        }
        Ok(LostCallEffect::Unknown)
    }

    async fn connect(&self) -> Result<()> {
        for part in self.parts() {
            part.check(Verb::Connect)?;
            part.driver.connect().await?;
        }
        Ok(())
    }

    /// Does nothing, because a view must not destroy the workspaces that it shows.
    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
