//! One connection: a stream of bytes, SSH over it, a host that is the right one, a user that is let
//! in. Or the reason why not, in bounded time and with nothing left behind.

mod brisk;
mod client;
mod failure;
mod login;
mod page;
mod proxy;
mod ssh;
mod tcp;
mod threshold;
mod tls;
mod websocket;

use std::sync::Arc;
use std::time::Duration;

use ab_core::{Error, Result};
use russh::Disconnect;
use russh::client::Handle;
use tokio::sync::oneshot;

pub(crate) use self::client::Client;
pub use self::failure::DialError;
use self::failure::Patience;
use super::endpoint::{ByteStream, Connector, RemoteEndpoint, SshEndpoint, WebSocketEndpoint};
use super::host_key::HostKeyCheck;
use super::lines::Lines;
use super::settings::ClientSettings;
use crate::cut::Scissors;

/// How whoever has the token of a daemon is called there.
const USER: &str = "agent";

/// A connection that is logged in.
pub(crate) struct Dialled {
    pub(crate) handle: Handle<Client>,
    /// Who hears what arrives.
    pub(crate) lines: Arc<Lines>,
    /// What it is called in messages.
    pub(crate) who: String,
    /// Told exactly once, when the connection is over.
    pub(crate) gone: oneshot::Receiver<Gone>,
    /// Ends the connection, at the latest when it is dropped.
    pub(crate) cut: Scissors,
}

/// Why a connection is over.
#[derive(Clone, Debug)]
pub(crate) struct Gone {
    pub(crate) error: Error,
    /// The server wanted nothing to do with us, rather than that something broke.
    pub(crate) refused: bool,
}

/// Connects and logs in, once.
pub(crate) async fn dial(settings: &ClientSettings) -> Result<Dialled, DialError> {
    let patience = Patience::new(settings.connect_timeout);
    match &settings.endpoint {
        RemoteEndpoint::WebSocket(socket) => by_websocket(settings, socket, patience).await,
        RemoteEndpoint::Ssh(ssh) => by_tcp(settings, ssh, patience).await,
        RemoteEndpoint::Stream(connector) => by_stream(settings, connector, patience).await,
    }
}

/// Whether a workspace can be reached and entered: connects, logs in, and leaves again.
pub async fn check_connection(settings: &ClientSettings) -> Result<(), DialError> {
    let Dialled { handle, gone, cut, .. } = dial(settings).await?;
    let leaving = async {
        let _ = handle.disconnect(Disconnect::ByApplication, "", "en").await;
        let _ = gone.await;
    };
    // Whoever does not hear a goodbye is left without one.
    let _ = tokio::time::timeout(PARTING, leaving).await;
    drop(cut);
    Ok(())
}

/// How long a goodbye may take.
const PARTING: Duration = Duration::from_secs(2);

/// A daemon's WebSocket as a stream of bytes, without SSH on it yet.
pub async fn open_websocket(
    socket: &WebSocketEndpoint,
    timeout: Duration,
) -> Result<impl ByteStream + use<>, DialError> {
    websocket::open(socket, Patience::new(timeout)).await
}

/// The stream on which a daemon answers HTTP, through its proxy and with its TLS.
pub async fn open_http_stream(
    socket: &WebSocketEndpoint,
    timeout: Duration,
) -> Result<Box<dyn ByteStream>, DialError> {
    websocket::reach(socket, Patience::new(timeout)).await
}

async fn by_websocket(
    settings: &ClientSettings,
    socket: &WebSocketEndpoint,
    patience: Patience,
) -> Result<Dialled, DialError> {
    let stream = websocket::open(socket, patience).await?;
    let who = socket.address.to_string();
    let mut dialled = ssh::greet(settings, &who, &socket.host_key, stream, patience).await?;
    let token = socket.token.as_ref();
    login::without_name(&mut dialled, &who, USER, token, patience).await?;
    Ok(dialled)
}

async fn by_tcp(
    settings: &ClientSettings,
    ssh: &SshEndpoint,
    patience: Patience,
) -> Result<Dialled, DialError> {
    let stream = tcp::connect(&ssh.host, patience).await?;
    let who = ssh.host.to_string();
    let mut dialled = ssh::greet(settings, &who, &ssh.host_key, stream, patience).await?;
    login::with_credentials(&mut dialled, &who, &ssh.user, &ssh.credentials, patience).await?;
    Ok(dialled)
}

async fn by_stream(
    settings: &ClientSettings,
    connector: &Arc<dyn Connector>,
    patience: Patience,
) -> Result<Dialled, DialError> {
    let who = "the server";
    let stream = patience.spend("reach", who, connector.connect()).await?;
    let stream = stream.map_err(|error| DialError::lost("reach", who, error))?;
    let check = &HostKeyCheck::Unchecked;
    let mut dialled = ssh::greet(settings, who, check, stream, patience).await?;
    login::without_name(&mut dialled, who, USER, None, patience).await?;
    Ok(dialled)
}

#[cfg(test)]
mod tests;
