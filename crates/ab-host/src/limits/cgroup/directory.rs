//! One directory of a control group: access to its files, its member processes, and its removal.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// How often an operation on a busy group is retried, and the pause before each retry.
pub(super) const TRIES: u32 = 200;
pub(super) const PAUSE: Duration = Duration::from_millis(5);
/// Maximum number of groups that a command made below its own group and that are removed together
/// with it.
const MOST_BELOW: usize = 1_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    First,
    Second,
}

#[derive(Debug)]
pub(super) struct Directory {
    pub(super) place: PathBuf,
    pub(super) version: Version,
}

impl Directory {
    pub(super) fn offers(&self, file: &str) -> bool {
        self.version == Version::Second && self.place.join(file).exists()
    }

    pub(super) fn open(&self, file: &str) -> io::Result<File> {
        OpenOptions::new().write(true).open(self.place.join(file))
    }

    pub(super) fn write(&self, file: &str, text: &str) -> io::Result<()> {
        let written = self.open(file).and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| io::Error::new(error.kind(), format!("writing to {file}: {error}")))
    }

    /// Writes to a file that does not exist on every kernel. It is not an error if the file does
    /// not exist.
    pub(super) fn write_if_there(&self, file: &str, text: &str) -> io::Result<()> {
        match self.write(file, text) {
            Err(error) if is_absence(&error) => Ok(()),
            done => done,
        }
    }

    /// Kills the processes in this group, but not those in groups below it. Returns how many
    /// processes there were.
    pub(super) fn kill_each(&self) -> usize {
        let members = fs::read_to_string(self.place.join("cgroup.procs")).unwrap_or_default();
        // A process outside of our pid namespace is listed as 0. It must be left out, because
        // `kill` would interpret 0 as our own process group.
        let members = members.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?));
        let others = members.filter(|member| *member != rustix::process::getpid());
        let mut count = 0;
        for member in others {
            // The process may have ended already.
            let _ = kill_process(member, Signal::KILL);
            count += 1;
        }
        count
    }

    /// Removes the group, including the groups that a command made below it. If the group still
    /// contains processes after all retries, [`super::sweep`] removes it later.
    pub(super) fn remove(&self) {
        for _ in 0..TRIES {
            match fs::remove_dir(&self.place) {
                Ok(()) => return,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return,
                Err(_) => {}
            }
            for below in below(&self.place).into_iter().rev() {
                Directory { place: below.clone(), version: self.version }.kill_each();
                let _ = fs::remove_dir(&below);
            }
            self.kill_each();
            thread::sleep(PAUSE);
        }
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::Unsupported)
}

/// Returns the groups below `top`, each after its parent.
pub(super) fn below(top: &Path) -> Vec<PathBuf> {
    let mut found = vec![top.to_owned()];
    let mut next = 0;
    while next < found.len() && found.len() < MOST_BELOW {
        found.extend(groups_in(&found[next]));
        next += 1;
    }
    found.remove(0);
    found
}

pub(super) fn groups_in(parent: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    let entries = entries.filter_map(Result::ok);
    let groups = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    groups.map(|entry| entry.path()).collect()
}
