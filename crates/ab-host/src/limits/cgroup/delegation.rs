//! Prepares our own group so that groups with limits can be made below it, in cgroup v2.
//!
//! In v2, a group that hands controllers down to groups below it cannot contain processes itself.
//! So if our process is alone in its group, it moves into a subgroup, and our group then hands the
//! controllers down. Groups are never made beside our own group, because a command there would not
//! be subject to the limits on our group.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::host_features::Lack;

/// The name of the subgroup that our process moves into. It differs from the names of command
/// groups, so that a cleanup of those does not kill our process.
const OWN_LEAF: &str = "agent-backend.self";

/// The state of our own group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Whether our group is the top of the whole hierarchy. Only the top may contain both processes
    /// and groups with controllers.
    pub(crate) is_top: bool,
    pub(crate) controllers: Vec<String>,
    /// The controllers that the groups below our group have.
    pub(crate) handed_down: Vec<String>,
    /// The ids of the processes in our group.
    pub(crate) members: Vec<u32>,
}

impl Facts {
    pub(crate) fn of(group: &Path) -> Facts {
        let words = |file: &str| -> Vec<String> {
            let text = fs::read_to_string(group.join(file)).unwrap_or_default();
            text.split_whitespace().map(str::to_owned).collect()
        };
        let members = words("cgroup.procs").iter().filter_map(|it| it.parse().ok()).collect();
        Facts {
            // Only the top group does not have this file.
            is_top: !group.join("cgroup.type").exists(),
            controllers: words("cgroup.controllers"),
            handed_down: words("cgroup.subtree_control"),
            members,
        }
    }
}

/// What must be done before a group with some controllers can be made below our own group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Ready,
    HandDown,
    MoveAndHandDown,
    Refused(Lack),
}

/// Decides what must be done, using only the facts.
pub(crate) fn way(facts: &Facts, wanted: &[&str], own: u32) -> Way {
    let among = |all: &[String], one: &&str| all.iter().any(|each| each == *one);
    if wanted.iter().all(|each| among(&facts.handed_down, each)) {
        return Way::Ready;
    }
    if let Some(missing) = wanted.iter().find(|each| !among(&facts.controllers, each)) {
        return Way::Refused(Lack::new(
            format!("the group of this process has no controller for {missing}"),
            "enable it in that group, or start with systemd-run --scope -p Delegate=yes",
        ));
    }
    if facts.is_top {
        return Way::HandDown;
    }
    match facts.members.iter().filter(|member| **member != own).count() {
        0 => Way::MoveAndHandDown,
        others => Way::Refused(Lack::new(
            format!("{others} other processes are in the control group of this process"),
            "start agent-backend in its own group, with systemd-run --scope -p Delegate=yes",
        )),
    }
}

/// Hands the controllers down to the groups below `group`, which is our own group.
pub(crate) fn hand_down(group: &Path, wanted: &[&str]) -> Result<(), Lack> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    match way(&Facts::of(group), wanted, std::process::id()) {
        Way::Ready => return Ok(()),
        Way::Refused(lack) => return Err(lack),
        Way::HandDown => {}
        Way::MoveAndHandDown => {
            let act = "move this process to a group below";
            moved(group).map_err(|error| refused(act, group, &error))?;
        }
    }
    hand_down_from(group, wanted)
}

/// Like [`hand_down`], for a group that we made and that contains no processes itself.
pub(crate) fn hand_down_from(group: &Path, wanted: &[&str]) -> Result<(), Lack> {
    let all: Vec<String> = wanted.iter().map(|each| format!("+{each}")).collect();
    let handed = fs::write(group.join("cgroup.subtree_control"), all.join(" "));
    handed.map_err(|error| refused("hand controllers down from", group, &error))
}

fn refused(act: &str, group: &Path, error: &io::Error) -> Lack {
    Lack::new(
        format!("cannot {act} {}: {error}", group.display()),
        "start with systemd-run --scope -p Delegate=yes",
    )
}

/// Moves our process, with all its threads, into a subgroup of `group`.
fn moved(group: &Path) -> io::Result<()> {
    let leaf = group.join(OWN_LEAF);
    match fs::create_dir(&leaf) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    fs::write(leaf.join("cgroup.procs"), "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_with_limits_are_made_below_our_own_or_not_at_all() {
        let facts = |is_top, controllers: &[&str], handed_down: &[&str], members: &[u32]| {
            let words = |all: &[&str]| all.iter().map(|each| (*each).to_owned()).collect();
            let (controllers, handed_down) = (words(controllers), words(handed_down));
            Facts { is_top, controllers, handed_down, members: members.to_vec() }
        };
        let both = &["cpu", "memory", "pids"];
        for (facts, expect) in [
            // A group that was prepared already. It does not matter which processes are in it.
            (facts(false, both, both, &[7, 8]), Some(Way::Ready)),
            // The top group of a host without a service manager.
            (facts(true, both, &["cpu"], &[1, 7, 8]), Some(Way::HandDown)),
            // The group of a service, or of a container that runs nothing else.
            (facts(false, both, &[], &[7]), Some(Way::MoveAndHandDown)),
            (facts(false, both, &["cpu", "pids"], &[7]), Some(Way::MoveAndHandDown)),
            // A group whose only process was ours, which has already moved to the subgroup.
            (facts(false, both, &["pids"], &[]), Some(Way::MoveAndHandDown)),
            // The group of a login session, or of a container with a shell, where other processes
            // exist too.
            (facts(false, both, &[], &[7, 8]), None),
            // The group of a service to which no controllers were delegated.
            (facts(false, &["pids"], &[], &[7]), None),
            (facts(true, &[], &[], &[7]), None),
        ] {
            let found = way(&facts, &["memory", "pids"], 7);
            match expect {
                Some(expect) => assert_eq!(found, expect, "{facts:?}"),
                None => assert!(matches!(found, Way::Refused(_)), "{facts:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_group_says_what_it_is_like() {
        let group = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("cgroup.controllers", "memory pids\n"),
            ("cgroup.subtree_control", "\n"),
            ("cgroup.procs", "7\n12\n"),
        ] {
            fs::write(group.path().join(file), text).unwrap();
        }
        let expect = Facts {
            is_top: true,
            controllers: vec!["memory".to_owned(), "pids".to_owned()],
            handed_down: Vec::new(),
            members: vec![7, 12],
        };
        assert_eq!(Facts::of(group.path()), expect);
        fs::write(group.path().join("cgroup.type"), "domain\n").unwrap();
        assert!(!Facts::of(group.path()).is_top);
    }
}
