//! Errors for input that is not a valid message of the protocol.

use rmcp::model::{ErrorCode, ErrorData, RequestId};
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::bounds::ID_WITHIN;

pub(crate) struct Refusal {
    pub(crate) id: Option<RequestId>,
    pub(crate) error: ErrorData,
}

impl Refusal {
    pub(crate) fn new(id: Option<RequestId>, code: ErrorCode, message: String) -> Refusal {
        Refusal { id, error: ErrorData::new(code, message, None) }
    }
}

/// The error for `text`, which is not a valid message. `error` contains the position at which
/// parsing stopped.
pub(crate) fn refused(text: &[u8], error: &serde_json::Error) -> Refusal {
    match serde_json::from_slice::<Value>(text) {
        Err(_) => {
            Refusal::new(id_within(text), ErrorCode::PARSE_ERROR, format!("no JSON: {error}"))
        }
        Ok(value) => no_message(&value),
    }
}

/// Finds the id of a message that cannot be parsed completely. `None` if the id is not near the
/// start.
pub(crate) fn id_within(text: &[u8]) -> Option<RequestId> {
    let mut rest = &text[..text.len().min(ID_WITHIN)];
    let mut mark = b'{';
    loop {
        rest = rest.trim_ascii_start().strip_prefix(&[mark])?.trim_ascii_start();
        let (name, after) = first_value(rest)?;
        let after = after.trim_ascii_start().strip_prefix(b":")?;
        let (value, after) = first_value(after.trim_ascii_start())?;
        if name == b"\"id\"" {
            return serde_json::from_slice(value).ok();
        }
        (rest, mark) = (after, b',');
    }
}

/// Splits the text after its first complete JSON value.
fn first_value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    let end = values.byte_offset();
    // A number at the end of the text may be incomplete.
    (end < text.len()).then(|| text.split_at(end))
}

/// The error for JSON that is not a valid message.
fn no_message(value: &Value) -> Refusal {
    let id = match value.get("id") {
        Some(Value::Number(number)) => number.as_i64().map(RequestId::Number),
        Some(Value::String(text)) => Some(RequestId::String(text.as_str().into())),
        _ => None,
    };
    let why = match value {
        Value::Array(_) => "one message for each line: there are no batches here",
        value if value.get("jsonrpc").and_then(Value::as_str) != Some("2.0") => {
            "\"jsonrpc\" must be \"2.0\""
        }
        value if value.get("method").is_some_and(|method| !method.is_string()) => {
            "\"method\" must be a string"
        }
        value if value.get("id").is_some() && id.is_none() => {
            "\"id\" must be a string or a whole number"
        }
        value if value.get("params").is_some_and(|params| !params.is_object()) => {
            "\"params\" must be an object"
        }
        _ => "not a message of this protocol",
    };
    Refusal::new(id, ErrorCode::INVALID_REQUEST, why.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_id_at_the_beginning_is_found() {
        let number = |number| Some(RequestId::Number(number));
        let long = format!(r#"{{"id":"x","params":"{}"#, "y".repeat(100_000));
        let late = format!(r#"{{"params":"{}","id":1}}"#, "y".repeat(100_000));
        for (text, expect) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"ping""#, number(1)),
            (r#" { "jsonrpc" : "2.0" , "params":{"id":5,"a":[1,"}"]}, "id" : 7 , "#, number(7)),
            (r#"{"id":1"#, None),
            (r#"{"id":12"#, None),
            (r#"{"id":"a"} trailing"#, Some(RequestId::String("a".into()))),
            (r#"{"id":null,"#, None),
            (r#"{"id":{"id":1},"#, None),
            (r#"{"method":"\u00"#, None),
            (r#"[{"id":1,"#, None),
            ("{", None),
            ("{,", None),
            ("nonsense", None),
            ("", None),
            (long.as_str(), Some(RequestId::String("x".into()))),
            (late.as_str(), None),
        ] {
            assert_eq!(id_within(text.as_bytes()), expect, "{}", &text[..text.len().min(60)]);
        }
    }

    #[test]
    fn each_kind_of_nonsense_has_its_reason() {
        for (value, id, why) in [
            (json!([]), None, "one message for each line: there are no batches here"),
            (
                json!({ "jsonrpc": "1.0", "id": 4 }),
                Some(RequestId::Number(4)),
                "\"jsonrpc\" must be \"2.0\"",
            ),
            (
                json!({ "jsonrpc": "2.0", "id": 1.5, "method": "ping" }),
                None,
                "\"id\" must be a string or a whole number",
            ),
            (
                json!({ "jsonrpc": "2.0", "id": "a", "method": 5 }),
                Some(RequestId::String("a".into())),
                "\"method\" must be a string",
            ),
            (json!({ "jsonrpc": "2.0" }), None, "not a message of this protocol"),
        ] {
            let refusal = no_message(&value);
            assert_eq!((refusal.id, refusal.error.message.as_ref()), (id, why), "{value}");
        }
    }
}
