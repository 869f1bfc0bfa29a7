//! Validation of messages.

use ab_spaces::{
    Operation, PROTOCOL_VERSION, parse_operation, parse_operations_bytes, parse_operations_message,
    validate_operation, validate_operations_message,
};
use serde_json::{Value, json};

fn message(operations: Value) -> Value {
    json!({ "protocolVersion": "1.0", "operations": operations })
}

fn issues(input: &Value) -> Vec<(String, String)> {
    let error = parse_operations_message(input).expect_err("it is not valid");
    error.issues.into_iter().map(|issue| (issue.pointer, issue.message)).collect()
}

#[test]
fn operations_of_every_type_are_taken_with_their_defaults() {
    for (input, expect) in [
        (json!({ "type": "message", "content": "" }), json!({ "type": "message", "content": "" })),
        (
            json!({ "type": "createFile", "id": "f", "path": "a/b.ts", "content": "x", "extra": 1 }),
            json!({ "type": "createFile", "id": "f", "path": "a/b.ts", "content": "x",
                "encoding": "utf-8", "overwrite": false }),
        ),
        (
            json!({ "type": "readFile", "path": "c.json", "encoding": null }),
            json!({ "type": "readFile", "path": "c.json", "encoding": "utf-8" }),
        ),
        (
            json!({ "type": "editFile", "path": "a",
                "edits": [{ "oldContent": "x", "newContent": "" }] }),
            json!({ "type": "editFile", "path": "a",
                "edits": [{ "oldContent": "x", "newContent": "" }] }),
        ),
        (
            json!({ "type": "deleteFile", "path": "t" }),
            json!({ "type": "deleteFile", "path": "t" }),
        ),
        (
            json!({ "type": "shell", "command": "ls" }),
            json!({ "type": "shell", "command": "ls", "timeout": 30000 }),
        ),
        (
            json!({ "type": "shell", "command": "ls", "cwd": "src", "timeout": 1000, "env": { "A": "1" } }),
            json!({ "type": "shell", "command": "ls", "cwd": "src", "timeout": 1000, "env": { "A": "1" } }),
        ),
    ] {
        let parsed = parse_operation(&input).expect("it is valid");
        assert_eq!(serde_json::to_value(&parsed).expect("JSON"), expect);
        assert_eq!(validate_operation(&input).data, Some(parsed));
    }
    let empty = parse_operations_message(&message(json!([]))).expect("it may be empty");
    assert_eq!((empty.protocol_version.as_str(), empty.operations.len()), (PROTOCOL_VERSION, 0));
}

