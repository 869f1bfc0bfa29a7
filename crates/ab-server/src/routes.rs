//! Collects every route of the port with its description and access, behind the gate.
//!
//! A surface is a group of routes. It consists of a module with a function `routes`, its `mod`
//! line, and one line in [`SURFACES`]. A port serves the surfaces of its app. Routes are added with
//! `routes!`, which takes path and description from the handler. A test fails if a route is added
//! in another way.

mod audit;
mod control;
mod daemon;
mod description;
mod gateway;
mod health;
mod home;
mod login;
mod mcp;
mod metrics;
mod spaces;
mod ui;

pub use control::{ControlPlaneRoutes, TaskChoices, TaskDefaults, settings_schema_path};
pub use daemon::DaemonRoutes;
pub use gateway::{AgentGatewayRoutes, ServedDirectory};
pub use spaces::SpacesRoutes;

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use ab_api::{RunId, SpaceId};
use ab_core::{Principal, PrincipalKind};
use ab_store::AccessTokenOwner;
use axum::Router;
use axum::extract::{FromRequestParts, MatchedPath, RawPathParams, Request, State};
use axum::http::{HeaderName, Method, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_http::cors::{AllowOrigin, CorsLayer};
use utoipa::openapi::OpenApi as Description;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;

use crate::access::{Access, AccessTable};
use crate::app::HttpApp;
use crate::gate::{Caller, Page, host, shown};
use crate::problem::{ErrorEnvelope, Problem, ProblemDocument, ProblemKind, Refusal, rendered};
use crate::{log, unread};

/// How long a browser may cache the response to a preflight request.
const PREFLIGHT_AGE: Duration = Duration::from_secs(600);

#[derive(OpenApi)]
#[openapi(
    info(
        title = "agent-backend",
        description = "A place for AI agents to work, and control over that work for people"
    ),
    components(schemas(Refusal, ProblemDocument, ErrorEnvelope)),
    modifiers(&Schemes),
    tags(
        (name = "port", description = "Health and description of the server"),
        (name = "page", description = "The web page"),
        (name = "sessions", description = "Tasks, sessions and their events"),
        (name = "uploads", description = "Files and archives for tasks"),
        (name = "catalogues", description = "Projects, repositories and workspaces of sessions"),
        (name = "operation", description = "Cleanup and metrics of the server"),
        (name = "keys", description = "API keys of programs that use the server"),
        (name = "spaces", description = "Spaces, runs of operations in them, and policies"),
        (name = "approvals", description = "Questions of agents to people"),
        (name = "agents", description = "Coding agents by the Agent Client Protocol"),
        (name = "files", description = "The files of the served root"),
        (name = "config", description = "MCP servers and skills of a directory"),
        (name = "mcp", description = "The workspace as tools, by the Model Context Protocol"),
        (name = "ssh", description = "The workspace by SSH")
    )
)]
struct Api;

/// Adds the ways to pass a token to the OpenAPI description.
struct Schemes;

impl Modify for Schemes {
    fn modify(&self, description: &mut Description) {
        let components = description.components.get_or_insert_default();
        let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        components.add_security_scheme("bearer", bearer);
        let value = ApiKeyValue::with_description("Authorization", "`ApiKey TOKEN`");
        components.add_security_scheme("apiKey", SecurityScheme::ApiKey(ApiKey::Header(value)));
        let value = ApiKeyValue::with_description("agent-backend", "Set by a one-time link");
        components.add_security_scheme("cookie", SecurityScheme::ApiKey(ApiKey::Cookie(value)));
        let agent = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        components.add_security_scheme("sessionAgent", agent);
        let agent = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        components.add_security_scheme("spaceAgent", agent);
    }
}

/// A group of routes, and a function that tells which apps serve it.
struct Surface {
    is_served: fn(&HttpApp) -> bool,
    routes: fn() -> OpenApiRouter<HttpApp>,
}

