//! The daemon of the built binary, at a port of its own.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};

use crate::stage::{BINARY, Stage};

pub(super) const TOKEN: &str = "a-token-for-the-test";

pub(super) struct Daemon {
    child: Child,
    /// Where clients find it.
    pub(super) url: String,
    /// Where plain SSH finds it, if it was asked to be there.
    pub(super) ssh: Option<String>,
}

impl Daemon {
    /// With a token.
    pub(super) fn start(stage: &Stage) -> Daemon {
        Daemon::with(stage, &["--auth-token", TOKEN])
    }

    /// At any port that is free.
    pub(super) fn with(stage: &Stage, flags: &[&str]) -> Daemon {
        Daemon::at("0", stage, flags)
    }

    /// Returns once it has said where it listens.
    pub(super) fn at(port: &str, stage: &Stage, flags: &[&str]) -> Daemon {
        let mut command = stage.command(BINARY);
        command.args(["daemon", "--port", port]).args(flags).arg("--rootDir");
        command.arg(stage.root()).arg("--ssh-host-key").arg(stage.outside("host_key"));
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        // A client that waits for the port may be logged before it is told of.
        while !line.contains("agent-backend serves ") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "it ended without a word");
        }
        let url = line.split([' ', ',']).find(|word| word.starts_with("http://"));
        let url = url.unwrap_or_else(|| panic!("no address in {line:?}")).to_owned();
        let ssh = line.split_once("/ssh and on ").and_then(|(_, rest)| rest.split(' ').next());
        let ssh = ssh.map(str::to_owned);
        // What it goes on to say is read, so that it never has to wait for somebody to.
        thread::spawn(move || said.read_to_end(&mut Vec::new()));
        Daemon { child, url, ssh }
    }

    /// Where its HTTP port is.
    pub(super) fn port(&self) -> &str {
        let address = self.url.trim_start_matches("http://").split('/').next();
        address.and_then(|address| address.rsplit(':').next()).unwrap()
    }

    /// Ends it in good order.
    pub(super) fn end(mut self) {
        let id = Pid::from_child(&self.child);
        kill_process(id, Signal::TERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // One that has ended has no process to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
