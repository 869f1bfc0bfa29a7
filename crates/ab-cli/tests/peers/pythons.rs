//! The SSH libraries of Python, over plain SSH: they ask for many parts of a file before the first is
//! there.

use std::path::PathBuf;

use ab_testkit::peers::ThirdPartyPrograms;

use super::daemon::Daemon;
use super::{script, succeeds};
use crate::stage::Stage;

const FLAGS: &[&str] = &["--conventional-ssh", "--ssh-port", "0", "--ssh-users", "agent:secret"];

/// Runs a script of `pythons`, which says its name when all of it was as it should be.
#[track_caller]
fn python(name: &str) {
    let Some(peers) = ThirdPartyPrograms::find_or_skip("the SSH libraries of Python") else {
        return;
    };
    let stage = Stage::with(&[("there.txt", "here\n"), ("sub/file", "x")]);
    let daemon = Daemon::with(&stage, FLAGS);
    let mut command = peers.python_command(&file(name));
    // What it gets is kept beside the workspace.
    command.arg(daemon.ssh.as_ref().unwrap()).arg(stage.root()).arg(stage.outside(""));
    assert_eq!(succeeds(command), format!("{name}\n"));
    daemon.end();
}

fn file(name: &str) -> PathBuf {
    script(&format!("pythons/by_{name}.py"))
}

#[test]
fn paramiko_moves_large_files_and_runs_commands() {
    python("paramiko");
}

#[test]
fn asyncssh_moves_large_files_and_runs_commands() {
    python("asyncssh");
}
