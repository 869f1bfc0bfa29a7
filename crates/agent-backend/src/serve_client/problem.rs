//! Converts error answers of a server to errors.

use std::collections::BTreeMap;

use ab_core::{Error, ErrorCode, ErrorKind};
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use serde_json::Value;

/// Maximum length of a body that is quoted although it is not JSON.
const MAX_TEXT: usize = 300;

/// The beginning of the types of problem documents.
const PROBLEM_TYPE: &str = "urn:agent-backend:error:";

/// The fields of error bodies. A server uses three formats, and this struct reads all of them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ErrorBody {
    /// The type of a problem document. It ends with the code of the error.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// The title of a problem document (RFC 9457).
    title: Option<String>,
    detail: Option<String>,
    errors: BTreeMap<String, Vec<String>>,
    /// Routes below `/v1` send an object here. Routes of the daemon send a title.
    error: Option<Value>,
    message: Option<String>,
}

/// The error for an answer with this status. `server` is the name of the server in the message, and
/// `path` is the path of the request.
pub(super) fn error(
    server: &str,
    path: &str,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
) -> Error {
    let (code, kind) = classify(status);
    let mut envelope_code = None;
    let mut is_about_repository = false;
    let mut message = match serde_json::from_slice::<ErrorBody>(body) {
        Ok(body) => {
            let code = body.error.as_ref().and_then(|error| error.get("code"));
            let kind = body.kind.as_deref().and_then(|kind| kind.strip_prefix(PROBLEM_TYPE));
            envelope_code = code.and_then(Value::as_str).or(kind).map(str::to_owned);
            is_about_repository = kind == Some("repository");
            described(&body).unwrap_or_else(|| bare(server, status))
        }
        Err(_) => match text(headers, body) {
            Some(text) => format!("{}: {text}", bare(server, status)),
            None => bare(server, status),
        },
    };
    if is_about_repository {
        // The server works, but it cannot read the repository that the request names.
        message = message.strip_prefix("repo.url: ").unwrap_or(&message).to_owned();
    } else if kind == ErrorKind::Unavailable && !message.starts_with(server) {
        message = format!("{server} failed: {message}");
    }
    let error = Error::new(code, kind, message);
    match hint(path, status, envelope_code.as_deref()) {
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

/// Returns the body if it is short and its content type is `text/plain`.
fn text(headers: &HeaderMap, body: &[u8]) -> Option<String> {
    let kind = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    let text = std::str::from_utf8(body).ok()?.trim();
    let is_short = kind.starts_with("text/plain") && !text.is_empty() && text.len() <= MAX_TEXT;
    is_short.then(|| text.to_owned())
}

fn classify(status: StatusCode) -> (ErrorCode, ErrorKind) {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            (ErrorCode::AuthFailed, ErrorKind::DeniedByPolicy)
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
fn hint(path: &str, status: StatusCode, code: Option<&str>) -> Option<&'static str> {
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
        Some("prompt_not_found" | "prompt_not_queued") => {
            return Some("list the prompts: agent-backend session prompts SESSION");
        }
        Some("draft_not_found") => return Some("list the drafts: agent-backend draft list"),
        Some("key_not_found" | "key_name_taken") => {
            return Some("list the keys: agent-backend key list");
        }
        _ => {}
    }
    match status {
        StatusCode::UNAUTHORIZED => {
            Some("give the server's token with --token-file, or AGENT_BACKEND_AUTH_TOKEN")
        }
        StatusCode::FORBIDDEN => Some("this token does not allow it"),
        StatusCode::NOT_FOUND => list_command(path),
        StatusCode::CONFLICT | StatusCode::GONE if path.starts_with(SESSIONS) => {
            Some("show its state: agent-backend session get ID")
        }
        _ => None,
    }
}

const SESSIONS: &str = "/api/v1/sessions/";

/// The command that lists what the path of a request refers to.
fn list_command(path: &str) -> Option<&'static str> {
    let (collection, rest) = path.strip_prefix("/api/v1/")?.split_once('/')?;
    match collection {
        "sessions" if rest.contains("/prompts/") => {
            Some("list the prompts: agent-backend session prompts ID")
        }
        "sessions" => Some("list the sessions: agent-backend session list"),
        "drafts" => Some("list the drafts: agent-backend draft list"),
        "keys" => Some("list the keys: agent-backend key list"),
        "workspaces" => Some("list the workspaces: agent-backend remote workspaces"),
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
        let server = "the server at http://h";
        let error = error(server, "/api/v1/tasks", status, &headers, body.as_bytes());
        assert_eq!((error.kind(), error.message()), (kind, message), "{body}");
    }

    #[test]
    fn hints_name_what_the_path_refers_to() {
        let check = |path: &str, status: u16, expect: Option<&str>| {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(hint(path, status, None), expect, "{path}");
        };
        let sessions = Some("list the sessions: agent-backend session list");
        let prompts = Some("list the prompts: agent-backend session prompts ID");
        check("/api/v1/sessions/01", 404, sessions);
        check("/api/v1/sessions/01/pause", 404, sessions);
        check("/api/v1/sessions/01/prompts/7", 404, prompts);
        check("/api/v1/keys/ci", 404, Some("list the keys: agent-backend key list"));
        check("/api/v1/unknown", 404, None);
        check("/api/v1/keys", 409, None);
        let state = Some("show its state: agent-backend session get ID");
        check("/api/v1/sessions/01/finish", 409, state);
    }

    #[test]
    fn hint_is_about_the_object_that_the_problem_names() {
        let hint = |status, code: &str| {
            let body = format!(r#"{{"type":"{PROBLEM_TYPE}{code}","detail":"x"}}"#);
            let error = error(
                "the server",
                "/api/v1/sessions/x",
                status,
                &HeaderMap::new(),
                body.as_bytes(),
            );
            error.hint().map(str::to_owned)
        };
        for (status, code, command) in [
            (StatusCode::NOT_FOUND, "prompt_not_found", "session prompts SESSION"),
            (StatusCode::CONFLICT, "prompt_not_queued", "session prompts SESSION"),
            (StatusCode::NOT_FOUND, "draft_not_found", "draft list"),
            (StatusCode::CONFLICT, "key_name_taken", "key list"),
            (StatusCode::NOT_FOUND, "session_not_found", "session list"),
        ] {
            let hint = hint(status, code).unwrap_or_default();
            assert!(hint.ends_with(&format!("agent-backend {command}")), "{code}: {hint}");
        }
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
            ErrorKind::DeniedByPolicy,
            "Invalid or missing authentication token",
        );
        check(404, "", ErrorKind::NotFound, "the server at http://h answered 404 Not Found");
        check(
            502,
            "no upstream",
            ErrorKind::Unavailable,
            "the server at http://h answered 502 Bad Gateway: no upstream",
        );
        check(
            503,
            r#"{"title":"Unavailable","detail":"it is full"}"#,
            ErrorKind::Unavailable,
            "the server at http://h failed: it is full",
        );
        check(
            502,
            r#"{"type":"urn:agent-backend:error:repository","detail":"repo.url: /a is not a directory"}"#,
            ErrorKind::Unavailable,
            "/a is not a directory",
        );
        check(
            422,
            r#"{"title":"Unprocessable","errors":{"delivery.mode":["\"pr\" is not available yet"]}}"#,
            ErrorKind::Invalid,
            "Unprocessable: delivery.mode \"pr\" is not available yet",
        );
    }
}
