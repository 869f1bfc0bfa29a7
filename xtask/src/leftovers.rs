//! Finds what a test run left on the host: processes, mounts and control groups.
//!
//! Everything that existed before the run is ignored. A process belongs to the run if its
//! environment contains the cookie that this run gave to its tests, or the mark of a command that
//! the product started.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::failure::Failure;

/// The variable that carries this run's cookie.
pub(crate) const COOKIE: &str = "AB_TEST_COOKIE";
/// The variable that the product sets for every command.
const MARK: &[u8] = b"AGENT_BACKEND_PROCESS=";
/// Text in the names of the product's mounts.
const MOUNTED: &str = "agentbe-workspace";
const GROUPS: &str = "/sys/fs/cgroup";
const GROUP_PREFIX: &str = "agent-backend-";
/// How often to look before a resource counts as left over. Killed processes take a moment to
/// disappear.
const LOOKS: usize = 20;
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) cookie: String,
    before: BTreeSet<String>,
}

impl Watch {
    /// Records what exists before the run.
    pub(crate) fn begin() -> Watch {
        let random = std::hash::RandomState::new().build_hasher().finish();
        let cookie = format!("{random:016x}");
        let before = found(&cookie);
        Watch { cookie, before }
    }

    /// Fails if the run has left something behind.
    pub(crate) fn end(&self) -> Result<(), Failure> {
        let mut left = BTreeSet::new();
        for _ in 0..LOOKS {
            left = found(&self.cookie).difference(&self.before).cloned().collect();
            if left.is_empty() {
                println!("leftovers: no process, mount or control group of ours");
                return Ok(());
            }
            thread::sleep(PAUSE);
        }
        let list: Vec<String> = left.into_iter().collect();
        Err(Failure::new(format!("the tests left behind: {}", list.join("; "))))
    }
}

fn found(cookie: &str) -> BTreeSet<String> {
    let wanted = format!("{COOKIE}={cookie}");
    let mut found = processes(wanted.as_bytes());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let ours = mounts.lines().filter(|line| line.contains(MOUNTED));
    found.extend(ours.map(|line| format!("mount {line}")));
    groups(Path::new(GROUPS), 0, &mut found);
    found
}

/// Processes of this run, and commands of the product. This process itself has no cookie.
fn processes(cookie: &[u8]) -> BTreeSet<String> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeSet::new() };
    let ours = |entry: fs::DirEntry| {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        let environment = fs::read(entry.path().join("environ")).ok()?;
        let carries = |variable: &[u8]| variable == cookie || variable.starts_with(MARK);
        if !environment.split(|byte| *byte == 0).any(carries) {
            return None;
        }
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        Some(format!("process {number} {}", line.chars().take(200).collect::<String>()))
    };
    entries.flatten().filter_map(ours).collect()
}

fn groups(directory: &Path, depth: usize, found: &mut BTreeSet<String>) {
    const DEEPEST: usize = 8;
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name().to_string_lossy().starts_with(GROUP_PREFIX) {
            found.insert(format!("control group {}", entry.path().display()));
        } else if depth < DEEPEST {
            groups(&entry.path(), depth + 1, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_with_the_cookie_is_found_until_it_ends() {
        let watch = Watch::begin();
        let mut child =
            Command::new("cat").env(COOKIE, &watch.cookie).stdin(Stdio::piped()).spawn().unwrap();
        // Until the child has called execve, it has the environment of this process.
        while !found(&watch.cookie).iter().any(|it| it.contains(&child.id().to_string())) {
            thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let number = format!("process {} ", child.id());
        assert!(!found(&watch.cookie).iter().any(|it| it.starts_with(&number)));
    }
}
