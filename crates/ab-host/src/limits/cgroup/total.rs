//! One control group for everything that a workspace runs. It limits the total, and all its
//! processes can be frozen or killed together.
//!
//! Commands enter the group when they start. In cgroup v2, a group that hands controllers down
//! cannot contain processes itself. So commands enter a subgroup there. A command with its own
//! limits gets its own subgroup.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread;

use ab_core::error::{Error, ErrorCode, ErrorKind, Result};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use super::directory::{Directory, PAUSE, TRIES, Version, below};
use super::{Group, Groups, sweep};
use crate::blocking;
use crate::host_features::Lack;
use crate::limits::hierarchy::FREEZER;
use crate::process::watchdog;

/// The name of the v2 subgroup for commands that have no limits of their own.
const MEMBERS: &str = "members";
/// How often to check whether all processes are frozen. There is a pause after each check.
const FREEZE_TRIES: u32 = 2_000;

/// Removes the groups of processes that were killed together with their watchdog. Runs only once.
pub(crate) fn sweep_once() {
    static SWEPT: Once = Once::new();
    SWEPT.call_once(sweep);
}

/// Limits on all processes of a workspace together. By default there are no limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlGroupLimits {
    /// Maximum number of bytes of memory, including swap.
    pub memory: Option<u64>,
    /// Maximum number of processes and threads at the same time.
    pub processes: Option<u64>,
    /// Maximum processor time, in thousandths of one processor.
    pub cpu_millis: Option<u64>,
}

/// Default maximum number of processes and threads of a workspace.
const PROCESSES: u64 = 2048;
/// Memory limit of a workspace in bytes, used if the host does not report how much memory it has.
const MEMORY: u64 = 2 * 1024 * 1024 * 1024;

impl ControlGroupLimits {
    /// Returns default limits: half of the memory of this host, and 2,048 processes. Processor time
    /// is not limited.
    pub fn default_for_this_host() -> Self {
        let told = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let memory = total_memory(&told).map_or(MEMORY, |bytes| bytes / 2);
        Self { memory: Some(memory), processes: Some(PROCESSES), cpu_millis: None }
    }
}

