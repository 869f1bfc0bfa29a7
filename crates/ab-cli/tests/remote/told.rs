//! What a person is told: hints that fit, and a variable that means the same to every command.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::json;

use super::commands::bare;
use super::{Far, TOKEN, WAYS, Way};
use crate::killed::{daemon, port};
use crate::mcp::Session;
use crate::stage::{BINARY, Stage, run};

#[test]
fn a_command_that_nobody_knows_is_told_with_where_its_id_comes_from() {
    let stage = Stage::new();
    let far = Far::start(&stage);
    for way in WAYS {
        let ran = far.run(&stage, way, &["exec", "--attach", "nonsense"]);
        ran.expect_error(1, "no process nonsense");
        assert!(ran.err.contains("hint: an ID is what exec --detach prints"), "{}", ran.err);
    }
    assert_eq!(far.daemon.end().0, 0);
}

#[test]
fn a_command_of_a_daemon_that_was_restarted_is_gone() {
    let stage = Stage::new();
    let far = bare(&stage);
    let id = far.out(&stage, Way::Socket, &["exec", "--detach", "--", "sleep 1000"]);
    assert_eq!(far.daemon.end().0, 0);
    let far = bare(&stage);
    let ran = far.run(&stage, Way::Socket, &["exec", "--attach", id.trim()]);
    ran.expect_error(1, &format!("no process {}", id.trim()));
    let hint = "a daemon that was restarted knows no command from before: they ended with it";
    assert!(ran.err.contains(hint), "{}", ran.err);
    assert_eq!(far.daemon.end().0, 0);
}

#[test]
fn whoever_follows_a_command_is_told_that_its_daemon_was_restarted() {
    let stage = Stage::new();
    let port = port();
    let served = daemon(&stage, port);
    let url = format!("ws://127.0.0.1:{port}/ssh");
    let line = "echo begun; sleep 100000";
    let id = stage.out(&["exec", "--remote", &url, "--detach", "--", line]);
    let mut command = stage.command(BINARY);
    command.args(["exec", "--remote", &url, "--attach", id.trim()]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut begun = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut begun).unwrap();
    assert_eq!(begun, "begun\n");
    // Killed, without a goodbye.
    drop(served);
    let served = daemon(&stage, port);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4), "{said}");
    let expect = [
        "note: the connection was lost: trying again",
        "note: connected again",
        "error: the daemon was restarted while the command ran, and does not know it any more",
        "hint: a daemon's commands end with it: start the command again",
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expect);
    assert_eq!(served.end().0, 0);
}

#[test]
fn the_variable_means_the_same_to_every_command() {
    let stage = Stage::with(&[("a.txt", "")]);
    let far = Far::start(&stage);
    let by_variable = |words: &[&str]| {
        let mut command = crate::stage::command(BINARY, &far.here);
        command.env("AGENT_BACKEND_REMOTE", &far.socket).env("AGENT_BACKEND_AUTH_TOKEN", TOKEN);
        command.args(words);
        command
    };
    assert_eq!(run(by_variable(&["fs", "ls"]), b"").text(), "a.txt\n");
    assert_eq!(run(by_variable(&["exec", "--", "ls"]), b"").text(), "a.txt\n");
    let told = run(by_variable(&["doctor", "--json"]), b"").value();
    assert_eq!(told["url"], json!(far.socket));
    let mut session = Session::of(by_variable(&["mcp"]));
    let listed = session.text("list_directory", json!({ "path": "." }));
    assert!(listed.contains("a.txt"), "{listed}");
    assert_eq!(session.end(), "");
    for words in [&["fs", "ls"][..], &["exec"], &["mcp"], &["doctor"]] {
        let help = stage.out(&[words, &["--help"]].concat());
        assert!(help.contains("[env: AGENT_BACKEND_REMOTE]"), "{words:?}");
    }
    assert_eq!(far.daemon.end().0, 0);
}
