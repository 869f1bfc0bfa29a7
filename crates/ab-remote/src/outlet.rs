//! The output of a channel: data, as far as the window of the client allows, and then the exit
//! status.

use bytes::Bytes;
use russh::server::{Handle, Msg};
use russh::{ChannelWriteHalf, Sig};

/// The error if the client or the connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone;

/// The type of extended data for standard error.
const STDERR: u32 = 1;

/// The sending side of a channel. It passes data to the connection only when the client's window
/// has room for the data. Otherwise a channel whose client does not read would block other
/// channels. Dropping the task cancels the wait.
#[derive(Debug)]
pub(crate) struct Outlet {
    half: ChannelWriteHalf<Msg>,
    connection: Handle,
}

impl Outlet {
    pub(crate) fn new(half: ChannelWriteHalf<Msg>, connection: Handle) -> Self {
        Self { half, connection }
    }

    pub(crate) async fn stdout(&self, bytes: Bytes) -> Result<(), Gone> {
        self.half.data_bytes(bytes).await.map_err(|_| Gone)
    }

    pub(crate) async fn stderr(&self, bytes: Bytes) -> Result<(), Gone> {
        self.half.extended_data_bytes(STDERR, bytes).await.map_err(|_| Gone)
    }

    /// Sends an exit status and closes the channel.
    pub(crate) async fn exit(self, status: u32) -> Result<(), Gone> {
        self.half.exit_status(status).await.map_err(|_| Gone)?;
        self.close().await
    }

    /// Sends the signal that ended the command and closes the channel.
    pub(crate) async fn exit_signal(self, signal: Sig, message: String) -> Result<(), Gone> {
        let told = self.connection.exit_signal_request(
            self.half.id(),
            signal,
            false,
            message,
            "en".to_owned(),
        );
        told.await.map_err(|()| Gone)?;
        self.close().await
    }

    async fn close(self) -> Result<(), Gone> {
        self.half.eof().await.map_err(|_| Gone)?;
        self.half.close().await.map_err(|_| Gone)
    }
}
