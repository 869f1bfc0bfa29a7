//! What the tools say they take, against what they take.

use rmcp::model::Tool;
use serde_json::{Map, Value, json};

use crate::caller::Place;

/// A value of another type than a schema asks for.
fn misfit(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("string") => json!(5),
        Some("integer" | "number") => json!("many"),
        Some("boolean") => json!("yes"),
        Some("array") => json!("one"),
        Some("object") => json!([]),
        other => panic!("a schema without a type that we know: {other:?}"),
    }
}

/// A value that fits a schema.
fn fit(name: &str, schema: &Value) -> Value {
    match (name, schema["type"].as_str()) {
        ("edits", _) => json!([{ "oldText": "a", "newText": "b" }]),
        ("paths", _) => json!(["a"]),
        (_, Some("string")) => json!("a"),
        (_, other) => panic!("a required argument of type {other:?}"),
    }
}

fn required(tool: &Tool) -> Vec<String> {
    let names = tool.input_schema.get("required").and_then(Value::as_array);
    names.into_iter().flatten().map(|name| name.as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn every_tool_names_the_argument_that_is_wrong() {
    for place in Place::each(&[("a", "a\n")]).await {
        let caller = place.call().await;
        for tool in caller.tools().await {
            let name: &'static str = String::leak(tool.name.to_string());
            let properties = tool.input_schema["properties"].as_object().unwrap().clone();
            let complete: Map<String, Value> = required(&tool)
                .into_iter()
                .map(|key| (key.clone(), fit(&key, &properties[&key])))
                .collect();
            for key in required(&tool) {
                let mut arguments = complete.clone();
                arguments.remove(&key);
                let text = caller.refusal(name, Value::Object(arguments)).await;
                assert!(text.starts_with(&format!("{name} needs '{key}': ")), "{text}");
            }
            for (key, schema) in &properties {
                let mut arguments = complete.clone();
                arguments.insert(key.clone(), misfit(schema));
                let text = caller.refusal(name, Value::Object(arguments)).await;
                assert!(text.starts_with(&format!("'{key}' must be ")), "{name}: {text}");
            }
            let mut arguments = complete;
            arguments.insert("no_such".to_owned(), json!(1));
            let text = caller.refusal(name, Value::Object(arguments)).await;
            assert!(text.starts_with(&format!("{name} has no argument 'no_such'; ")), "{text}");
        }
    }
}

#[tokio::test]
async fn tools_present_themselves_as_clients_expect() {
    let tools = Place::local().call().await.tools().await;
    let face = |name: &str| tools.iter().find(|tool| tool.name == name).unwrap();
    for tool in &tools {
        assert!(tool.title.is_some() && tool.description.is_some(), "{}", tool.name);
        assert_eq!(tool.input_schema["type"], "object");
        let output = tool.output_schema.as_ref();
        // Bytes have no value beside them.
        assert_eq!(output.is_none(), tool.name == "read_media_file");
        assert!(output.is_none_or(|output| output["type"] == "object"), "{}", tool.name);
    }
    for (name, read_only, destructive, idempotent, open_world) in [
        ("read_text_file", true, None, None, false),
        ("list_allowed_directories", true, None, None, false),
        ("write_file", false, Some(true), Some(true), false),
        ("edit_file", false, Some(true), Some(false), false),
        ("create_directory", false, Some(false), Some(true), false),
        ("move_file", false, Some(true), Some(false), false),
        ("exec", false, Some(true), Some(false), true),
    ] {
        let hints = face(name).annotations.as_ref().unwrap();
        assert_eq!(
            (
                hints.read_only_hint,
                hints.destructive_hint,
                hints.idempotent_hint,
                hints.open_world_hint
            ),
            (Some(read_only), destructive, idempotent, Some(open_world)),
            "{name}"
        );
    }
    assert_eq!(
        face("list_directory_with_sizes").title.as_deref(),
        Some("List Directory with Sizes")
    );
}
