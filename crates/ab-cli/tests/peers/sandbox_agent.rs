//! The published SDK of sandbox-agent against `agent-backend server`.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::thread;

use ab_testkit::peers::ThirdPartyPrograms;
use rustix::process::{Pid, Signal, kill_process};

use super::{script, succeeds};
use crate::stage::{BINARY, Stage};

pub(crate) const TOKEN: &str = "a-token-for-the-test";

/// The turns that `sandbox_agent.mjs` asks for.
const SCENARIO: &str = r#"
[[turn]]
steps = [
    { ask = { title = "Write", path = "made.txt", denied = [{ say = "Then not." }] } },
    { write = { path = "made.txt", text = "{prompt}\n" } },
    { say = "It is written." },
]

[[turn]]
steps = [{ say = "hanging" }, { hang = "until_cancelled" }]

[[turn]]
steps = [{ flood = { pieces = 400, bytes = 8 } }, { say = "flooded" }]

[[turn]]
steps = [{ say = "leaving" }, { exit = 7 }]
"#;

/// A running `agent-backend server`.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) url: String,
}

impl Gateway {
    fn start(stage: &Stage, flags: &[&str]) -> Gateway {
        Gateway::start_by(stage.command(BINARY), stage, flags)
    }

    /// By a command that has variables already.
    pub(crate) fn start_by(mut command: Command, stage: &Stage, flags: &[&str]) -> Gateway {
        command.args(["server", "--port", "0", "--token", TOKEN, "--no-telemetry"]).args(flags);
        command.env("XDG_DATA_HOME", stage.outside("share"));
        command.env("HOME", stage.outside("home"));
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("agent-backend serves agents at ") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "it ended without a word");
        }
        let url = line.trim().rsplit(' ').next().unwrap().to_owned();
        // What it goes on to say is read, so that it never has to wait for a reader.
        thread::spawn(move || said.read_to_end(&mut Vec::new()));
        Gateway { child, url }
    }

    pub(crate) fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // One that has ended has no process to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn stage() -> Stage {
    let stage = Stage::with(&[(".agent-backend/scenario.toml", SCENARIO)]);
    for name in ["home", "pack/a"] {
        fs::create_dir_all(stage.outside(name)).unwrap();
    }
    fs::write(stage.outside("pack/a/b.txt"), "packed\n").unwrap();
    let mut tar = Command::new("tar");
    tar.arg("-cf").arg(stage.path("batch.tar")).arg("-C").arg(stage.outside("pack")).arg("a");
    assert!(tar.status().unwrap().success());
    stage
}

#[track_caller]
fn sdk_does_everything(flags: &[&str]) {
    let Some(peers) = ThirdPartyPrograms::find_or_skip("the SDK of sandbox-agent") else { return };
    let stage = stage();
    let gateway = Gateway::start(&stage, flags);
    let mut command = peers.system_node_command(&script("sandbox_agent.mjs"));
    command.args([&gateway.url, TOKEN]).arg(stage.root());
    assert_eq!(succeeds(command), "everything\n");
    gateway.end();
}

#[test]
fn sandbox_agent_sdk_works_with_agents_as_the_user() {
    sdk_does_everything(&["--replay-events", "200"]);
}

#[test]
fn sandbox_agent_sdk_works_with_isolated_agents() {
    sdk_does_everything(&["--replay-events", "200", "--isolation", "auto"]);
}
