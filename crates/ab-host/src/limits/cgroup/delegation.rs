//! Prepares our own group so that groups with limits can be made below it, in cgroup v2.
//!
//! In v2, a group that hands controllers down to groups below it cannot contain processes itself.
//! If our group contains only our process and the processes that it has started, these processes
//! move into a subgroup. Our group can then hand the controllers down. Groups are never made beside
//! our own group, because a command there would not be subject to the limits on our group.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;

use crate::host_features::Lack;
use crate::process::strays;

/// The name of the subgroup that our process moves into. The name differs from the names of command
/// groups, so that a cleanup of command groups does not kill our process.
const OWN_LEAF: &str = "agent-backend.self";
/// How often the remaining processes of our group are moved. One pass is not always enough, because
/// the processes may start other processes during the pass.
const ROUNDS: usize = 16;
/// Maximum number of parents that are followed from a process up to this process.
const MOST_ANCESTORS: usize = 1024;

/// The state of our own group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Whether our group is the top of the whole hierarchy. Only the top may contain both processes
    /// and groups with controllers.
    pub(crate) is_top: bool,
    pub(crate) controllers: Vec<String>,
    /// The controllers that are already enabled for the groups below our group.
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

/// Decides what must be done, using only the facts and which members are [ours](is_ours).
pub(crate) fn way(facts: &Facts, wanted: &[&str], is_ours: impl Fn(u32) -> bool) -> Way {
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
    match facts.members.iter().filter(|member| !is_ours(**member)).count() {
        0 => Way::MoveAndHandDown,
        others => Way::Refused(Lack::new(
            format!("{others} other processes are in the control group of this process"),
            "start agent-backend in its own group, with systemd-run --scope -p Delegate=yes",
        )),
    }
}

/// Enables the controllers for the groups below `group`, which is our own group. Moves our
/// processes to a subgroup first if the kernel requires that.
pub(crate) fn hand_down(group: &Path, wanted: &[&str]) -> Result<(), Lack> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    match way(&Facts::of(group), wanted, is_ours) {
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

/// Returns whether a process is this process or was started by it, such as the watchdog, git, or a
/// command without limits. Also returns true if the process has ended, because an ended process is
/// in no group.
pub(crate) fn is_ours(pid: u32) -> bool {
    // The kernel shows a process of another pid namespace with the id 0.
    if pid == 0 {
        return false;
    }
    let own = std::process::id();
    let mut ancestor = pid;
    // A parent relation has no cycles. The loop still needs a bound, because the kernel may reuse
    // an id between two reads.
    for _ in 0..MOST_ANCESTORS {
        if ancestor == own {
            return true;
        }
        match parent(ancestor) {
            Some(0) => break,
            Some(above) => ancestor = above,
            None if !Path::new("/proc").join(pid.to_string()).exists() => return true,
            None => break,
        }
    }
    // A parent in the chain has ended, so the chain does not lead to our process. Look for the
    // variable that we set for our commands.
    strays::has_our_mark(pid)
}

/// Returns the parent's process id. It is 0 for the first process.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program is in parentheses. The name itself may contain parentheses too.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// Moves our process, with all its threads and all processes that it has started, into a subgroup.
fn moved(group: &Path) -> io::Result<()> {
    let leaf = group.join(OWN_LEAF);
    match fs::create_dir(&leaf) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let entry = leaf.join("cgroup.procs");
    // Processes that we start from now on are in the subgroup.
    fs::write(&entry, "0")?;
    let own = std::process::id();
    for _ in 0..ROUNDS {
        let mut left = Facts::of(group).members;
        left.retain(|member| *member != own && is_ours(*member));
        if left.is_empty() {
            break;
        }
        for member in left {
            match fs::write(&entry, member.to_string()) {
                Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
                moved => moved?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

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
            // A group that is already prepared. It does not matter which processes are in it.
            (facts(false, both, both, &[7, 8]), Some(Way::Ready)),
            // The top group of a host without a service manager.
            (facts(true, both, &["cpu"], &[1, 7, 8]), Some(Way::HandDown)),
            // The group of a service, or of a container that runs nothing else.
            (facts(false, both, &[], &[7]), Some(Way::MoveAndHandDown)),
            (facts(false, both, &["cpu", "pids"], &[7]), Some(Way::MoveAndHandDown)),
            // A group whose only process was ours. Our process has already moved to the subgroup.
            (facts(false, both, &["pids"], &[]), Some(Way::MoveAndHandDown)),
            // The group of a login session, or of a container with a shell, where other processes
            // exist too.
            (facts(false, both, &[], &[7, 8]), None),
            // The group of a service to which no controllers were delegated.
            (facts(false, &["pids"], &[], &[7]), None),
            (facts(true, &[], &[], &[7]), None),
        ] {
            let found = way(&facts, &["memory", "pids"], |member| member == 7);
            match expect {
                Some(expect) => assert_eq!(found, expect, "{facts:?}"),
                None => assert!(matches!(found, Way::Refused(_)), "{facts:?}: {found:?}"),
            }
        }
    }

    #[test]
    fn what_this_process_has_started_moves_with_it() {
        let group = tempfile::tempdir().unwrap();
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", "sleep 1000 & echo $!; read line; kill $!"]);
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut below = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut below).unwrap();
        let below: u32 = below.trim().parse().unwrap();
        let own = std::process::id();
        let procs = group.path().join("cgroup.procs");
        fs::write(&procs, format!("{own}\n{}\n{below}\n", shell.id())).unwrap();
        fs::write(group.path().join("cgroup.type"), "domain\n").unwrap();
        fs::write(group.path().join("cgroup.controllers"), "memory pids\n").unwrap();
        let facts = Facts::of(group.path());
        assert_eq!(way(&facts, &["pids"], is_ours), Way::MoveAndHandDown);
        hand_down(group.path(), &["pids"]).unwrap();
        // A plain directory, unlike a control group, keeps only what was written last.
        let last = fs::read_to_string(group.path().join(OWN_LEAF).join("cgroup.procs")).unwrap();
        assert_eq!(last, below.to_string());
        // Our own parent is in the group, and it was not started by us.
        fs::write(&procs, format!("{own}\n{}\n", std::os::unix::process::parent_id())).unwrap();
        assert!(matches!(way(&Facts::of(group.path()), &["pids"], is_ours), Way::Refused(_)));
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert!(is_ours(shell.id()), "an ended process is in no group");
        assert!(!is_ours(0), "a process of another namespace");
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
