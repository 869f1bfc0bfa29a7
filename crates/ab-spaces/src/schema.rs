//! JSON Schemas of the messages, generated from their types.

use serde_json::{Map, Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::event::EventsMessage;
use crate::operation::OperationsMessage;

/// The schema of an operations message.
pub fn operations_message_schema() -> Value {
    document::<OperationsMessage>()
}

/// The schema of an events message.
pub fn events_message_schema() -> Value {
    document::<EventsMessage>()
}

/// The schema of `T`, including every type that it refers to.
fn document<T: PartialSchema + ToSchema>() -> Value {
    let mut named: Vec<(String, RefOr<Schema>)> = Vec::new();
    T::schemas(&mut named);
    let mut definitions = Map::new();
    for (name, schema) in named {
        definitions.insert(name, moved(json!(schema)));
    }
    let mut root = match moved(json!(T::schema())) {
        Value::Object(root) => root,
        other => return other,
    };
    root.insert("$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
    root.insert("$defs".to_owned(), Value::Object(definitions));
    Value::Object(root)
}

/// Rewrites all references in a schema, so that they point to `$defs` instead of the `components`
/// of an OpenAPI description.
fn moved(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.into_iter().map(|(name, value)| match value {
                Value::String(text) if name == "$ref" => {
                    let text = text.replace("#/components/schemas/", "#/$defs/");
                    (name, Value::String(text))
                }
                value => (name, moved(value)),
            });
            Value::Object(members.collect())
        }
        Value::Array(items) => items.into_iter().map(moved).collect(),
        other => other,
    }
}
