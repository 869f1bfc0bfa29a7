//! Messages of the operations protocol, with the events that answer them. They are the examples of
//! the specification with our own values, and operations that fail. Every way to run a message is
//! compared with them.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// A list of operations, the files that exist before it, and a check of the resulting events.
#[derive(Clone, Copy, Debug)]
pub struct OperationsCase {
    pub name: &'static str,
    /// Makes the files in the root of the workspace.
    pub plant: fn(&Path),
    pub operations: fn() -> Value,
    /// Panics if these are not the expected events. Commands need the policy `permissive`.
    pub check: fn(&[Value]),
}

impl OperationsCase {
    pub const ALL: [OperationsCase; 4] = [
        OperationsCase::EXAMPLES,
        OperationsCase::CONTENTS,
        OperationsCase::FAILURES,
        OperationsCase::COMMANDS,
    ];

    /// One example of each operation, with every field that the specification lists.
    pub const EXAMPLES: OperationsCase = OperationsCase {
        name: "examples",
        plant: |root| {
            fs::write(root.join("settings.json"), r#"{"port": 80}"#).expect("a file");
            fs::write(root.join("old.txt"), "").expect("a file");
        },
        operations: examples,
        check: check_examples,
    };

    /// A file that is made, edited, read and deleted, and bytes in base64.
    pub const CONTENTS: OperationsCase = OperationsCase {
        name: "contents",
        plant: |_| {},
        operations: contents,
        check: check_contents,
    };

    /// File operations that fail, between file operations that succeed.
    pub const FAILURES: OperationsCase = OperationsCase {
        name: "failures",
        plant: |root| {
            fs::create_dir(root.join("dir")).expect("a directory");
            fs::write(root.join("binary"), [0xFF, 0x00]).expect("a file");
            fs::write(root.join("text"), "aXbX").expect("a file");
        },
        operations: failures,
        check: check_failures,
    };

    /// Commands that fail, run in a directory, take too long, and succeed.
    pub const COMMANDS: OperationsCase = OperationsCase {
        name: "commands",
        plant: |root| fs::create_dir(root.join("src")).expect("a directory"),
        operations: commands,
        check: check_commands,
    };

    /// The operations as a message.
    pub fn message(&self) -> Value {
        json!({ "protocolVersion": "1.0", "operations": (self.operations)() })
    }
}

/// An event without its time and, for a command that ran, without its duration. Panics if the event
/// has no time or duration.
pub fn without_times(event: &Value) -> Value {
    let mut event = event.clone();
    let fields = event.as_object_mut().expect("an object");
    let time = fields.remove("timestamp").expect("a time");
    let time = time.as_str().expect("text");
    assert!(time.ends_with('Z') && time.contains('T'), "{time}");
    if fields["type"] == "shell" {
        assert!(fields.remove("durationMs").is_some_and(|it| it.is_u64()), "no duration");
    }
    event
}

fn check_equal(events: &[Value], expect: &Value) {
    let events: Vec<Value> = events.iter().map(without_times).collect();
    assert_eq!(&json!(events), expect);
}

fn examples() -> Value {
    json!([
        { "type": "message", "id": "say", "content": "Converting the table..." },
        { "type": "createFile", "id": "make", "path": "lib/sum.sh", "content": "echo $((1 + 2))\n",
            "encoding": "utf-8", "overwrite": false },
        { "type": "readFile", "id": "look", "path": "settings.json", "encoding": "utf-8" },
        { "type": "editFile", "id": "change", "path": "lib/sum.sh",
            "edits": [{ "oldContent": "1 + 2", "newContent": "1 + 41" }] },
        { "type": "shell", "id": "try", "command": "sh sum.sh; echo $MODE >&2", "cwd": "lib",
            "timeout": 30000, "env": { "MODE": "quiet" } },
        { "type": "deleteFile", "id": "tidy", "path": "old.txt" },
        { "type": "createFile", "id": "twice", "path": "lib/sum.sh", "content": "x",
            "encoding": "utf-8", "overwrite": false },
    ])
}

fn check_examples(events: &[Value]) {
    let expect = json!([
        { "type": "message", "operationId": "say", "success": true },
        { "type": "createFile", "operationId": "make", "path": "lib/sum.sh", "success": true, "bytesWritten": 16 },
        { "type": "readFile", "operationId": "look", "path": "settings.json", "success": true,
            "content": "{\"port\": 80}", "encoding": "utf-8", "size": 12 },
        { "type": "editFile", "operationId": "change", "path": "lib/sum.sh", "success": true, "editsApplied": 1 },
        { "type": "shell", "operationId": "try", "command": "sh sum.sh; echo $MODE >&2", "success": true,
            "exitCode": 0, "stdout": "42\n", "stderr": "quiet\n" },
        { "type": "deleteFile", "operationId": "tidy", "path": "old.txt", "success": true },
        { "type": "createFile", "operationId": "twice", "path": "lib/sum.sh", "success": false,
            "error": "File already exists" },
    ]);
    check_equal(events, &expect);
}

fn contents() -> Value {
    json!([
        { "type": "message", "id": "m", "content": "Starting" },
        { "type": "createFile", "id": "c", "path": "src/utils.ts", "content": "export const a = 1;\n" },
        { "type": "editFile", "id": "e", "path": "src/utils.ts",
            "edits": [{ "oldContent": "1", "newContent": "42" }, { "oldContent": "const", "newContent": "let" }] },
        { "type": "readFile", "id": "r", "path": "src/utils.ts" },
        { "type": "deleteFile", "id": "d", "path": "src/utils.ts" },
        { "type": "createFile", "path": "bin", "content": "AP8=", "encoding": "base64" },
        { "type": "readFile", "path": "bin", "encoding": "base64" },
    ])
}

fn check_contents(events: &[Value]) {
    let expect = json!([
        { "type": "message", "operationId": "m", "success": true },
        { "type": "createFile", "operationId": "c", "path": "src/utils.ts", "success": true, "bytesWritten": 20 },
        { "type": "editFile", "operationId": "e", "path": "src/utils.ts", "success": true, "editsApplied": 2 },
        { "type": "readFile", "operationId": "r", "path": "src/utils.ts", "success": true,
            "content": "export let a = 42;\n", "encoding": "utf-8", "size": 19 },
        { "type": "deleteFile", "operationId": "d", "path": "src/utils.ts", "success": true },
        { "type": "createFile", "operationId": "op-6", "path": "bin", "success": true, "bytesWritten": 2 },
        { "type": "readFile", "operationId": "op-7", "path": "bin", "success": true,
            "content": "AP8=", "encoding": "base64", "size": 2 },
    ]);
    check_equal(events, &expect);
}

fn failures() -> Value {
    json!([
        { "type": "createFile", "path": "text", "content": "new" },
        { "type": "readFile", "path": "missing" },
        { "type": "readFile", "path": "binary" },
        { "type": "editFile", "path": "binary", "edits": [{ "oldContent": "a", "newContent": "b" }] },
        { "type": "editFile", "path": "text",
            "edits": [{ "oldContent": "X", "newContent": "$&" }, { "oldContent": "gone", "newContent": "" }] },
        { "type": "readFile", "path": "text" },
        { "type": "deleteFile", "path": "dir" },
        { "type": "deleteFile", "path": "missing" },
        { "type": "editFile", "path": "missing", "edits": [{ "oldContent": "a", "newContent": "b" }] },
        { "type": "editFile", "path": "text", "edits": [{ "oldContent": "X", "newContent": "$&" }] },
        { "type": "createFile", "path": "text", "content": "new", "overwrite": true },
        { "type": "readFile", "path": "text" },
    ])
}

fn check_failures(events: &[Value]) {
    let told: Vec<&str> =
        events.iter().map(|event| event["error"].as_str().unwrap_or("done")).collect();
    assert_eq!(told[..2], ["File already exists", "File not found"]);
    assert!(told[2].contains("base64"), "{}", told[2]);
    assert!(told[3].contains("not UTF-8"), "{}", told[3]);
    assert!(told[4].contains("gone") || told[4].contains("2"), "{}", told[4]);
    assert_eq!(events[5]["content"], "aXbX", "no edit of a list that fails applies");
    assert!(told[6].contains("directory"), "{}", told[6]);
    assert_eq!(told[7..], ["File not found", "File not found", "done", "done", "done"]);
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["success"], [5, 9, 10, 11].contains(&number), "{number}: {event}");
    }
    assert_eq!(events[11]["content"], "new");
}

