//! A control group for one command. The group limits all processes of the command together. All of
//! them can be killed at once.
//!
//! - Each controller is in either cgroup v1 or v2. So the group of a command may consist of several
//!   directories.
//! - If a requested limit cannot be set, the call fails.
//! - Groups are made below our own group, never beside it, so the limits on our process also apply to
//!   commands.
//! - A process enters its groups itself, through [`Group::entry_files`], before it executes the
//!   command. We move only our own process and what it has started, see [`delegation`].
//! - Every function here may wait for the kernel's lock on groups. Call it on blocking threads.

pub(crate) mod delegation;
mod directory;
mod total;
mod wanted;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;

use super::hierarchy::{Hierarchy, mounted, own_group, refused, unseen};
use crate::host_features::Lack;
use crate::process::incarnation;
use delegation::{Facts, Way};
use directory::{Directory, PAUSE, TRIES, Version, groups_in};
use wanted::Limit;

pub use total::{ControlGroup, ControlGroupLimits};
pub(crate) use total::{Entering, sweep_once};
pub(crate) use wanted::Wanted;

/// The places on this host where groups can be made.
#[derive(Debug)]
pub(crate) struct Groups {
    sites: Vec<Site>,
}

/// A mounted hierarchy of control groups. If the group of this process is visible in it, `own` is
/// that group.
#[derive(Debug)]
struct Site {
    hierarchy: Hierarchy,
    own: Option<PathBuf>,
}

impl Groups {
    /// Reads which hierarchies this host has mounted. This is done only once per process.
    pub(crate) fn find() -> &'static Groups {
        static FOUND: OnceLock<Groups> = OnceLock::new();
        FOUND.get_or_init(|| {
            let text = |path| fs::read_to_string(path).unwrap_or_default();
            Groups::among(&text("/proc/self/mountinfo"), &text("/proc/self/cgroup"))
        })
    }

    fn among(mounts: &str, memberships: &str) -> Groups {
        let site = |hierarchy: Hierarchy| {
            let own = own_group(&hierarchy, memberships).filter(|group| group.is_dir());
            Site { hierarchy, own }
        };
        Groups { sites: mounted(mounts).into_iter().map(site).collect() }
    }

    /// Returns every group in which [`Groups::make`] may make groups.
    pub(crate) fn parents(&self) -> Vec<&Path> {
        self.sites.iter().filter_map(|site| site.own.as_deref()).collect()
    }

    /// Returns the hierarchies, each with our own group in it if that group is visible.
    pub(crate) fn own(&self) -> impl Iterator<Item = (&Hierarchy, Option<&Path>)> {
        self.sites.iter().map(|site| (&site.hierarchy, site.own.as_deref()))
    }

    /// Makes an empty group with the limits. If cgroup v2 is mounted, the group also exists there,
    /// even if no limit needs v2. This is useful because v2 can kill all processes of a group at
    /// once.
    pub(crate) fn make(&self, wanted: &Wanted) -> Result<Group, Lack> {
        self.make_in(None, wanted)
    }

    /// Like [`make`](Self::make), but makes the group below the group of a workspace, so that the
    /// limits of the workspace also apply.
    pub(crate) fn make_in(
        &self,
        total: Option<&ControlGroup>,
        wanted: &Wanted,
    ) -> Result<Group, Lack> {
        self.make_below(total.map(ControlGroup::group), &wanted.limits())
    }

    fn make_below(&self, parent: Option<&Group>, limits: &[Limit]) -> Result<Group, Lack> {
        let mut needs: Vec<Vec<Limit>> = vec![Vec::new(); self.sites.len()];
        for limit in limits {
            needs[self.site_for(*limit)?].push(*limit);
        }
        let above = |site: &Site| {
            let mut directories = parent.into_iter().flat_map(|parent| &parent.directories);
            directories.find(|directory| directory.place.parent() == site.own.as_deref())
        };
        let mut group = Group { directories: Vec::new() };
        for (site, limits) in self.sites.iter().zip(&needs).filter(|(_, needs)| !needs.is_empty()) {
            // If this fails, `group` is dropped, which removes the directories that were made so
            // far.
            group.directories.push(site.make(limits, above(site))?);
        }
        if group.killing().is_none()
            && let Some(site) = self.sites.iter().find(|site| site.version() == Version::Second)
            && let Ok(directory) = site.make(&[], above(site))
        {
            if directory.offers("cgroup.kill") {
                group.directories.push(directory);
            } else {
                // The kernel is too old to have this file, so the directory is of no use.
                directory.remove();
            }
        }
        Ok(group)
    }

    /// Finds the hierarchy for a limit. Searches v1 first, because a controller that v1 uses is not
    /// available in v2.
    fn site_for(&self, limit: Limit) -> Result<usize, Lack> {
        let name = limit.controller();
        let of = |version: Version| {
            let mut sites = self.sites.iter().enumerate();
            sites.find(|(_, site)| site.version() == version && site.may_have(name))
        };
        if let Some((index, _)) = of(Version::First) {
            return Ok(index);
        }
        let Some((index, site)) = of(Version::Second) else {
            let lack = if self.sites.is_empty() {
                Lack::new("no cgroup file system is mounted", "mount cgroup2 at /sys/fs/cgroup")
            } else {
                Lack::new(
                    format!("no mounted hierarchy has a controller for {name}"),
                    "mount cgroup2 at /sys/fs/cgroup",
                )
            };
            return Err(limit.lacking(&lack));
        };
        match site.way(&[name]) {
            Way::Refused(lack) => Err(limit.lacking(&lack)),
            Way::Ready | Way::HandDown | Way::MoveAndHandDown => Ok(index),
        }
    }
}

