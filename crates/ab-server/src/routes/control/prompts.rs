//! `/api/v1/sessions/{id}/prompt` and `/prompts`: the prompt queue of a session.

use ab_api::{
    FieldViolations, Page, PageRequest, PromptEdit, PromptRequest, PromptStatus, SessionId,
    SessionPrompt,
};
use ab_control::{ControlPlaneError, SessionIdempotencyKey};
use ab_core::Principal;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use utoipa::IntoParams;

use super::idempotency::request_key;
use super::problems::SessionProblems;
use super::{found, of_session, violated};
use crate::app::HttpApp;
use crate::extract::{PathParams, QueryParams};
use crate::problem::{Problem, ProblemDocument};

/// Give the agent of a session a further prompt
///
/// The prompt is queued, and the agent gets it after all earlier prompts. With `now`, the agent's
/// current turn is cancelled and the prompt is sent before all others. A prompt is sent at most
/// once, even if the server is killed. A repeated request with the same `Idempotency-Key` gets the
/// prompt of the first request.
#[utoipa::path(
    post,
    path = "/api/v1/sessions/{id}/prompt",
    tag = "sessions",
    params(
        ("id" = SessionId, Path),
        ("idempotency-key" = Option<String>, Header, description = "Identifies the request, so that a retry has no further effect"),
    ),
    request_body = PromptRequest,
    responses(
        (status = ACCEPTED, description = "The prompt is stored", body = SessionPrompt),
        (status = CONFLICT, description = "The result is being delivered, the session is stopping, it is paused and the prompt is for now, or the queue is full", body = ProblemDocument, content_type = "application/problem+json"),
        (status = GONE, description = "The session has ended", body = ProblemDocument, content_type = "application/problem+json"),
        (status = PAYLOAD_TOO_LARGE, description = "The body has more than 2 MiB", body = ProblemDocument, content_type = "application/problem+json"),
        (status = UNPROCESSABLE_ENTITY, description = "The key was used for another request", body = ProblemDocument, content_type = "application/problem+json"),
        SessionProblems
    )
)]
pub(crate) async fn send(
    State(app): State<HttpApp>,
    Extension(principal): Extension<Principal>,
    PathParams(id): PathParams<SessionId>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Problem> {
    let request = PromptRequest::parse(&body).map_err(|violations| violated(&violations))?;
    let path = format!("POST /api/v1/sessions/{id}/prompt\n");
    let key: Option<SessionIdempotencyKey> =
        request_key(&headers, &principal, &[path.as_bytes(), &body])?;
    let prompt = app.control()?.control.queue_prompt(id, request, key).await;
    let prompt = prompt.map_err(|error| of_session(id, error))?;
    let location = format!("/api/v1/sessions/{id}/prompts/{}", prompt.number);
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, location)], Json(prompt)).into_response())
}

/// Filters of the list of prompts
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PromptQuery {
    /// Only prompts with this status: queued, sent, answered, interrupted, unknown or withdrawn.
    status: Option<String>,
}

/// List the prompts of a session: those that were sent, then the queue in its order
#[utoipa::path(
    get,
    path = "/api/v1/sessions/{id}/prompts",
    tag = "sessions",
    params(("id" = SessionId, Path), PromptQuery, PageRequest),
    responses((status = OK, body = Page<SessionPrompt>), SessionProblems)
)]
pub(crate) async fn list(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SessionId>,
    QueryParams(PromptQuery { status }): QueryParams<PromptQuery>,
    QueryParams(page): QueryParams<PageRequest>,
) -> Result<Json<Page<SessionPrompt>>, Problem> {
    let control = &app.control()?.control;
    page.check().map_err(|violations| violated(&violations))?;
    let status = status.as_deref().map(str::parse::<PromptStatus>).transpose();
    let status = status.map_err(|message| {
        let mut violations = FieldViolations::default();
        violations.add_invalid("status", message);
        violated(&violations)
    })?;
    found(control, id).await?;
    let listed = control.store().session_prompts(id, status, page).await;
    let (prompts, total) = listed.map_err(|error| super::of_task(error.into()))?;
    Ok(Json(page.build_response_page(prompts, total)))
}

/// Show a prompt and its receipt
#[utoipa::path(
    get,
    path = "/api/v1/sessions/{id}/prompts/{number}",
    tag = "sessions",
    params(("id" = SessionId, Path), ("number" = u32, Path)),
    responses((status = OK, body = SessionPrompt), SessionProblems)
)]
pub(crate) async fn show(
    State(app): State<HttpApp>,
    PathParams((id, number)): PathParams<(SessionId, u32)>,
) -> Result<Json<SessionPrompt>, Problem> {
    answered(id, app.control()?.control.session_prompt(id, number).await)
}

/// Change the text of a queued prompt
#[utoipa::path(
    put,
    path = "/api/v1/sessions/{id}/prompts/{number}",
    tag = "sessions",
    params(("id" = SessionId, Path), ("number" = u32, Path)),
    request_body = PromptEdit,
    responses(
        (status = OK, description = "The prompt has the new text", body = SessionPrompt),
        (status = CONFLICT, description = "The prompt was sent or withdrawn, or is the task itself", body = ProblemDocument, content_type = "application/problem+json"),
        (status = GONE, description = "The session has ended", body = ProblemDocument, content_type = "application/problem+json"),
        (status = PAYLOAD_TOO_LARGE, description = "The body has more than 2 MiB", body = ProblemDocument, content_type = "application/problem+json"),
        SessionProblems
    )
)]
pub(crate) async fn rewrite(
    State(app): State<HttpApp>,
    PathParams((id, number)): PathParams<(SessionId, u32)>,
    body: Bytes,
) -> Result<Json<SessionPrompt>, Problem> {
    let PromptEdit { prompt } =
        PromptEdit::parse(&body).map_err(|violations| violated(&violations))?;
    answered(id, app.control()?.control.replace_queued_prompt(id, number, prompt).await)
}

/// Withdraw a queued prompt
#[utoipa::path(
    delete,
    path = "/api/v1/sessions/{id}/prompts/{number}",
    tag = "sessions",
    params(("id" = SessionId, Path), ("number" = u32, Path)),
    responses(
        (status = OK, description = "The prompt is withdrawn", body = SessionPrompt),
        (status = CONFLICT, description = "The prompt was sent or withdrawn, or is the task itself", body = ProblemDocument, content_type = "application/problem+json"),
        (status = GONE, description = "The session has ended", body = ProblemDocument, content_type = "application/problem+json"),
        SessionProblems
    )
)]
pub(crate) async fn withdraw(
    State(app): State<HttpApp>,
    PathParams((id, number)): PathParams<(SessionId, u32)>,
) -> Result<Json<SessionPrompt>, Problem> {
    answered(id, app.control()?.control.withdraw_queued_prompt(id, number).await)
}

fn answered(
    id: SessionId,
    prompt: Result<SessionPrompt, ControlPlaneError>,
) -> Result<Json<SessionPrompt>, Problem> {
    prompt.map(Json).map_err(|error| of_session(id, error))
}
