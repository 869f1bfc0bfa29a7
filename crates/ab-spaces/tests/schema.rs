//! The JSON Schemas, and that what is sent fits them.

use std::fs;

use ab_policy::PolicyDocument;
use ab_spaces::{events_message_schema, operations_message_schema};
use serde_json::{Value, json};

use crate::stage::Stage;

/// What does not fit the schema, with its place. Knows the keywords that the generated schemas use.
fn problems(root: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root.pointer(reference.trim_start_matches('#')).expect("a definition");
        return problems(root, target, value, at);
    }
    let mut found = Vec::new();
    for (keyword, rule) in schema.as_object().expect("a schema") {
        match keyword.as_str() {
            "oneOf" | "anyOf" => {
                let options = rule.as_array().expect("a list");
                let tried: Vec<Vec<String>> =
                    options.iter().map(|option| problems(root, option, value, at)).collect();
                if !tried.iter().any(Vec::is_empty) {
                    found.push(format!("{at}: fits none of {tried:?}"));
                }
            }
            "allOf" => {
                for part in rule.as_array().expect("a list") {
                    found.extend(problems(root, part, value, at));
                }
            }
            "type" => {
                let names: Vec<&str> = match rule {
                    Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
                    name => name.as_str().into_iter().collect(),
                };
                let fits = names.iter().any(|name| match *name {
                    "object" => value.is_object(),
                    "array" => value.is_array(),
                    "string" => value.is_string(),
                    "boolean" => value.is_boolean(),
                    "integer" => value.is_i64() || value.is_u64(),
                    "number" => value.is_number(),
                    "null" => value.is_null(),
                    other => panic!("unknown type {other}"),
                });
                if !fits {
                    found.push(format!("{at}: is not {names:?}"));
                }
            }
            "enum" => {
                if !rule.as_array().expect("a list").contains(value) {
                    found.push(format!("{at}: {value} is none of {rule}"));
                }
            }
            "required" => {
                for name in rule.as_array().expect("a list").iter().filter_map(Value::as_str) {
                    if value.get(name).is_none() {
                        found.push(format!("{at}: lacks {name}"));
                    }
                }
            }
            "properties" => {
                for (name, rule) in rule.as_object().expect("an object") {
                    if let Some(member) = value.get(name) {
                        found.extend(problems(root, rule, member, &format!("{at}/{name}")));
                    }
                }
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    found.extend(problems(root, rule, item, &format!("{at}/{index}")));
                }
            }
            "minimum" => {
                if value.as_f64() < rule.as_f64() {
                    found.push(format!("{at}: is below {rule}"));
                }
            }
            "description"
            | "example"
            | "format"
            | "$schema"
            | "$defs"
            | "additionalProperties"
            | "propertyNames"
            | "default"
            | "title" => {}
            other => panic!("unknown keyword {other}"),
        }
    }
    found
}

#[tokio::test]
async fn every_event_fits_the_schema() {
    let schema = events_message_schema();
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
        let message = json!(stage.run(operations).await);
        assert_eq!(problems(&schema, &schema, &message, ""), Vec::<String>::new());
        let events = message["events"].as_array().expect("a list");
        types.extend(events.iter().map(|event| event["type"].to_string()));
    }
    types.sort();
    types.dedup();
    assert_eq!(types.len(), 9, "every type of event: {types:?}");
    let bad = json!({ "protocolVersion": "1.0", "runId": "run_1", "status": "done", "events": [{ "type": "shell" }] });
    assert_eq!(problems(&schema, &schema, &bad, "").len(), 2);
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
    assert_eq!(problems(&schema, &schema, &message, ""), Vec::<String>::new());
    let bad = json!({ "protocolVersion": "1.0", "operations": [{ "type": "rename" }] });
    assert!(!problems(&schema, &schema, &bad, "").is_empty());
}
