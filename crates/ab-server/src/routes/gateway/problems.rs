//! Converts errors of the gateway to problems, and describes them.

use std::collections::BTreeMap;

use ab_acp::gateway::{AgentExit, AgentGatewayError};
use axum::http::StatusCode;
use serde_json::{Map, Value};
use utoipa::IntoResponses;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, Response, ResponseBuilder};

use crate::problem::{Problem, ProblemKind, Rendering};

/// Converts an error about the agent server `id` to a problem.
pub(crate) fn of_server(id: &str, error: AgentGatewayError) -> Problem {
    let detail = error.to_string();
    let new = |kind| Problem::new(kind, detail.clone());
    match error {
        AgentGatewayError::InvalidServerId { .. }
        | AgentGatewayError::InvalidMessage { .. }
        | AgentGatewayError::MissingAgent => new(ProblemKind::Invalid),
        AgentGatewayError::UnknownAgent { agent } => unsupported(&agent, detail),
        AgentGatewayError::NotInstalled { agent, .. } => new(ProblemKind::NotFound)
            .coded("agent_not_installed")
            .titled("Agent Not Installed")
            .with_member("agent", agent),
        AgentGatewayError::InstallFailed { agent, said, .. } => {
            install_failed(&agent, detail, said)
        }
        AgentGatewayError::AgentMismatch { .. } | AgentGatewayError::DuplicateRequestId { .. } => {
            new(ProblemKind::Conflict)
        }
        AgentGatewayError::TooManyRequests { .. } | AgentGatewayError::TooManyServers { .. } => {
            new(ProblemKind::Unavailable)
        }
        AgentGatewayError::UnknownServer => new(ProblemKind::NotFound)
            .coded("session_not_found")
            .titled("Session Not Found")
            .with_member("sessionId", id),
        AgentGatewayError::NotStarted { agent, .. } => {
            new(ProblemKind::BadGateway).with_member("agent", agent)
        }
        AgentGatewayError::WriteFailed { .. } | AgentGatewayError::Closed => {
            new(ProblemKind::BadGateway)
        }
        AgentGatewayError::AgentExited(end) => new(ProblemKind::BadGateway)
            .coded("agent_process_exited")
            .titled("Agent Process Exited")
            .with_member("details", details(&end)),
        AgentGatewayError::Timeout { .. } => new(ProblemKind::GatewayTimeout),
    }
}

/// Returns the problem for an agent that is unknown.
pub(crate) fn unsupported(agent: &str, detail: String) -> Problem {
    Problem::new(ProblemKind::Invalid, detail)
        .coded("unsupported_agent")
        .titled("Unsupported Agent")
        .with_member("agent", agent)
}

/// Returns the problem for an installation that failed.
pub(crate) fn install_failed(agent: &str, detail: String, said: Option<String>) -> Problem {
    let mut details = Map::new();
    details.insert("message".to_owned(), detail.clone().into());
    details.insert("stderr".to_owned(), said.unwrap_or_default().into());
    Problem::new(ProblemKind::Internal, detail)
        .coded("install_failed")
        .titled("Install Failed")
        .with_member("agent", agent)
        .with_member("details", details)
}

/// Describes how a process ended, with the member names that clients expect.
pub(crate) fn details(end: &AgentExit) -> Map<String, Value> {
    let mut details = Map::new();
    details.insert("message".to_owned(), end.to_string().into());
    details.insert("exitCode".to_owned(), end.exit_code.into());
    if let Some(signal) = end.signal {
        details.insert("signal".to_owned(), signal.into());
    }
    details.insert("stderr".to_owned(), end.stderr.clone().into());
    details
}

/// Describes the errors of every gateway route.
pub(crate) struct GatewayProblems;

impl IntoResponses for GatewayProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        described(&[(
            StatusCode::NOT_FOUND,
            "Nothing has this name, or agents are not enabled on this server",
        )])
    }
}

/// Describes the errors of a message to an agent.
pub(crate) struct MessageProblems;

impl IntoResponses for MessageProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        described(&[
            (
                StatusCode::NOT_FOUND,
                "The agent is not installed, or agents are not enabled on this server",
            ),
            (StatusCode::NOT_ACCEPTABLE, "Accept does not allow JSON"),
            (StatusCode::CONFLICT, "The server runs another agent, or the id is in use"),
            (StatusCode::PAYLOAD_TOO_LARGE, "The message is too large"),
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, "The Content-Type is not JSON"),
            (StatusCode::INTERNAL_SERVER_ERROR, "The agent could not be installed"),
            (StatusCode::BAD_GATEWAY, "The agent could not be started, or has ended"),
            (StatusCode::SERVICE_UNAVAILABLE, "There are too many servers or requests"),
            (StatusCode::GATEWAY_TIMEOUT, "The agent did not answer in time"),
        ])
    }
}

pub(crate) fn described(statuses: &[(StatusCode, &str)]) -> BTreeMap<String, RefOr<Response>> {
    let rendering = Rendering::GatewayDocument;
    let of = |(status, description): &(StatusCode, &str)| {
        let schema = Ref::from_schema_name(rendering.schema_name());
        let content = ContentBuilder::new().schema(Some(schema)).build();
        let response = ResponseBuilder::new()
            .description(*description)
            .content(rendering.content_type(), content)
            .build();
        (status.as_str().to_owned(), RefOr::T(response))
    };
    statuses.iter().map(of).collect()
}