fn commands() -> Value {
    json!([
        { "type": "shell", "id": "a", "command": "echo out; echo err >&2; echo $OWN; exit 3",
            "env": { "OWN": "o" } },
        { "type": "shell", "command": "pwd | grep -c /src", "cwd": "src" },
        { "type": "shell", "command": "sleep 60", "timeout": 1000 },
        { "type": "shell", "command": "echo still here" },
    ])
}

fn check_commands(events: &[Value]) {
    let first = &events[0];
    assert_eq!((&first["success"], &first["exitCode"]), (&json!(false), &json!(3)), "{first}");
    assert_eq!((&first["stdout"], &first["stderr"]), (&json!("out\no\n"), &json!("err\n")));
    assert!(first["durationMs"].is_u64() && first.get("error").is_none(), "{first}");
    assert_eq!((&events[1]["stdout"], &events[1]["success"]), (&json!("1\n"), &json!(true)));
    let timed = &events[2];
    assert_eq!(
        (&timed["success"], &timed["timedOut"], &timed["exitCode"]),
        (&json!(false), &json!(true), &json!(124)),
        "{timed}"
    );
    assert!(timed["durationMs"].as_u64().is_some_and(|it| it >= 1000), "{timed}");
    assert_eq!(events[3]["stdout"], "still here\n", "the space lives on after a timeout");
}
