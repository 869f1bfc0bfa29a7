//! Runs the commands of the local driver: turns a request into an isolated process.
//!
//! `settings` is the configuration. `probe` finds out which isolation works on this host,
//! `visible_files` opens the files that a command may see, `image` builds the process image, and
//! the supervisor runs the process.

mod binds;
mod canary;
mod ends;
mod git_config;
mod image;
mod mounts;
mod placeholder;
mod policy;
mod private;
mod probe;
mod requirements;
mod rlimits;
mod settings;
mod socket_overlays;
mod toolchain_paths;
mod trouble;
mod visible_files;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use ab_core::Verb;
use ab_core::effective_policy::{EffectivePolicy, Isolation};
use ab_core::error::{Error, ErrorCode, ErrorKind, Result};
use ab_core::process::{
    Command, DriverProcessChannels, ExecLimits, ExecRequest, ExitCause, Process, ProcessExit,
    ProcessId, ProcessInfo, ProcessLifetime,
};
use tokio::sync::OnceCell;

use crate::blocking;
use crate::limits::cgroup::Groups;
use crate::local::Shared;
use crate::process::child::Image;
use crate::process::running::{Reach, Running};
use crate::process::spawner::{self, FailedStart};
use crate::process::spool::{Bounds, Spool};
use crate::process::supervise::{Channels, Sink, Strays, SupervisorInputs, supervise};
use crate::process::table::{Entry, Place, Table};
use crate::process::watchdog;
use placeholder::Placeholder;
use visible_files::{Terms, VisibleFiles};

pub(crate) use visible_files::Origin;

pub(crate) use mounts::check as check_mounts;
pub use mounts::{MountedSockets, SandboxMount};
pub use requirements::{SandboxRequirement, check_path_restrictions_enforceable};
pub use settings::{
    CommandShell, GitIdentity, LocalExecSettings, OutputSpoolLimits, READABLE_SYSTEM_DIRS,
    SANDBOX_WORKSPACE_PATH, SYSTEM_PROGRAM_DIRS, Toolchain,
};
pub(crate) use toolchain_paths::remove_redirectable as remove_redirectable_toolchains;

/// Maximum length of a command line, in bytes.
pub(crate) const MAX_COMMAND: usize = 4 * 1024 * 1024;

/// Runs the commands of one driver.
#[derive(Debug)]
pub(crate) struct Runner {
    settings: LocalExecSettings,
    /// Directories and files of the host that commands see in addition to the workspace.
    mounts: Arc<[mounts::SandboxMount]>,
    table: Arc<Table>,
    probed: OnceCell<Arc<probe::ProbedIsolation>>,
    image_builder: image::ImageBuilder,
    privates: private::Privates,
    socket_overlays: OnceCell<Arc<socket_overlays::SocketOverlays>>,
}

/// A process that was just started, with our ends of its pipes or terminal.
struct Launched {
    running: Running,
    channels: Channels,
    held: HeldResources,
    limits: ExecLimits,
    strays: Strays,
}

/// Resources that a command needs while it runs, such as its control group. They are released when
/// it has ended.
#[derive(Debug)]
struct HeldResources {
    placeholders: Vec<Placeholder>,
    private: Option<Arc<private::Private>>,
}

impl Runner {
    pub(crate) fn new(settings: LocalExecSettings) -> Self {
        Self {
            mounts: mounts::all(&settings).into(),
            settings,
            table: Table::new(),
            probed: OnceCell::new(),
            image_builder: image::ImageBuilder::default(),
            privates: private::Privates::default(),
            socket_overlays: OnceCell::new(),
        }
    }

    pub(crate) async fn exec(
        &self,
        shared: &Arc<Shared>,
        request: ExecRequest,
        origin: Origin,
    ) -> Result<Process> {
        let line = request.command.to_shell_line();
        let named = |error: Error| error.with_verb(Verb::Exec).with_command(line.clone());
        check(&request.command).map_err(named)?;
        let probed = self.probed(shared).await.map_err(named)?;
        let place = self.table.enter().map_err(named)?;
        if request.lifetime == ProcessLifetime::Detached {
            self.table.reserve(&place, &request.cwd).map_err(named)?;
        }
        let launched = self.launch(shared, &probed, &request, origin, &place).await;
        let launched = launched.map_err(named)?;
        Ok(match request.lifetime {
            ProcessLifetime::Owned => self.held(launched, &request, place),
            ProcessLifetime::Detached => self.staying(launched, &request, place, line)?,
        })
    }