const SURFACES: &[Surface] = &[
    Surface { is_served: |_| true, routes: description::routes },
    Surface { is_served: |_| true, routes: health::routes },
    Surface { is_served: |_| true, routes: home::routes },
    Surface { is_served: |_| true, routes: metrics::routes },
    Surface { is_served: |app| app.control().is_ok(), routes: control::routes },
    Surface { is_served: |app| app.control().is_ok(), routes: login::routes },
    Surface { is_served: |app| app.control().is_ok(), routes: ui::routes },
    Surface { is_served: |app| app.daemon().is_ok(), routes: daemon::routes },
    Surface { is_served: |app| app.gateway().is_ok(), routes: gateway::routes },
    Surface { is_served: |app| app.spaces().is_ok(), routes: spaces::routes },
];

/// The OpenAPI description of all surfaces.
pub fn openapi_description() -> Description {
    described(merged(|_| true))
}

/// The OpenAPI description of a port. It is built for each request and not kept, because it takes
/// megabytes of memory.
fn description_of(app: &HttpApp) -> Description {
    described(merged(|surface| (surface.is_served)(app)))
}

fn described(router: OpenApiRouter<HttpApp>) -> Description {
    let mut description = router.split_for_parts().1;
    // In the router, a parameter that spans several segments is written as `{*name}`. OpenAPI
    // supports only `{name}`.
    let paths = std::mem::take(&mut description.paths.paths);
    let named = |(path, item): (String, _)| (path.replace("{*", "{"), item);
    description.paths.paths = paths.into_iter().map(named).collect();
    description
}

/// The routes of the surfaces that `is_included` selects. Does not build other surfaces, because
/// building the descriptions takes most of the time of a port's start.
fn merged(is_included: impl Fn(&Surface) -> bool) -> OpenApiRouter<HttpApp> {
    let mut router = OpenApiRouter::with_openapi(Api::openapi());
    for surface in SURFACES.iter().filter(|surface| is_included(surface)) {
        router = router.merge((surface.routes)());
    }
    router
}

/// The complete router of a port.
pub(crate) fn all(app: HttpApp) -> Router {
    let served = merged(|surface| (surface.is_served)(&app));
    let (router, mut description) = served.split_for_parts();
    let access = AccessTable::new(&mut description);
    let http_metrics = Arc::clone(app.http_metrics());
    let door = Arc::new(Door { app: app.clone(), access });
    router
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .with_state(app.clone())
        .layer(from_fn_with_state(app, audit::recorded))
        .layer(from_fn_with_state(door, checked))
        .layer(from_fn(rendered))
        .layer(from_fn(unread::drained))
        .layer(from_fn_with_state(http_metrics, log::logged))
}

async fn unknown() -> Problem {
    let detail = "this server has no such path; /api/v1/openapi.json lists those that it has";
    Problem::new(ProblemKind::NotFound, detail)
}

async fn not_allowed() -> Problem {
    let detail = "this path does not support the method; see /api/v1/openapi.json";
    Problem::new(ProblemKind::MethodNotAllowed, detail)
}

/// The address from which a request comes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

impl Peer {
    pub(crate) fn of(request: &Request) -> IpAddr {
        // The connection task adds the address to every request.
        let peer = request.extensions().get::<Peer>();
        peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.0.to_canonical())
    }
}

/// What the check in front of every route needs.
#[derive(Debug)]
struct Door {
    app: HttpApp,
    access: AccessTable,
}

