//! Refusals of the port itself, in the two words that clients of the daemon know: `error` says
//! which, `message` why.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

#[derive(Clone, Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    body: Refusal,
    /// After how many seconds it is worth trying again, where that is known.
    retry_after: Option<u64>,
}

/// Why a request was not let through
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Refusal {
    /// Which refusal this is, always in the same words
    #[schema(example = "Unauthorized")]
    error: &'static str,
    /// What to do about it
    #[schema(example = "Invalid or missing authentication token")]
    message: String,
}

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        error: &'static str,
        message: impl Into<String>,
    ) -> Problem {
        Problem { status, body: Refusal { error, message: message.into() }, retry_after: None }
    }

    pub(crate) fn too_many_guesses(retry_after: u64) -> Problem {
        let message = format!("too many wrong tokens: come back in {retry_after} seconds");
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "Too many requests", message);
        Problem { retry_after: Some(retry_after), ..problem }
    }

    pub(crate) fn unauthorized() -> Problem {
        let message = "Invalid or missing authentication token";
        Problem::new(StatusCode::UNAUTHORIZED, "Unauthorized", message)
    }

    #[cfg(test)]
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}
