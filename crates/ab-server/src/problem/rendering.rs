//! Writes the body of a problem in the format that clients of the path expect.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::{Parts, Problem, ProblemKind};
use crate::log::RequestId;
use crate::page;

/// Maximum number of bytes of an error text from a library that are used as the detail of a
/// problem.
const LONGEST_FOREIGN_TEXT: usize = 4 * 1024;

/// The format of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rendering {
    /// A body with the members `error` and `message`. This is the format of the daemon, and of all
    /// paths without another format.
    Refusal,
    /// RFC 9457, with problem types of this product.
    Document,
    /// RFC 9457, with the problem types that clients of the agent gateway know.
    GatewayDocument,
    /// A body with the member `error`, which contains a code, and `meta`, which contains the id of
    /// the request. This is the format of spaces and runs.
    Envelope,
}

/// The formats by path prefix. The longest matching prefix decides.
const PREFIXES: [(&str, Rendering); 7] = [
    ("/api/v1", Rendering::Document),
    ("/v1", Rendering::GatewayDocument),
    // Routes of sandbox-agent that do not exist here.
    ("/opencode", Rendering::GatewayDocument),
    ("/v1/spaces", Rendering::Envelope),
    ("/v1/runs", Rendering::Envelope),
    ("/v1/approvals", Rendering::Envelope),
    ("/v1/policies", Rendering::Envelope),
];

impl Rendering {
    pub(crate) fn of(path: &str) -> Rendering {
        let fits = |prefix: &str| {
            path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let fitting = PREFIXES.iter().filter(|(prefix, _)| fits(prefix));
        let longest = fitting.max_by_key(|(prefix, _)| prefix.len());
        longest.map_or(Rendering::Refusal, |(_, rendering)| *rendering)
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Rendering::Refusal | Rendering::Envelope => "application/json",
            Rendering::Document | Rendering::GatewayDocument => "application/problem+json",
        }
    }

    /// The name of the body's schema in the OpenAPI description.
    pub(crate) fn schema_name(self) -> &'static str {
        match self {
            Rendering::Refusal => "Refusal",
            Rendering::Document | Rendering::GatewayDocument => "ProblemDocument",
            Rendering::Envelope => "ErrorEnvelope",
        }
    }

    fn body(self, problem: Parts, request_id: String) -> Response {
        match self {
            Rendering::Refusal => {
                let Parts { title, detail, .. } = problem;
                Json(Refusal { error: title.into_owned(), message: detail }).into_response()
            }
            Rendering::Document => document("urn:agent-backend:error:", problem),
            Rendering::GatewayDocument => document("urn:sandbox-agent:error:", as_gateway(problem)),
            Rendering::Envelope => {
                let mut details = problem.members;
                if !problem.errors.is_empty() {
                    details.insert("errors".to_owned(), Value::from_iter(problem.errors));
                }
                // One code for all invalid requests, whether the message or a parameter is invalid.
                let code = match problem.code.as_ref() {
                    "validation" => "VALIDATION_ERROR".to_owned(),
                    code => code.to_ascii_uppercase(),
                };
                let error = EnvelopeError { code, message: problem.detail, details };
                Json(ErrorEnvelope { error, meta: EnvelopeMeta { request_id } }).into_response()
            }
        }
    }
}

