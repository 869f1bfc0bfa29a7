//! Converts errors of the control plane to problems, and describes them.

use std::collections::BTreeMap;

use ab_api::{ApprovalId, FieldViolations, SessionId};
use ab_control::ControlPlaneError;
use ab_store::StoreError;
use axum::http::StatusCode;
use utoipa::IntoResponses;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};

use crate::problem::{Problem, ProblemKind, Rendering};

/// Returns the problem for a request with invalid fields.
pub(crate) fn violated(violations: &FieldViolations) -> Problem {
    let kind = match violations.http_status() {
        422 => ProblemKind::Unprocessable,
        _ => ProblemKind::Invalid,
    };
    Problem::new(kind, violations.to_string()).with_errors(violations.messages_by_field())
}

/// Converts an error about the session `id` to a problem.
pub(crate) fn of_session(id: SessionId, error: ControlPlaneError) -> Problem {
    match error {
        ControlPlaneError::NotFound => {
            let detail = format!("there is no session {id}");
            Problem::new(ProblemKind::NotFound, detail).coded("session_not_found")
        }
        error => general(error),
    }
}

/// Converts an error about the approval `id` to a problem.
pub(crate) fn of_approval(id: ApprovalId, error: ControlPlaneError) -> Problem {
    match error {
        ControlPlaneError::NotFound => {
            let detail = format!("there is no approval {id}");
            Problem::new(ProblemKind::NotFound, detail).coded("approval_not_found")
        }
        error => general(error),
    }
}

/// Converts an error about a new task to a problem.
pub(crate) fn of_task(error: ControlPlaneError) -> Problem {
    general(error)
}

fn general(error: ControlPlaneError) -> Problem {
    let detail = error.to_string();
    match error {
        ControlPlaneError::NotFound => Problem::new(ProblemKind::NotFound, detail),
        ControlPlaneError::InvalidTask(violations) => violated(&violations),
        ControlPlaneError::SessionEnded(_) => {
            Problem::new(ProblemKind::Gone, detail).coded("session_ended")
        }
        ControlPlaneError::IllegalInput(_) => {
            Problem::new(ProblemKind::Conflict, detail).coded("illegal_transition")
        }
        ControlPlaneError::SessionNotEnded(_) => {
            Problem::new(ProblemKind::Conflict, detail).coded("session_not_ended")
        }
        ControlPlaneError::WorkspaceGone(_) => {
            Problem::new(ProblemKind::Gone, detail).coded("workspace_gone")
        }
        ControlPlaneError::PromptNotFound(_) => {
            Problem::new(ProblemKind::NotFound, detail).coded("prompt_not_found")
        }
        ControlPlaneError::TaskPromptNotChangeable => {
            Problem::new(ProblemKind::Conflict, detail).coded("task_prompt")
        }
        ControlPlaneError::QueueFull { .. } => {
            Problem::new(ProblemKind::Conflict, detail).coded("queue_full")
        }
        ControlPlaneError::Store(StoreError::PromptNotQueued(status)) => {
            Problem::new(ProblemKind::Conflict, detail)
                .coded("prompt_not_queued")
                .with_member("status", status.as_str())
        }
        ControlPlaneError::DiskFull { .. } => {
            Problem::new(ProblemKind::NoSpace, detail).coded("disk_full")
        }
        ControlPlaneError::DiskLimit { .. } => {
            Problem::new(ProblemKind::NoSpace, detail).coded("disk_limit")
        }
        ControlPlaneError::Abandoned => Problem::new(ProblemKind::Internal, detail),
        ControlPlaneError::ShuttingDown => Problem::new(ProblemKind::Unavailable, detail),
        ControlPlaneError::Store(StoreError::IdempotencyKeyReused) => {
            Problem::new(ProblemKind::Unprocessable, detail).coded("idempotency_key_reused")
        }
        ControlPlaneError::Store(StoreError::AlreadyDecided(approval)) => {
            Problem::new(ProblemKind::Conflict, detail)
                .coded("approval_decided")
                .with_member("status", approval.status.as_str())
        }
        ControlPlaneError::Store(StoreError::SubjectNotFullyShown(_)) => {
            Problem::new(ProblemKind::Conflict, detail).coded("approval_incomplete")
        }
        ControlPlaneError::Store(StoreError::UseDecision(_)) => {
            Problem::new(ProblemKind::Conflict, detail).coded("grant_refused")
        }
        ControlPlaneError::Store(StoreError::DigestReused(id)) => {
            Problem::new(ProblemKind::Conflict, detail)
                .coded("digest_reused")
                .with_member("approvalId", id.to_string())
        }
        ControlPlaneError::Store(StoreError::TooManyPending { .. }) => {
            Problem::new(ProblemKind::TooManyRequests, detail).coded("too_many_approvals")
        }
        ControlPlaneError::Store(StoreError::TooLarge { .. }) => {
            Problem::new(ProblemKind::TooLarge, detail)
        }
        ControlPlaneError::Store(error) if error.is_disk_full() => disk_full(),
        ControlPlaneError::Store(error) => {
            tracing::error!(%error, "the store failed");
            Problem::new(ProblemKind::Internal, "the store failed; the log of the server says why")
        }
    }
}

