//! `/api/v1/drafts`: tasks that a caller edits before they start.

use ab_api::{Draft, DraftContent, DraftCreatedResponse, DraftId, Page, PageRequest};
use ab_control::ControlPlaneError;
use ab_core::Principal;
use ab_store::{IdempotencyRecord, StoreError};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};

use super::idempotency::request_key;
use super::problems::SessionProblems;
use super::sessions::store_failed;
use super::violated;
use crate::app::HttpApp;
use crate::extract::{JsonBytes, PathParams, QueryParams, parse_json};
use crate::problem::{Problem, ProblemDocument, ProblemKind};

/// Save a draft of a task
///
/// A draft can contain any of the fields of a task. They are checked when the task is created. A
/// repeated request with the same `Idempotency-Key` gets the draft of the first request.
#[utoipa::path(
    post,
    path = "/api/v1/drafts",
    tag = "sessions",
    params(("idempotency-key" = Option<String>, Header, description = "Identifies the request, so that a retry has no further effect")),
    request_body = DraftContent,
    responses(
        (status = CREATED, description = "The draft is stored", body = DraftCreatedResponse),
        (status = PAYLOAD_TOO_LARGE, description = "The draft has more than 512 KiB", body = ProblemDocument, content_type = "application/problem+json"),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "The Content-Type is not JSON", body = ProblemDocument, content_type = "application/problem+json"),
        (status = UNPROCESSABLE_ENTITY, description = "The key was used for another request", body = ProblemDocument, content_type = "application/problem+json"),
        SessionProblems
    )
)]
pub(crate) async fn create(
    State(app): State<HttpApp>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
    JsonBytes(body): JsonBytes,
) -> Result<Response, Problem> {
    let store = app.control()?.control.store();
    let content: DraftContent = parse_json(&body)?;
    let key = request_key(&headers, &principal, &[b"POST /api/v1/drafts\n", &body])?;
    let key = key.map(|key| IdempotencyRecord {
        scope: key.scope,
        key: key.key,
        request: key.request,
        response: String::new(),
    });
    let draft = store.create_draft(owner(&principal), content, key).await.map_err(store_failed)?;
    let Draft { id, created_at, updated_at, .. } = draft;
    let location = format!("/api/v1/drafts/{id}");
    let created = DraftCreatedResponse { id, created_at, updated_at };
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(created)).into_response())
}

/// List the caller's drafts, newest first
#[utoipa::path(
    get,
    path = "/api/v1/drafts",
    tag = "sessions",
    params(PageRequest),
    responses((status = OK, body = Page<Draft>), SessionProblems)
)]
pub(crate) async fn list(
    State(app): State<HttpApp>,
    Extension(principal): Extension<Principal>,
    QueryParams(page): QueryParams<PageRequest>,
) -> Result<Json<Page<Draft>>, Problem> {
    let store = app.control()?.control.store();
    page.check().map_err(|violations| violated(&violations))?;
    let (drafts, total) =
        store.list_drafts(&owner(&principal), page).await.map_err(store_failed)?;
    Ok(Json(page.build_response_page(drafts, total)))
}

/// Show a draft
#[utoipa::path(
    get,
    path = "/api/v1/drafts/{id}",
    tag = "sessions",
    params(("id" = DraftId, Path)),
    responses((status = OK, body = Draft), SessionProblems)
)]
pub(crate) async fn show(
    State(app): State<HttpApp>,
    Extension(principal): Extension<Principal>,
    PathParams(id): PathParams<DraftId>,
) -> Result<Json<Draft>, Problem> {
    let draft = app.control()?.control.store().get_draft(&owner(&principal), id).await;
    draft.map(Json).map_err(|error| of_draft(id, error))
}

/// Replace the content of a draft
#[utoipa::path(
    put,
    path = "/api/v1/drafts/{id}",
    tag = "sessions",
    params(("id" = DraftId, Path)),
    request_body = DraftContent,
    responses(
        (status = OK, body = Draft),
        (status = PAYLOAD_TOO_LARGE, description = "The draft has more than 512 KiB", body = ProblemDocument, content_type = "application/problem+json"),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "The Content-Type is not JSON", body = ProblemDocument, content_type = "application/problem+json"),
        SessionProblems
    )
)]
pub(crate) async fn update(
    State(app): State<HttpApp>,
    Extension(principal): Extension<Principal>,
    PathParams(id): PathParams<DraftId>,
    JsonBytes(body): JsonBytes,
) -> Result<Json<Draft>, Problem> {
    let store = app.control()?.control.store();
    let content: DraftContent = parse_json(&body)?;
    let draft = store.update_draft(owner(&principal), id, content).await;
    draft.map(Json).map_err(|error| of_draft(id, error))
}

/// Remove a draft
#[utoipa::path(
    delete,
    path = "/api/v1/drafts/{id}",
    tag = "sessions",
    params(("id" = DraftId, Path)),
    responses((status = NO_CONTENT, description = "The draft is removed"), SessionProblems)
)]
pub(crate) async fn remove(
    State(app): State<HttpApp>,
    Extension(principal): Extension<Principal>,
    PathParams(id): PathParams<DraftId>,
) -> Result<StatusCode, Problem> {
    let removed = app.control()?.control.store().remove_draft(owner(&principal), id).await;
    removed.map(|()| StatusCode::NO_CONTENT).map_err(|error| of_draft(id, error))
}

/// The owner name under which the caller's drafts are stored. The server's token and a logged-in
/// browser count as the same person.
fn owner(principal: &Principal) -> String {
    principal.id().to_owned()
}

fn of_draft(id: DraftId, error: StoreError) -> Problem {
    match error {
        StoreError::NotFound => {
            let detail = format!("you have no draft {id}");
            Problem::new(ProblemKind::NotFound, detail).coded("draft_not_found")
        }
        error => super::of_task(ControlPlaneError::from(error)),
    }
}
