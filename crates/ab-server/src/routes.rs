//! Every route of the port with its description, behind the one check.
//!
//! Routes are added with `routes!`, which takes both from the handler; a test sees to it that there
//! is no other way.

mod health;
mod mcp;
mod ssh;
pub(crate) mod workspace;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Description;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::gate::{Caller, Gate, Guesses, Guessing, Page};
use crate::log;
use crate::problem::{Problem, Refusal};
use workspace::Served;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "agent-backend",
        description = "A place for AI agents to work, and control over that work for people"
    ),
    tags(
        (name = "port", description = "The port itself"),
        (name = "mcp", description = "The workspace as tools, by the Model Context Protocol"),
        (name = "ssh", description = "The workspace by SSH")
    )
)]
struct Api;

/// What can be asked of the port.
pub fn openapi() -> Description {
    described().split_for_parts().1
}

fn described() -> OpenApiRouter<Arc<Served>> {
    OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(health::show))
        .routes(routes!(ssh::connect))
        .routes(routes!(mcp::call, mcp::listen, mcp::end))
        .routes(routes!(describe))
}

/// Everything, ready to be served.
pub(crate) fn all(served: Arc<Served>, gate: Arc<Gate>, guessing: Guessing) -> Router {
    let (router, _) = described().split_for_parts();
    let door = Arc::new(Door { gate, guesses: Guesses::new(guessing) });
    router
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .with_state(served)
        .layer(from_fn_with_state(door, checked))
        .layer(from_fn(log::logged))
}

/// What can be asked of this port
#[utoipa::path(
    get,
    path = "/api/v1/openapi.json",
    tag = "port",
    responses(
        (status = OK, description = "The description, in OpenAPI", content_type = "application/json"),
        (status = BAD_REQUEST, description = "Headers that make no sense", body = Refusal),
        (status = UNAUTHORIZED, description = "The token is missing or wrong", body = Refusal),
        (status = FORBIDDEN, description = "Host or Origin is not allowed", body = Refusal),
        (status = TOO_MANY_REQUESTS, description = "Too many wrong tokens: see Retry-After", body = Refusal)
    )
)]
async fn describe() -> Response {
    Json(openapi()).into_response()
}

async fn unknown() -> Problem {
    let message = "there is nothing at this path; see /api/v1/openapi.json";
    Problem::new(StatusCode::NOT_FOUND, "Not found", message)
}

async fn not_allowed() -> Problem {
    let message = "this path has no such method; see /api/v1/openapi.json";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed", message)
}

/// Where a request is from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

impl Peer {
    pub(crate) fn of(request: &Request) -> IpAddr {
        // Every connection says where it is from.
        let peer = request.extensions().get::<Peer>();
        peer.map_or(Ipv4Addr::UNSPECIFIED.into(), |peer| peer.0.to_canonical())
    }
}

/// Who may ask, and who tried in vain.
#[derive(Debug)]
struct Door {
    gate: Arc<Gate>,
    guesses: Guesses,
}

/// The check. Pages that were allowed also get what their browser has to be told.
async fn checked(State(door): State<Arc<Door>>, mut request: Request, next: Next) -> Response {
    let gate = &door.gate;
    let preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let caller = match preflight {
        true => Caller::Unknown,
        false => gate.caller(request.uri(), request.headers()),
    };
    // Whatever it is answered: by a difference it would learn whether it was right.
    if caller == Caller::Wrong
        && let Some(retry_after) = door.guesses.wrong(Peer::of(&request)).await
        && request.uri().path() != ssh::PATH
    {
        return Problem::too_many_guesses(retry_after).into_response();
    }
    let admitted = match preflight {
        true => gate.admit_preflight(request.uri(), request.headers()),
        false => gate.admit(caller, request.uri(), request.headers()),
    };
    let page = match admitted {
        Ok(page) => page,
        Err(problem) => return problem.into_response(),
    };
    let mut response = match (preflight, &page) {
        (true, Page::Foreign(_)) => welcome(),
        (true, Page::Own) | (false, _) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
    };
    if let Page::Foreign(origin) = page
        && let Ok(origin) = HeaderValue::from_str(&origin)
    {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(header::VARY, HeaderValue::from_static("origin"));
        let shown = HeaderValue::from_static("mcp-session-id, x-request-id");
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, shown);
    }
    response
}

/// What a browser asks before it sends a page's request.
fn welcome() -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, DELETE"),
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "authorization, content-type, last-event-id, mcp-method, mcp-name, \
             mcp-protocol-version, mcp-session-id, x-request-id, x-root-dir, x-scope-path",
        ),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
