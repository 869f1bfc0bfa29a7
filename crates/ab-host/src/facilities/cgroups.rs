//! Control groups: which limits could be set, tried by making a group and removing it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Facility, Lack, Name};
use crate::limits::hierarchy::{CONTROLLERS, Hierarchy, mounted, own_group, refused};

/// What the groups of this host can do.
#[derive(Debug, Default)]
struct Found {
    limits: BTreeSet<String>,
    versions: BTreeSet<&'static str>,
    /// Whether a whole group can be frozen and killed at once.
    freezes: bool,
    first_refusal: Option<Lack>,
}

pub(super) fn groups() -> Facility {
    let absence = "commands cannot be limited as a group";
    let mounts = match fs::read_to_string("/proc/self/mounts") {
        Ok(mounts) => mounts,
        Err(error) => {
            let lack = Lack::new(format!("/proc does not tell the mounts: {error}"), "mount /proc");
            return Facility::missing(Name::Cgroups, absence, lack);
        }
    };
    let memberships = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let hierarchies = mounted(&mounts);
    if hierarchies.is_empty() {
        let cause = "no cgroup file system is mounted";
        let lack = Lack::new(cause, "mount cgroup2 at /sys/fs/cgroup");
        return Facility::missing(Name::Cgroups, absence, lack);
    }
    let mut found = Found::default();
    for hierarchy in &hierarchies {
        found.try_hierarchy(hierarchy, &own_group(hierarchy, &memberships));
    }
    found.judged(absence)
}

impl Found {
    /// Tries the top of the hierarchy, then the group of this process, where a service manager may
    /// have handed out the right to make groups.
    fn try_hierarchy(&mut self, hierarchy: &Hierarchy, own: &Path) {
        let mut refusal = None;
        for parent in [hierarchy.place.as_path(), own] {
            match Group::make(parent) {
                Ok(group) => return self.note(hierarchy, &group),
                Err(error) => refusal = refusal.or(Some(refused(parent, &error))),
            }
        }
        if self.first_refusal.is_none() {
            self.first_refusal = refusal;
        }
    }

    fn note(&mut self, hierarchy: &Hierarchy, group: &Group) {
        match &hierarchy.controllers {
            Some(controllers) => {
                self.versions.insert("v1");
                self.limits.extend(controllers.iter().cloned());
            }
            None => {
                self.versions.insert("v2");
                let controllers = fs::read_to_string(group.0.join("cgroup.controllers"));
                let controllers = controllers.unwrap_or_default();
                self.limits.extend(controllers.split_whitespace().map(str::to_owned));
                let offers = |file: &str| group.0.join(file).exists();
                self.freezes = offers("cgroup.freeze") && offers("cgroup.kill");
            }
        }
    }

    fn judged(self, absence: &str) -> Facility {
        let wanted = CONTROLLERS.iter().filter(|limit| self.limits.contains(**limit));
        let usable: Vec<&str> = wanted.copied().collect();
        let lacking: Vec<&str> =
            CONTROLLERS.iter().filter(|it| !usable.contains(it)).copied().collect();
        let versions = self.versions.iter().copied().collect::<Vec<_>>().join(" and ");
        let mut abilities = Vec::new();
        if !usable.is_empty() {
            abilities.push(format!("limits for {}", usable.join(", ")));
        }
        if self.freezes {
            abilities.push("freeze and kill as one".to_owned());
        }
        let detail = format!("{versions}: {}", abilities.join("; "));
        if lacking.is_empty() {
            return Facility::working(Name::Cgroups, detail);
        }
        let lack = self.first_refusal.unwrap_or_else(|| {
            Lack::new(
                format!("new groups have no controller for {}", lacking.join(", ")),
                "hand them down: write them to cgroup.subtree_control of the parent group, or \
                 start with systemd-run --scope -p Delegate=yes",
            )
        });
        if abilities.is_empty() {
            return Facility::missing(Name::Cgroups, absence, lack);
        }
        Facility::partial(Name::Cgroups, detail, lack)
    }
}

/// A group that is gone when its owner is.
struct Group(PathBuf);

impl Group {
    fn make(parent: &Path) -> io::Result<Group> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let place = parent.join(format!("agent-backend-probe-{}-{number}", process::id()));
        match fs::create_dir(&place) {
            // Left by a process with the same number that was killed in the middle.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Group(place)),
            made => made.map(|()| Group(place)),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // An empty group is all that can be left, and the next probe may take it over.
        let _ = fs::remove_dir(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facilities::State;

    #[test]
    fn what_was_found_is_judged() {
        let found = |limits: &[&str], freezes: bool| Found {
            limits: limits.iter().map(|limit| (*limit).to_owned()).collect(),
            versions: ["v2"].into(),
            freezes,
            first_refusal: None,
        };
        let all = found(&["cpu", "io", "memory", "pids"], true).judged("nothing");
        assert_eq!(all.state, State::Working);
        assert_eq!(all.detail, "v2: limits for cpu, memory, pids; freeze and kill as one");
        let some = found(&["memory"], false).judged("nothing");
        assert_eq!(some.state, State::Partial);
        assert_eq!(some.cause.as_deref(), Some("new groups have no controller for cpu, pids"));
        let none = found(&["hugetlb"], false).judged("nothing");
        assert_eq!((none.state, none.detail.as_str()), (State::Missing, "nothing"));
    }

    #[test]
    fn a_group_is_made_and_removed() {
        let parent = tempfile::tempdir().unwrap();
        let group = Group::make(parent.path()).unwrap();
        assert!(group.0.is_dir());
        drop(group);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
        let nowhere = parent.path().join("gone");
        let error = Group::make(&nowhere).err().unwrap();
        assert!(refused(&nowhere, &error).cause.contains("gone"));
    }
}
