//! What is no message of the protocol, and the error that it deserves.

use rmcp::model::{ErrorCode, ErrorData, RequestId};
use serde_json::Value;

pub(crate) struct Refusal {
    pub(crate) id: Option<RequestId>,
    pub(crate) error: ErrorData,
}

impl Refusal {
    pub(crate) fn new(id: Option<RequestId>, code: ErrorCode, message: String) -> Refusal {
        Refusal { id, error: ErrorData::new(code, message, None) }
    }
}

/// Why `text` could not be read as a message; `error` says where reading stopped.
pub(crate) fn refused(text: &[u8], error: &serde_json::Error) -> Refusal {
    match serde_json::from_slice::<Value>(text) {
        Err(_) => Refusal::new(None, ErrorCode::PARSE_ERROR, format!("no JSON: {error}")),
        Ok(value) => no_message(&value),
    }
}

/// JSON that is no message.
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
        _ => "not a message of this protocol",
    };
    Refusal::new(id, ErrorCode::INVALID_REQUEST, why.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
