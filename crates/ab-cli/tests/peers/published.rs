//! The published clients of agent-backend, unchanged: each script of `published` is one part of what
//! they can do, against our daemon as it is by default, guard included.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use ab_testkit::peers::ThirdPartyPrograms;

use super::daemon::{Daemon, TOKEN};
use super::{script, succeeds};
use crate::stage::{BINARY, Stage};

/// For a port of its own, as the scripts log in there.
const PLAIN_SSH: &[&str] = &[
    "--auth-token",
    TOKEN,
    "--conventional-ssh",
    "--ssh-port",
    "0",
    "--ssh-users",
    "agent:secret",
];

fn workspace() -> Stage {
    Stage::with(&[("there.txt", "here\n")])
}

/// A script and where it finds the daemon.
fn told(mut command: Command, daemon: &Daemon, stage: &Stage) -> Command {
    command.args([&daemon.url, TOKEN]).arg(stage.root());
    command
}

fn published(name: &str) -> std::path::PathBuf {
    script(&format!("published/{name}"))
}

/// Runs one over WebSockets; it says its name when all of it was as it should be.
#[track_caller]
fn node(name: &str, stage: &Stage) {
    let Some(peers) = ThirdPartyPrograms::find_or_skip("the published client") else { return };
    let daemon = Daemon::start(stage);
    let command = peers.system_node_command(&published(&format!("{name}.mjs")));
    assert_eq!(succeeds(told(command, &daemon, stage)), format!("{name}\n"));
    daemon.end();
}

/// Runs one over plain SSH.
#[track_caller]
fn node_over_plain_ssh(name: &str, stage: &Stage) {
    let Some(peers) = ThirdPartyPrograms::find_or_skip("the published client") else { return };
    let daemon = Daemon::with(stage, PLAIN_SSH);
    let mut command =
        told(peers.system_node_command(&published(&format!("{name}.mjs"))), &daemon, stage);
    command.arg(daemon.ssh.as_ref().unwrap());
    assert_eq!(succeeds(command), format!("{name}\n"));
    daemon.end();
}

#[test]
fn the_published_client_reads_and_changes_files() {
    let stage = workspace();
    node("files", &stage);
}

#[test]
fn the_published_client_reads_and_changes_files_over_plain_ssh() {
    let stage = workspace();
    node_over_plain_ssh("files", &stage);
}

#[test]
fn the_published_client_runs_commands() {
    let stage = Stage::with(&[("there.txt", "here\n"), ("sub/file", "")]);
    node("commands", &stage);
}

#[test]
fn the_published_client_runs_commands_over_plain_ssh() {
    let stage = Stage::with(&[("there.txt", "here\n"), ("sub/file", "")]);
    node_over_plain_ssh("commands", &stage);
}

#[test]
fn the_published_client_works_in_scopes() {
    node("scopes", &workspace());
}

#[test]
fn the_published_client_calls_tools() {
    node("tools", &workspace());
}

#[test]
fn the_published_pool_keeps_its_connections() {
    node("pool", &workspace());
}

#[test]
fn the_published_client_is_told_that_its_token_is_wrong() {
    node("refused", &workspace());
}

#[test]
fn the_published_adapter_calls_tools() {
    let Some(peers) = ThirdPartyPrograms::find_or_skip("the published adapter") else { return };
    let stage = workspace();
    let daemon = Daemon::start(&stage);
    // The packages that it is for want a newer node.
    let command = peers.bundled_node_command(&published("vercel.mjs"));
    assert_eq!(succeeds(told(command, &daemon, &stage)), "vercel\n");
    daemon.end();
}

#[test]
fn the_published_adapter_speaks_to_ours_by_stdio_until_its_backend_ends() {
    let Some(peers) = ThirdPartyPrograms::find_or_skip("the published adapter") else { return };
    let stage = workspace();
    let mut command = peers.bundled_node_command(&published("stdio.mjs"));
    // No daemon: the backend is local, and the program is found by its name.
    command.args(["http://127.0.0.1:1/mcp", TOKEN]).arg(stage.root());
    let ours = Path::new(BINARY).parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(ours).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(path).unwrap());
    assert_eq!(succeeds(command), "stdio\n");
}

#[test]
fn the_published_client_comes_back_after_a_restart() {
    let Some(peers) = ThirdPartyPrograms::find_or_skip("the published client") else { return };
    let stage = workspace();
    let daemon = Daemon::start(&stage);
    let port = daemon.port().to_owned();
    let mut command = told(peers.system_node_command(&published("again.mjs")), &daemon, &stage);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    // Where it got no further, why is on its standard error.
    let successor = (line == "connected\n").then(|| {
        daemon.end();
        Daemon::at(&port, &stage, &["--auth-token", TOKEN])
    });
    let output = child.wait_with_output().unwrap();
    said.read_to_string(&mut line).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}{errors}");
    assert_eq!(line, "connected\nagain\n");
    successor.unwrap().end();
}

#[test]
fn the_published_python_client_does_what_it_can() {
    let Some(peers) = ThirdPartyPrograms::find_or_skip("the published Python client") else {
        return;
    };
    let stage = workspace();
    let daemon = Daemon::start(&stage);
    let command = peers.python_command(&published("client.py"));
    assert_eq!(succeeds(told(command, &daemon, &stage)), "python\n");
    daemon.end();
}