    pub(crate) fn processes(&self) -> Vec<ProcessInfo> {
        self.table.list()
    }

    pub(crate) fn attach(&self, id: &ProcessId, from: u64) -> Result<Process> {
        self.table.attach(id, from)
    }

    pub(crate) async fn effective_policy(&self, shared: &Arc<Shared>) -> Result<EffectivePolicy> {
        let probed = self.probed(shared).await?;
        let overlays = self.socket_overlays(shared, &probed).await?;
        let (settings, mounts) = (self.settings.clone(), self.mounts.clone());
        blocking::run(move |_| {
            // If no command can run with these settings, there is no policy to describe. The checks
            // then fail.
            requirements::check_network(&settings, probed.isolation)?;
            mounts::check_isolation(&mounts, probed.isolation)?;
            visible_files::check_limits(&settings.limits, probed.isolation)?;
            let accepted = requirements::accepted(&settings, &ExecLimits::default());
            visible_files::grouped(&settings.limits, &accepted, settings.control_group.as_ref())?;
            Ok(policy::describe(&settings, &probed, &overlays))
        })
        .await
    }

    /// Ends all processes, waits for their end, and removes the private directories of commands.
    pub(crate) async fn close(&self) {
        self.table.close().await;
        self.image_builder.clear();
        let lent = self.privates.take();
        blocking::finish(move || drop(lent)).await;
    }

    /// Returns the isolation that works on this host. It is tested only once.
    async fn probed(&self, shared: &Arc<Shared>) -> Result<Arc<probe::ProbedIsolation>> {
        let found = self.probed.get_or_try_init(|| probe::find(self, shared)).await?;
        Ok(found.clone())
    }

    /// Returns the overlays of the directories that commands may only read. Which of them can be
    /// mounted is tried only once.
    async fn socket_overlays(
        &self,
        shared: &Arc<Shared>,
        probed: &probe::ProbedIsolation,
    ) -> Result<Arc<socket_overlays::SocketOverlays>> {
        let Some(bwrap) = &probed.bwrap else { return Ok(Arc::default()) };
        let find = || {
            let (settings, system) = (self.settings.clone(), bwrap.system.clone());
            let roots = shared.aliases.clone();
            blocking::run(move |_| {
                socket_overlays::SocketOverlays::find(&settings, &system, &roots).map(Arc::new)
            })
        };
        Ok(self.socket_overlays.get_or_try_init(find).await?.clone())
    }

    /// Starts the command with the isolation of `probed`.
    async fn launch(
        &self,
        shared: &Arc<Shared>,
        probed: &Arc<probe::ProbedIsolation>,
        request: &ExecRequest,
        origin: Origin,
        place: &Place,
    ) -> Result<Launched> {
        requirements::check(&self.settings, probed.isolation, request)?;
        mounts::check_isolation(&self.mounts, probed.isolation)?;
        let accepted = requirements::accepted(&self.settings, &request.limits);
        let limits = match origin {
            Origin::Caller => request.limits.tightened_by(self.settings.limits),
            Origin::Operator => request.limits,
        };
        let (isolation, mounts) = (probed.isolation, self.mounts.clone());
        let total = self.settings.control_group.clone();
        let terms = Terms { isolation, limits, accepted, origin, mounts, total };
        let visible_files = visible_files::open(shared, request, terms).await?;
        self.launch_in(shared, visible_files, probed, request, place).await
    }

