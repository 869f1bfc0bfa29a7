//! `GET /ui/login`: logs a browser in with a one-time link.

use ab_api::LoginLink;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Peer;
use crate::access::Access;
use crate::app::HttpApp;
use crate::extract::QueryParams;
use crate::gate::host;
use crate::problem::{Problem, ProblemDocument, ProblemKind};

/// A page that loads the web page. A redirect is not possible, because browsers do not send a
/// strict cookie with a redirect if the navigation began on another site.
const GO_ON: &str = "<!doctype html><meta charset=\"utf-8\"><title>agent-backend</title>\
    <link rel=\"icon\" href=\"/ui/icon.svg\"><meta http-equiv=\"refresh\" content=\"0; url=/ui/\"><a href=\"/ui/\">Open agent-backend</a>";

pub(super) fn routes() -> OpenApiRouter<HttpApp> {
    OpenApiRouter::default()
        .routes(Access::Public.to(routes!(login)))
        .routes(Access::Admin.to(routes!(make_link)))
}

#[derive(Debug, Deserialize, IntoParams)]
struct LoginParams {
    /// The ticket of the link, which can be used once
    ticket: String,
}

/// Make a one-time link to the page
///
/// The link works once and expires after a few minutes. It works only under its own host name.
#[utoipa::path(
    post,
    path = "/api/v1/login-links",
    tag = "page",
    responses(
        (status = CREATED, body = LoginLink),
        (status = INTERNAL_SERVER_ERROR, description = "The system provides no random bytes", body = ProblemDocument, content_type = "application/problem+json")
    )
)]
async fn make_link(State(app): State<HttpApp>) -> Result<Response, Problem> {
    let link = app.identity().login_link();
    let (host, path) =
        link.map_err(|_| Problem::new(ProblemKind::Internal, "cannot create a login link"))?;
    let link = LoginLink { host: host.to_owned(), path };
    Ok((StatusCode::CREATED, [(header::CACHE_CONTROL, "no-store")], Json(link)).into_response())
}

/// Log a browser in
///
/// The server prints the link. It works once and expires after a few minutes.
#[utoipa::path(
    get,
    path = "/ui/login",
    tag = "page",
    params(LoginParams),
    responses(
        (status = OK, description = "The cookie is set", body = String, content_type = "text/html"),
        (status = UNAUTHORIZED, description = "The link was used or has expired", body = crate::problem::Refusal)
    )
)]
async fn login(
    State(app): State<HttpApp>,
    QueryParams(params): QueryParams<LoginParams>,
    request: Request,
) -> Result<Response, Problem> {
    let mut response = Html(GO_ON).into_response();
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; img-src 'self'"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // A HEAD request must not use up the ticket.
    if request.method() == Method::HEAD {
        return Ok(response);
    }
    let host = host(request.uri(), request.headers())?;
    let failed = |_| Problem::new(ProblemKind::Internal, "cannot create a cookie");
    let Some(cookie) = app.identity().redeem(&host, &params.ticket).map_err(failed)? else {
        return Err(match app.guesses().wrong(Peer::of(&request)).await {
            Some(retry_after) => Problem::too_many_guesses(retry_after),
            None => Problem::new(
                ProblemKind::Unauthorized,
                "this link was used or has expired; ask the server for a new one",
            ),
        });
    };
    let cookie = HeaderValue::try_from(cookie)
        .map_err(|_| Problem::new(ProblemKind::Internal, "cannot create a cookie"))?;
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}
