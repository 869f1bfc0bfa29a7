//! Bounds that the operator of a daemon sets, on every surface.

use std::fs;

use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::stage::{BINARY, Ran, Stage, run};

/// The answer of a tool, as text.
fn text(daemon: &Daemon, tool: &str, arguments: Value, headers: &[(&str, &str)]) -> String {
    let (_, answer) = daemon.call(tool, arguments, headers);
    answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

fn exec(daemon: &Daemon, command: &str) -> String {
    text(daemon, "exec", json!({ "command": command }), &[])
}

/// A control that the daemon says is in force.
fn control(daemon: &Daemon, name: &str) -> Value {
    let (_, health) = daemon.ask("GET", "/health", &[], "");
    let health: Value = serde_json::from_str(&health).unwrap();
    let controls = health["effectivePolicy"]["controls"].as_array().unwrap().clone();
    controls.into_iter().find(|control| control["control"] == name).unwrap()
}

#[test]
fn hidden_and_read_only_paths_hold_on_every_surface() {
    const SECRET: &str = "nobody sees this";
    let stage = Stage::with(&[("in/secret", SECRET), ("in/kept", "as it was"), ("in/a", "open")]);
    let flags = ["--rootDir", ".", "--hide", "in/secret", "--read-only", "in/kept"];
    let ssh = ["--conventional-ssh", "--ssh-port", "0", "--ssh-users", "ada:pass"];
    let daemon = Daemon::start(&stage, &[&flags[..], &ssh].concat());
    let after = |mark: &str| daemon.notice.split(mark).nth(1).unwrap().to_owned();
    let pin = format!("SHA256:{}", after("SHA256:").split([',', '\n']).next().unwrap());
    let by_ssh = format!("ssh://ada@{}", after(" and on ").split(' ').next().unwrap());
    let socket = format!("ws://{}/ssh", daemon.address);
    let password = stage.outside("password");
    fs::write(&password, "pass\n").unwrap();
    let password = password.to_str().unwrap();

    let scope = [("x-scope-path", "in")];
    for (prefix, headers) in [("in/", &[][..]), ("", &scope)] {
        let path = |name: &str| json!({ "path": format!("{prefix}{name}") });
        assert_eq!(text(&daemon, "read_text_file", path("a"), headers), "open");
        assert!(!text(&daemon, "read_text_file", path("secret"), headers).contains(SECRET));
        let write = json!({ "path": format!("{prefix}kept"), "content": "changed" });
        text(&daemon, "write_file", write, headers);
        let found = text(&daemon, "grep", json!({ "pattern": "nobody" }), headers);
        assert!(!found.contains(SECRET), "{found}");
    }
    let by_socket = vec!["--remote", socket.as_str()];
    let in_scope = vec!["--remote", socket.as_str(), "--header", "X-Scope-Path: in"];
    let by_ssh = vec!["--remote", &by_ssh, "--host-key", &pin, "--password-file", password];
    for (prefix, remote) in [("in/", by_socket), ("", in_scope), ("in/", by_ssh)] {
        let fs = |words: &[&str], name: &str| -> Ran {
            let mut command = stage.command(BINARY);
            command.arg("fs").args(words).arg(format!("{prefix}{name}")).args(&remote);
            run(command, b"changed")
        };
        let read = fs(&["cat"], "a");
        assert_eq!((read.code, read.text().as_str()), (0, "open"), "{}", read.err);
        let read = fs(&["cat"], "secret");
        assert!(read.code != 0 && !read.text().contains(SECRET), "{remote:?}");
        assert_ne!(fs(&["write"], "kept").code, 0, "{remote:?}");
    }
    // Commands too, where walls can do that.
    let isolation = stage.json(&["exec", "--explain", "--json"])["isolation"].clone();
    if isolation == "bwrap" {
        let said = exec(&daemon, "cat in/secret; echo changed > in/kept; echo it has tried");
        assert!(said.contains("it has tried") && !said.contains(SECRET), "{said}");
    }
    assert_eq!(stage.text("in/kept"), "as it was");
    assert_eq!(daemon.end().0, 0);
}

#[test]
fn limits_of_the_operator_hold_for_every_caller() {
    let stage = Stage::new();
    let flags = ["--rootDir", ".", "--timeout", "300ms", "--open-files", "77", "--env", "WORD=hi"];
    let daemon = Daemon::start(&stage, &flags);
    let said = exec(&daemon, "echo $WORD; ulimit -n");
    assert_eq!(said, "hi\n77");
    // A caller may wish for more, and gets no more.
    let (_, answer) = daemon.call("exec", json!({ "command": "sleep 1000", "timeout": 50 }), &[]);
    assert_eq!(answer["result"]["structuredContent"]["timedOut"], true, "{answer}");
    let said = answer["result"]["content"].to_string();
    assert!(said.contains("by the time limit of this workspace"), "{said}");
    let mut command = stage.command(BINARY);
    let socket = format!("ws://{}/ssh", daemon.address);
    command.args(["exec", "--remote", &socket, "--timeout", "1h", "--", "sleep", "1000"]);
    assert_eq!(run(command, b"").code, 124);
    assert_eq!(daemon.end().0, 0);
}

#[test]
fn the_operators_floor_and_limits_hold_against_callers() {
    let stage = Stage::new();
    let mut command = stage.command(BINARY);
    command.args(["daemon", "--rootDir", ".", "--port", "0", "--isolation", "none"]);
    command.args(["--floor", "landlock"]);
    let refused = run(command, b"");
    assert_eq!(refused.code, 1, "{}", refused.err);
    assert!(
        refused.err.contains("weaker than the required isolation 'landlock'"),
        "{}",
        refused.err
    );
    let flags = ["--rootDir", ".", "--processes", "24", "--memory", "256M"];
    let daemon = Daemon::start(&stage, &flags);
    let (processes, memory) = (control(&daemon, "process_count"), control(&daemon, "memory"));
    assert_eq!(processes["asked"], "24", "{processes}");
    assert!(memory["asked"].as_str().unwrap().contains("268435456"), "{memory}");
    if processes["holds"] == "enforced" {
        let mut command = stage.command(BINARY);
        let socket = format!("ws://{}/ssh", daemon.address);
        let line = "sh -c 'for i in $(seq 60); do sleep 100 & done; echo all of them'";
        command.args(["exec", "--remote", &socket, "--processes", "500", "--", line]);
        let ran = run(command, b"");
        assert!(!ran.text().contains("all of them"), "{} {}", ran.text(), ran.err);
        assert!(ran.err.to_lowercase().contains("fork"), "{}", ran.err);
    }
    assert_eq!(daemon.end().0, 0);
}

#[test]
fn processes_and_memory_are_bounded_unless_told_otherwise() {
    let stage = Stage::new();
    let daemon = Daemon::start(&stage, &["--rootDir", "."]);
    let (processes, memory) = (control(&daemon, "process_count"), control(&daemon, "memory"));
    assert_eq!(processes["asked"], "1024", "{processes}");
    assert_ne!(memory["asked"], "no limit", "{memory}");
    let open = [(&processes, "processes"), (&memory, "memory")];
    for (control, name) in open {
        let told =
            daemon.notice.contains("without an enforced limit of") && daemon.notice.contains(name);
        assert_eq!(told, control["holds"] != "enforced", "{}", daemon.notice);
    }
    if processes["holds"] == "enforced" {
        let said = exec(&daemon, "sh -c 'for i in $(seq 3000); do sleep 100 & done' 2>&1");
        assert!(said.to_lowercase().contains("fork"), "{said}");
    }
    assert_eq!(daemon.end().0, 0);
}

#[test]
fn commands_at_a_time_are_bounded_whoever_starts_them() {
    let stage = Stage::new();
    let daemon = Daemon::start(&stage, &["--rootDir", ".", "--max-commands", "1"]);
    let started = json!({ "command": "echo begun; sleep 1000", "background": true });
    let (_, answer) = daemon.call("exec", started, &[]);
    let id = answer["result"]["structuredContent"]["processId"].as_str().unwrap().to_owned();
    // A signal that comes before the command itself was started inside the sandbox is lost.
    let has_begun =
        || text(&daemon, "process_output", json!({ "processId": id }), &[]).contains("begun");
    assert!((0..500).any(|_| has_begun()));
    let why = "1 commands of this workspace already run";
    assert!(exec(&daemon, "echo no").contains(why));
    let mut command = stage.command(BINARY);
    let socket = format!("ws://{}/ssh", daemon.address);
    command.args(["exec", "--remote", &socket, "--", "echo", "no"]);
    let ran = run(command, b"");
    assert!(ran.code == 125 && ran.err.contains(why), "{} {}", ran.code, ran.err);
    text(&daemon, "process_kill", json!({ "processId": id }), &[]);
    // The place is free once the daemon has reaped the command, which may be after the answer.
    let said = (0..500).map(|_| exec(&daemon, "echo yes")).find(|said| !said.contains(why));
    assert_eq!(said.as_deref(), Some("yes"));
    assert_eq!(daemon.end().0, 0);
}
