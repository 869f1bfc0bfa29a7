//! Makes one connection: opens a byte stream, performs the SSH handshake, checks the host key and
//! logs in. A failed attempt ends within a limited time and leaves nothing open.

mod client;
mod failure;
mod login;
mod nonblocking_shutdown;
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
pub use self::failure::ConnectError;
use self::failure::TimeLeft;
use super::endpoint::{ByteStream, Connector, RemoteEndpoint, SshEndpoint, WebSocketEndpoint};
use super::host_key::HostKeyCheck;
use super::lines::Lines;
use super::settings::RemoteClientSettings;
use crate::cut::StreamCutter;

/// The user name of clients that authenticate with the daemon's token.
const USER: &str = "agent";

/// A connection on which the client has logged in.
pub(crate) struct Dialled {
    pub(crate) handle: Handle<Client>,
    /// Passes the data of each channel to its receiver.
    pub(crate) lines: Arc<Lines>,
    /// The name of the server in error messages.
    pub(crate) who: String,
    /// Receives exactly one value when the connection ends, with the reason.
    pub(crate) gone: oneshot::Receiver<Gone>,
    /// Closes the connection. Dropping it also closes the connection.
    pub(crate) cut: StreamCutter,
}

/// Why a connection ended.
#[derive(Clone, Debug)]
pub(crate) struct Gone {
    pub(crate) error: Error,
    /// Whether the server refused the client. If `false`, the connection broke.
    pub(crate) refused: bool,
}

/// Makes one attempt to connect and to log in.
pub(crate) async fn dial(settings: &RemoteClientSettings) -> Result<Dialled, ConnectError> {
    let time_limit = TimeLeft::new(settings.connect_timeout);
    match &settings.endpoint {
        RemoteEndpoint::WebSocket(socket) => by_websocket(settings, socket, time_limit).await,
        RemoteEndpoint::Ssh(ssh) => by_tcp(settings, ssh, time_limit).await,
        RemoteEndpoint::Stream(connector) => by_stream(settings, connector, time_limit).await,
    }
}

/// Checks that a workspace can be reached: connects, logs in and disconnects.
pub async fn check_connection(settings: &RemoteClientSettings) -> Result<(), ConnectError> {
    let Dialled { handle, gone, cut, .. } = dial(settings).await?;
    let leaving = async {
        let _ = handle.disconnect(Disconnect::ByApplication, "", "en").await;
        let _ = gone.await;
    };
    // If the server does not answer in time, the connection is closed without an orderly
    // disconnect.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, leaving).await;
    drop(cut);
    Ok(())
}

/// Time limit for an orderly disconnect.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Opens the WebSocket of an agent-backend daemon as a byte stream. No SSH handshake is made.
pub async fn open_websocket(
    endpoint: &WebSocketEndpoint,
    timeout: Duration,
) -> Result<impl ByteStream + use<>, ConnectError> {
    websocket::open(endpoint, TimeLeft::new(timeout)).await
}

/// Opens a stream to the HTTP server of an agent-backend daemon, with the proxy and the TLS
/// settings of the endpoint.
pub async fn open_daemon_http_stream(
    endpoint: &WebSocketEndpoint,
    timeout: Duration,
) -> Result<Box<dyn ByteStream>, ConnectError> {
    websocket::reach(endpoint, TimeLeft::new(timeout)).await
}

async fn by_websocket(
    settings: &RemoteClientSettings,
    socket: &WebSocketEndpoint,
    time_limit: TimeLeft,
) -> Result<Dialled, ConnectError> {
    let stream = websocket::open(socket, time_limit).await?;
    let who = socket.address.to_string();
    let mut dialled = ssh::greet(settings, &who, &socket.host_key, stream, time_limit).await?;
    let token = socket.token.as_ref();
    login::without_name(&mut dialled, &who, USER, token, time_limit).await?;
    Ok(dialled)
}

async fn by_tcp(
    settings: &RemoteClientSettings,
    ssh: &SshEndpoint,
    time_limit: TimeLeft,
) -> Result<Dialled, ConnectError> {
    let stream = tcp::connect(&ssh.host, time_limit).await?;
    let who = ssh.host.to_string();
    let mut dialled = ssh::greet(settings, &who, &ssh.host_key, stream, time_limit).await?;
    login::with_credentials(&mut dialled, &who, &ssh.user, &ssh.credentials, time_limit).await?;
    Ok(dialled)
}

async fn by_stream(
    settings: &RemoteClientSettings,
    connector: &Arc<dyn Connector>,
    time_limit: TimeLeft,
) -> Result<Dialled, ConnectError> {
    let who = "the server";
    let stream = time_limit.spend("reach", who, connector.connect()).await?;
    let stream = stream.map_err(|error| ConnectError::lost("reach", who, error))?;
    let check = &HostKeyCheck::Unchecked;
    let mut dialled = ssh::greet(settings, who, check, stream, time_limit).await?;
    login::without_name(&mut dialled, who, USER, None, time_limit).await?;
    Ok(dialled)
}

#[cfg(test)]
mod tests;
