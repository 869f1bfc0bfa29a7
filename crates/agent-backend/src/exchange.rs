//! Sends one HTTP request on its own connection, with the proxy and TLS settings of the endpoint.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ab_core::{Error, ErrorCode, ErrorKind, Result};
use ab_remote::client::{WebSocketEndpoint, open_daemon_http_stream};
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;

/// Sends `request` once to the host of `socket`. Error messages call the host `name`. `timeout` is
/// the time limit for connecting.
pub(crate) async fn send(
    socket: &WebSocketEndpoint,
    name: &str,
    timeout: Duration,
    request: Request<Full<Bytes>>,
) -> Result<Response<Answer>> {
    let stream = open_daemon_http_stream(socket, timeout).await?;
    let fails = |error| lost(name, error);
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(fails)?;
    let mut connection: Connection = Box::pin(async move {
        // An error here is also reported by the request or by its response body.
        let _ = connection.await;
    });
    let sending = sender.send_request(request);
    tokio::pin!(sending);
    let (answered, connection) = tokio::select! {
        answered = &mut sending => (answered, Some(connection)),
        () = &mut connection => (sending.await, None),
    };
    Ok(answered.map_err(fails)?.map(|body| Answer { body, connection }))
}

/// The error for a connection that was lost before the answer was complete.
pub(crate) fn lost(name: &str, error: hyper::Error) -> Error {
    let message = format!("the connection to {name} was lost: {error}");
    Error::new(ErrorCode::ConnectionClosed, ErrorKind::Disconnected, message).with_source(error)
}

type Connection = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The body of an answer. The connection makes progress while the body is read.
pub(crate) struct Answer {
    body: Incoming,
    connection: Option<Connection>,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(connection) = &mut self.connection
            && connection.as_mut().poll(context).is_ready()
        {
            self.connection = None;
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
