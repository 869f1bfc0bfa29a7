//! Makes one connection: a byte stream, the SSH handshake, the check of the host key, the login.
//! Fails within a bounded time and leaves nothing open.

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

/// The user name for clients that authenticate with the daemon's token.
const USER: &str = "agent";

/// A connection that is logged in.
pub(crate) struct Dialled {
    pub(crate) handle: Handle<Client>,
    /// Receives the data of each channel.
    pub(crate) lines: Arc<Lines>,
    /// The name of the server in messages.
    pub(crate) who: String,
    /// Receives exactly one value, when the connection ends.
    pub(crate) gone: oneshot::Receiver<Gone>,
    /// Ends the connection, at the latest when it is dropped.
    pub(crate) cut: Scissors,
}

/// Why a connection ended.
#[derive(Clone, Debug)]
pub(crate) struct Gone {
    pub(crate) error: Error,
    /// The server refused the client, as opposed to a broken connection.
    pub(crate) refused: bool,
}

/// Connects and logs in. One attempt.
pub(crate) async fn dial(settings: &ClientSettings) -> Result<Dialled, DialError> {
    let patience = Patience::new(settings.connect_timeout);
    match &settings.endpoint {
        RemoteEndpoint::WebSocket(socket) => by_websocket(settings, socket, patience).await,
        RemoteEndpoint::Ssh(ssh) => by_tcp(settings, ssh, patience).await,
        RemoteEndpoint::Stream(connector) => by_stream(settings, connector, patience).await,
    }
}

/// Checks that a workspace can be reached and entered: connects, logs in and disconnects.
pub async fn check_connection(settings: &ClientSettings) -> Result<(), DialError> {
    let Dialled { handle, gone, cut, .. } = dial(settings).await?;
    let leaving = async {
        let _ = handle.disconnect(Disconnect::ByApplication, "", "en").await;
        let _ = gone.await;
    };
    // A server that does not answer in time is disconnected without a goodbye.
    let _ = tokio::time::timeout(PARTING, leaving).await;
    drop(cut);
    Ok(())
}

/// Longest time for an orderly disconnect.
const PARTING: Duration = Duration::from_secs(2);

/// Opens a daemon's WebSocket as a byte stream, without SSH on it yet.
pub async fn open_websocket(
    endpoint: &WebSocketEndpoint,
    timeout: Duration,
) -> Result<impl ByteStream + use<>, DialError> {
    websocket::open(endpoint, Patience::new(timeout)).await
}

/// Opens the stream on which a daemon answers HTTP, through the proxy and TLS of the endpoint.
pub async fn open_daemon_http_stream(
    endpoint: &WebSocketEndpoint,
    timeout: Duration,
) -> Result<Box<dyn ByteStream>, DialError> {
    websocket::reach(endpoint, Patience::new(timeout)).await
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
