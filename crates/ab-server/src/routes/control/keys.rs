//! `/api/v1/keys`: the API keys of the server.

use ab_api::{
    ApiKey, ApiKeyCreatedResponse, ApiKeyId, ApiKeyRequest, Page, PageRequest,
    RESERVED_API_KEY_NAME, Time,
};
use ab_core::{Principal, PrincipalKind};
use ab_store::StoreError;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};

use super::problems::SessionProblems;
use super::sessions::store_failed;
use super::violated;
use crate::app::HttpApp;
use crate::extract::{JsonBytes, PathParams, QueryParams};
use crate::gate::random_text;
use crate::problem::{Problem, ProblemDocument, ProblemKind};

/// The beginning of every secret. Scanners of repositories use it to recognise leaked secrets.
const SECRET_PREFIX: &str = "abk_";

/// Create an API key
///
/// Only this response contains the secret. Names of keys that are not revoked are unique, so a
/// repeated request does not create a second key. An API key cannot be used to create or revoke
/// keys. The server's token and logged-in browsers can do this.
#[utoipa::path(
    post,
    path = "/api/v1/keys",
    tag = "keys",
    request_body = ApiKeyRequest,
    responses(
        (status = CREATED, description = "The key works", body = ApiKeyCreatedResponse),
        (status = CONFLICT, description = "A key that is not revoked has this name", body = ProblemDocument, content_type = "application/problem+json"),
        (status = PAYLOAD_TOO_LARGE, description = "The body has more than 2 MiB", body = ProblemDocument, content_type = "application/problem+json"),
        (status = UNSUPPORTED_MEDIA_TYPE, description = "The Content-Type is not JSON", body = ProblemDocument, content_type = "application/problem+json"),
        SessionProblems
    )
)]
pub(crate) async fn create(
    State(app): State<HttpApp>,
    Extension(principal): Extension<Principal>,
    JsonBytes(body): JsonBytes,
) -> Result<Response, Problem> {
    let store = app.control()?.control.store();
    may_change_keys(&principal)?;
    let ApiKeyRequest { name } =
        ApiKeyRequest::parse(&body).map_err(|violations| violated(&violations))?;
    let random = random_text()
        .map_err(|_| Problem::new(ProblemKind::Internal, "the system provides no random bytes"))?;
    let secret = format!("{SECRET_PREFIX}{random}");
    let id = ApiKeyId::generate();
    let api_key = ApiKey { id, name, created_at: Time::now(), revoked_at: None };
    store.create_api_key(api_key.clone(), &secret).await.map_err(|error| match error {
        StoreError::AlreadyExists => {
            let detail =
                format!("there is already a key with the name {:?}: revoke it first, or choose another name", api_key.name);
            Problem::new(ProblemKind::Conflict, detail).coded("key_name_taken")
        }
        error => store_failed(error),
    })?;
    let headers = [(header::CACHE_CONTROL, "no-store")];
    let created = ApiKeyCreatedResponse { api_key, secret };
    Ok((StatusCode::CREATED, headers, Json(created)).into_response())
}

/// List the API keys, newest first, without their secrets
#[utoipa::path(
    get,
    path = "/api/v1/keys",
    tag = "keys",
    params(PageRequest),
    responses((status = OK, body = Page<ApiKey>), SessionProblems)
)]
pub(crate) async fn list(
    State(app): State<HttpApp>,
    QueryParams(page): QueryParams<PageRequest>,
) -> Result<Json<Page<ApiKey>>, Problem> {
    let store = app.control()?.control.store();
    page.check().map_err(|violations| violated(&violations))?;
    let (keys, total) = store.list_api_keys(page).await.map_err(store_failed)?;
    Ok(Json(page.build_response_page(keys, total)))
}

/// Revoke an API key
///
/// Requests with its secret are refused from now on.
#[utoipa::path(
    delete,
    path = "/api/v1/keys/{id}",
    tag = "keys",
    params(("id" = ApiKeyId, Path)),
    responses((status = OK, description = "The key no longer works", body = ApiKey), SessionProblems)
)]
pub(crate) async fn revoke(
    State(app): State<HttpApp>,
    Extension(principal): Extension<Principal>,
    PathParams(id): PathParams<ApiKeyId>,
) -> Result<Json<ApiKey>, Problem> {
    let store = app.control()?.control.store();
    may_change_keys(&principal)?;
    let revoked = store.revoke_api_key(id).await.map_err(|error| match error {
        StoreError::NotFound => {
            let detail = format!("there is no key {id}");
            Problem::new(ProblemKind::NotFound, detail).coded("key_not_found")
        }
        error => store_failed(error),
    })?;
    Ok(Json(revoked))
}

/// Refuses callers that use an API key. Otherwise a key could create another key, and the other key
/// would stay valid after the first key was revoked.
fn may_change_keys(principal: &Principal) -> Result<(), Problem> {
    if principal.kind() == PrincipalKind::ApiKey && principal.id() != RESERVED_API_KEY_NAME {
        let detail = "an API key cannot create or revoke keys: use the token of the server";
        return Err(Problem::new(ProblemKind::Forbidden, detail));
    }
    Ok(())
}