    /// Starts the command with the handles in `visible_files`.
    async fn launch_in(
        &self,
        shared: &Arc<Shared>,
        visible_files: VisibleFiles,
        probed: &Arc<probe::ProbedIsolation>,
        request: &ExecRequest,
        place: &Place,
    ) -> Result<Launched> {
        let cookie = self.table.cookie(place);
        let limits = visible_files.limits;
        let strays = match visible_files.origin {
            Origin::Caller => Strays::Left,
            Origin::Operator => Strays::Killed,
        };
        self.image_builder.screen(&self.settings, probed, request, &visible_files).await?;
        let sandbox_paths = image::place(&self.settings, probed, &visible_files)?;
        let private = self.private(shared, probed.isolation, request, &sandbox_paths).await?;
        let overlays = self.socket_overlays(shared, probed).await?;
        let (overlays, sockets) = overlays.for_command(request, &visible_files);
        let image_inputs = image::ImageInputs {
            settings: &self.settings,
            probed,
            visible_files: &visible_files,
            sandbox_paths,
            private: private.as_deref(),
            overlays,
            sockets,
        };
        let built = self.image_builder.build_image(image_inputs, request, &cookie)?;
        let image::BuiltImage { image, reach, mut channels } = built;
        let is_loose_bwrap = probed.bwrap.as_ref().is_some_and(|bwrap| !bwrap.own_family);
        let is_loose_program =
            visible_files.origin == Origin::Operator && probed.isolation != Isolation::Bwrap;
        if is_loose_bwrap || is_loose_program {
            // If our process is killed, only the watchdog can end the remaining processes. These
            // are the processes of a bwrap that was killed during its start, and the processes that
            // a program without namespaces has started.
            let stand = || watchdog::stand(&Groups::find().parents());
            blocking::run(move |_| stand().map_err(|error| unstarted(&error))).await?;
        }
        let entering = visible_files.entering().await;
        let started = spawner::start(Image { groups: visible_files.entries()?, ..image }).await;
        let (started, mut image) = started.map_err(|error| unstarted(&error))?;
        drop(entering);
        channels.keep_open(&mut image);
        let (group, placeholders) = visible_files.into_remains();
        let running = Running::new(started, reach, group, cookie);
        let mut running = running.map_err(|error| unstarted(&error))?;
        if limits.cpu.is_some() {
            running.measure_cpu_time();
        }
        let held = HeldResources { placeholders, private };
        Ok(Launched { running, channels, held, limits, strays })
    }

    /// Returns the private directories (`/tmp` and caches) of the workspace or scope that a command
    /// runs in. Returns `None` if the directories cannot be made outside of the workspace and the
    /// isolation works without them.
    async fn private(
        &self,
        shared: &Arc<Shared>,
        isolation: Isolation,
        request: &ExecRequest,
        sandbox_paths: &image::SandboxPaths,
    ) -> Result<Option<Arc<private::Private>>> {
        let scope_root = request.cwd.innermost_scope_root().as_str().to_owned();
        let tmp = match isolation {
            Isolation::Bwrap => private::TmpNeed::With(sandbox_paths.mount_points.clone()),
            Isolation::Landlock => private::TmpNeed::With(BTreeSet::new()),
            Isolation::Auto | Isolation::Software | Isolation::None => private::TmpNeed::None,
        };
        let place = match (private::place(&self.settings, shared), isolation) {
            (Some(place), _) => place,
            // The workspace is the whole host, so the directory lies in the workspace. This is
            // safe, because Landlock rules are made from handles.
            (None, Isolation::Landlock) => self.settings.temporary_dir.clone(),
            (None, _) => return Ok(None),
        };
        let root = shared.aliases.first().cloned().unwrap_or_default();
        let key = private::PrivateKey { root, scope_root, tmp };
        let lent = self.privates.lend(&self.settings, &place, key).await;
        match isolation {
            Isolation::Bwrap | Isolation::Landlock => lent.map(Some),
            Isolation::Auto | Isolation::Software | Isolation::None => Ok(lent.ok()),
        }
    }

    /// Supervises a process that ends when its handle is dropped.
    fn held(&self, launched: Launched, request: &ExecRequest, place: Place) -> Process {
        let Launched { running, channels, held, limits, strays } = launched;
        let (process, feed) =
            Process::new_with_driver_channels(self.table.id(&place), request.stdin);
        let DriverProcessChannels {
            output,
            stdin,
            control,
            exit: ending,
            process_dropped: handle_dropped,
        } = feed;
        let (handle_dropped, stop) = (Some(handle_dropped), self.table.stop());
        let inputs = SupervisorInputs { stdin, control, handle_dropped, stop, limits, strays };
        tokio::spawn(async move {
            let (exit, spent) = supervise(running, channels, Sink::Reader(output), inputs).await;
            release(held).await;
            ending.send(exit);
            drop(place);
            // Let the task that waits for the exit run before the channels are closed.
            tokio::task::yield_now().await;
            drop(spent);
        });
        process
    }

