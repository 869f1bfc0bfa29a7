//! Converts errors of spaces to problems, with the codes that clients of the protocol know.

use std::collections::BTreeMap;

use ab_core::{Error, ErrorCode, ErrorKind};
use ab_spaces::{InvalidMessage, SpacesError, ValidationIssue};
use ab_store::StoreError;
use axum::http::StatusCode;
use serde_json::json;
use utoipa::IntoResponses;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};

use crate::problem::{Problem, ProblemKind, Rendering};
use crate::routes::control::disk_full;

/// Returns the problem for an invalid body, with all issues and their JSON pointers.
pub(crate) fn invalid(invalid: &InvalidMessage) -> Problem {
    Problem::new(ProblemKind::Invalid, invalid.to_string())
        .coded("validation_error")
        .with_member("issues", json!(invalid.issues))
}

pub(crate) fn of_spaces(error: SpacesError) -> Problem {
    match error {
        SpacesError::SpaceNotFound => {
            Problem::new(ProblemKind::NotFound, "there is no such space").coded("space_not_found")
        }
        SpacesError::RunNotFound => {
            Problem::new(ProblemKind::NotFound, "there is no such run").coded("run_not_found")
        }
        SpacesError::RunEnded(status) => {
            let detail = format!("the run has ended: it is {}", status.as_str());
            Problem::new(ProblemKind::Conflict, detail).coded("run_already_completed")
        }
        SpacesError::RunNotWaitingForApproval(why) => {
            Problem::new(ProblemKind::Conflict, why).coded("resume_error")
        }
        SpacesError::InvalidCopySource(why) => {
            let (pointer, message) = ("/copyOf".to_owned(), why);
            invalid(&InvalidMessage { issues: vec![ValidationIssue { pointer, message }] })
        }
        SpacesError::QueueFull => {
            let detail = "too many runs of this space wait for their turn";
            Problem::new(ProblemKind::TooManyRequests, detail).coded("quota_exceeded")
        }
        SpacesError::ShuttingDown => {
            Problem::new(ProblemKind::Unavailable, "the server is shutting down")
        }
        SpacesError::Workspace(error) => {
            Problem::new(ProblemKind::Unavailable, error.to_string()).coded("space_not_ready")
        }
        SpacesError::Store(error @ StoreError::SubjectNotFullyShown(_)) => {
            Problem::new(ProblemKind::Conflict, error.to_string()).coded("approval_incomplete")
        }
        SpacesError::Store(StoreError::IdempotencyKeyReused) => {
            let detail = "the Idempotency-Key was used for a different request";
            Problem::new(ProblemKind::Unprocessable, detail).coded("idempotency_key_reused")
        }
        SpacesError::Store(error @ StoreError::TooManyTokens { .. }) => {
            Problem::new(ProblemKind::TooManyRequests, error.to_string()).coded("quota_exceeded")
        }
        SpacesError::RunNotStored(error) if error.is_disk_full() => {
            let detail = "the disk of the server is full. Nothing is lost: what cannot be stored now is stored when \
                          there is room";
            Problem::new(ProblemKind::NoSpace, detail).coded("disk_full")
        }
        SpacesError::Store(error) if error.is_disk_full() => disk_full(),
        SpacesError::RunNotStored(error) | SpacesError::Store(error) => {
            tracing::error!(%error, "the store failed");
            Problem::new(ProblemKind::Internal, "the store failed; the log of the server says why")
        }
    }
}

/// Converts an error of a file operation to a problem. `fallback` is the code for errors without a
/// code of their own.
pub(crate) fn of_file(error: &Error, fallback: &'static str) -> Problem {
    let is_too_large = error.kind() == ErrorKind::TooLarge || error.code() == ErrorCode::TooLarge;
    if is_too_large {
        return Problem::new(ProblemKind::TooLarge, error.to_string()).coded("file_too_large");
    }
    let problem = Problem::new(ProblemKind::from(error.kind()), error.to_string());
    match error.kind() {
        ErrorKind::NotFound => problem.coded("file_not_found"),
        ErrorKind::DeniedByPolicy => problem.coded("policy_denied"),
        ErrorKind::InvalidPath | ErrorKind::PathEscape => problem.coded("path_invalid"),
        _ => problem.coded(fallback),
    }
}

/// Describes the problems that every route of spaces can return.
pub(crate) struct SpaceProblems;

impl IntoResponses for SpaceProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        [
            (StatusCode::NOT_FOUND, "There is no such space, run or file, or no spaces are served"),
            (StatusCode::CONFLICT, "The state of the run or file does not allow it"),
            (StatusCode::PAYLOAD_TOO_LARGE, "The body or the file is too large"),
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, "The Content-Type is not JSON"),
            (StatusCode::UNPROCESSABLE_ENTITY, "This server cannot do it"),
            (StatusCode::INTERNAL_SERVER_ERROR, "The store failed"),
            (StatusCode::SERVICE_UNAVAILABLE, "The space is not ready, or the server ends"),
            (StatusCode::INSUFFICIENT_STORAGE, "The disk of the server is full"),
        ]
        .map(|(status, description)| {
            let schema = Ref::from_schema_name(Rendering::Envelope.schema_name());
            let content = ContentBuilder::new().schema(Some(schema)).build();
            let response = ResponseBuilder::new()
                .description(description)
                .content(Rendering::Envelope.content_type(), content)
                .build();
            (status.as_str().to_owned(), RefOr::T(response))
        })
        .into()
    }
}
