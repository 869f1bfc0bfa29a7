//! `/v1/acp`: messages to and from agents.

use std::time::UNIX_EPOCH;

use ab_acp::gateway::{AgentServerState, AgentServerStatus, PostMessageOutcome, ReplayBatch};
use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::unfold;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::problems::{GatewayProblems, MessageProblems, of_server};
use crate::app::HttpApp;
use crate::extract::{PathParams, QueryParams};
use crate::problem::{Problem, ProblemKind};
use crate::sse::{self, SseOptions};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The agent servers
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AgentServers {
    servers: Vec<AgentServerListing>,
}

/// One agent server
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AgentServerListing {
    server_id: String,
    agent: String,
    created_at_ms: u64,
    /// `starting`, `running` or `exited`
    status: &'static str,
    /// The exit code of a process that has exited
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    /// How the process ended
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// List the agent servers
#[utoipa::path(
    get,
    path = "/v1/acp",
    tag = "agents",
    responses((status = OK, body = AgentServers), GatewayProblems)
)]
pub(crate) async fn list(State(app): State<HttpApp>) -> Result<Json<AgentServers>, Problem> {
    let listing = |server: AgentServerStatus| {
        let (status, end) = match server.state {
            AgentServerState::Starting => ("starting", None),
            AgentServerState::Running => ("running", None),
            AgentServerState::Exited(end) => ("exited", Some(end)),
        };
        let created = server.created.duration_since(UNIX_EPOCH).unwrap_or_default();
        AgentServerListing {
            server_id: server.id,
            agent: server.agent,
            created_at_ms: u64::try_from(created.as_millis()).unwrap_or(u64::MAX),
            status,
            exit_code: end.as_ref().and_then(|end| end.exit_code),
            message: end.map(|end| end.to_string()),
        }
    };
    let servers = app.gateway()?.gateway.list_servers().into_iter().map(listing).collect();
    Ok(Json(AgentServers { servers }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct MessageQuery {
    /// The agent to start; required for the first message to a server
    agent: Option<String>,
}

/// Send a message to an agent
///
/// One JSON-RPC message. The first one starts the agent. The response to a request is the agent's
/// response.
#[utoipa::path(
    post,
    path = "/v1/acp/{server_id}",
    tag = "agents",
    params(("server_id" = String, Path, description = "Chosen by the client"), MessageQuery),
    request_body(content = serde_json::Value, content_type = "application/json"),
    responses(
        (status = OK, description = "The agent's response", body = serde_json::Value),
        (status = ACCEPTED, description = "A notification or response was forwarded"),
        MessageProblems
    )
)]
pub(crate) async fn post(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<String>,
    QueryParams(MessageQuery { agent }): QueryParams<MessageQuery>,
    request: Request,
) -> Result<Response, Problem> {
    let surface = app.gateway()?;
    if !is_json(request.headers()) {
        let detail = "the body must be JSON, with the header Content-Type: application/json";
        return Err(Problem::new(ProblemKind::UnsupportedMediaType, detail));
    }
    accepts(request.headers(), "application/json")?;
    let body = whole(request.into_body(), surface.max_message).await?;
    let posted = surface.gateway.post_message(&id, agent.as_deref(), &body).await;
    Ok(match posted.map_err(|error| of_server(&id, error))? {
        PostMessageOutcome::Response(line) => {
            ([(header::CONTENT_TYPE, "application/json")], line).into_response()
        }
        PostMessageOutcome::Accepted => StatusCode::ACCEPTED.into_response(),
    })
}

/// Follow the messages of an agent
///
/// Every message after `Last-Event-ID`, or every message that is still in memory. An event `gap`
/// says that messages after the cursor are no longer in memory; `oldest` is the id of the next one.
#[utoipa::path(
    get,
    path = "/v1/acp/{server_id}",
    tag = "agents",
    params(
        ("server_id" = String, Path, description = "Chosen by the client"),
        ("last-event-id" = Option<u64>, Header, description = "The last event that the client received")
    ),
    responses(
        (status = OK, description = "The messages", body = String, content_type = "text/event-stream"),
        (status = NOT_ACCEPTABLE, description = "Accept does not allow text/event-stream"),
        GatewayProblems
    )
)]
pub(crate) async fn follow(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let surface = app.gateway()?;
    accepts(&headers, "text/event-stream")?;
    let last = last_event_id(&headers)?;
    let events =
        surface.gateway.subscribe_to_messages(&id, last).map_err(|error| of_server(&id, error))?;
    let frames = unfold(events, |mut events| async move {
        let batch = events.next().await?;
        Some((framed(&batch), events))
    });
    Ok(sse::frames(frames, app.shutdown(), SseOptions::default()))
}

