//! JSON-RPC 2.0 messages: parsing and writing lines.

use serde_json::{Value, json};

/// Error codes of JSON-RPC and of ACP.
pub(crate) const PARSE_ERROR: i64 = -32700;
pub(crate) const INVALID_PARAMS: i64 = -32602;
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
pub(crate) const INTERNAL_ERROR: i64 = -32603;
pub(crate) const AUTH_REQUIRED: i64 = -32000;
pub(crate) const RESOURCE_NOT_FOUND: i64 = -32002;
/// Our own error code: too many requests are pending.
pub(crate) const TOO_MANY_REQUESTS: i64 = -32001;

/// An error object in a response of either side.
#[derive(Clone, Debug, PartialEq)]
pub struct RpcError {
    pub code: i64,
    pub message: String,
    pub data: Option<Value>,
}

impl RpcError {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> RpcError {
        RpcError { code, message: message.into(), data: None }
    }
}

/// A parsed line from the peer.
#[derive(Debug, PartialEq)]
pub(crate) enum Message {
    Request { id: Value, method: String, params: Value },
    Notification { method: String, params: Value },
    Response { id: Value, result: Result<Value, RpcError> },
}

impl Message {
    /// Parses a line. `None` if it is not a message. Unknown members are ignored. The member
    /// `jsonrpc` may be missing, because some agents omit it.
    pub(crate) fn parse(line: &[u8]) -> Option<Message> {
        let Ok(Value::Object(mut object)) = serde_json::from_slice::<Value>(line) else {
            return None;
        };
        let id = object.remove("id");
        if let Some(method) = object.remove("method") {
            let Value::String(method) = method else { return None };
            let params = object.remove("params").unwrap_or_default();
            return Some(match id {
                Some(id) => Message::Request { id, method, params },
                None => Message::Notification { method, params },
            });
        }
        let id = id?;
        if let Some(error) = object.remove("error").filter(|error| !error.is_null()) {
            return Some(Message::Response { id, result: Err(error_of(error)) });
        }
        let result = object.remove("result")?;
        Some(Message::Response { id, result: Ok(result) })
    }
}

fn error_of(mut error: Value) -> RpcError {
    RpcError {
        code: error["code"].as_i64().unwrap_or(INTERNAL_ERROR),
        message: error["message"].as_str().unwrap_or("no message").to_owned(),
        data: error.as_object_mut().and_then(|error| error.remove("data")),
    }
}

pub(crate) fn request(id: u64, method: &str, params: Value) -> Vec<u8> {
    line(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
}

pub(crate) fn notification(method: &str, params: Value) -> Vec<u8> {
    line(&json!({ "jsonrpc": "2.0", "method": method, "params": params }))
}

pub(crate) fn response(id: &Value, result: Result<Value, RpcError>) -> Vec<u8> {
    line(&match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(RpcError { code, message, data }) => {
            let mut error = json!({ "code": code, "message": message });
            if let Some(data) = data {
                error["data"] = data;
            }
            json!({ "jsonrpc": "2.0", "id": id, "error": error })
        }
    })
}

fn line(value: &Value) -> Vec<u8> {
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<Message>) {
        assert_eq!(Message::parse(line.as_bytes()), expected, "{line}");
    }

    #[test]
    fn every_kind_of_message_is_told_apart() {
        let params = json!({ "a": 1 });
        check(
            r#"{"jsonrpc":"2.0","id":"x","method":"m","params":{"a":1}}"#,
            Some(Message::Request { id: json!("x"), method: "m".into(), params: params.clone() }),
        );
        check(
            r#"{"method":"m","params":{"a":1}}"#,
            Some(Message::Notification { method: "m".into(), params }),
        );
        check(
            r#"{"id":1,"result":null}"#,
            Some(Message::Response { id: json!(1), result: Ok(Value::Null) }),
        );
        let error = RpcError { code: -32000, message: "no key".into(), data: Some(json!(7)) };
        check(
            r#"{"id":1,"result":null,"error":{"code":-32000,"message":"no key","data":7}}"#,
            Some(Message::Response { id: json!(1), result: Err(error) }),
        );
    }

    #[test]
    fn other_lines_are_no_messages() {
        for line in [
            "",
            "hello",
            "[]",
            "7",
            "{}",
            "{\"id\":1}",
            "{\"method\":7}",
            "{\"result\":1}",
            "{\"id\":",
        ] {
            check(line, None);
        }
    }

    #[test]
    fn errors_without_members_have_defaults() {
        let result = Err(RpcError::new(INTERNAL_ERROR, "no message"));
        check(r#"{"id":1,"error":"x"}"#, Some(Message::Response { id: json!(1), result }));
    }
}
