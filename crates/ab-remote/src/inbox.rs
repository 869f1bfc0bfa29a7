//! Bytes that a client sent and nobody has taken yet.
//!
//! russh grants a client new window as soon as data arrives, whether anybody reads it or not. So
//! each channel knows how much of it is unread, and the connection keeps a [`Gauge`] of all that is;
//! while a channel has too much, it is granted two bytes at a time, which holds it back without
//! stopping to read from the client: other channels, signals, window adjustments and the end of the
//! connection still arrive. [`Valve`](crate::valve::Valve) is how.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;

/// Window of a channel while all is well: as much may be on its way.
pub(crate) const WINDOW: u32 = 4 * 1024 * 1024;
/// Window of a channel before anything was sent on it; what is not read of many channels is little.
pub(crate) const FIRST_WINDOW: u32 = 1024 * 1024;
/// Unread bytes of a channel from which on it is held back. Half a window has just come when new
/// window is granted; whoever keeps up with that is not held back.
pub(crate) const HOLD_BACK: usize = 3 * 1024 * 1024;
/// Unread bytes of a connection from which on all its channels are held back. The nearer that is,
/// the earlier each of them is.
pub(crate) const HOLD_ALL: usize = 24 * 1024 * 1024;
/// The part of what is left to a connection that one channel may have.
const PART: usize = 4;
/// Unread bytes of a connection that it does not survive: several full windows.
pub(crate) const MAX_UNREAD: usize = 64 * 1024 * 1024;

/// Whether a channel has too much unread, of so much of the whole connection.
pub(crate) fn is_held(own: usize, all: usize) -> bool {
    own > HOLD_BACK.min(HOLD_ALL.saturating_sub(all) / PART)
}

/// How much of a connection's input is unread.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    unread: AtomicUsize,
}

impl Gauge {
    pub(crate) fn unread(&self) -> usize {
        self.unread.load(Ordering::Acquire)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.unread() > HOLD_ALL
    }

    fn add(&self, bytes: usize) {
        self.unread.fetch_add(bytes, Ordering::AcqRel);
    }

    fn take(&self, bytes: usize) {
        self.unread.fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// The input of one channel: filled by the connection, emptied by whatever the channel runs.
#[derive(Debug)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    arrived: Notify,
    taken: Notify,
    gauge: Arc<Gauge>,
}

#[derive(Debug, Default)]
struct State {
    unread: BytesMut,
    /// How long it will be once the packet that is waited for is there.
    expected: usize,
    ended: bool,
}

/// A packet that says it is longer than any may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong {
    pub(crate) length: u32,
}

impl Inbox {
    pub(crate) fn new(gauge: Arc<Gauge>) -> Self {
        Self { state: Mutex::default(), arrived: Notify::new(), taken: Notify::new(), gauge }
    }

    /// Whether more is unread than may be.
    pub(crate) fn is_held(&self) -> bool {
        is_held(self.lock().unread.len(), self.gauge.unread())
    }

    /// Waits until something was taken and less is unread.
    pub(crate) async fn room(&self) {
        loop {
            let taken = self.taken.notified();
            if !self.is_held() {
                return;
            }
            taken.await;
        }
    }

    pub(crate) fn push(&self, bytes: &[u8]) {
        let mut state = self.lock();
        if state.ended {
            return;
        }
        let length = state.unread.len();
        if state.unread.capacity() - length < bytes.len() {
            // A packet gets its memory at once; whatever else grows by doubling.
            let more = state.expected.saturating_sub(length).max(length);
            state.unread.reserve(bytes.len().max(more));
        }
        state.unread.extend_from_slice(bytes);
        drop(state);
        self.gauge.add(bytes.len());
        self.arrived.notify_one();
    }