impl Site {
    fn version(&self) -> Version {
        match self.hierarchy.controllers {
            Some(_) => Version::First,
            None => Version::Second,
        }
    }

    /// Returns whether the controller may be in this hierarchy. For v2 the result is always true,
    /// because v2 lists its controllers in each group and not here.
    fn may_have(&self, controller: &str) -> bool {
        let controllers = self.hierarchy.controllers.as_ref();
        controllers.is_none_or(|all| all.iter().any(|each| each == controller))
    }

    /// Returns whether this is a v1 hierarchy that has the controller.
    fn has(&self, controller: &str) -> bool {
        self.version() == Version::First && self.may_have(controller)
    }

    /// Returns what must be done to our own group before groups with these controllers can be made
    /// in it.
    fn way(&self, controllers: &[&str]) -> Way {
        match (&self.own, self.version()) {
            (None, _) => Way::Refused(unseen(&self.hierarchy.place)),
            (Some(_), Version::First) => Way::Ready,
            (Some(own), Version::Second) => {
                delegation::way(&Facts::of(own), controllers, delegation::is_ours)
            }
        }
    }

    /// Makes a group below `above`, or below our own group if `above` is `None`.
    fn make(&self, limits: &[Limit], above: Option<&Directory>) -> Result<Directory, Lack> {
        self.made(limits, above).map_err(|lack| match limits.first() {
            Some(limit) => limit.lacking(&lack),
            None => lack,
        })
    }

    fn made(&self, limits: &[Limit], above: Option<&Directory>) -> Result<Directory, Lack> {
        let own = self.own.as_deref().ok_or_else(|| unseen(&self.hierarchy.place))?;
        let parent = above.map_or(own, |above| above.place.as_path());
        if self.version() == Version::Second {
            let controllers: Vec<&str> = limits.iter().map(|limit| limit.controller()).collect();
            delegation::hand_down(own, &controllers)?;
            if above.is_some() && !controllers.is_empty() {
                delegation::hand_down_from(parent, &controllers)?;
            }
        }
        let place = new_group(parent).map_err(|error| refused(parent, &error))?;
        let directory = Directory { place, version: self.version() };
        for limit in limits {
            if let Err(error) = limit.set(&directory) {
                directory.remove();
                let cause = format!("{}: {error}", directory.place.display());
                return Err(Lack::new(cause, "check what the group of this process allows"));
            }
        }
        Ok(directory)
    }
}

fn new_group(parent: &Path) -> io::Result<PathBuf> {
    let place = parent.join(incarnation::next_name());
    fs::create_dir(&place)?;
    #[cfg(test)]
    tests::add_kernel_files(&place);
    Ok(place)
}

