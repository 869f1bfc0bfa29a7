//! The two servers, with one agent for both.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::echo::ECHO;
use crate::programs::{Peers, Running, answers, free_port, ours};

/// The npm package with the peer for this platform.
pub(crate) const PEER: &str = "@sandbox-agent/cli-linux-x64";
/// The agent, by a name that the peer knows. Both look for its program in the peer's directory.
pub(crate) const AGENT: &str = "mock";

#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    Ours,
    Peer,
}

/// Where agents work, and where their program is found.
#[derive(Debug)]
pub(crate) struct Fixture {
    keep: TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Fixture {
        let fixture = Fixture { keep: tempfile::tempdir().unwrap() };
        let programs = fixture.path("share/sandbox-agent/bin/agent_processes");
        for directory in [&fixture.root(), &fixture.path("home"), &programs] {
            fs::create_dir_all(directory).unwrap();
        }
        let launcher = programs.join(format!("{AGENT}-acp"));
        let own = std::env::current_exe().unwrap();
        fs::write(&launcher, format!("#!/bin/sh\n{ECHO}=1 exec '{}'\n", own.display())).unwrap();
        fs::set_permissions(&launcher, fs::Permissions::from_mode(0o755)).unwrap();
        fixture
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.path("root")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.keep.path().join(name)
    }
}

/// A server at a port that answers.
#[derive(Debug)]
pub(crate) struct Gateway {
    running: Running,
    pub(crate) port: u16,
}

impl Gateway {
    pub(crate) fn start(peers: &Peers, who: Who, fixture: &Fixture) -> Gateway {
        let port = free_port();
        let mut command = match who {
            Who::Ours => {
                let mut command = ours();
                command.args(["server", "--root"]).arg(fixture.root());
                command
            }
            Who::Peer => {
                let mut command = Command::new(peers.file(PEER, "bin/sandbox-agent"));
                command.arg("server");
                command
            }
        };
        command.args(["--no-token", "--no-telemetry", "--port", &port.to_string()]);
        command.current_dir(fixture.root());
        for (name, place) in
            [("XDG_DATA_HOME", "share"), ("HOME", "home"), ("XDG_STATE_HOME", "state")]
        {
            command.env(name, fixture.path(place));
        }
        Gateway { running: Running::when(&mut command, || answers(port, "/v1/health")), port }
    }

    /// Resident memory of the server and what it started beside agents, in MB.
    pub(crate) fn memory(&self) -> f64 {
        let own = std::env::current_exe().unwrap();
        let is_agent = |process: u32| {
            let program = fs::read_link(format!("/proc/{process}/exe"));
            program.is_ok_and(|program| program == own)
        };
        self.running.memory(|process| !is_agent(process))
    }

    /// Forgets the peak of the server's memory until now.
    pub(crate) fn reset_peak(&self) {
        fs::write(self.process().join("clear_refs"), "5").unwrap();
    }

    /// A figure of `/proc/PID/status` in MB.
    pub(crate) fn status(&self, name: &str) -> f64 {
        let status = fs::read_to_string(self.process().join("status")).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
    }

    fn process(&self) -> PathBuf {
        Path::new("/proc").join(self.running.id().to_string())
    }
}
