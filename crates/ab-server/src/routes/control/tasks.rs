//! `POST /api/v1/tasks`: a task becomes a session.

use ab_api::{SessionLinks, SessionStatus, TaskCreatedResponse, TaskRequest};
use ab_control::SessionIdempotencyKey;
use ab_core::Principal;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json, extract::State};

use super::problems::SessionProblems;
use super::{Locality, of_task, violated};
use crate::app::HttpApp;
use crate::extract::JsonBytes;
use crate::problem::{Problem, ProblemDocument, ProblemKind};
use crate::routes::Peer;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const MAX_KEY_BYTES: usize = 255;

/// Create a session for a task
///
/// A repeated request with the same `Idempotency-Key` gets the session of the first one.
#[utoipa::path(
    post,
    path = "/api/v1/tasks",
    tag = "sessions",
    request_body = TaskRequest,
    params(("idempotency-key" = Option<String>, Header, description = "Names the request, so that it can be repeated")),
    responses(
        (status = CREATED, description = "The session exists and waits for its turn", body = TaskCreatedResponse),
        (status = PAYLOAD_TOO_LARGE, description = "The body has more than 2 MiB", body = ProblemDocument, content_type = "application/problem+json"),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "The body is not declared as JSON", body = ProblemDocument, content_type = "application/problem+json"),
        (status = UNPROCESSABLE_ENTITY, description = "The task is well formed, but this server cannot do it; or its key was used for another request", body = ProblemDocument, content_type = "application/problem+json"),
        SessionProblems
    )
)]
pub(crate) async fn create(
    State(app): State<HttpApp>,
    Extension(principal): Extension<Principal>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    JsonBytes(body): JsonBytes,
) -> Result<Response, Problem> {
    let surface = app.control()?;
    let offers = surface.offers(Locality::of(peer.0, &headers));
    let task = TaskRequest::parse(&body, &offers).map_err(|violations| violated(&violations))?;
    let key = request_key(&headers, &principal, &body)?;
    let id = surface.control.create_session(task, key).await.map_err(of_task)?;
    let links = SessionLinks::for_session(id);
    let location = links.this.clone();
    // A repeated request gets the first response, even if the status of the session has changed.
    let status = SessionStatus::Queued;
    let created = TaskCreatedResponse { id, session_ids: vec![id], status, links };
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(created)).into_response())
}

fn request_key(
    headers: &HeaderMap,
    principal: &Principal,
    body: &[u8],
) -> Result<Option<SessionIdempotencyKey>, Problem> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let key = value.to_str().ok().filter(|key| (1..=MAX_KEY_BYTES).contains(&key.len()));
    let Some(key) = key else {
        let detail = "invalid Idempotency-Key: must be 1 to 255 visible ASCII characters";
        return Err(Problem::new(ProblemKind::Invalid, detail));
    };
    let scope = format!("{}:{}", principal.kind().as_str(), principal.id());
    Ok(Some(SessionIdempotencyKey { scope, key: key.to_owned(), request: body.to_vec() }))
}
