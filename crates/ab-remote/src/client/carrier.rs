//! The sending side of a connection. All channels of the connection use it.

use std::fmt;
use std::sync::Arc;

use ab_core::process::TerminalSize;
use bytes::Bytes;
use russh::client::{Handle, Msg};
use russh::{ChannelId, ChannelOpenFailure, ChannelWriteHalf};

use super::dial::Client;

/// Sends data on any channel of a connection. Each piece is sent completely or not at all, even if
/// the caller drops its future.
#[derive(Clone)]
pub(crate) struct Carrier {
    handle: Arc<Handle<Client>>,
}

impl Carrier {
    pub(crate) fn new(handle: Handle<Client>) -> Self {
        Self { handle: Arc::new(handle) }
    }

    /// Queues a piece for sending. If the connection is closed, returns the piece as the error.
    pub(crate) async fn data(&self, channel: ChannelId, bytes: Bytes) -> Result<(), Bytes> {
        self.handle.data(channel, bytes).await
    }

    pub(crate) async fn open(&self) -> Result<HalfChannel, Unopened> {
        let channel = self.handle.channel_open_session().await.map_err(|error| match error {
            russh::Error::ChannelOpenFailure(why) => Unopened::Refused(why),
            _ => Unopened::Gone,
        })?;
        // Drop the read half, because `Lines` receives the incoming data. The queue of an unread
        // read half would fill and block the connection.
        let (_, half) = channel.split();
        Ok(HalfChannel(half))
    }
}

impl fmt::Debug for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carrier").finish_non_exhaustive()
    }
}

/// The reason why a channel could not be opened.
#[derive(Clone, Debug)]
pub(crate) enum Unopened {
    Refused(ChannelOpenFailure),
    /// The connection is closed.
    Gone,
}

impl fmt::Display for Unopened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unopened::Refused(ChannelOpenFailure::ResourceShortage) => {
                f.write_str("it has too many channels open")
            }
            Unopened::Refused(why) => write!(f, "it opens no channel: {why:?}"),
            Unopened::Gone => f.write_str("the connection was closed"),
        }
    }
}

/// A channel that stays open until it is [closed](Self::close). Only its sending half is used.
#[derive(Debug)]
pub(crate) struct HalfChannel(ChannelWriteHalf<Msg>);

impl HalfChannel {
    pub(crate) fn id(&self) -> ChannelId {
        self.0.id()
    }

    /// Requests a subsystem. A refusal by the server is reported to the receiver of the channel.
    pub(crate) async fn request_subsystem(&self, name: &str) -> Result<(), Unopened> {
        self.0.request_subsystem(true, name).await.map_err(|_| Unopened::Gone)
    }

    /// Requests that the server run a command line. If the server refuses, the receiver of the
    /// channel learns it. If this function returns an error, nothing was sent.
    pub(crate) async fn exec(&self, line: &str) -> Result<(), Unopened> {
        self.0.exec(true, line).await.map_err(|_| Unopened::Gone)
    }

    pub(crate) async fn request_terminal(
        &self,
        term: &str,
        size: TerminalSize,
    ) -> Result<(), Unopened> {
        let (columns, rows) = (size.columns.into(), size.rows.into());
        let asked = self.0.request_pty(false, term, columns, rows, 0, 0, &[]).await;
        asked.map_err(|_| Unopened::Gone)
    }

    pub(crate) async fn resize(&self, size: TerminalSize) {
        // This fails only if the connection is closed. There is then no terminal to resize.
        let _ = self.0.window_change(size.columns.into(), size.rows.into(), 0, 0).await;
    }

    /// Sends the bytes, and waits while the window of the server is full. Returns whether all bytes
    /// were sent.
    pub(crate) async fn say(&self, bytes: Bytes) -> bool {
        self.0.data_bytes(bytes).await.is_ok()
    }

    pub(crate) async fn end_of_input(&self) {
        let _ = self.0.eof().await;
    }

    pub(crate) async fn close(self) {
        // This fails only if the connection is closed. The channel is then closed too.
        let _ = self.0.close().await;
    }
}
