//! The error of a failed request. Its format depends on the path of the request.
//!
//! A handler returns a [`Problem`], which is stored in the extensions of the response. The
//! outermost layer writes the body, because only this layer knows the path.

mod rendering;

pub(crate) use rendering::{ErrorEnvelope, ProblemDocument, Refusal, Rendering, rendered};

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use ab_core::ErrorKind;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};

/// Why a request failed. The kind determines the HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProblemKind {
    /// The request or one of its fields is malformed.
    Invalid,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    NotAcceptable,
    RequestTimeout,
    Conflict,
    /// The object has ended and accepts no more requests.
    Gone,
    PreconditionFailed,
    TooLarge,
    UnsupportedMediaType,
    RangeNotSatisfiable,
    /// The request is well formed, but this server does not support it.
    Unprocessable,
    UpgradeRequired,
    TooManyRequests,
    Internal,
    NotImplemented,
    /// A program that is needed for the request failed.
    BadGateway,
    Unavailable,
    GatewayTimeout,
    NoSpace,
}

impl ProblemKind {
    const ALL: [ProblemKind; 22] = [
        ProblemKind::Invalid,
        ProblemKind::Unauthorized,
        ProblemKind::Forbidden,
        ProblemKind::NotFound,
        ProblemKind::MethodNotAllowed,
        ProblemKind::NotAcceptable,
        ProblemKind::RequestTimeout,
        ProblemKind::Conflict,
        ProblemKind::Gone,
        ProblemKind::PreconditionFailed,
        ProblemKind::TooLarge,
        ProblemKind::UnsupportedMediaType,
        ProblemKind::RangeNotSatisfiable,
        ProblemKind::Unprocessable,
        ProblemKind::UpgradeRequired,
        ProblemKind::TooManyRequests,
        ProblemKind::Internal,
        ProblemKind::NotImplemented,
        ProblemKind::BadGateway,
        ProblemKind::Unavailable,
        ProblemKind::GatewayTimeout,
        ProblemKind::NoSpace,
    ];

    /// The status, code and title of the kind.
    fn row(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            ProblemKind::Invalid => (StatusCode::BAD_REQUEST, "validation", "Invalid request"),
            ProblemKind::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized", "Unauthorized"),
            ProblemKind::Forbidden => (StatusCode::FORBIDDEN, "forbidden", "Forbidden"),
            ProblemKind::NotFound => (StatusCode::NOT_FOUND, "not_found", "Not found"),
            ProblemKind::MethodNotAllowed => {
                (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "Method not allowed")
            }
            ProblemKind::NotAcceptable => {
                (StatusCode::NOT_ACCEPTABLE, "not_acceptable", "Not acceptable")
            }
            ProblemKind::RequestTimeout => {
                (StatusCode::REQUEST_TIMEOUT, "request_timeout", "Request timeout")
            }
            ProblemKind::Conflict => (StatusCode::CONFLICT, "conflict", "Conflict"),
            ProblemKind::Gone => (StatusCode::GONE, "gone", "Gone"),
            ProblemKind::PreconditionFailed => {
                (StatusCode::PRECONDITION_FAILED, "precondition_failed", "Precondition failed")
            }
            ProblemKind::TooLarge => {
                (StatusCode::PAYLOAD_TOO_LARGE, "too_large", "Request too large")
            }
            ProblemKind::UnsupportedMediaType => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "Unsupported type")
            }
            ProblemKind::RangeNotSatisfiable => {
                (StatusCode::RANGE_NOT_SATISFIABLE, "range_not_satisfiable", "No such range")
            }
            ProblemKind::Unprocessable => {
                (StatusCode::UNPROCESSABLE_ENTITY, "unprocessable", "Cannot be done here")
            }
            ProblemKind::UpgradeRequired => {
                (StatusCode::UPGRADE_REQUIRED, "upgrade_required", "Upgrade required")
            }
            ProblemKind::TooManyRequests => {
                (StatusCode::TOO_MANY_REQUESTS, "rate_limited", "Too many requests")
            }
            ProblemKind::Internal => {
                (StatusCode::INTERNAL_SERVER_ERROR, "internal", "Internal error")
            }
            ProblemKind::NotImplemented => {
                (StatusCode::NOT_IMPLEMENTED, "not_implemented", "Not implemented")
            }
            ProblemKind::BadGateway => (StatusCode::BAD_GATEWAY, "bad_gateway", "Bad gateway"),
            ProblemKind::Unavailable => {
                (StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Service unavailable")
            }
            ProblemKind::GatewayTimeout => {
                (StatusCode::GATEWAY_TIMEOUT, "gateway_timeout", "Gateway timeout")
            }
            ProblemKind::NoSpace => (StatusCode::INSUFFICIENT_STORAGE, "no_space", "No space left"),
        }
    }

    pub(crate) fn status(self) -> StatusCode {
        self.row().0
    }

    fn of_status(status: StatusCode) -> Option<ProblemKind> {
        ProblemKind::ALL.into_iter().find(|kind| kind.status() == status)
    }
}

