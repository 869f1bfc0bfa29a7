//! The way out of a connection, for whoever has something to say on it.

use std::fmt;
use std::sync::Arc;

use ab_core::process::TerminalSize;
use bytes::Bytes;
use russh::client::{Handle, Msg};
use russh::{ChannelId, ChannelOpenFailure, ChannelWriteHalf};

use super::dial::Client;

/// Sends on any channel of a connection. Each piece is sent whole or not at all, also when whoever
/// sends it goes away meanwhile.
#[derive(Clone)]
pub(crate) struct Carrier {
    handle: Arc<Handle<Client>>,
}

impl Carrier {
    pub(crate) fn new(handle: Handle<Client>) -> Self {
        Self { handle: Arc::new(handle) }
    }

    /// Hands a piece over; gives it back when the connection is over.
    pub(crate) async fn data(&self, channel: ChannelId, bytes: Bytes) -> Result<(), Bytes> {
        self.handle.data(channel, bytes).await
    }

    pub(crate) async fn open(&self) -> Result<HalfChannel, Unopened> {
        let channel = self.handle.channel_open_session().await.map_err(|error| match error {
            russh::Error::ChannelOpenFailure(why) => Unopened::Refused(why),
            _ => Unopened::Gone,
        })?;
        // What arrives is told to the lines; the half that reads would only hold them up.
        let (_, half) = channel.split();
        Ok(HalfChannel(half))
    }
}

impl fmt::Debug for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carrier").finish_non_exhaustive()
    }
}

/// Why there is no channel.
#[derive(Clone, Debug)]
pub(crate) enum Unopened {
    Refused(ChannelOpenFailure),
    /// The connection is over.
    Gone,
}

impl fmt::Display for Unopened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unopened::Refused(ChannelOpenFailure::ResourceShortage) => {
                f.write_str("it has too many channels open")
            }
            Unopened::Refused(why) => write!(f, "it opens no channel: {why:?}"),
            Unopened::Gone => f.write_str("the connection is over"),
        }
    }
}

/// A channel, as long as this is not [closed](Self::close).
#[derive(Debug)]
pub(crate) struct HalfChannel(ChannelWriteHalf<Msg>);

impl HalfChannel {
    pub(crate) fn id(&self) -> ChannelId {
        self.0.id()
    }

    /// Asks for a subsystem; a refusal is heard on the channel.
    pub(crate) async fn request_subsystem(&self, name: &str) -> Result<(), Unopened> {
        self.0.request_subsystem(true, name).await.map_err(|_| Unopened::Gone)
    }

    /// Asks for a line to be run; a refusal is heard on the channel. What fails has not been sent.
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
        // A connection that is over has no terminal either.
        let _ = self.0.window_change(size.columns.into(), size.rows.into(), 0, 0).await;
    }

    /// Sends what the other side has room for, and waits where it has none.
    pub(crate) async fn say(&self, bytes: Bytes) -> bool {
        self.0.data_bytes(bytes).await.is_ok()
    }

    pub(crate) async fn end_of_input(&self) {
        let _ = self.0.eof().await;
    }

    pub(crate) async fn close(self) {
        // A connection that is over has closed it already.
        let _ = self.0.close().await;
    }
}
