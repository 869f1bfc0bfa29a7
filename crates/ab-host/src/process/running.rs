//! A running process: how to send signals to it, end it and wait for it.
//!
//! If the value is dropped before the process has ended, the process is killed. The processes that
//! it started are also killed, as far as they can be found. A spawner thread then reaps it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpgid, kill_process, kill_process_group,
    pidfd_send_signal, test_kill_process_group,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::child::Started;
use super::readiness::watch;
use super::{spawner, strays};
use crate::limits::cgroup::Group;

/// How signals reach a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The command itself leads a process group, so signals are sent to that group.
    Leader,
    /// The command is inside a bwrap, in its own session. That bwrap forwards no signals.
    Inside,
    /// The command is inside a bwrap. Both are in the same process group, because both use the same
    /// terminal.
    Beside,
}

#[derive(Debug)]
pub(crate) struct Running {
    /// The handle of the process. `None` after the process was reaped.
    handle: Option<AsyncFd<OwnedFd>>,
    pid: Pid,
    reach: Reach,
    group: Option<Group>,
    /// The value of the environment variable that marks the process and every process that it
    /// started, see `strays`.
    cookie: String,
    /// Whether to find out how much CPU time the process has used.
    measures_cpu_time: bool,
}

/// The exit status as the kernel reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Status {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    /// The CPU time of the process and of the processes that it waited for, if it was measured.
    pub(crate) cpu_time: Option<Duration>,
}

impl Running {
    pub(crate) fn new(
        started: Started,
        reach: Reach,
        group: Option<Group>,
        cookie: String,
    ) -> io::Result<Self> {
        let Some(pid) = Pid::from_raw(started.pid) else {
            return Err(io::Error::other("the process has no number"));
        };
        let handle = watch(started.handle, Interest::READABLE)?;
        Ok(Self { handle: Some(handle), pid, reach, group, cookie, measures_cpu_time: false })
    }

    /// Makes [`ended`](Self::ended) report the CPU time.
    pub(crate) fn measure_cpu_time(&mut self) {
        self.measures_cpu_time = true;
    }

    /// Waits until the process has ended. The call may be cancelled and repeated.
    pub(crate) async fn ended(&mut self) -> io::Result<Status> {
        let Some(handle) = &self.handle else {
            return Err(io::Error::other("the process was waited for already"));
        };
        loop {
            let mut ready = handle.readable().await?;
            let wait = |more| {
                let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | more;
                rustix::process::waitid(WaitId::PidFd(handle.get_ref().as_fd()), options)
            };
            let mut cpu_time = None;
            // The kernel forgets the CPU time when the process is reaped.
            if self.measures_cpu_time && wait(WaitIdOptions::NOWAIT)?.is_some() {
                cpu_time = cpu_time_of(self.pid);
            }
            match wait(WaitIdOptions::empty())? {
                Some(status) => {
                    self.handle = None;
                    return Ok(Status {
                        code: status.exit_status(),
                        signal: status.terminating_signal(),
                        cpu_time,
                    });
                }
                None => ready.clear_ready(),
            }
        }
    }

    /// Sends a signal to the command and to its process group.
    pub(crate) fn signal(&self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else { return };
        if signal == Signal::KILL {
            return self.kill();
        }
        let target = match self.reach {
            Reach::Leader => Some(self.pid),
            Reach::Inside => children(self.pid).first().copied(),
            // A signal to the whole group would end bwrap, and the command with it.
            Reach::Beside => return signal_descendants(self.pid, signal),
        };
        // An error means that the process has just ended, so it needs no signal.
        let _ = kill_process_group(target.unwrap_or(self.pid), signal);
    }