/// The control group of one command. Dropping the value kills the processes in the group and
/// removes the group. This may block for seconds in the worst case. Threads that must not block use
/// [`Group::into_removal`].
#[derive(Debug)]
pub(crate) struct Group {
    directories: Vec<Directory>,
}

impl Group {
    /// Opens the files through which a process enters the group. The process writes `0` to each
    /// file. The files are closed when the process executes another program.
    pub(crate) fn entry_files(&self) -> io::Result<Vec<OwnedFd>> {
        let open = |directory: &Directory| {
            let file = directory.open("cgroup.procs")?;
            Ok(OwnedFd::from(file))
        };
        self.directories.iter().map(open).collect()
    }

    /// Kills every process in the group. Does not kill a process that was started but has not
    /// entered the group yet. The code that started this process must kill it.
    pub(crate) fn kill(&self) {
        if let Some(directory) = self.killing()
            && directory.write("cgroup.kill", "1").is_ok()
        {
            return;
        }
        for directory in &self.directories {
            // Do not let any process fork while the others are killed.
            let _ = directory.write_if_there("pids.max", "0");
        }
        let Some(directory) = self.directories.first() else { return };
        for _ in 0..TRIES {
            if directory.kill_each() == 0 {
                return;
            }
            thread::sleep(PAUSE);
        }
    }

    /// Returns whether there is a process in the group.
    pub(crate) fn has_members(&self) -> bool {
        let Some(directory) = self.directories.first() else { return false };
        let members = fs::read_to_string(directory.place.join("cgroup.procs"));
        members.is_ok_and(|members| !members.trim().is_empty())
    }

    /// Returns whether the kernel killed a process of the group because of the memory limit.
    pub(crate) fn oom_killed(&self) -> bool {
        self.directories.iter().any(|directory| {
            let events = match directory.version {
                Version::First => "memory.oom_control",
                Version::Second => "memory.events",
            };
            let events = fs::read_to_string(directory.place.join(events)).unwrap_or_default();
            oom_kills(&events) > 0
        })
    }

    /// Kills the processes in the group and removes the group, which may block.
    pub(crate) fn remove(self) {
        drop(self);
    }

