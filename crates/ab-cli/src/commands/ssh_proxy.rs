//! `ssh-proxy`: plain SSH through the WebSocket of a daemon.

use std::path::PathBuf;
use std::time::Duration;

use ab_core::{Code, Error, Kind};
use ab_remote::websocket::{Codec, FrameStream, Payload};
use bytes::Bytes;
use clap::Args;
use futures_util::StreamExt;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_tungstenite::connect_async_with_config;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::http::header::AUTHORIZATION;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use crate::failure::Failure;
use crate::signals::Signals;
use crate::{stdio, token};

const EXAMPLES: &str = "\
Examples:
  ssh -o ProxyCommand='agent-backend ssh-proxy ws://127.0.0.1:3001/ssh' workspace
  sftp -o ProxyCommand='agent-backend ssh-proxy --token-file t wss://box.example/ssh' workspace

The host name that ssh is given means nothing; it is what known_hosts will remember the key under.
The token may also be in the environment, as AGENT_BACKEND_AUTH_TOKEN.";

/// Buffers of the connection, and the largest message that is taken.
const BUFFER: usize = 64 * 1024;
const LARGEST: usize = 1024 * 1024;
/// How long a daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How a daemon sends callers away that do not know its token.
const UNAUTHORIZED: u16 = 4001;

/// Carry SSH to a daemon's WebSocket, as the ProxyCommand of ssh
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SshProxy {
    /// Where the daemon is, such as ws://127.0.0.1:3001/ssh
    #[arg(value_name = "URL")]
    url: String,

    /// A file that holds the token, on its first line
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

pub(crate) async fn run(proxy: SshProxy) -> Result<(), Failure> {
    // The one provider of cryptography; whoever came first has chosen the same.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let request = proxy.url.as_str().into_client_request().ok();
    let request =
        request.filter(|request| matches!(request.uri().scheme_str(), Some("ws" | "wss")));
    let Some(mut request) = request else {
        return Err(Failure::usage(format!("'{}' is no URL of a WebSocket", proxy.url))
            .with_hint("write it like ws://127.0.0.1:3001/ssh, or wss:// where there is TLS"));
    };
    let token = match &proxy.token_file {
        Some(path) => Some(token::in_file(path)?),
        None => token::in_environment()?,
    };
    if let Some(token) = token {
        let value = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| Failure::usage("the token holds characters that no header can"))?;
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    let config = WebSocketConfig::default()
        .read_buffer_size(BUFFER)
        .write_buffer_size(BUFFER)
        .max_message_size(Some(LARGEST))
        .max_frame_size(Some(LARGEST));
    let connecting = connect_async_with_config(request, Some(config), true);
    let connected = timeout(PATIENCE, connecting).await;
    let connected = connected.map_err(|_| unavailable(&proxy.url, "it does not answer"))?;
    let (mut socket, _) = connected.map_err(|error| unavailable(&proxy.url, error))?;
    // A daemon says who it is, or sends us away, before anything else.
    let first = timeout(PATIENCE, socket.next()).await;
    let first = first.map_err(|_| unavailable(&proxy.url, "it says nothing"))?;
    let greeting = match first {
        Some(Ok(Message::Binary(bytes))) => bytes,
        Some(Ok(Message::Close(Some(frame)))) if u16::from(frame.code) == UNAUTHORIZED => {
            let message = "the daemon does not know this token";
            let error = Error::new(Code::AuthFailed, Kind::Denied, message);
            return Err(Failure::from(error)
                .with_hint("give it with --token-file, or as AGENT_BACKEND_AUTH_TOKEN"));
        }
        Some(Ok(_)) => return Err(unavailable(&proxy.url, "it does not speak SSH")),
        Some(Err(error)) => return Err(unavailable(&proxy.url, error)),
        None => return Err(unavailable(&proxy.url, "it hung up")),
    };
    let stream = FrameStream::new(socket, CODEC).with_goodbye(|| Message::Close(None));
    carried(greeting, stream).await
}

const CODEC: Codec<Message> = Codec {
    pack: Message::Binary,
    unpack: |message| match message {
        Message::Binary(bytes) => Payload::Bytes(bytes),
        Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => Payload::Nothing,
        Message::Close(_) => Payload::End,
        Message::Text(_) => Payload::Foreign,
    },
};

/// Both ways, until the daemon has nothing more to say.
async fn carried(
    greeting: Bytes,
    stream: impl AsyncRead + AsyncWrite + Unpin,
) -> Result<(), Failure> {
    let fails = |error| Failure::input("carry SSH", error);
    let (mut from_daemon, mut to_daemon) = tokio::io::split(stream);
    let (mut from_client, mut to_client) = stdio::streams();
    let asking = async {
        match tokio::io::copy(&mut from_client, &mut to_daemon).await {
            // ssh closes its end when it is done with us.
            Ok(_) => to_daemon.shutdown().await,
            Err(error) => Err(error),
        }
    };
    let answering = async {
        to_client.write_all(&greeting).await?;
        tokio::io::copy(&mut from_daemon, &mut to_client).await?;
        Ok(())
    };
    let mut signals = Signals::watch();
    tokio::select! {
        ended = asking => ended.map_err(fails),
        ended = answering => ended.map_err(fails),
        exit = signals.next() => Err(Failure::Told(exit)),
    }
}

fn unavailable(url: &str, why: impl std::fmt::Display) -> Failure {
    let message = format!("cannot reach the daemon at {url}: {why}");
    Error::new(Code::ConnectionClosed, Kind::Disconnected, message).into()
}