    /// Kills the process and the processes that it started.
    pub(crate) fn kill(&self) {
        if self.handle.is_some() && self.reach != Reach::Leader {
            // A bwrap that has just started has a child that waits for it. The child would wait
            // forever. It is not in bwrap's namespace yet, but it is in the process group, so kill
            // the group.
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        if let Some(handle) = &self.handle {
            let _ = pidfd_send_signal(handle.get_ref(), Signal::KILL);
        }
        self.kill_rest();
    }

    /// Kills the processes that are still running in the process group after its first process has
    /// ended.
    pub(crate) fn kill_rest(&self) {
        match (&self.group, self.reach) {
            (Some(group), _) => group.kill(),
            (None, Reach::Leader) => {
                let _ = kill_process_group(self.pid, Signal::KILL);
            }
            // When the first process of the pid namespace ends, the kernel ends all others.
            (None, Reach::Inside | Reach::Beside) => {}
        }
    }

    /// Returns whether the process has left processes running. Call this only after the process has
    /// ended. Processes inside a bwrap end together with it, so they never count.
    pub(crate) fn has_left_some(&self) -> bool {
        match (&self.group, self.reach) {
            (Some(group), Reach::Leader) => group.has_members(),
            (None, Reach::Leader) => {
                test_kill_process_group(self.pid).is_ok() && has_living_member(self.pid)
            }
            (_, Reach::Inside | Reach::Beside) => false,
        }
    }

    /// Returns a closure that kills the processes that have left the group, as far as they can be
    /// found. The closure examines every process of the host.
    pub(crate) fn kill_strays(&self) -> impl FnOnce() + Send + 'static {
        let cookie = match (&self.group, self.reach) {
            (None, Reach::Leader) => Some(self.cookie.clone()),
            (Some(_), _) | (None, Reach::Inside | Reach::Beside) => None,
        };
        move || {
            if let Some(cookie) = cookie {
                strays::kill(&cookie);
            }
        }
    }

    pub(crate) fn ran_out_of_memory(&self) -> bool {
        self.group.as_ref().is_some_and(Group::oom_killed)
    }

    /// Takes the control group out of this value, so that the caller can remove it where blocking
    /// is allowed.
    pub(crate) fn take_group(&mut self) -> Option<Group> {
        self.group.take()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.handle.is_none() {
            return;
        }
        self.kill();
        self.kill_strays()();
        if let Some(handle) = self.handle.take() {
            spawner::reap(handle.into_inner());
        }
    }
}

/// Returns the CPU time of a process and of the processes that it waited for.
fn cpu_time_of(pid: Pid) -> Option<Duration> {
    /// The number of ticks per second in `/proc`, on every machine that this program supports.
    const TICKS: u64 = 100;
    const FIRST_TIME_AFTER_NAME: usize = 11;
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name before the last parenthesis may contain any text.
    let (_, fields) = stat.rsplit_once(") ")?;
    let times = fields.split(' ').skip(FIRST_TIME_AFTER_NAME).take(4);
    let ticks: u64 = times.map(|ticks| ticks.parse::<u64>().unwrap_or_default()).sum();
    Some(Duration::from_millis(ticks.saturating_mul(1000 / TICKS)))
}

/// Returns the running children of a process. For a bwrap, the first child leads the command's
/// group.
fn children(pid: Pid) -> Vec<Pid> {
    let pid = pid.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    children.split_whitespace().filter_map(|child| Pid::from_raw(child.parse().ok()?)).collect()
}

/// Returns whether a process group has a member that has not ended. Examines every process of the
/// host.
fn has_living_member(leader: Pid) -> bool {
    let leader = leader.as_raw_nonzero().to_string();
    let Ok(entries) = std::fs::read_dir("/proc") else { return false };
    entries.flatten().any(|entry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // The fields after the name are the state, the parent and the group. The name may contain
        // any text.
        let Some((_, fields)) = stat.rsplit_once(") ") else { return false };
        let mut fields = fields.split(' ');
        let (state, group) = (fields.next(), fields.nth(1));
        group == Some(leader.as_str()) && !matches!(state, Some("Z" | "X" | "x") | None)
    })
}

/// Sends a signal to the descendants of a process that are in the process group of the process.
fn signal_descendants(leader: Pid, signal: Signal) {
    let mut found = children(leader);
    let mut seen = 0;
    while let Some(pid) = found.get(seen).copied() {
        found.extend(children(pid));
        seen += 1;
    }
    for pid in found.into_iter().filter(|pid| getpgid(Some(*pid)) == Ok(leader)) {
        // An error means that the process has ended already.
        let _ = kill_process(pid, signal);
    }
}
