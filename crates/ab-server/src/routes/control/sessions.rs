//! `/api/v1/sessions`: lists, details, logs, the diff, and commands for a session.

use ab_api::{
    ContinueRequest, Event, FieldViolations, Fleet, Page, PageRequest, Session, SessionId,
    SessionInfo, SessionLinks, SessionStatus, SessionUrls, TaskCreatedResponse,
};
use ab_control::ControlPlaneError;
use ab_core::Principal;
use ab_store::{SessionFilter, StoreError};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use utoipa::IntoParams;

use super::idempotency::request_key;
use super::problems::SessionProblems;
use super::{Items, found, of_session, violated};
use crate::app::HttpApp;
use crate::extract::{PathParams, QueryParams};
use crate::problem::{Problem, ProblemDocument};

/// Maximum number of log lines in one response.
const MAX_TAIL: usize = 1000;

/// Filters of the list of sessions
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(crate) struct SessionQuery {
    /// Only sessions with this status. Several are separated by commas.
    status: Option<String>,
    tenant_id: Option<String>,
    project_id: Option<String>,
    /// The type of the agent.
    agent: Option<String>,
    /// The URL of the repository.
    repo: Option<String>,
    /// A label as `name=value`.
    label: Option<String>,
    /// The id of the first session of a task that made several sessions.
    task_id: Option<String>,
}

impl SessionQuery {
    fn filter(self) -> Result<SessionFilter, FieldViolations> {
        let mut found = FieldViolations::default();
        let mut statuses = Vec::new();
        for name in self.status.as_deref().unwrap_or_default().split(',') {
            match name.trim().parse::<SessionStatus>() {
                _ if name.trim().is_empty() => {}
                Ok(status) => statuses.push(status),
                Err(message) => found.add_invalid("status", message),
            }
        }
        let label = self.label.as_deref().map(|label| match label.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => {
                found.add_invalid("label", "must be NAME=VALUE");
                Default::default()
            }
        });
        let task = self.task_id.as_deref().map(str::parse::<SessionId>).transpose();
        let task = task.unwrap_or_else(|error| {
            found.add_invalid("taskId", error.to_string());
            None
        });
        let (tenant, project) = (self.tenant_id, self.project_id);
        let (agent, repo) = (self.agent, self.repo);
        found.into_result(SessionFilter {
            statuses,
            tenant,
            project,
            agent,
            repo,
            label,
            task,
            group: None,
        })
    }
}

/// List sessions, newest first
#[utoipa::path(
    get,
    path = "/api/v1/sessions",
    tag = "sessions",
    params(SessionQuery, PageRequest),
    responses((status = OK, body = Page<Session>), SessionProblems)
)]
pub(crate) async fn list(
    State(app): State<HttpApp>,
    QueryParams(query): QueryParams<SessionQuery>,
    QueryParams(page): QueryParams<PageRequest>,
) -> Result<Json<Page<Session>>, Problem> {
    let store = app.control()?.control.store();
    page.check().map_err(|violations| violated(&violations))?;
    let filter = query.filter().map_err(|violations| violated(&violations))?;
    let (sessions, total) = store.list_sessions(&filter, page).await.map_err(store_failed)?;
    Ok(Json(page.build_response_page(sessions, total)))
}

/// Show a session
#[utoipa::path(
    get,
    path = "/api/v1/sessions/{id}",
    tag = "sessions",
    params(("id" = SessionId, Path)),
    responses((status = OK, body = Session), SessionProblems)
)]
pub(crate) async fn show(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SessionId>,
) -> Result<Json<Session>, Problem> {
    found(&app.control()?.control, id).await.map(Json)
}

