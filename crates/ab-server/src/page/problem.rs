//! Shows a failed request as a page, for people who follow a link or type a URL.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::html;

use super::CONTENT_SECURITY_POLICY;
use super::layout::{Live, document};
use super::text::clean;

/// The page for a problem, with the status and headers of `response`. A person who is not logged in
/// is told how to log in. The page does not ask for the token, because no page may contain the
/// token.
pub(crate) fn problem(response: &Response, title: &str, detail: &str) -> Response {
    let is_signed_out = response.status() == StatusCode::UNAUTHORIZED;
    let title = if is_signed_out { "You are not logged in" } else { title };
    let body = html! {
        main.wide.problem-page {
            p.status-code { (response.status().as_u16()) }
            h1 { (title) }
            @if is_signed_out {
                p { "Every browser needs a one-time link. Run this on the machine of the server:" }
                pre { code { "agent-backend webui" } }
                p.quiet {
                    "It prints the link and opens it. A link works once and for a few minutes, under an address \
                     of its own that ends in .localhost. Through an SSH tunnel, forward the port of the server \
                     to the same port of this machine."
                }
            } @else {
                p { (clean(detail)) }
                p { a.button href="/ui" { "All sessions" } }
            }
        }
    };
    let markup = document(title, &Live::default(), &body);
    let mut page = (response.status(), markup.into_string()).into_response();
    let headers = page.headers_mut();
    for name in
        [header::RETRY_AFTER, header::WWW_AUTHENTICATE, HeaderName::from_static("x-request-id")]
    {
        if let Some(value) = response.headers().get(&name) {
            headers.insert(name, value.clone());
        }
    }
    for (name, value) in [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    page
}