/// End an agent server
///
/// Ends its process and everything that the process started. Has no effect if there is no such
/// server.
#[utoipa::path(
    delete,
    path = "/v1/acp/{server_id}",
    tag = "agents",
    params(("server_id" = String, Path, description = "Chosen by the client")),
    responses((status = NO_CONTENT, description = "There is no such server any more"), GatewayProblems)
)]
pub(crate) async fn delete(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<String>,
) -> Result<StatusCode, Problem> {
    app.gateway()?.gateway.delete_server(&id).await;
    Ok(StatusCode::NO_CONTENT)
}

/// Reads the whole body, up to a maximum size.
pub(crate) async fn whole(body: Body, most: usize) -> Result<Bytes, Problem> {
    to_bytes(body, most).await.map_err(|error| {
        let error = error.into_inner();
        if error.is::<http_body_util::LengthLimitError>() {
            let detail = format!("the body has more than {most} bytes");
            return Problem::new(ProblemKind::TooLarge, detail);
        }
        Problem::new(ProblemKind::Invalid, format!("cannot read the body: {error}"))
    })
}

fn framed(batch: &ReplayBatch) -> Bytes {
    const AROUND: usize = 48;
    let size = batch.events.iter().map(|event| event.data.len() + AROUND).sum();
    let mut frames = Vec::with_capacity(size);
    if let Some(oldest) = batch.first_id_after_gap {
        frames
            .extend_from_slice(format!("event: gap\ndata: {{\"oldest\":{oldest}}}\n\n").as_bytes());
    }
    for event in &batch.events {
        frames.extend_from_slice(format!("event: message\nid: {}\ndata: ", event.id).as_bytes());
        frames.extend_from_slice(&event.data);
        frames.extend_from_slice(b"\n\n");
    }
    frames.into()
}

/// Parses `Last-Event-ID`. If it is missing or blank, all messages in memory are sent.
fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(LAST_EVENT_ID) else { return Ok(None) };
    let text = value.to_str().unwrap_or("?").trim();
    if text.is_empty() {
        return Ok(None);
    }
    let detail = "invalid Last-Event-ID: must be the id of an event of this stream";
    text.parse().map(Some).map_err(|_| Problem::new(ProblemKind::Invalid, detail))
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = value.and_then(|value| value.split(';').next()).unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}

/// Checks whether the client accepts this content type. Without the header every type is accepted.
fn accepts(headers: &HeaderMap, kind: &str) -> Result<(), Problem> {
    let mut values = headers.get_all(header::ACCEPT).iter().peekable();
    let family = kind.split('/').next().unwrap_or_default();
    let admits = |range: &str| {
        let range = range.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        range == kind || range == "*/*" || range == format!("{family}/*")
    };
    if values.peek().is_none()
        || values.any(|value| value.to_str().is_ok_and(|value| value.split(',').any(admits)))
    {
        return Ok(());
    }
    let detail = format!("the response is {kind}, which the Accept header does not allow");
    Err(Problem::new(ProblemKind::NotAcceptable, detail))
}

#[cfg(test)]
mod tests {
    use ab_acp::gateway::ReplayEvent;

    use super::*;

    #[test]
    fn events_are_framed_as_clients_expect() {
        let event = |id, data: &'static str| ReplayEvent { id, data: data.into() };
        let batch = ReplayBatch {
            first_id_after_gap: Some(7),
            events: vec![event(7, "{}"), event(8, "{\"a\":1}")],
        };
        let expect = "event: gap\ndata: {\"oldest\":7}\n\n\
                      event: message\nid: 7\ndata: {}\n\n\
                      event: message\nid: 8\ndata: {\"a\":1}\n\n";
        assert_eq!(framed(&batch), expect);
    }

    #[test]
    fn accept_is_judged_by_media_range() {
        let judged = |values: &[&'static str], kind| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::ACCEPT, value.parse().unwrap());
            }
            accepts(&headers, kind).is_ok()
        };
        let (json, events) = ("application/json", "text/event-stream");
        assert!(judged(&[], json));
        assert!(judged(&["application/json, text/event-stream"], json));
        assert!(judged(&["text/html", "application/*;q=0.5"], json));
        assert!(judged(&["*/*"], events));
        assert!(!judged(&["text/html"], json));
        assert!(!judged(&["application/json"], events));
    }
}
