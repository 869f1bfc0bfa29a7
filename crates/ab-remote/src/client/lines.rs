//! The channels of a connection, and who hears what arrives on each.
//!
//! russh tells of it from the one loop that also reads the socket, so nobody who hears may wait.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use russh::ChannelId;

/// Hears what arrives on a channel.
pub(crate) trait Line: Send + Sync {
    fn data(&self, bytes: &[u8]);
    /// What a command says on standard error.
    fn complaint(&self, _: &[u8]) {}
    /// How a command ended.
    fn exit(&self, _: Exited) {}
    /// The server will not run what was asked for.
    fn refused(&self);
    /// Nothing more will come.
    fn over(&self);
}

/// How a command of a plain server ended.
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
    /// From now on `line` hears what arrives on a channel.
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

    /// Nothing more comes on a channel.
    pub(crate) fn end(&self, channel: ChannelId) {
        let line = self.lock().open.remove(&channel);
        if let Some(line) = line {
            line.over();
        }
    }

    /// Whether the connection is over. It is before any of its lines is told.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().over
    }

    /// The connection is over.
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