/// Returns the total memory in bytes, from text in the format of `/proc/meminfo`.
fn total_memory(text: &str) -> Option<u64> {
    let told = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = told.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// A control group of the host that contains all processes of one workspace. Clones share the
/// group. When the last clone is dropped, the processes in the group are killed and the group is
/// removed.
#[derive(Clone, Debug)]
pub struct ControlGroup {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    group: Group,
    limits: ControlGroupLimits,
    /// Locked for reading while a process starts, and for writing while the group is frozen.
    /// Without this lock, a process could be frozen before it executes its program. The thread that
    /// starts processes would then block.
    entering: Arc<RwLock<()>>,
    /// The lock for writing. `Some` while the group is frozen.
    frozen: Mutex<Option<OwnedRwLockWriteGuard<()>>>,
}

/// Permission to start a process in a group. While this value exists, the group cannot be frozen.
#[derive(Debug)]
pub(crate) struct Entering {
    _lock: OwnedRwLockReadGuard<()>,
}

impl ControlGroup {
    /// Makes an empty group with these limits. If this process is killed, a watchdog removes the
    /// group.
    ///
    /// # Errors
    /// Fails with `Unavailable` if the host does not support the group or one of its limits, or if
    /// the watchdog cannot be started.
    pub async fn create(limits: ControlGroupLimits) -> Result<ControlGroup> {
        blocking::run(move |_| {
            sweep_once();
            let groups = Groups::find();
            let made = Self::made(groups, limits)?;
            watchdog::stand(&groups.parents()).map_err(|error| {
                let cause = format!("no watchdog can be started for a control group: {error}");
                Error::new(ErrorCode::MissingUtilities, ErrorKind::Unavailable, cause)
            })?;
            Ok(made)
        })
        .await
    }

    fn made(groups: &Groups, limits: ControlGroupLimits) -> Result<ControlGroup> {
        let group = groups.make_total(&limits).map_err(|lack| unavailable(&lack))?;
        let (entering, frozen) = Default::default();
        Ok(ControlGroup { shared: Arc::new(Shared { group, limits, entering, frozen }) })
    }

    /// Returns the limits of the group.
    pub fn limits(&self) -> ControlGroupLimits {
        self.shared.limits
    }

    /// Freezes every process in the group, and waits until all of them have stopped. Commands that
    /// are started while the group is frozen wait for [`thaw`](Self::thaw).
    ///
    /// # Errors
    /// Fails with `Unavailable` if the host cannot freeze groups, and with `Io` if a process does
    /// not stop. After a failure, all processes continue.
    pub async fn freeze(&self) -> Result<()> {
        if self.is_frozen() {
            return Ok(());
        }
        let alone = Arc::clone(&self.shared.entering).write_owned().await;
        self.turn(Motion::Frozen).await?;
        *self.shared.held() = Some(alone);
        Ok(())
    }

    /// Returns whether the processes of the group are frozen.
    pub fn is_frozen(&self) -> bool {
        self.shared.held().is_some()
    }

    /// Lets frozen processes continue. Does nothing if the group is not frozen.
    ///
    /// # Errors
    /// Fails in the same cases as [`freeze`](Self::freeze).
    pub async fn thaw(&self) -> Result<()> {
        self.turn(Motion::Moving).await?;
        *self.shared.held() = None;
        Ok(())
    }

    /// Kills every process in the group, including frozen ones, and waits until no process is left.
    ///
    /// # Errors
    /// Fails with `Io` if a process does not end.
    pub async fn kill_all(&self) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        blocking::run(move |_| {
            let is_clear = shared.clear();
            *shared.held() = None;
            if is_clear {
                return Ok(());
            }
            let cause = "processes of a control group do not end after they were killed";
            Err(Error::new(ErrorCode::ExecError, ErrorKind::Io, cause))
        })
        .await
    }

    /// Returns whether the kernel killed a process because of the memory limit.
    pub fn ran_out_of_memory(&self) -> bool {
        self.shared.group.oom_killed()
    }

    async fn turn(&self, motion: Motion) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        blocking::run(move |_| {
            let Some(freezer) = Freezer::of(&shared.group) else {
                let cause = "this machine cannot freeze control groups: mount cgroup2, or the controller freezer";
                return Err(Error::new(ErrorCode::MissingUtilities, ErrorKind::Unavailable, cause));
            };
            freezer.turn(motion).map_err(|error| {
                let cause = format!("cannot {} the processes of a control group: {error}", motion.verb());
                Error::new(ErrorCode::ExecError, ErrorKind::Io, cause).with_source(error)
            })
        })
        .await
    }

    /// Waits until the group is not frozen.
    pub(crate) async fn entering(&self) -> Entering {
        Entering { _lock: Arc::clone(&self.shared.entering).read_owned().await }
    }

    /// Returns the group of the whole workspace.
    pub(super) fn group(&self) -> &Group {
        &self.shared.group
    }

    /// Opens the files through which a process enters the group. The process writes `0` to each
    /// file. `own` is the command's own group, which the process also enters. Leaves out a
    /// directory of this group if a directory of `own` lies below it.
    pub(crate) fn entry_files(&self, own: Option<&Group>) -> io::Result<Vec<OwnedFd>> {
        let is_covered = |directory: &&Directory| {
            let inside = |own: &Directory| own.place.starts_with(&directory.place);
            own.is_some_and(|own| own.directories.iter().any(inside))
        };
        let directories = self.shared.group.directories.iter();
        let open = |directory: &Directory| {
            let place = match directory.version {
                Version::First => directory.place.clone(),
                Version::Second => directory.place.join(MEMBERS),
            };
            let entered = Directory { place, version: directory.version };
            Ok(OwnedFd::from(entered.open("cgroup.procs")?))
        };
        directories.filter(|directory| !is_covered(directory)).map(open).collect()
    }
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, Option<OwnedRwLockWriteGuard<()>>> {
        self.frozen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills all processes. Returns whether no process is left.
    fn clear(&self) -> bool {
        for _ in 0..TRIES {
            if let Some(freezer) = Freezer::of(&self.group) {
                // Let the processes continue first, because v1 does not kill frozen processes.
                let _ = freezer.set(Motion::Moving);
            }
            self.group.kill();
            let mut left = 0;
            for directory in &self.group.directories {
                let mut places = below(&directory.place);
                places.push(directory.place.clone());
                for place in places {
                    left += Directory { place, version: directory.version }.kill_each();
                }
            }
            if left == 0 {
                return true;
            }
            thread::sleep(PAUSE);
        }
        false
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(freezer) = Freezer::of(&self.group) {
            // Let the processes continue first, because v1 does not kill frozen processes.
            let _ = freezer.set(Motion::Moving);
        }
    }
}

