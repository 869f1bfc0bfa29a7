//! Adds a prefix to the names of tools in texts, for callers that know the tools under prefixed
//! names.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool};
use serde_json::Value;

use super::{ALL, Name};

/// Adds `prefix` before each tool name in a text. The names `delete` and `exec` are not changed,
/// because they are also ordinary words in these texts.
pub(crate) fn prefixed(text: String, prefix: &str) -> String {
    if prefix.is_empty() {
        return text;
    }
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut out = String::with_capacity(text.len() + prefix.len());
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if ALL.iter().any(|name| is_renamed(*name) && name.as_str() == word) {
            out.push_str(prefix);
        }
        out.push_str(word);
        let other = after.find(is_word).unwrap_or(after.len());
        out.push_str(&after[..other]);
        rest = &after[other..];
    }
    out
}

fn is_renamed(name: Name) -> bool {
    !matches!(name, Name::Delete | Name::Exec)
}

/// Adds `prefix` before the names of tools in the descriptions of a tool and its arguments.
pub(crate) fn prefix_texts(tool: &mut Tool, prefix: &str) {
    if let Some(description) = &tool.description {
        tool.description = Some(prefixed(description.to_string(), prefix).into());
    }
    let mut schema: JsonObject = (*tool.input_schema).clone();
    for value in schema.values_mut() {
        prefix_descriptions(value, prefix);
    }
    tool.input_schema = Arc::new(schema);
}

fn prefix_descriptions(value: &mut Value, prefix: &str) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::String(text) if name == "description" => {
                        *text = prefixed(std::mem::take(text), prefix);
                    }
                    other => prefix_descriptions(other, prefix),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                prefix_descriptions(item, prefix);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tools_get_the_prefix_and_other_words_do_not() {
        for (text, expect) in [
            ("", ""),
            ("read_text_file shows it", "fs_read_text_file shows it"),
            ("('grep', read_text_files)", "('fs_grep', read_text_files)"),
            ("delete one – see get_file_info", "delete one – see fs_get_file_info"),
        ] {
            assert_eq!(prefixed(text.to_owned(), "fs_"), expect);
            assert_eq!(prefixed(text.to_owned(), ""), text);
        }
    }
}
