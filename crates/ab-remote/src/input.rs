//! Input of a process that waits to be taken, in the order in which the client sent it.
//!
//! Signals and room for output come on the same channel as input, so whoever reads the channel never
//! waits for the process to take its input. Instead the queue is bounded: by bytes, and by the ends of
//! input between them. Small pieces are joined, so that the memory of the queue is that of its bytes.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;

/// Pieces up to this size are joined.
const PIECE: usize = 64 * 1024;
/// Ends of input that may wait. A terminal takes several, one for each program that reads from it.
const MAX_ENDS: usize = 64;

/// One step of what a process is to read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Bytes(Bytes),
    /// The end of input, as far as the process is concerned.
    End,
}

/// The client sent more than it may before some was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overrun;

#[derive(Debug)]
pub(crate) struct InputQueue {
    /// Bytes that may wait.
    most: usize,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// Bytes that were pushed and not yet taken by the process.
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

    /// Nothing more is taken in; what waits is still handed out.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    /// The next step; nothing once the queue is closed and empty.
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

    /// The process took so many bytes, so there is room for as many.
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
