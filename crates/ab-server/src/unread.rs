//! Reads the rest of a request's body before an error response is sent.
//!
//! If the server responds and closes the connection while the client is still sending, the kernel
//! resets the connection. The client may then see the reset instead of the error. This module
//! discards the bytes. It limits their number and the time.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::Response;
use http_body::{Frame, SizeHint};

/// Maximum number of bytes that are read and discarded.
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// How long the client may take to send these bytes.
const MAX_TIME: Duration = Duration::from_secs(2);

/// Passes the request on. If the response is an error, the rest of the body is read first.
pub(crate) async fn drained(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    // A client that sends `Expect` waits for the server's consent before it sends the body. After
    // an error it does not send the body.
    let is_asking = request.headers().contains_key(header::EXPECT);
    let (parts, body) = request.into_parts();
    let body = SharedBody { state: Arc::new(Mutex::new(State { body, was_read: false })) };
    let rest = body.clone();
    let response = next.run(Request::from_parts(parts, Body::new(body))).await;
    let is_error = response.status().is_client_error() || response.status().is_server_error();
    if is_error && (!is_asking || rest.lock().was_read) {
        // If the client is slower, the error is sent anyway.
        let _ = tokio::time::timeout(MAX_TIME, rest.throw_away()).await;
    }
    response
}

/// The body of a request. It is shared by the route and by the code that reads the rest.
#[derive(Clone)]
struct SharedBody {
    state: Arc<Mutex<State>>,
}

struct State {
    body: Body,
    was_read: bool,
}

impl SharedBody {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn throw_away(mut self) {
        let mut bytes = 0;
        while bytes < MAX_BYTES {
            match poll_fn(|cx| Pin::new(&mut self).poll_frame(cx)).await {
                Some(Ok(frame)) => bytes += frame.data_ref().map_or(0, Bytes::len),
                Some(Err(_)) | None => return,
            }
        }
    }
}

impl HttpBody for SharedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut state = self.lock();
        state.was_read = true;
        Pin::new(&mut state.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.lock().body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.lock().body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::http::StatusCode;
    use axum::middleware::from_fn;
    use axum::routing::post;
    use futures_util::{StreamExt, stream};
    use tower::ServiceExt;

    use super::*;

    const PIECE: usize = 64 * 1024;

    /// How many of `most` pieces of a body are read if the route reads none.
    async fn read(path: &str, most: usize, is_asking: bool) -> usize {
        let router = Router::new()
            .route("/refused", post(async || StatusCode::PAYLOAD_TOO_LARGE))
            .route("/taken", post(async || StatusCode::OK))
            .layer(from_fn(drained));
        let count = Arc::new(AtomicUsize::new(0));
        let sent = Arc::clone(&count);
        let pieces = stream::iter(0..most).map(move |_| {
            sent.fetch_add(1, Ordering::Relaxed);
            Ok::<_, Infallible>(Bytes::from_static(&[0; PIECE]))
        });
        let mut request = Request::post(path);
        if is_asking {
            request = request.header(header::EXPECT, "100-continue");
        }
        router.oneshot(request.body(Body::from_stream(pieces)).unwrap()).await.unwrap();
        count.load(Ordering::Relaxed)
    }

    #[tokio::test]
    async fn what_a_refused_request_sends_is_read_up_to_a_limit() {
        assert_eq!(read("/refused", 20, false).await, 20);
        assert_eq!(read("/refused", usize::MAX, false).await, MAX_BYTES / PIECE);
        assert_eq!(read("/refused", 20, true).await, 0, "it waits for our consent");
        assert_eq!(read("/taken", 20, false).await, 0);
    }
}
