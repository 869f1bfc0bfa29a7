//! Runs the commands of the local driver: turns a request into an isolated process.
//!
//! `settings` is the configuration, `standing` finds the isolation that works on this host, `scene`
//! opens what a command may see, `dress` builds the process image, and the supervisor runs it.

mod binds;
mod canary;
mod dress;
mod ends;
mod mounts;
mod placeholder;
mod policy;
mod private;
mod requirements;
mod scene;
mod settings;
mod standing;
mod trouble;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ab_core::Verb;
use ab_core::effective::{EffectivePolicy, Isolation};
use ab_core::error::{Error, ErrorCode, ErrorKind, Result};
use ab_core::process::{
    Command, ExecLimits, ExecRequest, ExitCause, Process, ProcessDriverSide, ProcessExit,
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
use crate::process::supervise::{Channels, Reins, Sink, Strays, supervise};
use crate::process::table::{Entry, Place, Table};
use crate::process::watchdog;
use placeholder::Placeholder;
use scene::{Scene, Terms};

pub(crate) use scene::Origin;

pub use mounts::SandboxMount;
pub(crate) use mounts::check as check_mounts;
pub use requirements::{SandboxRequirement, check_restrictions_enforceable};
pub use settings::{
    ExecSettings, OutputSpoolLimits, READABLE_SYSTEM_DIRS, SANDBOX_WORKSPACE_PATH,
    SYSTEM_PROGRAM_DIRS, Shell, Toolchain,
};

/// Maximum length of a command line, in bytes.
pub(crate) const MAX_COMMAND: usize = 4 * 1024 * 1024;

/// Runs the commands of one driver.
#[derive(Debug)]
pub(crate) struct Runner {
    settings: ExecSettings,
    /// Directories and files of the host that commands see beside the workspace.
    mounts: Arc<[mounts::SandboxMount]>,
    table: Arc<Table>,
    standing: OnceCell<Arc<standing::Standing>>,
    wardrobe: dress::Wardrobe,
    privates: private::Privates,
}

/// A process that was just started, and our ends of its channels.
struct Launched {
    running: Running,
    channels: Channels,
    remains: Remains,
    wall: Option<Duration>,
    strays: Strays,
}

/// Resources that must outlive a command and are released after its end.
#[derive(Debug)]
struct Remains {
    placeholders: Vec<Placeholder>,
    private: Option<Arc<private::Private>>,
}

impl Runner {
    pub(crate) fn new(settings: ExecSettings) -> Self {
        Self {
            mounts: mounts::all(&settings).into(),
            settings,
            table: Table::new(),
            standing: OnceCell::new(),
            wardrobe: dress::Wardrobe::default(),
            privates: private::Privates::default(),
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
        let standing = self.standing(shared).await.map_err(named)?;
        let place = self.table.enter().map_err(named)?;
        if request.lifetime == ProcessLifetime::Detached {
            self.table.reserve(&place, &request.cwd).map_err(named)?;
        }
        let launched = self.launch(shared, &standing, &request, origin, &place).await;
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
        let standing = self.standing(shared).await?;
        let (settings, mounts) = (self.settings.clone(), self.mounts.clone());
        blocking::run(move |_| {
            // If no command can run, there is no policy to describe.
            requirements::check_network(&settings, standing.isolation)?;
            mounts::check_isolation(&mounts, standing.isolation)?;
            scene::check_file_size(&settings.limits, standing.isolation)?;
            let accepted = requirements::accepted(&settings, &ExecLimits::default());
            scene::grouped(&settings.limits, &accepted, settings.control_group.as_ref())?;
            Ok(policy::describe(&settings, &standing))
        })
        .await
    }

    /// Ends every process, waits for it, and removes the private directories of commands.
    pub(crate) async fn close(&self) {
        self.table.close().await;
        self.wardrobe.clear();
        let lent = self.privates.take();
        blocking::finish(move || drop(lent)).await;
    }

    /// The isolation that works on this host, tested once.
    async fn standing(&self, shared: &Arc<Shared>) -> Result<Arc<standing::Standing>> {
        let found = self.standing.get_or_try_init(|| standing::find(self, shared)).await?;
        Ok(found.clone())
    }

    /// Starts the command with the isolation of `standing`.
    async fn launch(
        &self,
        shared: &Arc<Shared>,
        standing: &Arc<standing::Standing>,
        request: &ExecRequest,
        origin: Origin,
        place: &Place,
    ) -> Result<Launched> {
        requirements::check(&self.settings, standing.isolation, request)?;
        mounts::check_isolation(&self.mounts, standing.isolation)?;
        let accepted = requirements::accepted(&self.settings, &request.limits);
        let limits = match origin {
            Origin::Caller => request.limits.tightened_by(self.settings.limits),
            Origin::Operator => request.limits,
        };
        let (isolation, mounts) = (standing.isolation, self.mounts.clone());
        let total = self.settings.control_group.clone();
        let terms = Terms { isolation, limits, accepted, origin, mounts, total };
        let scene = scene::open(shared, request, terms).await?;
        self.launch_in(shared, scene, standing, request, place).await
    }

    /// Starts the command with the handles that `scene` opened.
    async fn launch_in(
        &self,
        shared: &Arc<Shared>,
        scene: Scene,
        standing: &Arc<standing::Standing>,
        request: &ExecRequest,
        place: &Place,
    ) -> Result<Launched> {
        let cookie = self.table.cookie(place);
        let wall = scene.limits.wall_time;
        let strays = match scene.origin {
            Origin::Caller => Strays::Left,
            Origin::Operator => Strays::Killed,
        };
        self.wardrobe.screen(&self.settings, standing, request, &scene).await?;
        let placement = dress::place(&self.settings, standing, &scene)?;
        let private = self.private(shared, standing.isolation, request, &placement).await?;
        let surroundings = dress::Surroundings {
            settings: &self.settings,
            standing,
            scene: &scene,
            placement,
            private: private.as_deref(),
        };
        let dressed = self.wardrobe.dress(surroundings, request, &cookie)?;
        let dress::Dressed { image, reach, mut channels } = dressed;
        let is_loose_bwrap = standing.bwrap.as_ref().is_some_and(|bwrap| !bwrap.own_family);
        let is_loose_program =
            scene.origin == Origin::Operator && standing.isolation != Isolation::Bwrap;
        if is_loose_bwrap || is_loose_program {
            // If our process is killed, only the watchdog ends these: what a bwrap that was killed
            // during its start leaves behind, and what a program without namespaces has started.
            let stand = || watchdog::stand(&Groups::find().parents());
            blocking::run(move |_| stand().map_err(|error| unstarted(&error))).await?;
        }
        let entering = scene.entering().await;
        let started = spawner::start(Image { groups: scene.entries()?, ..image }).await;
        let (started, mut image) = started.map_err(|error| unstarted(&error))?;
        drop(entering);
        channels.keep_open(&mut image);
        let (group, placeholders) = scene.into_remains();
        let running = Running::new(started, reach, group, cookie);
        let running = running.map_err(|error| unstarted(&error))?;
        let remains = Remains { placeholders, private };
        Ok(Launched { running, channels, remains, wall, strays })
    }

    /// The private directories of the workspace or scope that a command runs in. `None` if there is
    /// no place for them and the isolation works without them.
    async fn private(
        &self,
        shared: &Arc<Shared>,
        isolation: Isolation,
        request: &ExecRequest,
        placement: &dress::Placement,
    ) -> Result<Option<Arc<private::Private>>> {
        let scope_root = request.cwd.innermost_scope_root().as_str().to_owned();
        let tmp = match isolation {
            Isolation::Bwrap => private::TmpNeed::With(placement.mount_points.clone()),
            Isolation::Landlock => private::TmpNeed::With(BTreeSet::new()),
            Isolation::Auto | Isolation::Software | Isolation::None => private::TmpNeed::None,
        };
        let place = match (private::place(&self.settings, shared), isolation) {
            (Some(place), _) => place,
            // Landlock rules are made from handles, so the directory may lie in the workspace,
            // which is the whole host here.
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

    /// A process that ends when its handle is dropped.
    fn held(&self, launched: Launched, request: &ExecRequest, place: Place) -> Process {
        let Launched { running, channels, remains, wall, strays } = launched;
        let (process, feed) = Process::new_with_driver_side(self.table.id(&place), request.stdin);
        let ProcessDriverSide { output, stdin, control, exit: ending, dropped: leash } = feed;
        let (leash, stop) = (Some(leash), self.table.stop());
        let reins = Reins { stdin, control, leash, stop, wall, strays };
        tokio::spawn(async move {
            let (exit, spent) = supervise(running, channels, Sink::Reader(output), reins).await;
            given_back(remains).await;
            ending.send(exit);
            drop(place);
            // Let the task that waits for the exit run first.
            tokio::task::yield_now().await;
            drop(spent);
        });
        process
    }

    /// A detached process: it stays in the table when its handle is dropped.
    fn staying(
        &self,
        launched: Launched,
        request: &ExecRequest,
        place: Place,
        line: String,
    ) -> Result<Process> {
        let Launched { running, channels, remains, wall, strays } = launched;
        let id = self.table.id(&place);
        let (process, feed) = Process::new_with_driver_side(id.clone(), request.stdin);
        let ProcessDriverSide { stdin, control, exit: ending, .. } = feed;
        let bounds = Bounds { memory: self.settings.spool.memory, disk: self.settings.spool.disk };
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
        let reins = Reins { stdin, control, leash: None, stop, wall, strays };
        let staying = Staying { table: self.table.clone(), spool: spool.clone(), place };
        tokio::spawn(async move {
            let (exit, _spent) = supervise(running, channels, Sink::Spool(spool), reins).await;
            given_back(remains).await;
            staying.has_ended(&exit);
            ending.send(exit);
        });
        self.table.attach(&id, 0)
    }
}

/// Marks the entry of a detached process as ended, even if its task is dropped before the end.
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
            self.has_ended(&ProcessExit { cause: ExitCause::Dropped, ..ProcessExit::default() });
        }
    }
}

impl Drop for Runner {
    /// Ends all processes of the driver.
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

/// Releases the resources of an ended command, on a blocking thread if files are removed.
async fn given_back(remains: Remains) {
    // A directory that other commands share stays, so dropping our reference does not block.
    let last = remains.private.as_ref().is_some_and(|lent| Arc::strong_count(lent) == 1);
    if last || !remains.placeholders.is_empty() {
        blocking::finish(move || drop(remains)).await;
    }
}

/// The error for a process that could not be started.
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
