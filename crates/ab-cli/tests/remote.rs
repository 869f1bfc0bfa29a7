//! `--remote`: the commands on a workspace behind a daemon, by its WebSocket and by SSH.

mod commands;
mod files;
mod large;
mod reaching;
mod stalled;
mod told;
mod unlocking;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::daemon::Daemon;
use crate::stage::{BINARY, Ran, Stage, command, run};

const TOKEN: &str = "t0ken";
const PASSWORD: &str = "secret";

/// How a daemon is reached.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Socket,
    Ssh,
}

const WAYS: [Way; 2] = [Way::Socket, Way::Ssh];

/// What is in force but for limits: a daemon has limits of its own where none are asked for.
fn without_limits(mut in_force: Value) -> Value {
    let limits = ["memory", "process_count"];
    let controls = in_force["controls"].as_array_mut().unwrap();
    let all = controls.len();
    controls.retain(|control| !limits.contains(&control["control"].as_str().unwrap()));
    assert_eq!(controls.len(), all - limits.len(), "{controls:?}");
    in_force
}

/// A daemon, and a directory far from its workspace to work from.
struct Far {
    daemon: Daemon,
    here: PathBuf,
    socket: String,
    ssh: String,
    /// As the daemon tells it.
    fingerprint: String,
}

impl Far {
    fn start(stage: &Stage) -> Far {
        Far::start_with(stage, &[])
    }

    fn start_with(stage: &Stage, more: &[&str]) -> Far {
        let users = format!("ada:{PASSWORD}");
        let mut flags = vec!["--rootDir", ".", "--auth-token", TOKEN, "--conventional-ssh"];
        flags.extend(["--ssh-port", "0", "--ssh-users", &users]);
        flags.extend(more);
        let daemon = Daemon::start(stage, &flags);
        let here = stage.outside("here");
        fs::create_dir_all(&here).unwrap();
        fs::write(stage.outside("token"), format!("{TOKEN}\n")).unwrap();
        fs::write(stage.outside("password"), format!("{PASSWORD}\n")).unwrap();
        let after = |mark: &str| daemon.notice.split(mark).nth(1).unwrap().to_owned();
        let fingerprint = format!("SHA256:{}", after("SHA256:").split([',', '\n']).next().unwrap());
        let ssh = format!("ssh://ada@{}", after(" and on ").split(' ').next().unwrap());
        let socket = format!("ws://{}/ssh", daemon.address);
        Far { here, socket, ssh, fingerprint, daemon }
    }

    /// A command that inherits nothing, with these flags for the daemon.
    fn command(&self, stage: &Stage, way: Way) -> (Command, Vec<String>) {
        let mut command = command(BINARY, &self.here);
        command.env("HOME", &self.here);
        let file = |name: &str| stage.outside(name).to_str().unwrap().to_owned();
        let flags = match way {
            Way::Socket => vec![
                "--remote".to_owned(),
                self.socket.clone(),
                "--token-file".to_owned(),
                file("token"),
            ],
            Way::Ssh => vec![
                "--remote".to_owned(),
                self.ssh.clone(),
                "--password-file".to_owned(),
                file("password"),
                "--host-key".to_owned(),
                self.fingerprint.clone(),
            ],
        };
        (command, flags)
    }

    /// The first words, the flags, then the rest: what follows `--` is not for us.
    fn prepared(&self, stage: &Stage, way: Way, words: &[&str]) -> Command {
        let (mut command, flags) = self.command(stage, way);
        let (ours, rest) =
            words.split_at(words.iter().position(|it| *it == "--").unwrap_or(words.len()));
        command.args(ours).args(flags).args(rest);
        command
    }

    fn run(&self, stage: &Stage, way: Way, words: &[&str]) -> Ran {
        self.run_with(stage, way, words, b"")
    }

    fn run_with(&self, stage: &Stage, way: Way, words: &[&str], stdin: &[u8]) -> Ran {
        run(self.prepared(stage, way, words), stdin)
    }

    #[track_caller]
    fn out(&self, stage: &Stage, way: Way, words: &[&str]) -> String {
        let ran = self.run(stage, way, words);
        assert_eq!(ran.code, 0, "{words:?}: {}", ran.err);
        ran.text()
    }
}
