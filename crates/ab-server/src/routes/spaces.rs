//! Spaces over HTTP: spaces, their runs, files, MCP endpoints, and policies.

mod envelope;
mod files;
mod mcp;
mod policies;
mod problems;
mod runs;
mod space;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ab_api::SpaceId;
use ab_core::{Backend, Principal};
use ab_mcp::{McpHttpEndpoint, McpHttpSettings};
use ab_spaces::Spaces;
use ab_store::IdempotencyRecord;
use axum::http::{HeaderMap, HeaderName};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::Access;
use crate::app::HttpApp;
use crate::problem::{Problem, ProblemKind};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const MAX_KEY_BYTES: usize = 255;

/// Serves spaces at `/v1/spaces`, their runs at `/v1/runs`, and policies at `/v1/policies`.
pub struct SpacesRoutes {
    pub(crate) spaces: Spaces,
    /// One endpoint for each space that was asked.
    endpoints: Mutex<HashMap<SpaceId, McpHttpEndpoint>>,
}

impl SpacesRoutes {
    pub fn new(spaces: Spaces) -> SpacesRoutes {
        SpacesRoutes { spaces, endpoints: Mutex::default() }
    }

    fn endpoint(&self, space: SpaceId, backend: &Backend) -> McpHttpEndpoint {
        let mut endpoints = self.lock();
        let made = || McpHttpEndpoint::new(backend, &McpHttpSettings::default());
        endpoints.entry(space).or_insert_with(made).clone()
    }

    fn close_endpoint(&self, space: SpaceId) {
        let closed = self.lock().remove(&space);
        if let Some(endpoint) = closed {
            endpoint.close();
        }
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
        .routes(Access::Admin.to(routes!(space::show, space::remove)))
        .routes(Access::Admin.to(routes!(runs::create, runs::list)))
        .routes(Access::Admin.to(routes!(runs::show)))
        .routes(Access::Admin.to(routes!(runs::resume)))
        .routes(Access::Admin.to(routes!(runs::cancel)))
        .routes(Access::Admin.to(routes!(runs::stream)))
        .routes(Access::Admin.to(routes!(files::list_root)))
        .routes(Access::Admin.to(routes!(files::list_root_directory)))
        .routes(Access::Admin.to(routes!(files::read, files::write, files::remove)))
        .routes(Access::Admin.to(routes!(mcp::call, mcp::listen, mcp::end)))
        .routes(Access::Admin.to(routes!(policies::presets)))
        .routes(Access::Admin.to(routes!(policies::validate)))
}

/// The key of a request that may be repeated. The answer is filled in later.
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
    Ok(Some(IdempotencyRecord { scope, key, request, answer }))
}