/// End a session at once and remove its workspace
///
/// If the session has already ended, only its workspace is removed.
#[utoipa::path(
    delete,
    path = "/api/v1/sessions/{id}",
    tag = "sessions",
    params(("id" = SessionId, Path)),
    responses((status = ACCEPTED, description = "The session ends", body = Session), SessionProblems)
)]
pub(crate) async fn cancel(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SessionId>,
) -> Result<(StatusCode, Json<Session>), Problem> {
    let session = app.control()?.control.cancel_session(id).await;
    session.map(accepted).map_err(|error| of_session(id, error))
}

/// Ask the agent of a session to finish
#[utoipa::path(
    post,
    path = "/api/v1/sessions/{id}/stop",
    tag = "sessions",
    params(("id" = SessionId, Path)),
    responses((status = ACCEPTED, description = "The session ends", body = Session), SessionProblems)
)]
pub(crate) async fn stop(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SessionId>,
) -> Result<(StatusCode, Json<Session>), Problem> {
    let session = app.control()?.control.stop_session(id).await;
    session.map(accepted).map_err(|error| of_session(id, error))
}

/// Continue a session that was stopped or failed
///
/// A new session works in the workspace of the earlier one, with the same agent and repository. A
/// repeated request with the same `Idempotency-Key` gets the session that the first request
/// created.
#[utoipa::path(
    post,
    path = "/api/v1/sessions/{id}/continue",
    tag = "sessions",
    params(
        ("id" = SessionId, Path),
        ("idempotency-key" = Option<String>, Header, description = "Identifies the request, so that a retry has no further effect"),
    ),
    request_body = ContinueRequest,
    responses(
        (status = CREATED, description = "The new session exists and waits for its turn", body = TaskCreatedResponse),
        (status = CONFLICT, description = "The session has not ended", body = ProblemDocument, content_type = "application/problem+json"),
        (status = TOO_MANY_REQUESTS, description = "Too many wrong tokens, or more tasks than `limits.tasks-per-minute` allows: see Retry-After", body = ProblemDocument, content_type = "application/problem+json"),
        (status = GONE, description = "It has no workspace, or another session continues it", body = ProblemDocument, content_type = "application/problem+json"),
        (status = UNPROCESSABLE_ENTITY, description = "The key was used for another request", body = ProblemDocument, content_type = "application/problem+json"),
        (status = PAYLOAD_TOO_LARGE, description = "The body has more than 2 MiB", body = ProblemDocument, content_type = "application/problem+json"),
        SessionProblems
    )
)]
pub(crate) async fn resume_work(
    State(app): State<HttpApp>,
    Extension(principal): Extension<Principal>,
    PathParams(id): PathParams<SessionId>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let ContinueRequest { prompt } =
        ContinueRequest::parse(&body).map_err(|violations| violated(&violations))?;
    let path = format!("POST /api/v1/sessions/{id}/continue\n");
    let key = request_key(&headers, &principal, &[path.as_bytes(), &body])?;
    let surface = app.control()?;
    let project = found(&surface.control, id).await?.project_id;
    surface.count_task(&principal, project.as_deref(), key.as_ref()).await?;
    let next = surface.control.continue_session(id, prompt, key).await;
    let id = next.map_err(|error| of_session(id, error))?;
    let links = SessionLinks::for_session(id);
    let location = links.this.clone();
    let created =
        TaskCreatedResponse { id, session_ids: vec![id], status: SessionStatus::Queued, links };
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(created)).into_response())
}

/// Deliver the result of a session that waits for a prompt, and complete it
#[utoipa::path(
    post,
    path = "/api/v1/sessions/{id}/finish",
    tag = "sessions",
    params(("id" = SessionId, Path)),
    responses(
        (status = ACCEPTED, description = "The result is being delivered", body = Session),
        (status = CONFLICT, description = "The session does not wait for a prompt", body = ProblemDocument, content_type = "application/problem+json"),
        (status = GONE, description = "The session has ended", body = ProblemDocument, content_type = "application/problem+json"),
        SessionProblems
    )
)]
pub(crate) async fn finish(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SessionId>,
) -> Result<(StatusCode, Json<Session>), Problem> {
    let session = app.control()?.control.finish_session(id).await;
    session.map(accepted).map_err(|error| of_session(id, error))
}

