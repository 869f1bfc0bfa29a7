//! The russh handler of the client. It checks the host key, refuses channels that the server opens,
//! and reports the end of the connection once.

use std::sync::Arc;

use ab_core::{Error, ErrorCode, ErrorKind, Result};
use russh::client::{ChannelOpenHandle, DisconnectReason, Handler, Msg, Session};
use russh::keys::PublicKeyOrCertificate;
use russh::{Channel, ChannelId, Disconnect, Sig};
use tokio::sync::oneshot;

use super::Gone;
use super::failure::words;
use crate::client::address::HostPort;
use crate::client::host_key::HostKeyCheck;
use crate::client::lines::{Exited, Lines};

/// The client's russh handler.
pub(crate) struct Client {
    /// How to check the host key. `None` if the endpoint has no host name for the check.
    check: Option<(HostKeyCheck, HostPort)>,
    who: String,
    /// Reports the end of the connection. The first function that notices the end takes this
    /// sender, so that only one report is sent.
    over: Option<oneshot::Sender<Gone>>,
    /// Passes the data of each channel to its receiver.
    lines: Arc<Lines>,
}

impl Client {
    pub(super) fn new(
        check: Option<(HostKeyCheck, HostPort)>,
        who: &str,
        over: oneshot::Sender<Gone>,
        lines: Arc<Lines>,
    ) -> Self {
        Self { check, who: who.to_owned(), over: Some(over), lines }
    }

    fn ended(&mut self, why: &str, refused: bool) {
        if let Some(over) = self.over.take() {
            let message = format!("the connection to {} was closed: {why}", self.who);
            let error = Error::new(ErrorCode::ConnectionClosed, ErrorKind::Disconnected, message);
            // Sending fails if this side has closed the connection and no longer waits.
            let _ = over.send(Gone { error, refused });
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.ended("it was closed", false);
        self.lines.end_all();
    }
}

/// Why a russh session ended.
#[derive(Debug)]
pub(crate) enum Failure {
    HostKey(Error),
    Ssh(russh::Error),
}

impl From<russh::Error> for Failure {
    fn from(error: russh::Error) -> Self {
        Failure::Ssh(error)
    }
}

impl Handler for Client {
    type Error = Failure;

    async fn check_server_key(
        &mut self,
        shown: &PublicKeyOrCertificate,
    ) -> Result<bool, Self::Error> {
        let Some((check, host)) = self.check.clone() else { return Ok(true) };
        let key = shown.public_key();
        apart(move || check.judge(&host, &key)).await.map_err(Failure::HostKey)?;
        Ok(true)
    }

    async fn data(
        &mut self,
        channel: ChannelId,
        data: &[u8],
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        if let Some(line) = self.lines.get(channel) {
            line.data(data);
        }
        Ok(())
    }

    async fn extended_data(
        &mut self,
        channel: ChannelId,
        _kind: u32,
        data: &[u8],
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        if let Some(line) = self.lines.get(channel) {
            line.complaint(data);
        }
        Ok(())
    }

    async fn exit_status(
        &mut self,
        channel: ChannelId,
        status: u32,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        if let Some(line) = self.lines.get(channel) {
            line.exit(Exited::Status(status));
        }
        Ok(())
    }

    async fn exit_signal(
        &mut self,
        channel: ChannelId,
        signal: Sig,
        _core_dumped: bool,
        _message: &str,
        _language: &str,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        if let Some(line) = self.lines.get(channel) {
            line.exit(Exited::Signal(crate::signal::number(&signal)));
        }
        Ok(())
    }

    async fn channel_failure(
        &mut self,
        channel: ChannelId,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        if let Some(line) = self.lines.get(channel) {
            line.refused();
        }
        Ok(())
    }

    async fn channel_close(
        &mut self,
        channel: ChannelId,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        self.lines.end(channel);
        Ok(())
    }

    async fn disconnected(
        &mut self,
        reason: DisconnectReason<Self::Error>,
    ) -> Result<(), Self::Error> {
        match reason {
            DisconnectReason::ReceivedDisconnect(disconnect) => {
                let said = ab_core::error::escape_unprintable(disconnect.message.trim());
                let why = match said.as_str() {
                    "" => "it disconnected".to_owned(),
                    said => format!("it said '{said}'"),
                };
                // OpenSSH reports too many login attempts as a protocol error.
                let refused = matches!(
                    disconnect.reason_code,
                    Disconnect::ProtocolError | Disconnect::NoMoreAuthMethodsAvailable
                );
                self.ended(&why, refused);
            }
            DisconnectReason::Error(Failure::Ssh(error)) => self.ended(&words(&error), false),
            DisconnectReason::Error(Failure::HostKey(error)) => self.ended(error.message(), true),
        }
        Ok(())
    }

    // The client makes no requests for which the server would have to open a channel. Dropping the
    // reply refuses the channel.

    async fn server_channel_open_session(
        &mut self,
        _: Channel<Msg>,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn server_channel_open_agent_forward(
        &mut self,
        _: Channel<Msg>,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn server_channel_open_x11(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// Runs `task` on a thread that may block, because it may wait for the disk.
pub(super) async fn apart<T: Send + 'static>(
    task: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(task).await;
    done.unwrap_or_else(|error| {
        let message = format!("cannot look up host keys: {error}");
        Err(Error::new(ErrorCode::ConnectionClosed, ErrorKind::Cancelled, message))
    })
}
