//! One line for each request, under an id that the answer carries too.

use std::time::Instant;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const LONGEST_ID: usize = 128;

/// The id is the caller's, if it brought a sane one. The query is never written: it may hold a
/// token.
pub(crate) async fn logged(request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let id = brought(request.headers()).unwrap_or_else(made);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut response = next.run(request).await;
    let status = response.status().as_u16();
    let shown = id.to_str().unwrap_or_default();
    let micros = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    match status {
        500.. => tracing::error!(request_id = shown, %method, path, status, micros, "request"),
        401 | 403 => tracing::warn!(request_id = shown, %method, path, status, micros, "request"),
        _ => tracing::info!(request_id = shown, %method, path, status, micros, "request"),
    }
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

fn brought(headers: &HeaderMap) -> Option<HeaderValue> {
    let value = headers.get(REQUEST_ID)?;
    let sane = |byte: &u8| byte.is_ascii_graphic();
    let bytes = value.as_bytes();
    let fits = !bytes.is_empty() && bytes.len() <= LONGEST_ID && bytes.iter().all(sane);
    fits.then(|| value.clone())
}

fn made() -> HeaderValue {
    let mut bytes = [0; 8];
    // Without randomness ids repeat, which harms nobody.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    let text = format!("{:016x}", u64::from_be_bytes(bytes));
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("-"))
}
