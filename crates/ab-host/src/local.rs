//! The driver for a directory of this host.
//!
//! The caller's thread does small reads that the page cache can serve. Blocking threads do all
//! other work. The operations are in the modules `read`, `write`, `handle`, `tree` (listing and
//! removal), `search`, `place` (renames, links, attributes) and `describe`.

mod describe;
mod handle;
mod place;
mod read;
mod search;
mod tree;
mod walk;
mod write;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ab_core::driver::{BackendInfo, BackendKind, Capabilities, Driver, File};
use ab_core::effective_policy::EffectivePolicy;
use ab_core::error::{Error, ErrorCode, ErrorKind, Result};
use ab_core::metadata::{DiskSpace, FileContent, Listing, RemoveOutcome, RenameOutcome, Stat};
use ab_core::options::{
    AttributeChanges, LinkHandling, ListOptions, OpenOptions, ReadOptions, RemoveOptions,
    RenameOptions, StatOptions, WriteMode, WriteOptions,
};
use ab_core::process::{ExecRequest, Process, ProcessId, ProcessInfo};
use ab_core::search::{SearchQuery, SearchResults};
use ab_core::status::{ConnectionStatus, StatusPublisher};
use ab_core::{LostCallEffect, LostCallId, Verb, WsPath};
use async_trait::async_trait;
use bytes::Bytes;
use rustix::fd::OwnedFd;
use rustix::fs::{FsWord, OFlags, fstatfs};

use crate::blocking::{self, Cancel};
use crate::exec::{LocalExecSettings, Origin, Runner, SANDBOX_WORKSPACE_PATH};
use crate::failure::Act;
use crate::jail::{Final, Jail, open_host_dir};

pub(crate) use walk::Trouble;

/// The number by which the kernel identifies a tmpfs.
const TMPFS: FsWord = 0x0102_1994;

/// Returns whether a file is on a tmpfs, where reads and writes do not wait for a disk.
fn is_in_memory(file: &OwnedFd) -> bool {
    fstatfs(file).is_ok_and(|system| system.f_type == TMPFS)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingRootPolicy {
    #[default]
    Fail,
    Create,
}

/// How paths are confined to the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathResolutionMode {
    /// The kernel resolves a path in one call if it supports this. Otherwise the path is resolved
    /// as with `StepByStep`.
    #[default]
    Auto,
    /// A path is resolved one component at a time, as on hosts whose kernel or sandbox lacks
    /// `openat2`.
    StepByStep,
}

#[derive(Clone, Debug, Default)]
pub struct LocalDriverOptions {
    pub missing_root: MissingRootPolicy,
    pub path_resolution: PathResolutionMode,
    /// Further absolute paths that name the root, such as the path at which a sandbox mounts it.
    pub root_aliases: Vec<PathBuf>,
    /// The settings for commands.
    pub exec: LocalExecSettings,
}

/// The driver for a workspace that is a directory of this host.
pub struct LocalDriver {
    shared: Arc<Shared>,
    runner: Runner,
    hub: StatusPublisher,
}

/// The parts of the driver that the blocking threads need.
pub(crate) struct Shared {
    pub(crate) jail: Jail,
    /// The absolute paths that name the root. The first one is shown to users.
    pub(crate) aliases: Vec<String>,
}

