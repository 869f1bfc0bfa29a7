//! The channels of a connection, and the receiver of each channel.
//!
//! The receivers must not block, because russh calls them from the loop that also reads the socket.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use russh::ChannelId;

/// Receives the messages of a channel.
pub(crate) trait Line: Send + Sync {
    fn data(&self, bytes: &[u8]);
    /// Called for output of a command on standard error.
    fn complaint(&self, _: &[u8]) {}
    /// Called for the exit status of a command.
    fn exit(&self, _: Exited) {}
    /// Called if the server refuses the requested command or subsystem.
    fn refused(&self);
    /// Called when the channel is closed. No more data will arrive.
    fn over(&self);
}

/// How a command on an SSH server that is not agent-backend ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exited {
    Status(u32),
    Signal(Option<i32>),
}

#[derive(Default)]
pub(crate) struct Lines {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: HashMap<ChannelId, Arc<dyn Line>>,
    over: bool,
}

impl Lines {
    /// Registers `line` as the receiver of a channel.
    pub(crate) fn add(&self, channel: ChannelId, line: Arc<dyn Line>) {
        let mut state = self.lock();
        if state.over {
            drop(state);
            line.over();
            return;
        }
        state.open.insert(channel, line);
    }

    pub(crate) fn get(&self, channel: ChannelId) -> Option<Arc<dyn Line>> {
        self.lock().open.get(&channel).cloned()
    }

    /// Ends a channel and notifies its receiver.
    pub(crate) fn end(&self, channel: ChannelId) {
        let line = self.lock().open.remove(&channel);
        if let Some(line) = line {
            line.over();
        }
    }

    /// Whether the connection to the server has ended. This is set before the receivers are
    /// notified.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().over
    }

    /// Ends the connection and notifies all receivers.
    pub(crate) fn end_all(&self) {
        let mut state = self.lock();
        state.over = true;
        let open = std::mem::take(&mut state.open);
        drop(state);
        open.values().for_each(|line| line.over());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").field("open", &self.lock().open.len()).finish_non_exhaustive()
    }
}