    /// Nothing more will come.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.arrived.notify_one();
    }

    /// Nobody will read any more: what waits is dropped.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.ended = true;
        let left = std::mem::take(&mut state.unread).len();
        drop(state);
        self.gauge.take(left);
    }

    /// Up to `most` bytes as they came; nothing at the end.
    pub(crate) async fn bytes(&self, most: usize) -> Option<Bytes> {
        loop {
            {
                let mut state = self.lock();
                if !state.unread.is_empty() {
                    let length = state.unread.len().min(most);
                    return Some(self.taken(&mut state, length));
                }
                if state.ended {
                    return None;
                }
            }
            self.arrived.notified().await;
        }
    }

    /// A packet that has its length in front, without that; nothing at the end. What is left of
    /// half a packet at the end is dropped.
    pub(crate) async fn packet(&self, longest: usize) -> Result<Option<Bytes>, TooLong> {
        loop {
            {
                let mut state = self.lock();
                if let Some(header) = state.unread.first_chunk::<4>() {
                    let length = u32::from_be_bytes(*header);
                    if length as usize > longest {
                        return Err(TooLong { length });
                    }
                    let whole = 4 + length as usize;
                    if state.unread.len() >= whole {
                        let mut packet = self.taken(&mut state, whole);
                        let _ = packet.split_to(4);
                        return Ok(Some(packet));
                    }
                    state.expected = whole;
                }
                if state.ended {
                    return Ok(None);
                }
            }
            self.arrived.notified().await;
        }
    }

    fn taken(&self, state: &mut State, length: usize) -> Bytes {
        let bytes = state.unread.split_to(length).freeze();
        state.expected = 0;
        if state.unread.is_empty() {
            // An idle channel keeps no memory for what it once was sent.
            state.unread = BytesMut::new();
        }
        self.gauge.take(length);
        self.taken.notify_waiters();
        bytes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let left = self.lock().unread.len();
        self.gauge.take(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn packets_come_whole_whatever_the_pieces() {
        let gauge = Arc::new(Gauge::default());
        let inbox = Inbox::new(gauge.clone());
        for byte in [0, 0, 0, 2, 7, 8, 0, 0, 0, 0, 0, 0] {
            inbox.push(&[byte]);
        }
        assert_eq!(inbox.packet(10).await, Ok(Some(Bytes::from_static(&[7, 8]))));
        assert_eq!(inbox.packet(10).await, Ok(Some(Bytes::new())));
        inbox.end();
        inbox.push(b"late");
        assert_eq!(inbox.packet(10).await, Ok(None));
        assert_eq!(gauge.unread(), 2);
        drop(inbox);
        assert_eq!(gauge.unread(), 0);
    }

    #[tokio::test]
    async fn a_length_is_not_believed() {
        let inbox = Inbox::new(Arc::default());
        inbox.push(&u32::MAX.to_be_bytes());
        assert_eq!(inbox.packet(10).await, Err(TooLong { length: u32::MAX }));
    }

    #[tokio::test]
    async fn a_full_channel_waits_for_its_reader() {
        let gauge = Arc::new(Gauge::default());
        let [inbox, other] = [(); 2].map(|()| Inbox::new(gauge.clone()));
        other.push(&[1]);
        inbox.push(&vec![1; HOLD_BACK + 1]);
        assert!(inbox.is_held() && !other.is_held());
        let (taken, ()) = tokio::join!(inbox.bytes(1), inbox.room());
        assert_eq!(taken, Some(Bytes::from_static(&[1])));
        assert!(!inbox.is_held());
    }

    #[test]
    fn channels_that_are_held_back_are_few_bytes_together() {
        let gauge = Arc::new(Gauge::default());
        let inboxes = [(); 64].map(|()| Inbox::new(gauge.clone()));
        for inbox in &inboxes {
            while !inbox.is_held() {
                inbox.push(&[1; 64 * 1024]);
            }
        }
        assert!(gauge.unread() <= HOLD_ALL + 64 * 64 * 1024, "{} bytes", gauge.unread());
        assert!(!gauge.is_full() || gauge.unread() < MAX_UNREAD / 2);
    }
}
