//! Spaces over HTTP: spaces, their tokens, runs, files, MCP endpoints, and policies.

mod envelope;
mod files;
mod mcp;
mod policies;
mod problems;
mod runs;
mod space;
mod tokens;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ab_api::SpaceId;
use ab_core::{Backend, Principal};
use ab_mcp::{McpHttpEndpoint, McpHttpSettings};
use ab_spaces::Spaces;
use ab_store::IdempotencyRecord;
use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};
use serde::de::DeserializeOwned;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::envelope::Enveloped;
use crate::access::Access;
use crate::app::HttpApp;
use crate::extract::PathParams;
use crate::log::RequestId;
use crate::problem::{Problem, ProblemKind};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const MAX_KEY_BYTES: usize = 255;

/// Serves spaces at `/v1/spaces`, their runs at `/v1/runs`, and policies at `/v1/policies`.
pub struct SpacesRoutes {
    pub(crate) spaces: Spaces,
    /// The MCP endpoints of spaces. Each is created with the first request to it.
    endpoints: Mutex<HashMap<SpaceId, McpHttpEndpoint>>,
}

impl SpacesRoutes {
    pub fn new(spaces: Spaces) -> SpacesRoutes {
        SpacesRoutes { spaces, endpoints: Mutex::default() }
    }

    /// The MCP endpoint of a space. It closes when the space closes.
    fn endpoint(&self, space: SpaceId, backend: &Backend) -> McpHttpEndpoint {
        let mut endpoints = self.lock();
        if let Some(endpoint) = endpoints.get(&space) {
            return endpoint.clone();
        }
        endpoints.retain(|_, endpoint| !endpoint.is_closed());
        let closed = self.spaces.space_closed_token(space);
        let settings = McpHttpSettings { close_token: closed, ..McpHttpSettings::default() };
        let endpoint = McpHttpEndpoint::new(backend, &settings);
        endpoints.insert(space, endpoint.clone());
        endpoint
    }

    /// Ends the streams of all endpoints.
    pub(crate) fn close(&self) {
        for (_, endpoint) in self.lock().drain() {
            endpoint.close();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SpaceId, McpHttpEndpoint>> {
        self.endpoints.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SpacesRoutes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpacesRoutes").finish_non_exhaustive()
    }
}

pub(crate) fn routes() -> OpenApiRouter<HttpApp> {
    OpenApiRouter::default()
        .routes(Access::Admin.to(routes!(space::create, space::list)))
        .routes(Access::SpaceAgent.to(routes!(space::show)))
        .routes(Access::Admin.to(routes!(space::remove)))
        .routes(Access::Admin.to(routes!(tokens::create, tokens::list)))
        .routes(Access::Admin.to(routes!(tokens::revoke)))
        .routes(Access::SpaceAgent.to(routes!(runs::create, runs::list)))
        .routes(Access::SpaceAgent.to(routes!(runs::show)))
        .routes(Access::Admin.to(routes!(runs::resume)))
        .routes(Access::SpaceAgent.to(routes!(runs::cancel)))
        .routes(Access::SpaceAgent.to(routes!(runs::stream)))
        .routes(Access::SpaceAgent.to(routes!(files::list_root)))
        .routes(Access::SpaceAgent.to(routes!(files::list_root_directory)))
        .routes(Access::SpaceAgent.to(routes!(files::read, files::write, files::remove)))
        .routes(Access::SpaceAgent.to(routes!(mcp::call, mcp::listen, mcp::end)))
        .routes(Access::Admin.to(routes!(policies::presets)))
        .routes(Access::Admin.to(routes!(policies::validate)))
}

/// What most routes of spaces need: the spaces, the id in the path, and the id of the request.
pub(crate) struct OnSpaces<I> {
    pub(crate) spaces: Spaces,
    pub(crate) id: I,
    pub(crate) request_id: RequestId,
}

impl<I> OnSpaces<I> {
    /// Wraps data in the envelope of responses.
    pub(crate) fn answer<T>(&self, data: T) -> Json<Enveloped<T>> {
        Json(Enveloped::new(data, &self.request_id))
    }
}

impl<I: DeserializeOwned + Send> FromRequestParts<HttpApp> for OnSpaces<I> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &HttpApp) -> Result<Self, Problem> {
        let spaces = app.spaces()?.spaces.clone();
        let PathParams(id) = PathParams::from_request_parts(parts, app).await?;
        Ok(Self { spaces, id, request_id: RequestId::of(&parts.extensions) })
    }
}

/// The idempotency key of a request. Its answer is filled in later.
fn request_key(
    headers: &HeaderMap,
    principal: &Principal,
    route: &str,
    body: &[u8],
) -> Result<Option<IdempotencyRecord>, Problem> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let key = value.to_str().ok().filter(|key| (1..=MAX_KEY_BYTES).contains(&key.len()));
    let Some(key) = key else {
        let detail = "invalid Idempotency-Key: must be 1 to 255 visible ASCII characters";
        return Err(Problem::new(ProblemKind::Invalid, detail).coded("validation_error"));
    };
    let scope = format!("{}:{}:{route}", principal.kind().as_str(), principal.id());
    let (key, request, answer) = (key.to_owned(), body.to_vec(), String::new());
    Ok(Some(IdempotencyRecord { scope, key, request, response: answer }))
}
