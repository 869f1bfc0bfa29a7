//! Accepts connections and serves each in its own task. All tasks are joined at shutdown.

use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::places::{Place, Places};
use crate::port::HttpServerLimits;
use crate::routes::Peer;
use crate::tls::TlsConfig;
use crate::watched::{Watch, Watched};

/// Delay after a failed accept. The usual cause is that the process has no free file descriptors.
const BREATH: Duration = Duration::from_millis(50);
/// Maximum size of the head of a request in bytes.
const LARGEST_HEAD: usize = 64 * 1024;

pub(crate) struct Connections {
    pub(crate) router: Router,
    pub(crate) tls: Option<TlsConfig>,
    pub(crate) bounds: HttpServerLimits,
    pub(crate) closing: CancellationToken,
}

pub(crate) async fn serve(connections: Connections, listener: TcpListener) {
    let Connections { router, tls, bounds, closing } = connections;
    let places = Places::new(&bounds);
    let mut tasks = JoinSet::new();
    loop {
        // Remove the tasks that have ended.
        while tasks.try_join_next().is_some() {}
        let accepted = async {
            let free = places.free().await?;
            match listener.accept().await {
                Ok((stream, peer)) => match places.take(free, peer.ip()) {
                    Some(place) => Some((place, stream, Peer(peer.ip()))),
                    None => {
                        turn_away(&stream, tls.is_some());
                        None
                    }
                },
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(BREATH).await;
                    None
                }
            }
        };
        let accepted = tokio::select! {
            accepted = accepted => accepted,
            () = closing.cancelled() => break,
        };
        let Some((place, stream, peer)) = accepted else { continue };
        let (router, tls, closing) = (router.clone(), tls.clone(), closing.clone());
        let answering = Answering { router, peer, place };
        tasks.spawn(connection(stream, answering, tls, bounds, closing));
    }
    drop(listener);
    let ended = async { while tasks.join_next().await.is_some() {} };
    if timeout(bounds.shutdown_grace, ended).await.is_err() {
        tasks.shutdown().await;
    }
}

/// The response to a connection from an address that already has too many.
const TOO_MANY: &str = "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 30\r\n\
    content-type: application/json\r\ncontent-length: 83\r\n\r\n\
    {\"error\":\"Too many connections\",\"message\":\"your address has too many connections\"}\n";

/// Refuses a connection. If it is not encrypted, the reason is sent first.
fn turn_away(stream: &TcpStream, encrypted: bool) {
    if !encrypted {
        // Nothing was sent yet, so the response fits in the send buffer.
        let _ = stream.try_write(TOO_MANY.as_bytes());
    }
}

/// Everything that is needed to answer the requests of a connection.
struct Answering {
    router: Router,
    peer: Peer,
    /// Counts the connection towards the limits until it has ended. An upgraded WebSocket takes
    /// this value over.
    place: Place,
}

async fn connection(
    stream: TcpStream,
    answering: Answering,
    tls: Option<TlsConfig>,
    bounds: HttpServerLimits,
    closing: CancellationToken,
) {
    // Responses are written as a whole, so delaying small segments would bring nothing.
    let _ = stream.set_nodelay(true);
    let (stream, watch) = Watched::new(stream, bounds.write_timeout);
    match tls {
        None => requests((stream, Encryption::None), watch, answering, bounds, closing).await,
        Some(tls) => match timeout(bounds.handshake_timeout, tls.0.accept(stream)).await {
            Ok(Ok(stream)) => {
                requests((stream, Encryption::Tls), watch, answering, bounds, closing).await;
            }
            Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
            Err(_) => tracing::debug!("a TLS handshake took too long"),
        },
    }
}

/// Whether the requests of a connection are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encryption {
    None,
    Tls,
}

async fn requests<S>(
    (stream, encryption): (S, Encryption),
    watch: Watch,
    answering: Answering,
    bounds: HttpServerLimits,
    closing: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Answering { router, peer, place } = answering;
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(encryption);
        request.extensions_mut().insert(place.clone());
        // The router is always ready, so `poll_ready` is not needed.
        router.clone().call(request)
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.handshake_timeout)
        .max_buf_size(LARGEST_HEAD)
        // A client that closed its sending side may still wait for the response. The watch detects
        // clients that have disconnected.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut serving = std::pin::pin!(serving);
    let served = async {
        tokio::select! {
            ended = serving.as_mut() => ended,
            () = closing.cancelled() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        }
    };
    tokio::select! {
        ended = served => match ended {
            // After an upgrade the connection no longer carries HTTP.
            Ok(()) => watch.let_go(),
            Err(error) => tracing::debug!(%error, "a connection was lost"),
        },
        () = watch.deserted(bounds.half_closed_timeout) => {
            tracing::debug!("a client disconnected before the response");
        }
    }
}
