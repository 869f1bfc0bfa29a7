//! Finds processes that have left the process group in which they were started. They are found by
//! the *cookie*: an environment variable with a random value, which children inherit.
//!
//! This method is used if there is neither a namespace nor a control group. It does not find a
//! process that also changes its environment.

use rustix::process::{Pid, Signal, kill_process};

use super::incarnation;

/// The name of the variable that marks the processes of our commands.
pub(crate) const COOKIE: &str = "AGENT_BACKEND_PROCESS";

/// How often the processes are scanned. One scan may miss a process that is just being started.
const ROUNDS: usize = 3;

/// Kills every process whose environment contains the cookie.
pub(crate) fn kill(cookie: &str) {
    let wanted = format!("{COOKIE}={cookie}");
    for _ in 0..ROUNDS {
        let found = carrying(wanted.as_bytes());
        if found.is_empty() {
            return;
        }
        for pid in found {
            // An error means that the process has ended already.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Returns whether a process has the environment variable of a command that this process started.
pub(crate) fn has_our_mark(pid: u32) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let ours = format!("{}-", incarnation::mark());
    environment.split(|byte| *byte == 0).any(|variable| {
        let value = variable.strip_prefix(COOKIE.as_bytes()).and_then(|it| it.strip_prefix(b"="));
        value.is_some_and(|value| value.windows(ours.len()).any(|part| part == ours.as_bytes()))
    })
}

fn carrying(wanted: &[u8]) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .filter(|pid| {
            // We may not be allowed to read the environment of other users' processes. Ignore them,
            // because they are not ours.
            let environment = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()));
            let environment = environment.unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == wanted)
        })
        .collect()
}