/// Freeze the processes of a running session
///
/// The session is `pausing` until all of its processes are frozen. If they cannot be frozen, the
/// session keeps running and its log says why.
#[utoipa::path(
    post,
    path = "/api/v1/sessions/{id}/pause",
    tag = "sessions",
    params(("id" = SessionId, Path)),
    responses(
        (status = ACCEPTED, description = "The session pauses", body = Session),
        (status = CONFLICT, description = "The session does not run", body = ProblemDocument, content_type = "application/problem+json"),
        (status = GONE, description = "The session has ended", body = ProblemDocument, content_type = "application/problem+json"),
        SessionProblems
    )
)]
pub(crate) async fn pause(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SessionId>,
) -> Result<(StatusCode, Json<Session>), Problem> {
    let session = app.control()?.control.pause_session(id).await;
    session.map(accepted).map_err(|error| of_session(id, error))
}

/// Resume a paused session
#[utoipa::path(
    post,
    path = "/api/v1/sessions/{id}/resume",
    tag = "sessions",
    params(("id" = SessionId, Path)),
    responses(
        (status = ACCEPTED, description = "The session goes on", body = Session),
        (status = CONFLICT, description = "The session is not paused", body = ProblemDocument, content_type = "application/problem+json"),
        (status = GONE, description = "The session has ended", body = ProblemDocument, content_type = "application/problem+json"),
        SessionProblems
    )
)]
pub(crate) async fn resume(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SessionId>,
) -> Result<(StatusCode, Json<Session>), Problem> {
    let session = app.control()?.control.resume_session(id).await;
    session.map(accepted).map_err(|error| of_session(id, error))
}

fn accepted(session: Session) -> (StatusCode, Json<Session>) {
    (StatusCode::ACCEPTED, Json(session))
}

/// Show the machines of a session
#[utoipa::path(
    get,
    path = "/api/v1/sessions/{id}/info",
    tag = "sessions",
    params(("id" = SessionId, Path)),
    responses((status = OK, body = SessionInfo), SessionProblems)
)]
pub(crate) async fn info(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SessionId>,
) -> Result<Json<SessionInfo>, Problem> {
    let session = found(&app.control()?.control, id).await?;
    let fleet = Fleet { leader: session.workspace.host, followers: Vec::new() };
    let endpoints = SessionUrls { events: session.links.events };
    Ok(Json(SessionInfo { id, status: session.status, fleet, endpoints }))
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct LogQuery {
    /// The number of lines, counted from the end: 1 to 1,000. Default: 1,000.
    tail: Option<usize>,
}

/// Show the last log lines of a session
#[utoipa::path(
    get,
    path = "/api/v1/sessions/{id}/logs",
    tag = "sessions",
    params(("id" = SessionId, Path), LogQuery),
    responses((status = OK, description = "Events of the type log, oldest first", body = Items<Event>), SessionProblems)
)]
pub(crate) async fn logs(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SessionId>,
    QueryParams(LogQuery { tail }): QueryParams<LogQuery>,
) -> Result<Json<Items<Event>>, Problem> {
    let control = &app.control()?.control;
    let tail = tail.unwrap_or(MAX_TAIL);
    if !(1..=MAX_TAIL).contains(&tail) {
        let mut violations = FieldViolations::default();
        violations.add_invalid("tail", "must be 1 to 1000");
        return Err(violated(&violations));
    }
    found(control, id).await?;
    let records = control.store().last_event_records(id, Some("log"), tail).await;
    let records = records.map_err(store_failed)?;
    let items = records.iter().map(|record| record.parse_event()).collect::<Result<_, _>>();
    Ok(Json(Items { items: items.map_err(store_failed)? }))
}

/// Converts an error of the store that does not concern a single session.
pub(super) fn store_failed(error: StoreError) -> Problem {
    super::of_task(ControlPlaneError::from(error))
}
