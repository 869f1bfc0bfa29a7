//! What arrives on the channel of a command, until somebody takes it.
//!
//! russh takes whatever a server sends, whether anybody reads it or not. So what is unread is
//! counted here, and a command that says more than there is room for is not listened to any more.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ab_core::process::OutputChannel;
use bytes::Bytes;
use tokio::sync::Notify;

use crate::client::lines::{Exited, Line};

/// Bytes that may wait for a reader.
pub(super) const MOST_UNREAD: usize = 64 * 1024 * 1024;

#[derive(Debug, Default)]
pub(super) struct Ear {
    state: Mutex<State>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct State {
    pieces: VecDeque<(OutputChannel, Bytes)>,
    /// Bytes that arrived and did not reach whoever reads.
    unread: usize,
    exited: Option<Exited>,
    ended: Option<Silence>,
}

/// Why nothing more is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// The channel is over.
    Over,
    /// The server does not run the command.
    Refused,
    /// More was said than there is room for.
    Full,
}

impl Ear {
    /// What came next on either channel, or why nothing more will.
    pub(super) async fn next(&self) -> Result<(OutputChannel, Bytes), Silence> {
        loop {
            {
                let mut state = self.lock();
                if state.ended == Some(Silence::Full) {
                    return Err(Silence::Full);
                }
                if let Some(piece) = state.pieces.pop_front() {
                    return Ok(piece);
                }
                if let Some(silence) = state.ended {
                    return Err(silence);
                }
            }
            self.arrived.notified().await;
        }
    }

    /// Bytes reached whoever reads, or nobody ever will.
    pub(super) fn taken(&self, bytes: usize) {
        let mut state = self.lock();
        state.unread = state.unread.saturating_sub(bytes);
    }

    pub(super) fn exited(&self) -> Option<Exited> {
        self.lock().exited
    }

    fn push(&self, channel: OutputChannel, bytes: &[u8]) {
        let mut state = self.lock();
        if state.ended.is_some() {
            return;
        }
        state.unread += bytes.len();
        if state.unread > MOST_UNREAD {
            state.pieces.clear();
            state.ended = Some(Silence::Full);
        } else {
            state.pieces.push_back((channel, Bytes::copy_from_slice(bytes)));
        }
        drop(state);
        self.arrived.notify_one();
    }

    fn end(&self, silence: Silence) {
        self.lock().ended.get_or_insert(silence);
        self.arrived.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line for Ear {
    fn data(&self, bytes: &[u8]) {
        self.push(OutputChannel::Stdout, bytes);
    }

    fn complaint(&self, bytes: &[u8]) {
        self.push(OutputChannel::Stderr, bytes);
    }

    fn exit(&self, exited: Exited) {
        self.lock().exited.get_or_insert(exited);
    }

    fn refused(&self) {
        self.end(Silence::Refused);
    }

    fn over(&self) {
        self.end(Silence::Over);
    }
}
