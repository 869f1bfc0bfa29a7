//! `ssh-proxy`: forwards the connection of a standard `ssh` through the WebSocket of a daemon.

use std::path::PathBuf;
use std::time::Duration;

use ab_core::{Error, ErrorCode, ErrorKind};
use ab_remote::client::{
    ByteStream, CleartextTokenPolicy, ConnectError, WebSocketEndpoint, open_websocket,
};
use clap::Args;
use tokio::io::AsyncWriteExt;

use super::{CliCommand, RunningCommand};
use crate::failure::Failure;
use crate::signals::Signals;
use crate::terminal::Terminal;
use crate::{stdio, token};

const EXAMPLES: &str = "\
Examples:
  ssh -o ProxyCommand='agent-backend ssh-proxy ws://127.0.0.1:3001/ssh' box
  sftp -o ProxyCommand='agent-backend ssh-proxy wss://box.example/ssh' box

ssh stores the host key under the host name that you give it, here box. The name has no other meaning.

The token can also be in the environment variable AGENT_BACKEND_AUTH_TOKEN. For wss://, the
certificates that the system trusts apply, or those of the PEM file in SSL_CERT_FILE.";

/// How long a daemon may take to answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Connect ssh to a daemon: a ProxyCommand for ssh and sftp
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SshProxy {
    /// URL of the daemon, such as ws://127.0.0.1:3001/ssh
    #[arg(value_name = "URL")]
    url: String,

    /// File whose first line is the token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Allow sending the token to another machine without encryption
    #[arg(long)]
    allow_insecure_token: bool,
}

impl CliCommand for SshProxy {
    fn handles_signals(&self) -> bool {
        true
    }

    fn run(self: Box<Self>, _: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self))
    }
}

async fn run(proxy: SshProxy) -> Result<(), Failure> {
    let socket = WebSocketEndpoint::new(&proxy.url).ok();
    let scheme = proxy.url.split(':').next().unwrap_or_default();
    let Some(mut socket) = socket.filter(|_| matches!(scheme, "ws" | "wss")) else {
        return Err(Failure::usage(format!("'{}' is not a WebSocket URL", proxy.url))
            .with_hint("for example ws://127.0.0.1:3001/ssh, or wss:// with TLS"));
    };
    let token = match &proxy.token_file {
        Some(path) => Some(token::in_file(path)?),
        None => token::in_environment()?,
    };
    socket.token = token.map(Into::into);
    if proxy.allow_insecure_token {
        socket.cleartext_token_policy = CleartextTokenPolicy::Accepted;
    }
    match open_websocket(&socket, TIMEOUT).await {
        Ok(stream) => carried(stream).await,
        Err(failure) => Err(unavailable(failure)),
    }
}

/// Copies bytes in both directions until one side closes.
async fn carried(stream: impl ByteStream) -> Result<(), Failure> {
    let fails = |error| Failure::input("carry SSH", error);
    let (mut from_daemon, mut to_daemon) = tokio::io::split(stream);
    let (mut from_client, mut to_client) = stdio::streams();
    let asking = async {
        match tokio::io::copy(&mut from_client, &mut to_daemon).await {
            // ssh closes its side when it is finished.
            Ok(_) => to_daemon.shutdown().await,
            Err(error) => Err(error),
        }
    };
    let answering = async {
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

fn unavailable(failure: ConnectError) -> Failure {
    let error = failure.error;
    match (error.kind(), error.hint()) {
        (ErrorKind::DeniedByPolicy, None) => Failure::from(error)
            .with_hint("pass the token with --token-file or in AGENT_BACKEND_AUTH_TOKEN"),
        (ErrorKind::Disconnected | ErrorKind::Timeout, hint) => {
            let hint =
                hint.unwrap_or("check the host and port of the URL, and that a daemon runs there");
            Error::new(ErrorCode::ConnectionClosed, ErrorKind::Disconnected, error.to_string())
                .with_hint(hint)
                .into()
        }
        _ => error.into(),
    }
}