impl From<ErrorKind> for ProblemKind {
    fn from(kind: ErrorKind) -> ProblemKind {
        match kind {
            ErrorKind::NotFound => ProblemKind::NotFound,
            ErrorKind::AlreadyExists
            | ErrorKind::NotEmpty
            | ErrorKind::Conflict
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::ApprovalPending => ProblemKind::Conflict,
            ErrorKind::InvalidPath
            | ErrorKind::Invalid
            | ErrorKind::SpecialFile
            | ErrorKind::LinkLoop
            | ErrorKind::TextNotFound
            | ErrorKind::TextNotUnique => ProblemKind::Invalid,
            ErrorKind::PathEscape
            | ErrorKind::PermissionDenied
            | ErrorKind::DeniedByPolicy
            | ErrorKind::RejectedByPerson => ProblemKind::Forbidden,
            ErrorKind::Unsupported => ProblemKind::Unprocessable,
            ErrorKind::TooLarge => ProblemKind::TooLarge,
            ErrorKind::NoSpace => ProblemKind::NoSpace,
            ErrorKind::CommandFailed | ErrorKind::Disconnected => ProblemKind::BadGateway,
            ErrorKind::Unavailable | ErrorKind::Cancelled => ProblemKind::Unavailable,
            ErrorKind::Timeout => ProblemKind::GatewayTimeout,
            ErrorKind::Destroyed => ProblemKind::Gone,
            ErrorKind::Io => ProblemKind::Internal,
        }
    }
}

/// A failed request. The detail tells the caller what to do.
#[derive(Clone, Debug)]
pub(crate) struct Problem(Box<Parts>);

#[derive(Clone, Debug)]
struct Parts {
    kind: ProblemKind,
    code: Cow<'static, str>,
    title: Cow<'static, str>,
    detail: String,
    errors: BTreeMap<String, Vec<String>>,
    members: Map<String, Value>,
    retry_after: Option<u64>,
}

impl Problem {
    pub(crate) fn new(kind: ProblemKind, detail: impl Into<String>) -> Problem {
        let (_, code, title) = kind.row();
        Problem(Box::new(Parts {
            kind,
            code: code.into(),
            title: title.into(),
            detail: detail.into(),
            errors: BTreeMap::new(),
            members: Map::new(),
            retry_after: None,
        }))
    }

    /// Sets a title instead of the title of the kind.
    pub(crate) fn titled(mut self, title: impl Into<Cow<'static, str>>) -> Problem {
        self.0.title = title.into();
        self
    }

    /// Sets a code instead of the code of the kind. In snake case.
    pub(crate) fn coded(mut self, code: impl Into<Cow<'static, str>>) -> Problem {
        self.0.code = code.into();
        self
    }

    /// Adds the errors of fields.
    pub(crate) fn with_errors(mut self, errors: BTreeMap<String, Vec<String>>) -> Problem {
        self.0.errors = errors;
        self
    }

    /// Adds a member to the problem document.
    pub(crate) fn with_member(mut self, name: &str, value: impl Into<Value>) -> Problem {
        self.0.members.insert(name.to_owned(), value.into());
        self
    }

    pub(crate) fn too_many_guesses(retry_after: u64) -> Problem {
        Problem::too_many_requests("too many wrong tokens", Duration::from_secs(retry_after))
    }

    /// A problem for a request that exceeds a rate limit. `wait` is the time until the limit allows
    /// another request.
    pub(crate) fn too_many_requests(detail: impl fmt::Display, wait: Duration) -> Problem {
        let seconds = wait.as_millis().div_ceil(1000).max(1);
        let detail = format!("{detail}: try again in {seconds} seconds");
        let mut problem = Problem::new(ProblemKind::TooManyRequests, detail);
        problem.0.retry_after = u64::try_from(seconds).ok();
        problem
    }

    pub(crate) fn unauthorized() -> Problem {
        Problem::new(ProblemKind::Unauthorized, "Invalid or missing authentication token")
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> StatusCode {
        self.0.kind.status()
    }
}

impl From<ab_core::Error> for Problem {
    fn from(error: ab_core::Error) -> Problem {
        Problem::new(error.kind().into(), error.to_string()).coded(error.kind().as_str())
    }
}

impl IntoResponse for Problem {
    /// Makes a response without a body. [`rendered`] writes the body.
    fn into_response(self) -> Response {
        let status = self.0.kind.status();
        let mut response = status.into_response();
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.0.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_status_and_a_code_of_its_own() {
        for kind in ProblemKind::ALL {
            assert!(kind.status().as_u16() >= 400, "{kind:?}");
            assert_eq!(ProblemKind::of_status(kind.status()), Some(kind));
            let same = ProblemKind::ALL.iter().filter(|other| other.row().1 == kind.row().1);
            assert_eq!(same.count(), 1, "{kind:?}");
        }
    }

    #[test]
    fn errors_of_a_workspace_have_the_status_of_their_kind() {
        let expect = |kind: ErrorKind| ProblemKind::from(kind).status().as_u16();
        for (kind, status) in [
            (ErrorKind::NotFound, 404),
            (ErrorKind::Conflict, 409),
            (ErrorKind::DeniedByPolicy, 403),
            (ErrorKind::Invalid, 400),
            (ErrorKind::TooLarge, 413),
            (ErrorKind::NoSpace, 507),
            (ErrorKind::Unsupported, 422),
            (ErrorKind::Timeout, 504),
            (ErrorKind::Io, 500),
        ] {
            assert_eq!(expect(kind), status, "{kind:?}");
        }
    }
}