impl LocalDriver {
    /// Opens the directory. The driver keeps a handle on the directory, so the driver still works
    /// after the directory is renamed.
    pub fn open(root: impl AsRef<Path>, mut options: LocalDriverOptions) -> Result<Self> {
        let root = root.as_ref();
        let refused = |message: String| {
            Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
                .with_backend_kind(BackendKind::Local)
        };
        if root.as_os_str().is_empty() {
            return Err(refused("the workspace root is an empty path".to_owned()));
        }
        if options.missing_root == MissingRootPolicy::Create {
            std::fs::create_dir_all(root).map_err(|error| {
                refused(format!("cannot create the workspace root {}: {error}", root.display()))
                    .with_hint("the root must be a directory, or a path where one can be created")
                    .with_source(error)
            })?;
        }
        let handle = open_host_dir(root).map_err(|errno| {
            let error = std::io::Error::from(errno);
            refused(format!("cannot open the workspace root {}: {error}", root.display()))
                .with_hint("the root must be an existing directory that the user can access")
                .with_source(error)
        })?;
        let named = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
        let real = std::fs::canonicalize(root).unwrap_or_else(|_| named.clone());
        let mut aliases = vec![named, real];
        crate::exec::check_mounts(&options.exec, &aliases)?;
        crate::exec::remove_redirectable_toolchains(&mut options.exec, &aliases);
        aliases.extend(options.root_aliases);
        // Callers may also use the paths that commands in the sandbox see.
        aliases.push(PathBuf::from(SANDBOX_WORKSPACE_PATH));
        aliases.dedup();
        let jail = match options.path_resolution {
            PathResolutionMode::Auto => Jail::new(handle, &aliases),
            PathResolutionMode::StepByStep => Jail::new(handle, &aliases).walking(),
        };
        let aliases = aliases.iter().filter_map(|path| path.to_str()).map(str::to_owned).collect();
        Ok(Self {
            shared: Arc::new(Shared { jail, aliases }),
            runner: Runner::new(options.exec),
            hub: StatusPublisher::new(ConnectionStatus::Connected),
        })
    }