impl Groups {
    /// Makes an empty group with all of these limits. The group gets a freezer if the host has one.
    fn make_total(&self, limits: &ControlGroupLimits) -> std::result::Result<Group, Lack> {
        let mut group = self.make_below(None, &super::wanted::total(limits))?;
        if Freezer::of(&group).is_none()
            && let Some(site) = self.sites.iter().find(|site| site.has(FREEZER))
            && let Ok(directory) = site.make(&[], None)
        {
            group.directories.push(directory);
        }
        for directory in &group.directories {
            if directory.version == Version::Second {
                let made = fs::create_dir(directory.place.join(MEMBERS));
                made.map_err(|error| super::refused(&directory.place, &error))?;
            }
        }
        Ok(group)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Motion {
    Frozen,
    Moving,
}

impl Motion {
    fn verb(self) -> &'static str {
        match self {
            Motion::Frozen => "freeze",
            Motion::Moving => "thaw",
        }
    }
}

/// Freezes the processes of a group and lets them continue, through the files of the group.
struct Freezer<'a> {
    directory: &'a Path,
    version: Version,
}

impl Freezer<'_> {
    fn of(group: &Group) -> Option<Freezer<'_>> {
        group.directories.iter().find_map(|directory| {
            let file = match directory.version {
                Version::First => "freezer.state",
                Version::Second => "cgroup.freeze",
            };
            let (place, version) = (&directory.place, directory.version);
            place.join(file).exists().then_some(Freezer { directory: place, version })
        })
    }

    fn turn(&self, motion: Motion) -> io::Result<()> {
        for _ in 0..FREEZE_TRIES {
            // The request is repeated, because in v1 it must be if processes are being started.
            self.set(motion)?;
            if self.is(motion)? {
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
        if motion == Motion::Frozen {
            self.set(Motion::Moving)?;
        }
        Err(io::Error::from(io::ErrorKind::TimedOut))
    }

    fn set(&self, motion: Motion) -> io::Result<()> {
        let (file, text) = match (self.version, motion) {
            (Version::First, Motion::Frozen) => ("freezer.state", "FROZEN"),
            (Version::First, Motion::Moving) => ("freezer.state", "THAWED"),
            (Version::Second, Motion::Frozen) => ("cgroup.freeze", "1"),
            (Version::Second, Motion::Moving) => ("cgroup.freeze", "0"),
        };
        Directory { place: self.directory.to_owned(), version: self.version }.write(file, text)
    }

    fn is(&self, motion: Motion) -> io::Result<bool> {
        let read = |file: &str| fs::read_to_string(self.place(file));
        Ok(match self.version {
            Version::First => {
                let state = read("freezer.state")?;
                (state.trim() == "FROZEN") == (motion == Motion::Frozen)
            }
            Version::Second => {
                let is_frozen = read("cgroup.events")?.lines().any(|line| line == "frozen 1");
                is_frozen == (motion == Motion::Frozen)
            }
        })
    }

    fn place(&self, file: &str) -> PathBuf {
        self.directory.join(file)
    }
}

fn unavailable(lack: &Lack) -> Error {
    Error::new(ErrorCode::MissingUtilities, ErrorKind::Unavailable, lack.cause.clone())
        .with_hint(lack.remedy.clone())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use ab_testkit::host::report_skip;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::super::Wanted;
    use super::super::tests::KERNEL_FILES;
    use super::*;

    const MIB: u64 = 1024 * 1024;

    /// This test uses plain directories, because few test machines have cgroup v2 with these
    /// controllers.
    #[test]
    fn the_second_version_has_its_limits_in_groups_below_one_without_processes() {
        let place = tempfile::tempdir().unwrap();
        let own = place.path().join("own");
        fs::create_dir(&own).unwrap();
        let read = |path: PathBuf| fs::read_to_string(path).unwrap();
        let write = |file: &str, text: &str| fs::write(own.join(file), text).unwrap();
        write("cgroup.type", "domain\n");
        write("cgroup.controllers", "cpu memory pids\n");
        write("cgroup.subtree_control", "\n");
        write("cgroup.procs", &format!("{}\n", std::process::id()));
        let made = [
            "cgroup.events",
            "cgroup.freeze",
            "cgroup.kill",
            "cgroup.procs",
            "cpu.max",
            "memory.events",
            "memory.max",
            "memory.swap.max",
            "pids.max",
        ];
        write(KERNEL_FILES, &made.join("\n"));
        let mounts = format!("1 2 0:1 / {} rw - cgroup2 cgroup2 rw\n", place.path().display());
        let groups = Groups::among(&mounts, "0::/own\n");
        let limits = ControlGroupLimits {
            memory: Some(64 * MIB),
            // The kernel does not accept a number as high as this one.
            processes: Some(10_000_000),
            cpu_millis: Some(1500),
        };
        let total = ControlGroup::made(&groups, limits).unwrap();
        // Our process has left the group that hands the controllers down.
        assert_eq!(read(own.join("agent-backend.self/cgroup.procs")), "0");
        assert_eq!(read(own.join("cgroup.subtree_control")), "+memory +pids +cpu");
        let [directory] = total.group().directories.as_slice() else { panic!("{total:?}") };
        let top = directory.place.clone();
        assert_eq!(top.parent(), Some(own.as_path()));
        for (file, text) in [
            ("memory.max", "67108864"),
            ("memory.swap.max", "0"),
            ("pids.max", "4194304"),
            ("cpu.max", "150000 100000"),
        ] {
            assert_eq!(read(top.join(file)), text, "{file}");
        }
        // Write what the kernel would report.
        write("cgroup.subtree_control", "cpu memory pids\n");
        write("cgroup.procs", "");

        // Commands without limits of their own enter the subgroup. The workspace's group cannot
        // contain processes, because it enables controllers.
        let members = top.join(MEMBERS).join("cgroup.procs");
        fs::write(&members, "").unwrap();
        let entered = |own: Option<&Group>| -> Vec<PathBuf> {
            let files = total.entry_files(own).unwrap();
            let path = |file: &OwnedFd| format!("/proc/self/fd/{}", file.as_raw_fd());
            files.iter().map(|file| fs::read_link(path(file)).unwrap()).collect()
        };
        assert_eq!(entered(None), [members.canonicalize().unwrap()]);
        let wanted = Wanted { memory: Some(MIB), processes: None };
        let command = groups.make_in(Some(&total), &wanted).unwrap();
        let [directory] = command.directories.as_slice() else { panic!("{command:?}") };
        assert_eq!(directory.place.parent(), Some(top.as_path()));
        assert_eq!(read(top.join("cgroup.subtree_control")), "+memory");
        assert_eq!(read(directory.place.join("memory.max")), "1048576");
        assert_eq!(read(directory.place.join("pids.max")), "");
        assert!(entered(Some(&command)).is_empty());

        assert!(!command.oom_killed());
        fs::write(directory.place.join("memory.events"), "oom 1\noom_kill 1\n").unwrap();
        assert!(command.oom_killed() && !total.ran_out_of_memory());
        for (motion, state, events) in
            [(Motion::Frozen, "1", "frozen 1\n"), (Motion::Moving, "0", "frozen 0\n")]
        {
            fs::write(top.join("cgroup.events"), format!("populated 1\n{events}")).unwrap();
            Freezer::of(total.group()).unwrap().turn(motion).unwrap();
            assert_eq!(read(top.join("cgroup.freeze")), state);
        }
        command.kill();
        assert_eq!(read(directory.place.join("cgroup.kill")), "1");
        // The directories contain plain files, so the code that removes control groups cannot
        // remove them.
        place.close().unwrap();
    }

    async fn made(limits: ControlGroupLimits) -> Option<ControlGroup> {
        match ControlGroup::create(limits).await {
            Ok(group) => Some(group),
            Err(error) => {
                report_skip("control groups of workspaces", error.message());
                None
            }
        }
    }

    /// Starts a shell that enters the group and then runs `line`. The shell's output can be read.
    fn inside(group: &ControlGroup, line: &str) -> Child {
        let places = group.shared.group.directories.iter().map(|directory| {
            let place = match directory.version {
                Version::First => directory.place.clone(),
                Version::Second => directory.place.join(MEMBERS),
            };
            format!("echo 0 > {}/cgroup.procs", place.display())
        });
        let entering = places.collect::<Vec<_>>().join(" && ");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("{entering} && {line}")]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn places(group: &ControlGroup) -> Vec<PathBuf> {
        group.shared.group.directories.iter().map(|it| it.place.clone()).collect()
    }

    #[tokio::test]
    async fn frozen_processes_stand_and_go_on() {
        let Some(group) = made(ControlGroupLimits::default()).await else { return };
        stand_and_go_on(group).await;
    }

    /// Tests the case of a host that does not mount v2.
    #[tokio::test]
    async fn frozen_processes_stand_and_go_on_in_the_first_version() {
        let text = |path| fs::read_to_string(path).unwrap();
        let mounts = text("/proc/self/mountinfo");
        let mounts = mounts.lines().filter(|line| !line.contains(" - cgroup2 "));
        let mounts = mounts.collect::<Vec<_>>().join("\n");
        let groups = Groups::among(&mounts, &text("/proc/self/cgroup"));
        match ControlGroup::made(
            &groups,
            ControlGroupLimits { processes: Some(50), ..Default::default() },
        ) {
            Ok(group) => stand_and_go_on(group).await,
            Err(error) => report_skip("control groups of the first version", error.message()),
        }
    }

    async fn stand_and_go_on(group: ControlGroup) {
        use std::io::{Read, Write};
        let mut child = inside(&group, "exec cat");
        let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut echo = [0];
        input.write_all(b"a").unwrap();
        output.read_exact(&mut echo).unwrap();
        if let Err(error) = group.freeze().await {
            report_skip("frozen control groups", error.message());
            drop(group);
            child.wait().unwrap();
            return;
        }
        input.write_all(b"b").unwrap();
        let answers = |within: Duration| {
            let mut waited = [PollFd::new(&output, PollFlags::IN)];
            poll(&mut waited, Some(&Timespec::try_from(within).unwrap())).unwrap() == 1
        };
        assert!(!answers(Duration::from_millis(300)), "a frozen process answered");
        let entering = group.entering();
        let early = tokio::time::timeout(Duration::from_millis(50), entering).await;
        assert!(early.is_err() && group.is_frozen(), "a process may enter a frozen group");
        group.thaw().await.unwrap();
        drop(group.entering().await);
        assert!(answers(Duration::from_secs(30)), "a process that goes on does not answer");
        // Kill the process while it is frozen.
        group.freeze().await.unwrap();
        group.kill_all().await.unwrap();
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        let places = places(&group);
        drop(group);
        assert!(places.iter().all(|place| !place.exists()), "{places:?}");
    }

    #[test]
    fn memory_of_the_host_is_read() {
        let text = "MemTotal:        8024600 kB\nMemFree:          121320 kB\n";
        assert_eq!(total_memory(text), Some(8_024_600 * 1024));
        assert_eq!(total_memory(""), None);
        assert!(ControlGroupLimits::default_for_this_host().memory >= Some(64 * MIB));
    }

    #[tokio::test]
    async fn limits_hold_for_the_sum_of_all() {
        let limits = ControlGroupLimits {
            memory: Some(24 * MIB),
            processes: Some(8),
            cpu_millis: Some(100),
        };
        let Some(group) = made(limits).await else { return };
        assert_eq!(group.limits(), limits);
        let forks =
            "i=0; while [ $i -lt 20 ]; do sleep 60 & i=$((i + 1)); done; echo started; wait";
        let mut child = inside(&group, forks);
        assert!(!child.wait().unwrap().success(), "more processes than the limit were started");
        group.kill_all().await.unwrap();
        let mut bomb = inside(&group, "exec tail -n 1 /dev/zero");
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(bomb.wait().unwrap().signal(), Some(9));
        assert!(group.ran_out_of_memory());
        let mut busy = inside(&group, "while :; do :; done");
        let is_throttled = || {
            let stats = places(&group).into_iter().map(|place| place.join("cpu.stat"));
            stats.filter_map(|file| fs::read_to_string(file).ok()).any(|text| {
                let count = text.lines().find_map(|line| line.strip_prefix("nr_throttled "));
                count.is_some_and(|count| count != "0")
            })
        };
        let pid = busy.id().to_string();
        let is_in = |file: PathBuf| {
            fs::read_to_string(file).is_ok_and(|text| text.lines().any(|line| line == pid))
        };
        // The shell enters the hierarchies one after the other, and is throttled as soon as it has
        // entered the first hierarchy.
        let is_inside = || {
            places(&group).into_iter().all(|place| {
                is_in(place.join("cgroup.procs")) || is_in(place.join("members/cgroup.procs"))
            })
        };
        while !(is_throttled() && is_inside()) {
            assert_eq!(busy.try_wait().unwrap(), None);
            thread::yield_now();
        }
        group.kill_all().await.unwrap();
        busy.wait().unwrap();
    }

    #[tokio::test]
    async fn command_with_limits_of_its_own_is_below() {
        let total =
            ControlGroupLimits { memory: Some(64 * MIB), processes: Some(50), cpu_millis: None };
        let Some(group) = made(total).await else { return };
        let wanted = super::super::Wanted { memory: Some(24 * MIB), processes: None };
        let own = Groups::find().make_in(Some(&group), &wanted).unwrap();
        let bases = places(&group);
        for directory in &own.directories {
            assert!(bases.iter().any(|base| directory.place.starts_with(base)), "{directory:?}");
        }
        // Expect one entry file for each hierarchy of the workspace's group.
        let entries =
            own.entry_files().unwrap().len() + group.entry_files(Some(&own)).unwrap().len();
        assert_eq!(entries, bases.len());
        drop(own);
        drop(group);
        assert!(bases.iter().all(|place| !place.exists()), "{bases:?}");
    }
}