#[test]
fn operations_that_do_not_fit_are_refused_with_their_pointer() {
    let long = "x".repeat(256);
    for (operation, pointer) in [
        (json!(7), ""),
        (json!({ "content": "x" }), "/type"),
        (json!({ "type": "format", "path": "a" }), "/type"),
        (json!({ "type": 7 }), "/type"),
        (json!({ "type": "message" }), "/content"),
        (json!({ "type": "message", "content": 1 }), "/content"),
        (json!({ "type": "message", "content": "x", "id": "" }), "/id"),
        (json!({ "type": "message", "content": "x".repeat(100_001) }), "/content"),
        (json!({ "type": "createFile", "content": "x" }), "/path"),
        (json!({ "type": "createFile", "path": "a" }), "/content"),
        (
            json!({ "type": "createFile", "path": "a", "content": "x", "encoding": "hex" }),
            "/encoding",
        ),
        (
            json!({ "type": "createFile", "path": "a", "content": "x", "overwrite": "yes" }),
            "/overwrite",
        ),
        (
            json!({ "type": "createFile", "path": "a", "content": "%%", "encoding": "base64" }),
            "/content",
        ),
        (json!({ "type": "createFile", "path": "a", "content": "x".repeat(11 << 20) }), "/content"),
        (json!({ "type": "readFile", "path": "" }), "/path"),
        (json!({ "type": "readFile", "path": "/etc/passwd" }), "/path"),
        (json!({ "type": "readFile", "path": "../x" }), "/path"),
        (json!({ "type": "readFile", "path": "a..b" }), "/path"),
        (json!({ "type": "readFile", "path": "a\0b" }), "/path"),
        (json!({ "type": "readFile", "path": long }), "/path"),
        (json!({ "type": "editFile", "path": "a" }), "/edits"),
        (json!({ "type": "editFile", "path": "a", "edits": [] }), "/edits"),
        (
            json!({ "type": "editFile", "path": "a", "edits": [{ "newContent": "x" }] }),
            "/edits/0/oldContent",
        ),
        (
            json!({ "type": "editFile", "path": "a", "edits": [{ "oldContent": "", "newContent": "x" }] }),
            "/edits/0/oldContent",
        ),
        (json!({ "type": "deleteFile" }), "/path"),
        (json!({ "type": "shell" }), "/command"),
        (json!({ "type": "shell", "command": "  " }), "/command"),
        (json!({ "type": "shell", "command": "x".repeat(4097) }), "/command"),
        (json!({ "type": "shell", "command": "ls", "cwd": "/tmp" }), "/cwd"),
        (json!({ "type": "shell", "command": "ls", "timeout": 999 }), "/timeout"),
        (json!({ "type": "shell", "command": "ls", "timeout": 3_600_001 }), "/timeout"),
        (json!({ "type": "shell", "command": "ls", "timeout": 1000.5 }), "/timeout"),
        (json!({ "type": "shell", "command": "ls", "env": { "A/B": 1 } }), "/env/A~1B"),
        (json!({ "type": "shell", "command": "ls", "env": { "A=B": "x" } }), "/env/A=B"),
    ] {
        let error = parse_operation(&operation).expect_err("it is not valid");
        let found: Vec<&str> = error.issues.iter().map(|issue| issue.pointer.as_str()).collect();
        assert_eq!(found, [pointer], "{operation:.80}: {error}");
        let result = validate_operation(&operation);
        assert_eq!((result.success, result.data, result.error), (false, None, Some(error)));
    }
}

#[test]
fn messages_of_another_version_or_shape_are_refused() {
    for (input, pointer) in [
        (json!([]), ""),
        (json!({ "operations": [] }), "/protocolVersion"),
        (json!({ "protocolVersion": "1.1", "operations": [] }), "/protocolVersion"),
        (json!({ "protocolVersion": 1.0, "operations": [] }), "/protocolVersion"),
        (json!({ "protocolVersion": "1.0" }), "/operations"),
        (json!({ "protocolVersion": "1.0", "operations": {} }), "/operations"),
    ] {
        assert_eq!(issues(&input).first().map(|it| it.0.as_str()), Some(pointer), "{input}");
        assert!(!validate_operations_message(&input).success);
    }
    let many = vec![json!({ "type": "message", "content": "x" }); 10_000];
    let found = issues(&message(json!(many)));
    assert_eq!(found.len(), 1);
    assert!(found[0].1.contains("at most 1000"), "{found:?}");
    let error = parse_operations_bytes(b"{\"protocolVersion\":").expect_err("cut");
    assert!(error.to_string().contains("not valid JSON (line 1"), "{error}");
}

#[test]
fn every_issue_of_a_message_is_found_at_once() {
    let found = issues(&json!({
        "protocolVersion": "2.0",
        "operations": [
            { "type": "readFile", "path": "/a", "encoding": "x" },
            { "type": "message", "content": "ok", "id": "one" },
            { "type": "message", "content": "ok", "id": "one" },
            { "type": "nothing" },
        ],
    }));
    let pointers: Vec<&str> = found.iter().map(|it| it.0.as_str()).collect();
    let expect = [
        "/protocolVersion",
        "/operations/0/path",
        "/operations/0/encoding",
        "/operations/2/id",
        "/operations/3/type",
    ];
    assert_eq!(pointers, expect);
}

#[test]
fn operations_without_id_get_one_that_no_other_has() {
    let parsed = parse_operations_message(&message(json!([
        { "type": "message", "content": "a" },
        { "type": "message", "content": "b", "id": "op-1" },
        { "type": "message", "content": "c" },
    ])));
    let ids: Vec<String> = parsed
        .expect("valid")
        .operations
        .iter()
        .filter_map(|operation: &Operation| operation.id().map(str::to_owned))
        .collect();
    assert_eq!(ids, ["op-1x", "op-1", "op-3"]);
}
