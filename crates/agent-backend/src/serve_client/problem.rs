//! Converts error answers of a server to errors.

use std::collections::BTreeMap;

use ab_core::{Error, ErrorCode, ErrorKind};
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use serde_json::Value;

/// Maximum length of a body that is quoted although it is not JSON.
const MAX_TEXT: usize = 300;

/// The fields of the three kinds of error bodies.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ErrorBody {
    /// A problem document (RFC 9457).
    title: Option<String>,
    detail: Option<String>,
    errors: BTreeMap<String, Vec<String>>,
    /// Routes below `/v1` send an object here. Routes of the daemon send a title.
    error: Option<Value>,
    message: Option<String>,
}

/// The error for an answer with this status. `server` is the name of the server in the message.
pub(super) fn error(server: &str, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Error {
    let (code, kind) = classify(status);
    let mut envelope_code = None;
    let mut message = match serde_json::from_slice::<ErrorBody>(body) {
        Ok(body) => {
            let code = body.error.as_ref().and_then(|error| error.get("code"));
            envelope_code = code.and_then(Value::as_str).map(str::to_owned);
            described(&body).unwrap_or_else(|| bare(server, status))
        }
        Err(_) => match text(headers, body) {
            Some(text) => format!("{}: {text}", bare(server, status)),
            None => bare(server, status),
        },
    };
    if kind == ErrorKind::Unavailable {
        message = format!("{server} failed: {message}");
    }
    let error = Error::new(code, kind, message);
    match hint(status, envelope_code.as_deref()) {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

fn described(body: &ErrorBody) -> Option<String> {
    let envelope = body.error.as_ref().and_then(|error| error.get("message"));
    let envelope = envelope.and_then(Value::as_str);
    let text = body.detail.as_deref().or(envelope).or(body.message.as_deref());
    let text = text.or(body.title.as_deref()).or_else(|| body.error.as_ref()?.as_str());
    let fields: Vec<String> =
        body.errors.iter().map(|(field, says)| of_field(field, says)).collect();
    match (text, fields.is_empty()) {
        (text, true) => text.map(str::to_owned),
        (None, false) => Some(fields.join("; ")),
        // The detail already contains the messages of the fields.
        (Some(text), false) if fields.iter().all(|field| text.contains(field.as_str())) => {
            Some(text.to_owned())
        }
        (Some(text), false) => {
            Some(format!("{}: {}", text.trim_end_matches('.'), fields.join("; ")))
        }
    }
}

fn of_field(field: &str, says: &[String]) -> String {
    let says = says.join(", ");
    if field.is_empty() { says } else { format!("{field} {says}") }
}

fn bare(server: &str, status: StatusCode) -> String {
    format!("{server} answered {status}")
}

/// The body, if it is short plain text.
fn text(headers: &HeaderMap, body: &[u8]) -> Option<String> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let text = std::str::from_utf8(body).ok()?.trim();
    let is_short = kind.starts_with("text/plain") && !text.is_empty() && text.len() <= MAX_TEXT;
    is_short.then(|| text.to_owned())
}

fn classify(status: StatusCode) -> (ErrorCode, ErrorKind) {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            (ErrorCode::AuthFailed, ErrorKind::Denied)
        }
        StatusCode::NOT_FOUND => (ErrorCode::KeyNotFound, ErrorKind::NotFound),
        StatusCode::CONFLICT | StatusCode::GONE | StatusCode::PRECONDITION_FAILED => {
            (ErrorCode::Conflict, ErrorKind::Conflict)
        }
        StatusCode::PAYLOAD_TOO_LARGE => (ErrorCode::TooLarge, ErrorKind::TooLarge),
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => {
            (ErrorCode::Timeout, ErrorKind::Timeout)
        }
        StatusCode::NOT_IMPLEMENTED => (ErrorCode::NotImplemented, ErrorKind::Unsupported),
        StatusCode::TOO_MANY_REQUESTS => (ErrorCode::ReadFailed, ErrorKind::Unavailable),
        status if status.is_client_error() => (ErrorCode::InvalidConfiguration, ErrorKind::Invalid),
        _ => (ErrorCode::ReadFailed, ErrorKind::Unavailable),
    }
}

/// A hint about what the user can do. The routes of spaces have their own error codes.
fn hint(status: StatusCode, code: Option<&str>) -> Option<&'static str> {
    match code {
        Some("SPACE_NOT_FOUND") => return Some("list the spaces: agent-backend space list"),
        Some("RUN_ALREADY_COMPLETED" | "RESUME_ERROR") => {
            return Some("show its state: agent-backend run show ID");
        }
        Some("APPROVAL_NOT_FOUND" | "APPROVAL_DECIDED") => {
            return Some("list them: agent-backend approvals list --status all");
        }
        Some("APPROVAL_INCOMPLETE") => {
            return Some("deny it: agent-backend approvals deny ID");
        }
        Some("TOKEN_NOT_FOUND") => {
            return Some("list the tokens of a space: agent-backend space token ID --list");
        }
        Some("RUN_NOT_FOUND") => {
            return Some("list the runs of a space: agent-backend space show ID");
        }
        _ => {}
    }
    match status {
        StatusCode::UNAUTHORIZED => {
            Some("give the server's token with --token-file, or AGENT_BACKEND_AUTH_TOKEN")
        }
        StatusCode::FORBIDDEN => Some("this token does not allow it"),
        StatusCode::NOT_FOUND => Some("list the sessions: agent-backend session list"),
        StatusCode::CONFLICT | StatusCode::GONE => {
            Some("show its state: agent-backend session get ID")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: u16, body: &str, kind: ErrorKind, message: &str) {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain"));
        let status = StatusCode::from_u16(status).unwrap();
        let error = error("the server at http://h", status, &headers, body.as_bytes());
        assert_eq!((error.kind(), error.message()), (kind, message), "{body}");
    }

    #[test]
    fn every_form_of_error_body_becomes_a_sentence() {
        check(
            400,
            r#"{"type":"urn:x","title":"Invalid request","status":400,"detail":"The request is not valid.",
                "errors":{"repo.url":["is required"],"prompt":["must not be empty","is short"]}}"#,
            ErrorKind::Invalid,
            "The request is not valid: prompt must not be empty, is short; repo.url is required",
        );
        check(
            400,
            r#"{"detail":"repo.url is required","errors":{"repo.url":["is required"]}}"#,
            ErrorKind::Invalid,
            "repo.url is required",
        );
        check(
            409,
            r#"{"error":{"code":"CONFLICT","message":"decided before"},"meta":{"requestId":"r"}}"#,
            ErrorKind::Conflict,
            "decided before",
        );
        check(
            401,
            r#"{"error":"Unauthorized","message":"Invalid or missing authentication token"}"#,
            ErrorKind::Denied,
            "Invalid or missing authentication token",
        );
        check(404, "", ErrorKind::NotFound, "the server at http://h answered 404 Not Found");
        check(
            502,
            "no upstream",
            ErrorKind::Unavailable,
            "the server at http://h failed: the server at http://h answered 502 Bad Gateway: no upstream",
        );
        check(
            422,
            r#"{"title":"Unprocessable","errors":{"delivery.mode":["\"pr\" is not available yet"]}}"#,
            ErrorKind::Invalid,
            "Unprocessable: delivery.mode \"pr\" is not available yet",
        );
    }
}
