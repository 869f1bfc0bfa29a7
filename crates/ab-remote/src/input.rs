//! A queue between the channel of a client and the standard input of a process.
//!
//! Signals and window updates arrive on the same channel as input. So the reader of the channel
//! must not wait until the process takes its input. Instead the input goes to a queue, which limits
//! the number of bytes and of end-of-input marks. Small pieces are joined, so that the queue needs
//! little more memory than its bytes.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;

/// Maximum size in bytes of a piece that is made by joining smaller ones.
const PIECE: usize = 64 * 1024;
/// Maximum number of queued end-of-input marks. A terminal may need several, one for each program
/// that reads from it.
const MAX_ENDS: usize = 64;

/// The next input of a process.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Bytes(Bytes),
    /// The end of the input. On a terminal, more input may follow.
    End,
}

/// The error if the client sends more than the queue may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overrun;

#[derive(Debug)]
pub(crate) struct InputQueue {
    /// Maximum number of queued bytes.
    most: usize,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Number of bytes that the client has sent and the process has not taken.
    bytes: usize,
    ends: usize,
    closed: bool,
}

#[derive(Debug)]
enum Waiting {
    Bytes(BytesMut),
    End,
}

impl InputQueue {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, state: Mutex::default(), changed: Notify::new() }
    }

    pub(crate) fn push(&self, bytes: &[u8]) -> Result<(), Overrun> {
        let mut state = self.lock();
        if state.closed || bytes.is_empty() {
            return Ok(());
        }
        if bytes.len() > self.most - state.bytes {
            return Err(Overrun);
        }
        state.bytes += bytes.len();
        match state.waiting.back_mut() {
            Some(Waiting::Bytes(last)) if last.len() + bytes.len() <= PIECE => {
                last.extend_from_slice(bytes);
            }
            _ => state.waiting.push_back(Waiting::Bytes(BytesMut::from(bytes))),
        }
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    pub(crate) fn end(&self) -> Result<(), Overrun> {
        let mut state = self.lock();
        if state.closed {
            return Ok(());
        }
        if state.ends == MAX_ENDS {
            return Err(Overrun);
        }
        state.ends += 1;
        state.waiting.push_back(Waiting::End);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Closes the queue for new input. Input that is already queued is still returned.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    /// Returns the next input. `None` when the queue is closed and empty.
    pub(crate) async fn next(&self) -> Option<Step> {
        loop {
            {
                let mut state = self.lock();
                match state.waiting.pop_front() {
                    Some(Waiting::Bytes(bytes)) => return Some(Step::Bytes(bytes.freeze())),
                    Some(Waiting::End) => {
                        state.ends -= 1;
                        return Some(Step::End);
                    }
                    None if state.closed => return None,
                    None => {}
                }
            }
            self.changed.notified().await;
        }
    }

    /// Records that the process has taken `bytes` bytes, which makes room for more.
    pub(crate) fn taken(&self, bytes: usize) {
        let mut state = self.lock();
        state.bytes = state.bytes.saturating_sub(bytes);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn steps_come_in_order_and_small_pieces_are_joined() {
        let queue = InputQueue::new(100);
        for piece in [&b"a"[..], b"", b"bc"] {
            queue.push(piece).unwrap();
        }
        queue.end().unwrap();
        queue.push(b"d").unwrap();
        queue.close();
        queue.push(b"late").unwrap();
        assert_eq!(queue.next().await, Some(Step::Bytes(Bytes::from_static(b"abc"))));
        assert_eq!(queue.next().await, Some(Step::End));
        assert_eq!(queue.next().await, Some(Step::Bytes(Bytes::from_static(b"d"))));
        assert_eq!(queue.next().await, None);
    }

    #[tokio::test]
    async fn bytes_count_until_the_process_took_them() {
        let queue = InputQueue::new(4);
        queue.push(b"abcd").unwrap();
        assert_eq!(queue.push(b"e"), Err(Overrun));
        queue.next().await;
        assert_eq!(queue.push(b"e"), Err(Overrun));
        queue.taken(4);
        queue.push(b"e").unwrap();
    }

    #[test]
    fn pieces_without_a_byte_and_ends_of_input_are_bounded() {
        let queue = InputQueue::new(4);
        for _ in 0..1_000_000 {
            queue.push(b"").unwrap();
        }
        assert_eq!(queue.lock().waiting.len(), 0);
        let ends = (0..1_000_000).take_while(|_| queue.end().is_ok()).count();
        assert_eq!(ends, MAX_ENDS);
    }

    #[test]
    fn a_million_pieces_of_a_byte_are_few() {
        let queue = InputQueue::new(1024 * 1024);
        for _ in 0..1024 * 1024 {
            queue.push(b"x").unwrap();
        }
        assert_eq!(queue.lock().waiting.len(), 1024 * 1024 / PIECE);
    }
}
