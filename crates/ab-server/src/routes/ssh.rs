//! `/ssh`: SSH in the binary messages of a WebSocket.
//!
//! Who does not know the token is upgraded all the same and then sent away with 4001, since that is
//! how clients tell a wrong token from a network that is down.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use ab_remote::websocket::{Codec, FrameStream, Payload};
use ab_remote::{Ended, Server};
use axum::Extension;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use tokio::time::timeout;

use super::workspace::Served;
use crate::gate::Caller;
use crate::log::SentAway;
use crate::problem::{Problem, Refusal};

pub(super) const PATH: &str = "/ssh";

/// What the close frame of a caller without the token says.
const UNAUTHORIZED: (u16, &str) = (4001, "Unauthorized");
const CLOSING: (u16, &str) = (1000, "Server shutting down");
const ENDED: (u16, &str) = (1000, "");

/// Buffers of a connection. Idle ones are many, and more than this makes none faster.
const BUFFER: usize = 16 * 1024;
/// The largest message that is taken.
const LARGEST: usize = 1024 * 1024;
/// How long a goodbye may take to be heard.
const GOODBYE: Duration = Duration::from_secs(1);

/// Speak SSH in binary messages
///
/// A WebSocket whose binary messages carry the bytes of an SSH connection, cut anywhere: commands and
/// SFTP. The token is named in the Authorization header or in the query. A wrong one gets the
/// upgrade, then the close code 4001.
#[utoipa::path(
    get,
    path = "/ssh",
    tag = "ssh",
    params(("token" = Option<String>, Query, description = "The token, where no header can be sent")),
    responses(
        (status = SWITCHING_PROTOCOLS, description = "The bytes of SSH follow"),
        (status = UPGRADE_REQUIRED, description = "This path is for WebSockets"),
        (status = BAD_REQUEST, description = "An upgrade that makes no sense", body = Refusal),
        (status = FORBIDDEN, description = "Host or Origin is not allowed", body = Refusal),
        (status = NOT_FOUND, description = "SSH is not served here", body = Refusal)
    )
)]
pub(crate) async fn connect(
    State(served): State<Arc<Served>>,
    Extension(caller): Extension<Caller>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let Some(ssh) = served.ssh.clone() else {
        let message = "SSH over WebSockets is not served here";
        return Problem::new(StatusCode::NOT_FOUND, "Not found", message).into_response();
    };
    let upgrade = match upgrade {
        Ok(upgrade) => upgrade,
        Err(WebSocketUpgradeRejection::MethodNotConnect(_)) => return not_a_websocket(),
        Err(rejection) if rejection.status() == StatusCode::UPGRADE_REQUIRED => {
            return rejection.into_response();
        }
        Err(_) => return not_a_websocket(),
    };
    let sockets = served.sockets.clone();
    let mut response = upgrade
        .read_buffer_size(BUFFER)
        .write_buffer_size(BUFFER)
        .max_message_size(LARGEST)
        .max_frame_size(LARGEST)
        .on_upgrade(move |socket| {
            sockets.track_future(async move {
                match caller {
                    Caller::Trusted => carry(&ssh, socket).await,
                    Caller::Wrong | Caller::Unknown => part(socket, UNAUTHORIZED).await,
                }
            })
        });
    if caller != Caller::Trusted {
        response.extensions_mut().insert(SentAway(UNAUTHORIZED.0));
    }
    response
}

fn not_a_websocket() -> Response {
    let message = "this path is for WebSockets that carry SSH";
    Problem::new(StatusCode::BAD_REQUEST, "Not a WebSocket", message).into_response()
}

/// Serves SSH over the socket, then says why it is over.
async fn carry(ssh: &Server, socket: WebSocket) {
    let socket = Shared(Arc::new(Mutex::new(socket)));
    let codec = Codec { pack: Message::Binary, unpack };
    let ended = ssh.serve(FrameStream::new(socket.clone(), codec)).await;
    tracing::debug!(%ended, "an SSH connection ended");
    let reason = if ended == Ended::ShutDown { CLOSING } else { ENDED };
    part(socket, reason).await;
}

/// Says goodbye, and waits a moment for the answer.
async fn part<S>(mut socket: S, (code, reason): (u16, &'static str))
where
    S: Stream<Item = Result<Message, axum::Error>> + Sink<Message, Error = axum::Error> + Unpin,
{
    let goodbye = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
    let parting = async {
        if socket.send(goodbye).await.is_ok() {
            while let Some(Ok(_)) = socket.next().await {}
        }
    };
    // A peer that does not answer is gone.
    let _ = timeout(GOODBYE, parting).await;
}

fn unpack(message: Message) -> Payload {
    match message {
        Message::Binary(bytes) => Payload::Bytes(bytes),
        Message::Ping(_) | Message::Pong(_) => Payload::Nothing,
        Message::Close(_) => Payload::End,
        Message::Text(_) => Payload::Foreign,
    }
}

/// The socket, held by the stream and by whoever says goodbye after it. Closing it is the latter's.
#[derive(Clone)]
struct Shared(Arc<Mutex<WebSocket>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, WebSocket> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream for Shared {
    type Item = Result<Message, axum::Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.lock().poll_next_unpin(context)
    }
}

impl Sink<Message> for Shared {
    type Error = axum::Error;

    fn poll_ready(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), axum::Error>> {
        self.lock().poll_ready_unpin(context)
    }

    fn start_send(self: Pin<&mut Self>, message: Message) -> Result<(), axum::Error> {
        self.lock().start_send_unpin(message)
    }

    fn poll_flush(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), axum::Error>> {
        self.lock().poll_flush_unpin(context)
    }

    fn poll_close(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), axum::Error>> {
        self.lock().poll_flush_unpin(context)
    }
}
