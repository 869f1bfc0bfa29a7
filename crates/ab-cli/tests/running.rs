//! `run`: operations of a file, performed in a directory.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::stage::{BINARY, Stage};

fn message(operations: Value) -> String {
    json!({ "protocolVersion": "1.0", "operations": operations }).to_string()
}

fn parsed(out: &[u8]) -> Value {
    serde_json::from_slice(out).unwrap()
}

#[test]
fn operations_of_a_file_are_performed_and_answered_as_json() {
    let stage = Stage::new();
    let operations = stage.outside("operations.json");
    let text = message(json!([
        { "type": "message", "content": "Starting..." },
        { "type": "createFile", "path": "app.txt", "content": "hello\n" },
        { "type": "shell", "command": "cat app.txt" },
    ]));
    std::fs::write(&operations, text).unwrap();
    let ran = stage.run(&["run", operations.to_str().unwrap(), "--root", ".", "--json"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let answer = parsed(&ran.out);
    assert_eq!(
        (&answer["protocolVersion"], &answer["status"]),
        (&json!("1.0"), &json!("completed"))
    );
    assert!(answer["runId"].as_str().unwrap().starts_with("run_"));
    assert_eq!(answer["events"][2]["stdout"], "hello\n", "{answer:#}");
    assert_eq!(stage.text("app.txt"), "hello\n");
}

#[test]
fn problems_of_a_file_are_listed_with_their_places() {
    let stage = Stage::new();
    let text = message(json!([
        { "type": "readFile", "path": "/etc/passwd" },
        { "type": "message", "content": "a", "id": "x" },
        { "type": "message", "content": "b", "id": "x" },
    ]));
    let ran = stage.run_with(&["run", "-", "--root", "."], text.as_bytes());
    let expect = "\
error: standard input is not valid:
  operations[0].path: must be relative, but starts with /
  operations[2].id: is the id of an earlier operation
hint: show an example: agent-backend run --help
";
    assert_eq!((ran.code, ran.err.as_str()), (2, expect), "{ran:?}");
}

#[test]
fn exit_code_counts_although_the_reader_of_the_output_has_left() {
    let stage = Stage::new();
    // The run goes on after the reader has left.
    let operations = json!([
        { "type": "message", "content": "begun" },
        { "type": "shell", "command": "until [ -e left ]; do sleep 0.01; done", "timeout": 300_000 },
        { "type": "message", "content": "more" },
        { "type": "readFile", "path": "missing" },
    ]);
    let mut command = stage.command(BINARY);
    command.args(["run", "-", "--root", ".", "--policy", "permissive"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(message(operations).as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "# begun\n");
    std::fs::write(stage.path("left"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn exit_codes_tell_what_became_of_a_run() {
    let stage = Stage::with(&[("data/x", "x")]);
    let run = |operations: Value, flags: &[&str]| {
        let mut arguments = vec!["run", "-", "--root", ".", "--json"];
        arguments.extend(flags);
        let ran = stage.run_with(&arguments, message(operations).as_bytes());
        (ran.code, parsed(&ran.out)["status"].clone())
    };
    let asks = json!([{ "type": "shell", "command": "rm -rf data" }]);
    assert_eq!(run(json!([]), &[]), (0, json!("completed")));
    assert_eq!(run(json!([{ "type": "readFile", "path": "no" }]), &[]), (1, json!("completed")));
    assert_eq!(run(json!([{ "type": "readFile", "path": "/no" }]), &[]), (2, json!("error")));
    assert_eq!(run(asks.clone(), &[]), (3, json!("awaiting_approval")));
    assert_eq!(run(asks.clone(), &["--approve", "never"]), (1, json!("completed")));
    assert!(stage.path("data").exists());
    assert_eq!(run(asks, &["--approve", "always"]), (0, json!("completed")));
    assert!(!stage.path("data").exists());
    let policy = stage.outside("policy.json");
    std::fs::write(&policy, r#"{"shell":{"enabled":false}}"#).unwrap();
    let echo = json!([{ "type": "shell", "command": "echo a" }]);
    assert_eq!(run(echo, &["--policy", policy.to_str().unwrap()]), (1, json!("completed")));
}

#[test]
fn a_person_sees_what_happens_and_is_asked() {
    let stage = Stage::with(&[("data/x", "x"), ("a.txt", "one\n")]);
    let operations = stage.outside("operations.json");
    let text = message(json!([
        { "type": "message", "content": "Cleaning \u{1b}[2J" },
        { "type": "editFile", "path": "a.txt", "edits": [{ "oldContent": "one", "newContent": "two" }] },
        { "type": "shell", "command": "sudo ls" },
        { "type": "shell", "command": "rm -rf data" },
        { "type": "shell", "command": "echo done" },
    ]));
    std::fs::write(&operations, text).unwrap();
    let file = operations.to_str().unwrap();
    let shown = stage.answered(&["run", file, "--root", "."], &[("[y/N]", "y\n")]);
    for expect in [
        "# Cleaning \\u{1b}[2J",
        "- one",
        "+ two",
        "$ sudo ls\n! denied: command 'sudo' is blocked (rule shell.blockedPatterns)",
        "command 'rm -rf' requires approval (rule shell.approvalRequired)",
        "at most: 30s",
        "$ echo done",
    ] {
        assert!(shown.contains(expect), "{expect}: {shown}");
    }
    assert!(!stage.path("data").exists());
}

#[test]
fn what_was_typed_before_a_question_does_not_answer_it() {
    let stage = Stage::with(&[("data/x", "x")]);
    let operations = stage.outside("operations.json");
    // The first operation lasts until the line has arrived at the terminal.
    let text = message(json!([
        { "type": "shell", "command": "echo begun; until [ -e arrived ]; do sleep 0.01; done", "timeout": 300_000 },
        { "type": "shell", "command": "rm -rf data" },
    ]));
    std::fs::write(&operations, text).unwrap();
    let run = ["run", operations.to_str().unwrap(), "--root", ".", "--policy", "permissive"];
    let mut typist = stage.typist(&run);
    typist.wait_for("  begun");
    typist.press("yes\n");
    typist.wait_for("yes\r\n");
    std::fs::write(stage.path("arrived"), "").unwrap();
    typist.wait_for("run it? [y/N] ");
    typist.press("n\n");
    let shown = typist.finish();
    assert!(stage.path("data/x").exists(), "{shown}");
    assert!(shown.contains("[y/N] n\n"), "the prompt was open: {shown}");
}

#[test]
fn json_at_a_terminal_says_that_nobody_is_asked() {
    let stage = Stage::with(&[("data/x", "x")]);
    let operations = stage.outside("operations.json");
    std::fs::write(&operations, message(json!([{ "type": "shell", "command": "rm -rf data" }])))
        .unwrap();
    let ran = stage.watched_without_colours(&[
        "run",
        operations.to_str().unwrap(),
        "--root",
        ".",
        "--json",
    ]);
    assert_eq!(ran.code, 3, "{ran:?}");
    let says = "an operation needs an approval, and with --json, no question is asked";
    assert!(ran.text().contains(says), "{ran:?}");
}

#[test]
fn a_question_without_a_terminal_says_what_to_do() {
    let stage = Stage::with(&[("data/x", "x")]);
    let asks = message(json!([{ "type": "shell", "command": "rm -rf data" }]));
    let ran = stage.run_with(&["run", "-", "--root", "."], asks.as_bytes());
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("--approve always") && ran.err.contains("--space"), "{ran:?}");
}

#[test]
fn a_policy_for_a_space_is_a_usage_error() {
    let stage = Stage::new();
    let space = "spc_01J00000000000000000000000";
    let ran = stage.run_with(&["run", "-", "--space", space, "--policy", "permissive"], b"{}");
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("--policy"), "{ran:?}");
}
