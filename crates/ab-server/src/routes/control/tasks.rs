//! `POST /api/v1/tasks`: creates a session for a task.

use ab_api::{SessionLinks, SessionStatus, TaskCreatedResponse, TaskRequest};
use ab_control::ControlPlaneError;
use ab_core::Principal;
use ab_store::{StoreError, UploadRefusal};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json, extract::State};

use super::idempotency::request_key;
use super::problems::SessionProblems;
use super::{Locality, of_task, uploads, violated};
use crate::app::HttpApp;
use crate::extract::JsonBytes;
use crate::problem::{Problem, ProblemDocument, ProblemKind};
use crate::routes::Peer;
use crate::routes::audit::CreatedSessions;

/// Create a session for a task, or one for each of its agents
///
/// A repeated request with the same `Idempotency-Key` gets the sessions of the first request.
#[utoipa::path(
    post,
    path = "/api/v1/tasks",
    tag = "sessions",
    request_body = TaskRequest,
    params(("idempotency-key" = Option<String>, Header, description = "Identifies the request, so that a retry has no further effect")),
    responses(
        (status = CREATED, description = "The session exists and waits for its turn", body = TaskCreatedResponse),
        (status = PAYLOAD_TOO_LARGE, description = "The body has more than 2 MiB", body = ProblemDocument, content_type = "application/problem+json"),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "The Content-Type is not JSON", body = ProblemDocument, content_type = "application/problem+json"),
        (status = INSUFFICIENT_STORAGE, description = "The disk of the server is full, or its limit on disk space is reached", body = ProblemDocument, content_type = "application/problem+json"),
        (status = TOO_MANY_REQUESTS, description = "Too many wrong tokens, or more tasks than `limits.tasks-per-minute` allows: see Retry-After", body = ProblemDocument, content_type = "application/problem+json"),
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
    let mut task =
        TaskRequest::parse(&body, &offers).map_err(|violations| violated(&violations))?;
    let key = request_key(&headers, &principal, &[&body])?;
    let store = surface.control.store();
    let repeated = match uploads::resolve(store, principal.id(), &mut task).await? {
        Ok(()) => None,
        // An earlier request with the same key may already have used the uploads.
        Err(violations) => match &key {
            Some(key) => {
                match surface.control.sessions_of_repeated_request(key).await.map_err(of_task)? {
                    Some(sessions) => Some(sessions),
                    None => return Err(violated(&violations)),
                }
            }
            None => return Err(violated(&violations)),
        },
    };
    let session_ids = match repeated {
        Some(sessions) => sessions,
        None => {
            surface.count_task(&principal, task.project_id.as_deref(), key.as_ref()).await?;
            let created = surface.control.create_sessions(task.clone(), key).await;
            created.map_err(|error| match error {
                ControlPlaneError::Store(StoreError::UploadRefused(UploadRefusal::NotUsable(
                    id,
                ))) => violated(&uploads::taken(&task, id)),
                error => of_task(error),
            })?
        }
    };
    let Some(id) = session_ids.first().copied() else {
        return Err(Problem::new(ProblemKind::Internal, "the task created no session"));
    };
    let links = SessionLinks::for_session(id);
    let location = links.this.clone();
    // A repeated request must get the same response as the first one, even if the status of the
    // session has changed.
    let status = SessionStatus::Queued;
    let sessions = Extension(CreatedSessions(session_ids.clone()));
    let created = TaskCreatedResponse { id, session_ids, status, links };
    let location = [(header::LOCATION, location)];
    Ok((StatusCode::CREATED, sessions, location, Json(created)).into_response())
}