    /// Returns a closure that removes the group, for use on a blocking thread.
    pub(crate) fn into_removal(self) -> impl FnOnce() + Send + 'static {
        move || self.remove()
    }

    fn killing(&self) -> Option<&Directory> {
        self.directories.iter().find(|directory| directory.offers("cgroup.kill"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        for directory in &self.directories {
            directory.remove();
        }
    }
}

fn oom_kills(events: &str) -> u64 {
    let count = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Removes groups whose creator and its watchdog have both ended. Kills the processes in these
/// groups.
pub(crate) fn sweep() {
    let gone = |pid: u32| !Path::new("/proc").join(pid.to_string()).exists();
    for parent in Groups::find().parents() {
        sweep_in(parent, gone);
    }
}

/// Kills the processes that a killed process has left running, and removes their group.
fn abandoned(group: &Path) {
    let group = Directory { place: group.to_owned(), version: Version::Second };
    // This file exists only in v2. If it does not exist, `remove` kills one process at a time.
    let _ = group.write_if_there("cgroup.kill", "1");
    group.remove();
}

fn sweep_in(parent: &Path, gone: impl Fn(u32) -> bool) {
    for group in groups_in(parent) {
        let maker = group.file_name().and_then(|name| incarnation::maker(name.to_str()?));
        if maker.is_some_and(&gone) {
            abandoned(&group);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command, Stdio};

    use ab_testkit::host::report_skip;

    use super::*;

    const MIB: u64 = 1024 * 1024;

    /// Some tests use a plain directory instead of a control group. A file with this name in the
    /// directory lists the files that the kernel would create in each new group.
    pub(super) const KERNEL_FILES: &str = "kernel-files";

    /// Creates the files of a new group if its parent contains a file [`KERNEL_FILES`].
    pub(super) fn add_kernel_files(group: &Path) {
        let Some(parent) = group.parent() else { return };
        let Ok(names) = fs::read_to_string(parent.join(KERNEL_FILES)) else { return };
        for name in names.lines() {
            fs::write(group.join(name), "").unwrap();
        }
        fs::write(group.join(KERNEL_FILES), &names).unwrap();
    }

    /// Makes a real control group. If this host cannot make one, checks the error and returns
    /// `None`.
    fn real(what: &str, wanted: Wanted) -> Option<Group> {
        match Groups::find().make(&wanted) {
            Ok(group) => Some(group),
            Err(lack) => {
                assert!(lack.cause.starts_with("cannot set the "), "{lack:?}");
                assert!(lack.cause.contains(": ") && !lack.remedy.is_empty(), "{lack:?}");
                report_skip(what, &lack.cause);
                None
            }
        }
    }

    /// Starts a shell that enters the group and then runs `line`. The shell gets the entry files as
    /// its standard streams.
    fn inside(group: &Group, line: &str) -> Child {
        let mut files = group.entry_files().unwrap().into_iter().map(Stdio::from);
        let count = files.len();
        assert!((1..=3).contains(&count));
        let entering = ["echo 0 >&1", "echo 0 >&2", "echo 0 >&0"][..count].join(" && ");
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(format!("{entering} && exec 0<&- >/dev/null 2>&1 && {line}"));
        let mut next = || files.next().unwrap_or_else(Stdio::null);
        command.stdout(next()).stderr(next()).stdin(next()).spawn().unwrap()
    }

    fn members(group: &Group) -> Vec<String> {
        let of = |directory: &Directory| {
            fs::read_to_string(directory.place.join("cgroup.procs")).unwrap().trim().to_owned()
        };
        group.directories.iter().map(of).collect()
    }

    fn places(group: &Group) -> Vec<PathBuf> {
        group.directories.iter().map(|directory| directory.place.clone()).collect()
    }

    #[test]
    fn all_die_at_once_and_nothing_is_left() {
        let wanted = Wanted { memory: Some(256 * MIB), processes: Some(20) };
        let Some(group) = real("control groups", wanted) else { return };
        let mut child = inside(&group, "{ sleep 60 & sleep 60 & echo; wait; }");
        while members(&group).iter().any(|members| members.lines().count() < 3) {
            assert_eq!(child.try_wait().unwrap(), None, "it could not enter");
            thread::yield_now();
        }
        assert!(!group.oom_killed());
        let places = places(&group);
        group.kill();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        fs::create_dir(places[0].join("below")).unwrap();
        group.into_removal()();
        assert!(places.iter().all(|place| !place.exists()), "{places:?}");
    }

    #[test]
    fn members_are_killed_one_by_one_where_they_must_be() {
        let wanted = Wanted { memory: None, processes: Some(20) };
        let Some(mut group) = real("limits of processes", wanted) else { return };
        let mut child = inside(&group, "{ sleep 60 & sleep 60 & wait; }");
        while members(&group)[0].lines().count() < 3 {
            assert_eq!(child.try_wait().unwrap(), None, "it could not enter");
            thread::yield_now();
        }
        // Keep only the directories that would exist on a host that mounts only v1.
        let (kept, killing) = group.directories.drain(..).partition(|it| !it.offers("cgroup.kill"));
        group.directories = kept;
        let killing = Group { directories: killing };
        if !group.directories.is_empty() {
            group.kill();
            assert_eq!(child.wait().unwrap().signal(), Some(9));
            assert_eq!(members(&group), [""]);
        }
        drop(killing);
        let _ = child.wait();
    }

    #[test]
    fn the_memory_limit_holds_and_is_told() {
        let wanted = Wanted { memory: Some(24 * MIB), processes: None };
        let Some(group) = real("limits of memory", wanted) else { return };
        let mut child = inside(&group, "exec tail -n 1 /dev/zero");
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert!(group.oom_killed());
    }

    #[test]
    fn the_limit_of_processes_holds() {
        for (limit, forks) in [(8, true), (1, false)] {
            let wanted = Wanted { memory: None, processes: Some(limit) };
            let Some(group) = real("limits of processes", wanted) else { return };
            let mut child = inside(&group, "{ /bin/true; echo; }");
            assert_eq!(child.wait().unwrap().success(), forks, "with a limit of {limit}");
            group.remove();
        }
    }

    #[test]
    fn what_cannot_be_set_is_an_error_and_leaves_nothing() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().display();
        // These are plain directories, not control groups. Groups can be made in them, but limits
        // cannot be set.
        let mounts = format!("1 2 0:1 / {top} rw - cgroup cgroup rw,memory\n");
        let groups = Groups::among(&mounts, "4:memory:/\n");
        assert_eq!(groups.parents(), [place.path()]);
        let wanted = Wanted { memory: Some(1), processes: None };
        let lack = groups.make(&wanted).unwrap_err();
        assert!(lack.cause.starts_with("cannot set the memory limit of 1 bytes"), "{lack:?}");
        let wanted = Wanted { memory: None, processes: Some(7) };
        let lack = groups.make(&wanted).unwrap_err();
        let expect =
            "cannot set the limit of 7 processes: no mounted hierarchy has a controller for pids";
        assert_eq!(lack.cause, expect);
        let lack = Groups::among("", "").make(&wanted).unwrap_err();
        assert!(lack.cause.ends_with("no cgroup file system is mounted"), "{lack:?}");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }

    /// A command in a group beside or above ours would not be subject to the limits on our group.
    #[test]
    fn no_group_is_made_but_below_our_own() {
        let place = tempfile::tempdir().unwrap();
        let top = place.path().display();
        fs::create_dir_all(place.path().join("slice/own")).unwrap();
        let write = |file: &str, text: &str| fs::write(place.path().join(file), text).unwrap();
        write("slice/cgroup.subtree_control", "memory pids\n");
        write("slice/own/cgroup.type", "domain\n");
        write("slice/own/cgroup.controllers", "memory pids\n");
        write("slice/own/cgroup.procs", &format!("{}\n1\n", std::process::id()));
        let second = format!("1 2 0:1 / {top} rw - cgroup2 cgroup2 rw\n");
        let first = format!("1 2 0:1 / {top} rw - cgroup cgroup rw,memory,pids\n");
        let wanted = Wanted { memory: Some(1), processes: Some(7) };
        for (mounts, memberships, cause) in [
            (
                &second,
                "0::/slice/own\n",
                "1 other processes are in the control group of this process",
            ),
            (&second, "0::/slice/gone\n", "the control group of this process is not visible"),
            (&second, "0::/../other\n", "the control group of this process is not visible"),
            (
                &first,
                "1:memory,pids:/slice/gone\n",
                "the control group of this process is not visible",
            ),
        ] {
            let lack = Groups::among(mounts, memberships).make(&wanted).unwrap_err();
            assert!(lack.cause.contains(cause), "{lack:?}");
        }
        // The controllers are handed down, so the group can be made there. Setting the limits still
        // fails.
        write("slice/own/cgroup.subtree_control", "memory pids\n");
        let groups = Groups::among(&second, "0::/slice/own\n");
        assert_eq!(groups.parents(), [place.path().join("slice/own")]);
        let lack = groups.make(&wanted).unwrap_err();
        assert!(lack.cause.contains("/slice/own/agent-backend-"), "{lack:?}");
    }

    #[test]
    fn groups_of_the_dead_are_swept() {
        let parent = tempfile::tempdir().unwrap();
        let ours = incarnation::next_name();
        let dead = ours.replace(&format!("-{}-", std::process::id()), "-7-");
        for name in [ours.as_str(), &dead, "agent-backend-probe-7-0", "x"] {
            fs::create_dir(parent.path().join(name)).unwrap();
        }
        sweep_in(parent.path(), |pid| pid == 7);
        let mut left: Vec<_> = groups_in(parent.path());
        left.sort();
        let expect = [ours.as_str(), "agent-backend-probe-7-0", "x"];
        assert_eq!(left, expect.map(|name| parent.path().join(name)));
        sweep();
    }

    #[test]
    fn kills_are_counted() {
        for (events, count) in [
            ("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", 2),
            ("low 0\nmax 9\noom 1\noom_kill 1\noom_group_kill 0\n", 1),
            ("oom_kill_disable 0\nunder_oom 0\n", 0),
            ("", 0),
        ] {
            assert_eq!(oom_kills(events), count);
        }
    }
}