/// Checks Host, Origin and credentials. Responses to allowed pages of other origins, including
/// refusals, get CORS headers, so that the pages can read them.
async fn checked(State(door): State<Arc<Door>>, mut request: Request, next: Next) -> Response {
    let identity = door.app.identity();
    let preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let (uri, headers) = (request.uri(), request.headers());
    let host = host(uri, headers);
    let caller = if preflight {
        Caller::Unknown
    } else {
        match stored_caller(&door.app, shown(uri, headers)).await {
            Some(caller) => caller,
            None => identity.caller(request.method(), uri, headers, host.as_ref().ok()),
        }
    };
    // Count a wrong token before the other checks. If another check came first, the response could
    // reveal whether a guess was right.
    if caller == Caller::Wrong
        && let Some(retry_after) = door.app.guesses().wrong(Peer::of(&request)).await
        && request.uri().path() != daemon::SSH_PATH
    {
        return Problem::too_many_guesses(retry_after).into_response();
    }
    let known = if preflight { None } else { Some(&caller) };
    let page = match host.and_then(|host| identity.page_of(known, &host, request.headers())) {
        Ok(page) => page,
        Err(problem) => return problem.into_response(),
    };
    let template = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let access = door.access.of(template, request.method());
    // This is needed only for agents. An agent may use a route if the session, space or run in the
    // path belongs to it.
    let is_agent = caller.principal().is_some() && !caller.is_admin();
    let agent = if is_agent { agent_of_path(&door.app, access, &mut request).await } else { None };
    let admitted = identity.admit(&caller, access, agent.as_ref());
    let refusal = if preflight { None } else { admitted.err() };
    if let Some(principal) = caller.principal() {
        request.extensions_mut().insert(principal.clone());
    }
    request.extensions_mut().insert(caller);
    match page {
        Page::Own => match refusal {
            Some(problem) => problem.into_response(),
            None => next.run(request).await,
        },
        Page::Foreign => {
            let mut response = shared(request, next, refusal).await;
            if preflight {
                *response.status_mut() = StatusCode::NO_CONTENT;
            }
            response
        }
    }
}

/// The agent or API key that the token belongs to, according to the store.
async fn stored_caller(app: &HttpApp, shown: Option<Vec<u8>>) -> Option<Caller> {
    Some(match app.control().ok()?.owner_of_token(&shown?).await? {
        AccessTokenOwner::Session(session) => Caller::agent(&session.to_string()),
        AccessTokenOwner::Space(space) => Caller::space_agent(space),
        AccessTokenOwner::ApiKey(name) => Caller::api_key(&name),
    })
}

/// The agent to which the session, space or run in the path belongs.
async fn agent_of_path(app: &HttpApp, access: Access, request: &mut Request) -> Option<Principal> {
    match access {
        Access::Public | Access::Admin => None,
        Access::SessionAgent => {
            Some(Principal::new(PrincipalKind::Agent, &id_in_path(request).await?))
        }
        Access::SpaceAgent => {
            let id = id_in_path(request).await?;
            let space = match id.parse::<RunId>() {
                Ok(run) => app.spaces().ok()?.spaces.get_run(run).await.ok()?.space_id,
                Err(_) => id.parse::<SpaceId>().ok()?,
            };
            Some(Principal::new(PrincipalKind::SpaceAgent, &space.to_string()))
        }
    }
}

/// The parameter `id` of the path.
async fn id_in_path(request: &mut Request) -> Option<String> {
    let (mut parts, body) = std::mem::take(request).into_parts();
    let params = RawPathParams::from_request_parts(&mut parts, &()).await;
    *request = Request::from_parts(parts, body);
    let params = params.ok()?;
    params.iter().find(|(name, _)| *name == "id").map(|(_, value)| value.to_owned())
}

/// Handles a request from a page of another origin that the gate has allowed.
async fn shared(request: Request, next: Next, refusal: Option<Problem>) -> Response {
    let answering = service_fn(move |request: Request| {
        let (next, refusal) = (next.clone(), refusal.clone());
        async move {
            Ok::<_, Infallible>(match refusal {
                Some(problem) => problem.into_response(),
                None => next.run(request).await,
            })
        }
    });
    let cors = CorsLayer::new()
        .allow_origin(AllowOrigin::mirror_request())
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .allow_headers(ACCEPTED_HEADERS.map(HeaderName::from_static))
        .expose_headers(["mcp-session-id", "x-request-id"].map(HeaderName::from_static))
        .max_age(PREFLIGHT_AGE);
    match cors.layer(answering).oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Headers that pages of other origins may send.
const ACCEPTED_HEADERS: [&str; 11] = [
    "authorization",
    "content-type",
    "idempotency-key",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "x-request-id",
    "x-root-dir",
    "x-scope-path",
];
