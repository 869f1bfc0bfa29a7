//! The examples of the specification, with our own values: operations, and the events that answer them.

use std::collections::BTreeMap;
use std::fs;

use ab_policy::PolicyDocument;
use ab_spaces::{OperationApprovalDecision, parse_operation, validate_operations_message};
use serde_json::{Value, json};

use crate::stage::{Decider, Stage, document, run};

/// One example of each operation, with every field that the specification lists.
fn operations() -> Value {
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

/// An event without its time and, for a command, its duration, which every event must have.
fn steady(mut event: Value) -> Value {
    let fields = event.as_object_mut().expect("an object");
    let time = fields.remove("timestamp").expect("a time");
    let time = time.as_str().expect("text");
    assert!(time.ends_with('Z') && time.contains('T'), "{time}");
    if fields["type"] == "shell" {
        assert!(fields.remove("durationMs").is_some_and(|it| it.is_u64()), "no duration");
    }
    event
}

#[tokio::test]
async fn the_examples_are_accepted_and_answered_with_their_events() {
    let stage = Stage::permissive();
    fs::write(stage.path("settings.json"), r#"{"port": 80}"#).expect("a file");
    fs::write(stage.path("old.txt"), "").expect("a file");
    let message = json!({ "protocolVersion": "1.0", "operations": operations() });
    assert!(validate_operations_message(&message).success);
    for operation in operations().as_array().expect("a list") {
        let parsed = parse_operation(operation).expect("it is valid");
        assert_eq!(&json!(parsed), operation, "no field is lost");
    }
    let answer = stage.run(operations()).await;
    let whole = json!(answer);
    assert_eq!((&whole["protocolVersion"], &whole["status"]), (&json!("1.0"), &json!("completed")));
    assert!(whole["runId"].as_str().is_some_and(|id| id.starts_with("run_")), "{whole}");
    let events: Vec<Value> = answer.events.iter().map(|event| steady(json!(event))).collect();
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
    assert_eq!(json!(events), expect);
}

/// The examples of commands that are cut off, asked about and refused.
#[tokio::test]
async fn the_examples_of_limits_and_policies_are_answered_with_their_events() {
    let quick = document(
        json!("permissive"),
        json!({ "network": { "enabled": false }, "shell": { "timeout": 1000 } }),
    );
    let slow = json!([{ "type": "shell", "id": "slow", "command": "sleep 600" }]);
    let event = &Stage::with_env(quick, BTreeMap::new()).events(slow).await[0];
    let expect = [
        ("command", json!("sleep 600")),
        ("success", json!(false)),
        ("timedOut", json!(true)),
        ("exitCode", json!(124)),
    ];
    for (field, value) in expect {
        assert_eq!(event[field], value, "{event}");
    }
    assert!(event["durationMs"].as_u64().is_some_and(|it| it >= 1000), "{event}");

    let stage = Stage::new(PolicyDocument::preset("standard").expect("a preset"));
    let operations = json!([
        { "type": "shell", "id": "admin", "command": "sudo ls" },
        { "type": "shell", "id": "clear", "command": "rm -rf cache/" },
    ]);
    let answer =
        run(&stage.space, operations, &Decider::new(OperationApprovalDecision::Leave)).await;
    let whole = json!(answer);
    assert_eq!(whole["status"], "awaiting_approval");
    let [denied, asked]: [Value; 2] =
        serde_json::from_value(whole["events"].clone()).expect("two events");
    assert_eq!(
        (&denied["type"], &denied["operationType"]),
        (&json!("policyDenied"), &json!("shell"))
    );
    for field in ["reason", "suggestion"] {
        assert!(denied[field].as_str().is_some_and(|text| text.contains("sudo")), "{denied}");
    }
    let expect = json!({
        "type": "approvalRequired",
        "operationId": "clear",
        "operationType": "shell",
        "reason": "command 'rm -rf' requires approval",
        "details": { "command": "rm -rf cache/", "policy": "shell.approvalRequired" },
    });
    assert_eq!(steady(asked), expect);

    let stage = Stage::permissive();
    stage.space.backend().destroy().await.expect("destroyed");
    let gone = &stage.events(json!([{ "type": "readFile", "path": "a" }])).await[0];
    assert_eq!((&gone["type"], &gone["category"]), (&json!("error"), &json!("execution")));
    assert!(gone["message"].is_string() && gone["details"].is_object(), "{gone}");
}