    /// Starts a program that the operator configured. It runs in the same sandbox as commands of
    /// this workspace.
    ///
    /// There are two differences to [`Driver::exec`]. If no kernel mechanism isolates the program,
    /// its command line and variables are not checked. Only the limits of `request` apply, not the
    /// limits in [`LocalExecSettings::limits`].
    ///
    /// # Errors
    /// Fails in the same cases as [`Driver::exec`].
    pub async fn launch_operator_program(&self, request: ExecRequest) -> Result<Process> {
        self.run(request, Origin::Operator).await
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    async fn run(&self, request: ExecRequest, origin: Origin) -> Result<Process> {
        self.alive(Verb::Exec)?;
        let result = self.runner.exec(&self.shared, request, origin).await;
        result.map_err(|error| error.with_backend_kind(BackendKind::Local))
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

    /// Runs `work` on a blocking thread.
    async fn hop<T: Send + 'static>(
        &self,
        verb: Verb,
        path: &WsPath,
        work: impl FnOnce(&Shared, Act<'_>, &Cancel) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (shared, path) = (self.shared.clone(), path.clone());
        blocking::run(move |cancel| work(&shared, Act::new(verb, &path), cancel)).await
    }
}

impl fmt::Debug for LocalDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalDriver")
            .field("root", &self.shared.aliases.first())
            .field("status", &self.hub.current())
            .finish_non_exhaustive()
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Driver for LocalDriver {
    async fn stat(&self, path: &WsPath, options: StatOptions) -> Result<Stat> {
        self.alive(Verb::Stat)?;
        let (last, flags) = match options.links {
            LinkHandling::Follow => (Final::Follow, OFlags::PATH),
            LinkHandling::NoFollow => (Final::Keep, OFlags::PATH | OFlags::NOFOLLOW),
        };
        if let Some(handle) = self.shared.jail.open_cached(path, flags)
            && let Ok(stat) = describe::handle(&handle)
        {
            return Ok(stat.stat);
        }
        self.hop(Verb::Stat, path, move |shared, act, _| {
            let handle = shared.jail.open(act.path, OFlags::PATH, last);
            let handle = handle.map_err(|fault| act.failed(fault))?;
            Ok(describe::handle(&handle).map_err(|errno| act.failed(errno))?.stat)
        })
        .await
    }

    async fn list(&self, path: &WsPath, options: ListOptions) -> Result<Listing> {
        self.alive(Verb::List)?;
        self.hop(Verb::List, path, move |shared, act, cancel| {
            tree::list(shared, act, options, cancel)
        })
        .await
    }

    async fn search(&self, query: &SearchQuery) -> Result<SearchResults> {
        self.alive(Verb::Search)?;
        let query = query.clone();
        let root = query.root.clone();
        self.hop(Verb::Search, &root, move |shared, act, cancel| {
            search::search(shared, act, &query, cancel)
        })
        .await
    }

    async fn read(&self, path: &WsPath, options: ReadOptions) -> Result<FileContent> {
        self.alive(Verb::Read)?;
        if let Some(content) = read::from_cache(&self.shared, path, options) {
            return Ok(content);
        }
        self.hop(Verb::Read, path, move |shared, act, _| read::from_disk(shared, act, options))
            .await
    }

    async fn write(&self, path: &WsPath, content: Bytes, options: WriteOptions) -> Result<Stat> {
        let verb = match options.mode {
            WriteMode::CreateIfMissing => Verb::Touch,
            WriteMode::CreateOrReplace | WriteMode::CreateNew | WriteMode::Replace => Verb::Write,
        };
        self.alive(verb)?;
        self.hop(verb, path, move |shared, act, cancel| {
            write::replace(shared, act, &content, options, cancel)
        })
        .await
    }

    async fn open(&self, path: &WsPath, options: OpenOptions) -> Result<Box<dyn File>> {
        self.alive(Verb::Open)?;
        if let Some(file) = handle::open_cached(&self.shared, path, options) {
            return Ok(Box::new(file));
        }
        let file = self
            .hop(Verb::Open, path, move |shared, act, _| handle::open(shared, act, options))
            .await?;
        Ok(Box::new(file))
    }

    async fn set_attributes(&self, path: &WsPath, attributes: AttributeChanges) -> Result<Stat> {
        self.alive(Verb::SetAttributes)?;
        self.hop(Verb::SetAttributes, path, move |shared, act, _| {
            place::set_attributes(shared, act, attributes)
        })
        .await
    }

    async fn read_link(&self, path: &WsPath) -> Result<String> {
        self.alive(Verb::ReadLink)?;
        self.hop(Verb::ReadLink, path, |shared, act, _| place::read_link(shared, act)).await
    }

    async fn symlink(&self, path: &WsPath, target: &str) -> Result<()> {
        self.alive(Verb::Symlink)?;
        let target = target.to_owned();
        self.hop(Verb::Symlink, path, move |shared, act, _| place::symlink(shared, act, &target))
            .await
    }

    async fn create_dir(&self, path: &WsPath) -> Result<()> {
        self.alive(Verb::Mkdir)?;
        self.hop(Verb::Mkdir, path, |shared, act, _| {
            shared.jail.make_dir(act.path).map_err(|fault| act.failed(fault))
        })
        .await
    }

    async fn remove(&self, path: &WsPath, options: RemoveOptions) -> Result<RemoveOutcome> {
        self.alive(Verb::Delete)?;
        self.hop(Verb::Delete, path, move |shared, act, cancel| {
            tree::remove(shared, act, options, cancel)
        })
        .await
    }

    async fn rename(
        &self,
        from: &WsPath,
        to: &WsPath,
        options: RenameOptions,
    ) -> Result<RenameOutcome> {
        self.alive(Verb::Rename)?;
        let to = to.clone();
        self.hop(Verb::Rename, from, move |shared, act, _| place::rename(shared, act, &to, options))
            .await
    }

    async fn disk_space(&self) -> Result<DiskSpace> {
        self.alive(Verb::DiskSpace)?;
        self.hop(Verb::DiskSpace, &WsPath::root(), |shared, act, _| place::space(shared, act)).await
    }

    async fn exec(&self, request: ExecRequest) -> Result<Process> {
        self.run(request, Origin::Caller).await
    }

    async fn processes(&self) -> Result<Vec<ProcessInfo>> {
        self.alive(Verb::Processes)?;
        Ok(self.runner.processes())
    }

    async fn attach(&self, id: &ProcessId, from: u64) -> Result<Process> {
        self.alive(Verb::Attach)?;
        self.runner.attach(id, from)
    }

    fn info(&self) -> BackendInfo {
        BackendInfo {
            kind: BackendKind::Local,
            root_aliases: self.shared.aliases.clone(),
            capabilities: Capabilities {
                exec: true,
                detached_processes: true,
                search: true,
                symlinks: true,
                file_modes: true,
                empty_dirs: true,
                jail: true,
                atomic_write: true,
                exact_error_kinds: true,
            },
        }
    }

    async fn effective_policy(&self) -> Result<EffectivePolicy> {
        self.alive(Verb::Exec)?;
        self.runner.effective_policy(&self.shared).await
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
        self.runner.close().await;
        Ok(())
    }
}
