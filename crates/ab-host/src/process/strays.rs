//! Processes that left the group they were started in, found by what their environment says.
//!
//! Where there is neither a namespace nor a control group, this is the best there is: a process
//! that also changes its environment is not found.

use rustix::process::{Pid, Signal, kill_process};

/// The variable by which a process of ours is known.
pub(crate) const COOKIE: &str = "AGENT_BACKEND_PROCESS";

/// Rounds of looking, since one that is being started may be missed.
const ROUNDS: usize = 3;

/// Ends every process whose environment has the cookie.
pub(crate) fn kill(cookie: &str) {
    let wanted = format!("{COOKIE}={cookie}");
    for _ in 0..ROUNDS {
        let found = carrying(wanted.as_bytes());
        if found.is_empty() {
            return;
        }
        for pid in found {
            // It may have ended by itself meanwhile.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn carrying(wanted: &[u8]) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
        .filter(|pid| {
            // Of others we may not read it, and they are none of ours.
            let environment = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()));
            let environment = environment.unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == wanted)
        })
        .collect()
}
