//! What a person is told: hints that fit, and a variable that means the same to every command.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::json;

use super::commands::bare;
use super::{Far, TOKEN, WAYS, Way};
use crate::daemon::Daemon;
use crate::killed::{daemon, port};
use crate::mcp::Session;
use crate::relay::Relay;
use crate::stage::{BINARY, Ran, Stage, run};
use crate::streams::catches;

#[test]
fn a_command_that_nobody_knows_is_told_with_where_its_id_comes_from() {
    let stage = Stage::new();
    let far = Far::start(&stage);
    for way in WAYS {
        let ran = far.run(&stage, way, &["exec", "--attach", "nonsense"]);
        ran.expect_error(125, "there is no job 'nonsense'");
        assert!(ran.err.contains("hint: list the jobs: agent-backend job list"), "{}", ran.err);
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
    ran.expect_error(125, &format!("there is no job '{}'", id.trim()));
    let hint = "jobs end when their daemon is restarted";
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
    assert_eq!(output.status.code(), Some(125), "{said}");
    // The answer that the command is gone may arrive before the note.
    let connected =
        "note: connected again; signals and input from just before the loss may be missing";
    let expect = [
        "note: the connection was lost; reconnecting",
        "error: the daemon was restarted while the command ran, which ended the command",
        "hint: start the command again",
    ];
    assert_eq!(said.lines().filter(|line| *line != connected).collect::<Vec<_>>(), expect);
    assert_eq!(served.end().0, 0);
}

#[test]
fn whoever_follows_a_command_is_told_that_the_token_is_another() {
    let stage = Stage::new();
    let port = port();
    let served = |token: &str| {
        let mut command = stage.command(BINARY);
        command.args(["daemon", "--rootDir", ".", "--port", &port.to_string(), "--ssh-host-key"]);
        command.arg(stage.outside("host_key")).args(["--auth-token", token]);
        Daemon::spawn(command)
    };
    let client = |words: &[&str]| {
        let mut command = stage.command(BINARY);
        command.args(["exec", "--remote", &format!("ws://127.0.0.1:{port}/ssh")]).args(words);
        command.env("AGENT_BACKEND_AUTH_TOKEN", TOKEN);
        command
    };
    let first = served(TOKEN);
    let id = run(client(&["--detach", "--", "echo begun; sleep 100000"]), b"").text();
    let mut command = client(&["--attach", id.trim()]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut begun = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut begun).unwrap();
    drop(first);
    let second = served("another-token-than-before");
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("the daemon refused the token"), "{said}");
    assert!(said.contains("hint: pass the token with --token-file"), "{said}");
    assert_eq!(second.end().0, 0);
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
        assert!(help.contains("AGENT_BACKEND_REMOTE"), "{words:?}");
    }
    assert_eq!(far.daemon.end().0, 0);
}

#[test]
fn whoever_knocks_at_the_wrong_door_is_told_the_right_one() {
    let stage = Stage::new();
    let far = Far::start(&stage);
    let at = |url: &str| url.split("://").nth(1).unwrap().to_owned();
    let ssh = at(&far.ssh).split('@').nth(1).unwrap().to_owned();
    let ls = |url: &str, more: &[&str]| {
        stage.run(&[&["fs", "ls", "--remote", url, "--host-key", &far.fingerprint], more].concat())
    };
    let check = |ran: Ran, code: i32, hint: &str| {
        ran.expect_error(code, "");
        let told = ran.err.split("\nhint: ").nth(1).unwrap_or_else(|| panic!("{}", ran.err));
        assert_eq!(told.trim(), hint, "{}", ran.err);
    };
    let tls = "for a daemon without TLS, use ws:// instead of wss://";
    check(ls(&format!("wss://{}", at(&far.socket)), &[]), 4, tls);
    let other = "is that the port of an SSH server? then use ssh://user@host:port";
    check(ls(&format!("ws://{ssh}/ssh"), &[]), 4, other);
    let other = "is that the port of a daemon? then use ws://host:port/ssh";
    let daemon = format!("ssh://ada@{}", far.daemon.address);
    check(ls(&daemon, &[]), 4, other);
    let path = "check the path of the URL: the WebSocket of a daemon is at /ssh";
    let token = stage.outside("token").to_str().unwrap().to_owned();
    let nowhere = format!("ws://{}/nowhere", far.daemon.address);
    check(ls(&nowhere, &["--token-file", &token]), 4, path);
    let way = "pass credentials with --token-file, AGENT_BACKEND_AUTH_TOKEN or --header";
    let ran = ls(&nowhere, &[]);
    assert!(ran.code == 3 && ran.err.trim().ends_with(way), "{}", ran.err);
    let proxy = "check the URL of --proxy, and that a daemon runs behind the proxy";
    check(ls(&far.socket, &["--proxy", "http://127.0.0.1:1"]), 4, proxy);
    check(ls(&far.socket, &["--token-file", "nowhere"]), 2, "check the path in --token-file");
    let ran = ls(&far.ssh, &["--password-file", "nowhere"]);
    check(ran, 2, "check the path in --password-file");
    std::fs::write(stage.outside("no-key"), "no key").unwrap();
    let no_key = stage.outside("no-key").to_str().unwrap().to_owned();
    check(ls(&far.ssh, &["--identity", &no_key]), 1, "check the files that --identity names");
    assert_eq!(far.daemon.end().0, 0);
}

#[test]
fn a_variable_that_was_forgotten_is_named() {
    let stage = Stage::new();
    let by_variable = |url: &str, words: &[&str]| {
        let mut command = stage.command(BINARY);
        command.env("AGENT_BACKEND_REMOTE", url).args(words);
        run(command, b"")
    };
    let gone = "ws://127.0.0.1:1/ssh";
    for (ran, code) in [
        (by_variable("nonsense", &["fs", "ls"]), 2),
        (by_variable(gone, &["fs", "ls"]), 4),
        (by_variable(gone, &["mcp"]), 4),
        (by_variable(gone, &["mcp", "--isolation", "none"]), 2),
        (by_variable(gone, &["doctor"]), 4),
        (by_variable(gone, &["exec", "--isolation", "none", "--", "true"]), 125),
    ] {
        ran.expect_error(
            code,
            "the environment variable AGENT_BACKEND_REMOTE names this workspace\n",
        );
    }
    let ran = by_variable("nonsense", &["fs", "ls", "--remote", gone]);
    assert!(!ran.err.contains("AGENT_BACKEND_REMOTE"), "{}", ran.err);
    stage.run(&["exec", "--from", "3", "--", "true"]).expect_error(125, "--from needs --attach");
}

#[test]
fn a_write_whose_daemon_died_names_its_file() {
    let stage = Stage::new();
    let mut far = Far::start(&stage);
    let relay = Relay::to(&far.daemon.address);
    far.socket = format!("ws://{}/ssh", relay.address);
    let mut command = far.prepared(&stage, Way::Socket, &["fs", "write", "in/a.txt"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It reads its input once it is connected; then nothing gets through, and the daemon dies.
    while !catches(&child, 2) {
        std::thread::yield_now();
    }
    relay.stall();
    drop(child.stdin.take());
    drop(far.daemon);
    relay.go_on();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.starts_with("error: write 'in/a.txt': "), "{said}");
    assert!(stage.names("").is_empty());
}