/// Sets the code and title that clients of the agent gateway expect, if the problem has no code and
/// title of its own.
fn as_gateway(mut problem: Parts) -> Parts {
    let (_, code, title) = problem.kind.row();
    let (gateway_code, gateway_title) = match problem.kind {
        ProblemKind::Invalid => ("invalid_request", "Invalid Request"),
        ProblemKind::Unauthorized => ("token_invalid", "Token Invalid"),
        ProblemKind::Forbidden => ("permission_denied", "Permission Denied"),
        ProblemKind::NotFound => ("not_found", "Not Found"),
        ProblemKind::NotAcceptable => ("not_acceptable", "Not Acceptable"),
        ProblemKind::UnsupportedMediaType => ("unsupported_media_type", "Unsupported Media Type"),
        ProblemKind::BadGateway => ("stream_error", "Stream Error"),
        ProblemKind::GatewayTimeout => ("timeout", "Timeout"),
        ProblemKind::MethodNotAllowed
        | ProblemKind::RequestTimeout
        | ProblemKind::Conflict
        | ProblemKind::Gone
        | ProblemKind::PreconditionFailed
        | ProblemKind::TooLarge
        | ProblemKind::RangeNotSatisfiable
        | ProblemKind::Unprocessable
        | ProblemKind::UpgradeRequired
        | ProblemKind::TooManyRequests
        | ProblemKind::Internal
        | ProblemKind::NotImplemented
        | ProblemKind::Unavailable
        | ProblemKind::NoSpace => (code, title),
    };
    if problem.code == code {
        problem.code = gateway_code.into();
    }
    if problem.title == title {
        problem.title = gateway_title.into();
    }
    problem
}

fn document(types: &str, problem: Parts) -> Response {
    let document = ProblemDocument {
        type_: format!("{types}{}", problem.code),
        title: problem.title.into_owned(),
        status: problem.kind.status().as_u16(),
        detail: problem.detail,
        errors: problem.errors,
        members: problem.members,
    };
    Json(document).into_response()
}

/// Why a request was refused
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Refusal {
    /// The kind of refusal, always the same text
    #[schema(example = "Unauthorized")]
    error: String,
    /// What to do about it
    #[schema(example = "Invalid or missing authentication token")]
    message: String,
}

/// Why a request failed, by RFC 9457
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ProblemDocument {
    /// A URN that ends with the code of the problem
    #[serde(rename = "type")]
    #[schema(example = "urn:agent-backend:error:validation")]
    type_: String,
    #[schema(example = "Invalid request")]
    title: String,
    /// The HTTP status
    #[schema(example = 400)]
    status: u16,
    #[schema(example = "repo.url must be provided when repo.mode=git")]
    detail: String,
    /// The errors by the path of the field
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    errors: BTreeMap<String, Vec<String>>,
    #[serde(flatten)]
    #[schema(ignore)]
    members: Map<String, Value>,
}

/// Why a request about spaces, runs, approvals or policies failed
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ErrorEnvelope {
    error: EnvelopeError,
    meta: EnvelopeMeta,
}

/// The error
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct EnvelopeError {
    #[schema(example = "SPACE_NOT_FOUND")]
    code: String,
    message: String,
    #[serde(skip_serializing_if = "Map::is_empty")]
    #[schema(value_type = Object)]
    details: Map<String, Value>,
}

/// Information about the response
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct EnvelopeMeta {
    #[serde(rename = "requestId")]
    request_id: String,
}

