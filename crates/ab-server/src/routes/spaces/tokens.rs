//! `/v1/spaces/{id}/tokens`: tokens with which agents work in one space.

use ab_api::{SpaceId, SpaceToken, SpaceTokenCreatedResponse, SpaceTokenId, Time};
use ab_spaces::SpacesError;
use ab_store::StoreError;
use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::OnSpaces;
use super::envelope::Enveloped;
use super::problems::{SpaceProblems, of_spaces};
use crate::app::HttpApp;
use crate::gate::random_text;
use crate::problem::{Problem, ProblemKind};

/// The beginning of every secret, by which scanners of repositories recognise it.
const SECRET_PREFIX: &str = "abs_";

/// Create a token for an agent
///
/// The token opens the runs, files and tools of this space and nothing else: it cannot decide approvals, change policies
/// or make tokens. The answer is the only one with the secret. The token works until it is revoked or its space is removed.
#[utoipa::path(
    post,
    path = "/v1/spaces/{id}/tokens",
    tag = "spaces",
    params(("id" = SpaceId, Path)),
    responses((status = CREATED, description = "The token works", body = Enveloped<SpaceTokenCreatedResponse>), SpaceProblems)
)]
pub(crate) async fn create(
    State(app): State<HttpApp>,
    on: OnSpaces<SpaceId>,
) -> Result<Response, Problem> {
    if !app.identity().is_token_required() {
        let detail =
            "this server needs no token (--no-auth): an agent can do everything without one";
        return Err(Problem::new(ProblemKind::Unprocessable, detail).coded("validation_error"));
    }
    on.spaces.get_space(on.id).await.map_err(of_spaces)?;
    let random = random_text()
        .map_err(|_| Problem::new(ProblemKind::Internal, "the system provides no random bytes"))?;
    let secret = format!("{SECRET_PREFIX}{random}");
    let token =
        SpaceToken { id: SpaceTokenId::generate(), space_id: on.id, created_at: Time::now() };
    on.spaces.store().add_space_token(token.clone(), &secret).await.map_err(of_store)?;
    let headers = [(header::CACHE_CONTROL, "no-store")];
    let created = on.answer(SpaceTokenCreatedResponse { token, secret });
    Ok((StatusCode::CREATED, headers, created).into_response())
}

/// List the tokens of a space, newest first, without their secrets
#[utoipa::path(
    get,
    path = "/v1/spaces/{id}/tokens",
    tag = "spaces",
    params(("id" = SpaceId, Path)),
    responses((status = OK, body = Enveloped<Vec<SpaceToken>>), SpaceProblems)
)]
pub(crate) async fn list(
    on: OnSpaces<SpaceId>,
) -> Result<Json<Enveloped<Vec<SpaceToken>>>, Problem> {
    on.spaces.get_space(on.id).await.map_err(of_spaces)?;
    let tokens = on.spaces.store().list_space_tokens(on.id).await.map_err(of_store)?;
    Ok(on.answer(tokens))
}

/// Revoke a token of a space
///
/// The next request with its secret is refused.
#[utoipa::path(
    delete,
    path = "/v1/spaces/{id}/tokens/{token}",
    tag = "spaces",
    params(("id" = SpaceId, Path), ("token" = SpaceTokenId, Path)),
    responses((status = NO_CONTENT, description = "The token no longer works"), SpaceProblems)
)]
pub(crate) async fn revoke(on: OnSpaces<(SpaceId, SpaceTokenId)>) -> Result<StatusCode, Problem> {
    let (space, token) = on.id;
    on.spaces.get_space(space).await.map_err(of_spaces)?;
    on.spaces.store().remove_space_token(space, token).await.map_err(|error| match error {
        StoreError::NotFound => {
            let detail = format!("the space has no token {token}");
            Problem::new(ProblemKind::NotFound, detail).coded("token_not_found")
        }
        error => of_store(error),
    })?;
    Ok(StatusCode::NO_CONTENT)
}

fn of_store(error: StoreError) -> Problem {
    of_spaces(match error {
        StoreError::NotFound => SpacesError::SpaceNotFound,
        error => error.into(),
    })
}
