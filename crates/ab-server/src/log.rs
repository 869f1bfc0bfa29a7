//! Logs and counts each request. The request has an id, which the response also carries.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;

use crate::http_metrics::HttpMetrics;
use crate::routes::Peer;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const LONGEST_ID: usize = 128;

/// The id of a request, which is stored in the request's extensions.
#[derive(Clone, Debug)]
pub(crate) struct RequestId(HeaderValue);

impl RequestId {
    /// Returns the id that [`logged`] assigned to the request.
    pub(crate) fn of(extensions: &Extensions) -> RequestId {
        let missing = || RequestId(HeaderValue::from_static("-"));
        extensions.get::<RequestId>().cloned().unwrap_or_else(missing)
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.to_str().unwrap_or_default())
    }
}

/// Set if the WebSocket is closed with this code right after the upgrade, to log the refusal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentAway(pub(crate) u16);

/// Logs a request. Uses the caller's request id if it is valid. The query is never logged, because
/// it may contain a token.
pub(crate) async fn logged(
    State(metrics): State<Arc<HttpMetrics>>,
    mut request: Request,
    next: Next,
) -> Response {
    let begun = Instant::now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let id = brought(request.headers()).unwrap_or_else(made);
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let peer = Peer::of(&request);
    request.extensions_mut().insert(RequestId(id.clone()));
    let mut response = next.run(request).await;
    let status = response.status().as_u16();
    let shown = id.to_str().unwrap_or_default();
    let time = begun.elapsed();
    metrics.add(route.as_ref().map(MatchedPath::as_str), &method, status, time);
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let closed = response.extensions().get::<SentAway>().map(|sent_away| sent_away.0);
    // Logs the same text at a given level.
    macro_rules! line {
        ($level:ident) => {
            tracing::$level!(
                request_id = shown, %method, path, status, closed, micros, %peer, "request"
            )
        };
    }
    match (status, closed) {
        (500.., _) => line!(error),
        (401 | 403 | 429, _) | (_, Some(_)) => line!(warn),
        _ => line!(info),
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

/// Makes a request id that is unique in this process and very likely across processes. The id may
/// be predictable, so this does not wait for random numbers from the system.
fn made() -> HeaderValue {
    static PROCESS: LazyLock<u32> =
        LazyLock::new(|| (RandomState::new().build_hasher().finish() >> 32) as u32);
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let text = format!("{:08x}{:08x}", *PROCESS, NEXT.fetch_add(1, Ordering::Relaxed));
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("-"))
}