    /// Supervises a detached process. It stays in the table when its handle is dropped.
    fn staying(
        &self,
        launched: Launched,
        request: &ExecRequest,
        place: Place,
        line: String,
    ) -> Result<Process> {
        let Launched { running, channels, held, limits, strays } = launched;
        let id = self.table.id(&place);
        let (process, feed) = Process::new_with_driver_channels(id.clone(), request.stdin);
        let DriverProcessChannels { stdin, control, exit: ending, .. } = feed;
        let bounds = Bounds {
            memory: self.settings.output_spool.memory_bytes,
            disk: self.settings.output_spool.disk_bytes,
        };
        let spool = Arc::new(Spool::new(bounds, self.settings.temporary_dir.clone()));
        self.table.add(
            &place,
            Entry {
                id: id.clone(),
                command: line,
                cwd: request.cwd.clone(),
                started: SystemTime::now(),
                exit: None,
                spool: spool.clone(),
                stdin: process.stdin.clone(),
                control: process.control.clone(),
                ending: process.exit_receiver().clone(),
            },
        );
        let stop = self.table.stop();
        let inputs =
            SupervisorInputs { stdin, control, handle_dropped: None, stop, limits, strays };
        let staying = Staying { table: self.table.clone(), spool: spool.clone(), place };
        tokio::spawn(async move {
            let (exit, _spent) = supervise(running, channels, Sink::Spool(spool), inputs).await;
            release(held).await;
            staying.has_ended(&exit);
            ending.send(exit);
        });
        self.table.attach(&id, 0)
    }
}

/// Marks the entry of a detached process as ended when it is dropped. So the entry is also marked
/// if the task of the process is dropped before the process has ended.
struct Staying {
    table: Arc<Table>,
    spool: Arc<Spool>,
    place: Place,
}

impl Staying {
    fn has_ended(&self, exit: &ProcessExit) {
        self.spool.finish();
        self.table.ended(self.place.number, exit);
    }
}

impl Drop for Staying {
    fn drop(&mut self) {
        if self.table.runs(self.place.number) {
            self.has_ended(&ProcessExit {
                cause: ExitCause::DroppedByCaller,
                ..ProcessExit::default()
            });
        }
    }
}

impl Drop for Runner {
    /// Ends all processes of the driver, without waiting for their end.
    fn drop(&mut self) {
        self.table.abandon();
    }
}

fn check(command: &Command) -> Result<()> {
    let line = match command {
        Command::Shell(line) => line.len(),
        Command::Argv(words) => words.iter().map(|word| word.len() + 1).sum(),
    };
    if line > MAX_COMMAND {
        let message = format!("the command has {line} bytes, more than {MAX_COMMAND}");
        return Err(Error::new(ErrorCode::TooLarge, ErrorKind::TooLarge, message));
    }
    let nul = match command {
        Command::Shell(line) => line.contains('\0'),
        Command::Argv(words) => words.iter().any(|word| word.contains('\0')),
    };
    if nul {
        return Err(Error::new(
            ErrorCode::ExecError,
            ErrorKind::Invalid,
            "the command contains a NUL byte",
        ));
    }
    Ok(())
}

/// Releases the resources of a command that has ended. Uses a blocking thread if files have to be
/// removed.
async fn release(held: HeldResources) {
    // If other commands share the directory, it is not removed now, so dropping our reference does
    // not block.
    let last = held.private.as_ref().is_some_and(|lent| Arc::strong_count(lent) == 1);
    if last || !held.placeholders.is_empty() {
        blocking::finish(move || drop(held)).await;
    }
}

/// Creates the error for a process that could not be started.
fn unstarted(error: &std::io::Error) -> Error {
    let step = error.get_ref().and_then(|inner| inner.downcast_ref::<FailedStart>());
    let kind = match step.map(|failed| failed.0.errno) {
        Some(rustix::io::Errno::TOOBIG) => ErrorKind::TooLarge,
        Some(rustix::io::Errno::NOENT) => ErrorKind::NotFound,
        Some(rustix::io::Errno::ACCESS | rustix::io::Errno::PERM) => ErrorKind::PermissionDenied,
        _ => ErrorKind::Io,
    };
    let unstarted = Error::new(ErrorCode::ExecError, kind, error.to_string());
    match (step, error.raw_os_error()) {
        (Some(failed), _) => unstarted.with_source(FailedStart(failed.0)),
        (None, Some(number)) => unstarted.with_source(std::io::Error::from_raw_os_error(number)),
        (None, None) => unstarted,
    }
}
