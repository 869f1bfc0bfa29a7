//! `/v1/spaces`: creates, lists, shows and removes spaces.

use ab_api::{PageRequest, Space, SpaceBackend, SpaceId};
use ab_core::Principal;
use ab_policy::{PolicyDocument, PolicyDocumentRuleEnforcement};
use ab_spaces::SpaceRequest;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::envelope::Enveloped;
use super::problems::{SpaceProblems, invalid, of_spaces};
use super::{OnSpaces, request_key};
use crate::app::HttpApp;
use crate::extract::{JsonBytes, PathParams, QueryParams, check_parameter_names};
use crate::log::RequestId;
use crate::problem::{Problem, ProblemKind};
use crate::routes::Peer;
use crate::routes::control::Locality;

/// A space, and how its policy is enforced
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SpaceBody {
    #[serde(flatten)]
    space: Space,
    /// How each rule of the policy is enforced for commands: `enforced` or `advisory`. For file
    /// operations every rule is enforced. Empty for a memory space, which cannot run commands.
    #[schema(value_type = Vec<Object>)]
    policy_controls: Vec<Value>,
}

impl SpaceBody {
    pub(crate) fn new(space: Space) -> Self {
        let document = serde_json::from_value::<PolicyDocument>(space.policy.clone());
        let controls = match (space.backend, document) {
            (SpaceBackend::Directory, Ok(document)) => document.rule_enforcement(),
            (SpaceBackend::Directory, Err(_)) | (SpaceBackend::Memory, _) => Vec::new(),
        };
        let policy_controls =
            controls.iter().map(|control: &PolicyDocumentRuleEnforcement| json!(control));
        Self { policy_controls: policy_controls.collect(), space }
    }
}

/// Make a space
///
/// A repeated request with the same `Idempotency-Key` gets the space of the first request.
#[utoipa::path(
    post,
    path = "/v1/spaces",
    tag = "spaces",
    params(("idempotency-key" = Option<String>, Header, description = "Identifies the request, so that a retry has no further effect")),
    request_body(content = serde_json::Value, description = "name, description, policy, policyOverrides, backend, copyOf, env, metadata, ttlSeconds"),
    responses((status = CREATED, body = Enveloped<SpaceBody>), SpaceProblems)
)]
pub(crate) async fn create(
    State(app): State<HttpApp>,
    Extension(principal): Extension<Principal>,
    Extension(request_id): Extension<RequestId>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    JsonBytes(body): JsonBytes,
) -> Result<Response, Problem> {
    let surface = app.spaces()?;
    let request = SpaceRequest::parse(&body).map_err(|error| invalid(&error))?;
    if request.copy_from.is_some() && Locality::of(peer.0, &headers) == Locality::Elsewhere {
        let detail = "only callers on the machine of the server may name a directory of it";
        return Err(Problem::new(ProblemKind::Unprocessable, detail).coded("validation_error"));
    }
    let key = request_key(&headers, &principal, "spaces", &body)?;
    let space = surface.spaces.create_space(request, key).await.map_err(of_spaces)?;
    let location = [(header::LOCATION, format!("/v1/spaces/{}", space.id))];
    let body = Enveloped::new(SpaceBody::new(space), &request_id);
    Ok((StatusCode::CREATED, location, Json(body)).into_response())
}

/// List spaces, newest first
#[utoipa::path(
    get,
    path = "/v1/spaces",
    tag = "spaces",
    params(PageRequest),
    responses((status = OK, body = Enveloped<Vec<SpaceBody>>), SpaceProblems)
)]
pub(crate) async fn list(
    State(app): State<HttpApp>,
    Extension(request_id): Extension<RequestId>,
    QueryParams(page): QueryParams<PageRequest>,
    uri: Uri,
) -> Result<Json<Enveloped<Vec<SpaceBody>>>, Problem> {
    check_parameter_names(&uri, &["page", "perPage"])?;
    let surface = app.spaces()?;
    check(page)?;
    let (spaces, total) = surface.spaces.list_spaces(page).await.map_err(of_spaces)?;
    let bodies = spaces.into_iter().map(SpaceBody::new).collect();
    Ok(Json(Enveloped::page(bodies, total, page, &request_id)))
}

/// Show a space
#[utoipa::path(
    get,
    path = "/v1/spaces/{id}",
    tag = "spaces",
    params(("id" = SpaceId, Path)),
    responses((status = OK, body = Enveloped<SpaceBody>), SpaceProblems)
)]
pub(crate) async fn show(on: OnSpaces<SpaceId>) -> Result<Json<Enveloped<SpaceBody>>, Problem> {
    let space = on.spaces.get_space(on.id).await.map_err(of_spaces)?;
    Ok(on.answer(SpaceBody::new(space)))
}

/// Remove a space
///
/// Its runs are cancelled, its pending approvals expire, and its files are removed.
#[utoipa::path(
    delete,
    path = "/v1/spaces/{id}",
    tag = "spaces",
    params(("id" = SpaceId, Path)),
    responses((status = NO_CONTENT, description = "It is removed"), SpaceProblems)
)]
pub(crate) async fn remove(
    State(app): State<HttpApp>,
    PathParams(id): PathParams<SpaceId>,
) -> Result<StatusCode, Problem> {
    app.spaces()?.spaces.destroy_space(id).await.map_err(of_spaces)?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) fn check(page: PageRequest) -> Result<(), Problem> {
    page.check().map_err(|violations| {
        Problem::new(ProblemKind::Invalid, violations.to_string())
            .coded("validation_error")
            .with_errors(violations.messages_by_field())
    })
}
