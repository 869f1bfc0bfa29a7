//! Checks JSON against the schemas that are generated from types.
//!
//! Stricter than JSON Schema: a member that the schema does not name is a problem.

use serde_json::Value;

/// The problems of a value, each with its position. `root` contains the definitions of the schema.
///
/// # Panics
///
/// Panics on a keyword that the generated schemas do not use.
pub fn schema_problems(root: &Value, schema: &Value, value: &Value) -> Vec<String> {
    problems(root, schema, value, "")
}

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
                match tried.iter().filter(|problems| problems.is_empty()).count() {
                    0 => found.push(format!("{at}: fits none of {tried:?}")),
                    1 => {}
                    _ if keyword == "anyOf" => {}
                    count => found.push(format!("{at}: fits {count} of the schemas")),
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
                let rules = rule.as_object().expect("an object");
                let others = schema.get("additionalProperties");
                for (name, member) in value.as_object().into_iter().flatten() {
                    let at = format!("{at}/{name}");
                    match (rules.get(name), others) {
                        (Some(rule), _) => found.extend(problems(root, rule, member, &at)),
                        // What is sent has no members that the schema does not name.
                        (None, None) => found.push(format!("{at}: is not in the schema")),
                        (None, Some(_)) => {}
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
