//! Buffers the output of a command on a plain SSH server until the reader takes it.
//!
//! russh accepts everything that a server sends, even if no task reads it. Therefore this buffer
//! counts unread bytes, and a command that exceeds the limit is ended.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ab_core::process::OutputChannel;
use bytes::Bytes;
use tokio::sync::Notify;

use crate::client::lines::{Exited, Line};

/// Maximum number of bytes that wait for the reader.
pub(super) const MOST_UNREAD: usize = 64 * 1024 * 1024;

#[derive(Debug, Default)]
pub(super) struct OutputBuffer {
    state: Mutex<State>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct State {
    pieces: VecDeque<(OutputChannel, Bytes)>,
    /// Number of bytes that have arrived and that the reader has not taken.
    unread: usize,
    exited: Option<Exited>,
    ended: Option<EndOfOutput>,
}

/// Why there is no more output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndOfOutput {
    /// The channel is closed.
    Over,
    /// The server refused to run the command.
    Refused,
    /// The number of unread bytes exceeded the limit.
    Full,
}

impl OutputBuffer {
    /// Returns the next piece of output. If there will be none, returns the reason.
    pub(super) async fn next(&self) -> Result<(OutputChannel, Bytes), EndOfOutput> {
        loop {
            {
                let mut state = self.lock();
                if state.ended == Some(EndOfOutput::Full) {
                    return Err(EndOfOutput::Full);
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

    /// Records that the reader has taken `bytes` bytes, or that they were discarded.
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
            state.ended = Some(EndOfOutput::Full);
        } else {
            state.pieces.push_back((channel, Bytes::copy_from_slice(bytes)));
        }
        drop(state);
        self.arrived.notify_one();
    }

    fn end(&self, silence: EndOfOutput) {
        self.lock().ended.get_or_insert(silence);
        self.arrived.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line for OutputBuffer {
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
        self.end(EndOfOutput::Refused);
    }

    fn over(&self) {
        self.end(EndOfOutput::Over);
    }
}
