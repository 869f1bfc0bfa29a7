//! Tests which limits control groups can set on this host, by making a group and removing it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{HostFeature, HostFeatureReport, Lack};
use crate::limits::cgroup::Groups;
use crate::limits::cgroup::delegation::{Facts, Way, is_ours, way};
use crate::limits::hierarchy::{CONTROLLERS, Hierarchy, refused, unseen};

/// What the control groups of this host support.
#[derive(Debug, Default)]
struct Found {
    limits: BTreeSet<String>,
    versions: BTreeSet<&'static str>,
    /// Whether all processes of a group can be frozen and killed at once.
    freezes: bool,
    first_refusal: Option<Lack>,
}

pub(super) fn groups() -> HostFeatureReport {
    let absence = "commands cannot be limited as a group";
    let mut found = Found::default();
    let groups = Groups::find();
    if groups.own().next().is_none() {
        let cause = "no cgroup file system is mounted";
        let lack = Lack::new(cause, "mount cgroup2 at /sys/fs/cgroup");
        return HostFeatureReport::missing(HostFeature::Cgroups, absence, lack);
    }
    for (hierarchy, own) in groups.own() {
        found.try_hierarchy(hierarchy, own);
    }
    found.judged(absence)
}

impl Found {
    /// Makes a group below our own group, in the same way as for commands.
    fn try_hierarchy(&mut self, hierarchy: &Hierarchy, own: Option<&Path>) {
        let made = own.ok_or_else(|| unseen(&hierarchy.place));
        let made = made.and_then(|own| match Group::make(own) {
            Ok(group) => Ok((own, group)),
            Err(error) => Err(refused(own, &error)),
        });
        match made {
            Ok((own, group)) => self.note(hierarchy, own, &group),
            Err(lack) => self.refuse(lack),
        }
    }

    fn refuse(&mut self, lack: Lack) {
        if self.first_refusal.is_none() {
            self.first_refusal = Some(lack);
        }
    }

    fn note(&mut self, hierarchy: &Hierarchy, own: &Path, group: &Group) {
        match &hierarchy.controllers {
            Some(controllers) => {
                self.versions.insert("v1");
                self.limits.extend(controllers.iter().cloned());
            }
            None => {
                self.versions.insert("v2");
                let facts = Facts::of(own);
                for controller in CONTROLLERS {
                    match way(&facts, &[controller], is_ours) {
                        Way::Refused(lack)
                            if facts.controllers.iter().any(|it| it == controller) =>
                        {
                            self.refuse(lack);
                        }
                        Way::Refused(_) => {}
                        Way::Ready | Way::HandDown | Way::MoveAndHandDown => {
                            self.limits.insert(controller.to_owned());
                        }
                    }
                }
                let offers = |file: &str| group.0.join(file).exists();
                self.freezes = offers("cgroup.freeze") && offers("cgroup.kill");
            }
        }
    }

    fn judged(self, absence: &str) -> HostFeatureReport {
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
            abilities.push("freeze and kill all processes".to_owned());
        }
        let detail = format!("{versions}: {}", abilities.join("; "));
        if lacking.is_empty() {
            return HostFeatureReport::working(HostFeature::Cgroups, detail);
        }
        let lack = self.first_refusal.unwrap_or_else(|| {
            Lack::new(
                format!("new groups have no controller for {}", lacking.join(", ")),
                "hand them down: write them to cgroup.subtree_control of the parent group, or \
                 start with systemd-run --scope -p Delegate=yes",
            )
        });
        if abilities.is_empty() {
            return HostFeatureReport::missing(HostFeature::Cgroups, absence, lack);
        }
        HostFeatureReport::partial(HostFeature::Cgroups, detail, lack)
    }
}

/// A control group that is removed when the value is dropped.
struct Group(PathBuf);

impl Group {
    fn make(parent: &Path) -> io::Result<Group> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let place = parent.join(format!("agent-backend-probe-{}-{number}", process::id()));
        match fs::create_dir(&place) {
            // The group was left by a killed process that had the same process id as this process.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Group(place)),
            made => made.map(|()| Group(place)),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // If this fails, an empty group remains, and the next probe may reuse it.
        let _ = fs::remove_dir(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_features::HostFeatureState;

    #[test]
    fn what_was_found_is_judged() {
        let found = |limits: &[&str], freezes: bool| Found {
            limits: limits.iter().map(|limit| (*limit).to_owned()).collect(),
            versions: ["v2"].into(),
            freezes,
            first_refusal: None,
        };
        let all = found(&["cpu", "io", "memory", "pids"], true).judged("nothing");
        assert_eq!(all.state, HostFeatureState::Working);
        assert_eq!(all.detail, "v2: limits for cpu, memory, pids; freeze and kill all processes");
        let some = found(&["memory"], false).judged("nothing");
        assert_eq!(some.state, HostFeatureState::Partial);
        assert_eq!(some.cause.as_deref(), Some("new groups have no controller for cpu, pids"));
        let none = found(&["hugetlb"], false).judged("nothing");
        assert_eq!((none.state, none.detail.as_str()), (HostFeatureState::Missing, "nothing"));
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
