//! Runs small programs of the host for the probes: looks them up in given directories, and kills
//! them at a deadline.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process_group};

/// Maximum number of characters of a program's error output that are repeated in a cause.
const QUOTED: usize = 200;

/// The directories in which programs are looked up, and the time when the programs must have ended.
pub(super) struct Programs {
    path: Vec<PathBuf>,
    deadline: Instant,
}

impl Programs {
    pub(super) fn new(path: &[PathBuf], deadline: Instant) -> Programs {
        // Leave out relative directories, because a program with another working directory would
        // look them up elsewhere.
        let path = path.iter().filter(|directory| directory.is_absolute()).cloned().collect();
        Programs { path, deadline }
    }

    pub(super) fn find(&self, name: &str) -> Option<PathBuf> {
        self.path.iter().map(|directory| directory.join(name)).find(|file| is_program(file))
    }

    /// Runs a program and returns its standard output. If the program fails, the error contains its
    /// error output.
    pub(super) fn run(&self, program: &Path, arguments: &[&str]) -> Result<String, Complaint> {
        let joined = std::env::join_paths(&self.path).unwrap_or_else(|_| OsString::new());
        let child = Command::new(program)
            .args(arguments)
            .current_dir("/")
            .env_clear()
            .env("PATH", joined)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| {
                Complaint::new(format!("cannot start {}: {error}", program.display()))
            })?;
        let output = self.ended(child)?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(said);
        }
        let complaint = String::from_utf8_lossy(&output.stderr);
        let text = match complaint.trim() {
            "" => output.status.to_string(),
            text => one_line(text),
        };
        Err(Complaint { text, said })
    }

    fn ended(&self, child: Child) -> Result<Output, Complaint> {
        let group = Pid::from_child(&child);
        let (sender, receiver) = mpsc::sync_channel(1);
        let waiter = thread::spawn(move || {
            // This cannot fail, because the receiver exists until this thread has ended.
            let _ = sender.send(child.wait_with_output());
        });
        let left = self.deadline.saturating_duration_since(Instant::now());
        let output = receiver.recv_timeout(left).unwrap_or_else(|_| {
            // Ignore an error, because the group may have just ended by itself.
            let _ = kill_process_group(group, Signal::KILL);
            Err(std::io::ErrorKind::TimedOut.into())
        });
        let _ = waiter.join();
        output.map_err(|error| Complaint::new(format!("did not end: {error}")))
    }
}

/// Why a program failed, and what it printed before.
#[derive(Debug)]
pub(super) struct Complaint {
    pub(super) text: String,
    /// The standard output of the program.
    pub(super) said: String,
}

impl Complaint {
    fn new(text: String) -> Complaint {
        Complaint { text, said: String::new() }
    }
}

/// Returns whether the file exists and may be executed.
pub(crate) fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

fn one_line(text: &str) -> String {
    let line = text.lines().map(str::trim).collect::<Vec<_>>().join("; ");
    if line.chars().count() <= QUOTED {
        return line;
    }
    line.chars().take(QUOTED).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn programs(time: Duration) -> Programs {
        Programs::new(&["/usr/bin".into(), "/bin".into()], Instant::now() + time)
    }

    #[test]
    fn programs_are_found_and_speak() {
        let programs = programs(Duration::from_secs(5));
        assert_eq!(programs.find("no-such-program"), None);
        let shell = programs.find("sh").unwrap();
        assert_eq!(programs.run(&shell, &["-c", "echo $LC_ALL"]).unwrap(), "C\n");
        let complaint =
            programs.run(&shell, &["-c", "echo half; echo no >&2; exit 3"]).unwrap_err();
        assert_eq!((complaint.text.as_str(), complaint.said.as_str()), ("no", "half\n"));
        let complaint = programs.run(&shell, &["-c", "exit 3"]).unwrap_err();
        assert_eq!(complaint.text, "exit status: 3");
    }

    #[test]
    fn a_program_that_does_not_end_is_ended() {
        let started = Instant::now();
        let programs = programs(Duration::from_millis(50));
        let shell = programs.find("sh").unwrap();
        let complaint = programs.run(&shell, &["-c", "sleep 60 & sleep 60"]).unwrap_err();
        assert!(complaint.text.starts_with("did not end"), "{}", complaint.text);
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn relative_directories_are_not_searched() {
        assert_eq!(Programs::new(&["bin".into()], Instant::now()).path, Vec::<PathBuf>::new());
    }

    #[test]
    fn long_complaints_are_cut() {
        assert_eq!(one_line("a\n b "), "a; b");
        assert_eq!(one_line(&"x".repeat(1000)).chars().count(), QUOTED + 1);
    }
}
