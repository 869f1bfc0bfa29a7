//! The JSON Schemas, and that what is sent fits them.

use std::fs;

use ab_policy::PolicyDocument;
use ab_spaces::{events_message_schema, operations_message_schema};
use ab_testkit::schema::schema_problems;
use serde_json::{Value, json};

use crate::stage::{Stage, fits};

#[tokio::test]
async fn every_event_fits_the_schema() {
    let stage = Stage::new(PolicyDocument::preset("standard").expect("a preset"));
    fs::create_dir(stage.path("data")).expect("a directory");
    let mut types = Vec::new();
    for operations in [
        json!([
            { "type": "message", "content": "x" },
            { "type": "createFile", "path": "a", "content": "x" },
            { "type": "createFile", "path": "a", "content": "x" },
            { "type": "readFile", "path": "a" },
            { "type": "readFile", "path": "b" },
            { "type": "editFile", "path": "a", "edits": [{ "oldContent": "x", "newContent": "y" }] },
            { "type": "editFile", "path": "b", "edits": [{ "oldContent": "x", "newContent": "y" }] },
            { "type": "deleteFile", "path": "a" },
            { "type": "deleteFile", "path": "a" },
            { "type": "shell", "command": "echo x" },
            { "type": "shell", "command": "sudo x" },
            { "type": "shell", "command": "rm -rf data/" },
        ]),
        json!([{ "type": "unknown" }]),
    ] {
        // Every run of these tests is checked against the schema.
        let message = json!(stage.run(operations).await);
        let events = message["events"].as_array().expect("a list");
        types.extend(events.iter().map(|event| event["type"].to_string()));
    }
    types.sort();
    types.dedup();
    assert_eq!(types.len(), 9, "every type of event: {types:?}");
    let schema = events_message_schema();
    let bad = json!({ "protocolVersion": "1.0", "runId": "run_1", "status": "done", "events": [{ "type": "shell" }] });
    assert_eq!(schema_problems(&schema, &schema, &bad).len(), 2);
    let event = json!({ "type": "message", "timestamp": "2026-01-01T00:00:00Z", "operationId": "a", "success": true });
    let message = |event: Value| {
        let events = [event];
        json!({ "protocolVersion": "1.0", "runId": "run_1", "status": "completed", "events": events })
    };
    fits(&message(event.clone()));
    let mut misspelt = event;
    misspelt["operationID"] = json!("a");
    assert_eq!(schema_problems(&schema, &schema, &message(misspelt)).len(), 1);
}

#[test]
fn the_schema_of_operations_takes_every_type() {
    let schema = operations_message_schema();
    let message = json!({ "protocolVersion": "1.0", "operations": [
        { "type": "message", "content": "x" },
        { "type": "createFile", "path": "a", "content": "x", "encoding": "base64", "overwrite": true },
        { "type": "readFile", "path": "a" },
        { "type": "editFile", "path": "a", "edits": [{ "oldContent": "x", "newContent": "y" }] },
        { "type": "deleteFile", "path": "a" },
        { "type": "shell", "command": "ls", "cwd": "src", "timeout": 1000, "env": { "A": "b" } },
    ] });
    assert_eq!(schema_problems(&schema, &schema, &message), Vec::<String>::new());
    let bad = json!({ "protocolVersion": "1.0", "operations": [{ "type": "rename" }] });
    assert!(!schema_problems(&schema, &schema, &bad).is_empty());
}