/// Writes the bodies of problems, and adds the character set to JSON responses. MCP and the gateway
/// set their own headers.
pub(crate) async fn rendered(request: Request, next: Next) -> Response {
    let rendering = Rendering::of(request.uri().path());
    let names_charset = matches!(rendering, Rendering::Document | Rendering::Envelope)
        || request.uri().path() == "/health";
    let is_page = is_page(request.uri().path(), request.headers());
    let request_id = RequestId::of(request.extensions());
    let mut response = next.run(request).await;
    let problem = match response.extensions_mut().remove::<Problem>() {
        Some(problem) => Some(problem),
        None => foreign(rendering, &mut response).await,
    };
    if let Some(Problem(parts)) = problem {
        if is_page {
            return page::problem(&response, &parts.title, &parts.detail);
        }
        let body = rendering.body(*parts, request_id.to_string());
        *response.body_mut() = body.into_body();
        let headers = response.headers_mut();
        headers.remove(header::CONTENT_LENGTH);
        let content_type = HeaderValue::from_static(rendering.content_type());
        headers.insert(header::CONTENT_TYPE, content_type);
    }
    if names_charset && has_type(response.headers(), "application/json") {
        let with_charset = HeaderValue::from_static("application/json; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, with_charset);
    }
    response
}

/// Whether a browser requests a page.
fn is_page(path: &str, headers: &HeaderMap) -> bool {
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    (path == "/ui" || path.starts_with("/ui/"))
        && accepts.is_some_and(|accepts| accepts.contains("text/html"))
}

/// Converts a plain-text error of a library to a problem, such as the error of axum's body limit.
/// Errors on the daemon's paths are not changed, because its clients know them.
async fn foreign(rendering: Rendering, response: &mut Response) -> Option<Problem> {
    let plain = !response.headers().contains_key(header::CONTENT_TYPE)
        || has_type(response.headers(), "text/plain; charset=utf-8");
    if rendering == Rendering::Refusal || !plain {
        return None;
    }
    let kind = ProblemKind::of_status(response.status())?;
    let body = std::mem::replace(response.body_mut(), Body::empty());
    let text = to_bytes(body, LONGEST_FOREIGN_TEXT).await.unwrap_or_default();
    let detail = match String::from_utf8_lossy(&text) {
        text if text.is_empty() => kind.row().2.to_owned(),
        text => text.into_owned(),
    };
    Some(Problem::new(kind, detail))
}

fn has_type(headers: &HeaderMap, expect: &str) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value == expect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_prefix_decides() {
        for (path, expect) in [
            ("/health", Rendering::Refusal),
            ("/mcp", Rendering::Refusal),
            ("/nowhere", Rendering::Refusal),
            ("/api/v1", Rendering::Document),
            ("/api/v1/sessions/1", Rendering::Document),
            ("/api/v10", Rendering::Refusal),
            ("/v1", Rendering::GatewayDocument),
            ("/v1/acp/x", Rendering::GatewayDocument),
            ("/opencode/session", Rendering::GatewayDocument),
            ("/v1/spaces", Rendering::Envelope),
            ("/v1/spaces/1/runs", Rendering::Envelope),
            ("/v1/spacesuit", Rendering::GatewayDocument),
            ("/v1/runs/1", Rendering::Envelope),
            ("/v1/approvals", Rendering::Envelope),
            ("/v1/policies/x", Rendering::Envelope),
        ] {
            assert_eq!(Rendering::of(path), expect, "{path}");
        }
    }

    async fn body(path: &str, problem: Problem) -> Value {
        let Problem(parts) = problem;
        let response = Rendering::of(path).body(*parts, "req-1".to_owned());
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[tokio::test]
    async fn each_rendering_has_the_members_that_its_clients_read() {
        let problem = || {
            let errors = [("repo.url".to_owned(), vec!["is required".to_owned()])];
            Problem::new(ProblemKind::Invalid, "repo.url must be provided")
                .with_errors(errors.into_iter().collect())
        };
        let document = |type_: &str, title: &str| {
            serde_json::json!({
                "type": format!("urn:{type_}"),
                "title": title,
                "status": 400,
                "detail": "repo.url must be provided",
                "errors": { "repo.url": ["is required"] },
            })
        };
        let ours = document("agent-backend:error:validation", "Invalid request");
        assert_eq!(body("/api/v1/tasks", problem()).await, ours);
        let gateway = document("sandbox-agent:error:invalid_request", "Invalid Request");
        assert_eq!(body("/v1/acp", problem()).await, gateway);
        let envelope = serde_json::json!({
            "error": {
                "code": "VALIDATION_ERROR",
                "message": "repo.url must be provided",
                "details": { "errors": { "repo.url": ["is required"] } },
            },
            "meta": { "requestId": "req-1" },
        });
        assert_eq!(body("/v1/spaces", problem()).await, envelope);
        let missing = Problem::new(ProblemKind::NotFound, "no such space").coded("space_not_found");
        assert_eq!(body("/v1/spaces/x", missing).await["error"]["code"], "SPACE_NOT_FOUND");
        let refusal = serde_json::json!({ "error": "Invalid request", "message": "repo.url must be provided" });
        assert_eq!(body("/mcp", problem()).await, refusal);
    }
}