/// The problem of a request that could not be stored.
pub(crate) fn disk_full() -> Problem {
    let detail = "the disk of the server is full, so the request was not stored. Cancel a session, remove uploads or \
                  spaces, or run `agent-backend cleanup`, and repeat the request";
    Problem::new(ProblemKind::NoSpace, detail).coded("disk_full")
}

/// Describes the errors of every session route.
pub(crate) struct SessionProblems;

impl IntoResponses for SessionProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        described(
            Rendering::Document,
            "There is no such session, or sessions are not enabled on this server",
        )
    }
}

/// Describes the errors of every method of a session's MCP endpoint.
pub(crate) struct EndpointProblems;

impl IntoResponses for EndpointProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let mut all = SessionProblems::responses();
        all.extend(
            [
                (StatusCode::BAD_REQUEST, "No message, or invalid headers"),
                (
                    StatusCode::CONFLICT,
                    "The session does not run, the call's id is in use, or a client already listens",
                ),
                (StatusCode::GONE, "The session has ended"),
            ]
            .map(|(status, description)| row(Rendering::Document, status, description)),
        );
        all
    }
}

/// Describes the errors of every approval route.
pub(crate) struct ApprovalProblems;

impl IntoResponses for ApprovalProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        described(
            Rendering::Envelope,
            "There is no such approval, or sessions are not enabled on this server",
        )
    }
}

/// Describes the errors of every route of the page.
pub(crate) struct PageProblems;

impl IntoResponses for PageProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let not_found = "Nothing has this name, or sessions are not enabled on this server";
        described(Rendering::of("/ui"), not_found)
    }
}

fn described(rendering: Rendering, not_found: &str) -> BTreeMap<String, RefOr<Response>> {
    [
        (StatusCode::NOT_FOUND, not_found),
        (StatusCode::INTERNAL_SERVER_ERROR, "The store failed"),
        (StatusCode::SERVICE_UNAVAILABLE, "The server is shutting down"),
        (StatusCode::INSUFFICIENT_STORAGE, "The disk of the server is full"),
    ]
    .map(|(status, description)| row(rendering, status, description))
    .into()
}

fn row(rendering: Rendering, status: StatusCode, description: &str) -> (String, RefOr<Response>) {
    let schema = Ref::from_schema_name(rendering.schema_name());
    let content = ContentBuilder::new().schema(Some(schema)).build();
    let response = ResponseBuilder::new()
        .description(description)
        .content(rendering.content_type(), content)
        .build();
    (status.as_str().to_owned(), RefOr::T(response))
}
