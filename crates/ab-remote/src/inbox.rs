//! Bytes that a client has sent and that have not been read yet.
//!
//! russh grants a client new window as soon as data arrives, even if the data is not read.
//! Therefore each channel counts its unread bytes, and a [`Gauge`] counts the unread bytes of the
//! whole connection. A channel with too many unread bytes is granted only two bytes at a time. This
//! holds the channel back, but the server still reads from the client. Other channels, signals,
//! window adjustments and the end of the connection still arrive. See
//! [`WindowControl`](crate::window_control::WindowControl).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;

/// The normal window of a channel: the number of bytes that may be in flight.
pub(crate) const WINDOW: u32 = 4 * 1024 * 1024;
/// The window of a new channel. It is small, so that many channels whose data no task reads use
/// little memory.
pub(crate) const FIRST_WINDOW: u32 = 1024 * 1024;
/// If a channel has more unread bytes than this, the server grants it almost no window. A channel
/// whose data is read in time never reaches this number, because new window is granted when half of
/// the window has arrived.
pub(crate) const HOLD_BACK: usize = 3 * 1024 * 1024;
/// If a connection has this number of unread bytes, every channel with unread bytes gets almost no
/// window. The closer the connection is to this number, the fewer unread bytes a channel may have.
pub(crate) const HOLD_ALL: usize = 24 * 1024 * 1024;
/// The unread bytes of one channel are limited to the bytes that its connection may still hold,
/// divided by this number.
const PART: usize = 4;
/// If a connection has more unread bytes than this, it is ended. The value is several full windows.
pub(crate) const MAX_UNREAD: usize = 64 * 1024 * 1024;

/// Whether a channel with `own` unread bytes gets almost no new window if the whole connection has
/// `all` unread bytes.
pub(crate) fn is_held(own: usize, all: usize) -> bool {
    own > HOLD_BACK.min(HOLD_ALL.saturating_sub(all) / PART)
}

/// Counts the unread input bytes of a connection.
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

/// The input of one channel. The connection adds data to it, and the command or subsystem of the
/// channel reads the data.
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
    /// The length that `unread` will have when the expected packet is complete.
    expected: usize,
    ended: bool,
}

/// The error if a packet is longer than the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong {
    pub(crate) length: u32,
}

impl Inbox {
    pub(crate) fn new(gauge: Arc<Gauge>) -> Self {
        Self { state: Mutex::default(), arrived: Notify::new(), taken: Notify::new(), gauge }
    }

    /// Whether the channel has too many unread bytes, so that the server grants it almost no
    /// window.
    pub(crate) fn is_held(&self) -> bool {
        is_held(self.lock().unread.len(), self.gauge.unread())
    }

    /// Waits until the channel has few enough unread bytes.
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
            // Reserve memory for a whole packet at once. Without an expected packet, grow by
            // doubling.
            let more = state.expected.saturating_sub(length).max(length);
            state.unread.reserve(bytes.len().max(more));
        }
        state.unread.extend_from_slice(bytes);
        drop(state);
        self.gauge.add(bytes.len());
        self.arrived.notify_one();
    }

    /// Marks the end of the input.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.arrived.notify_one();
    }

    /// Ends the input and drops unread bytes. Called when there is no reader any more.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.ended = true;
        let left = std::mem::take(&mut state.unread).len();
        drop(state);
        self.gauge.take(left);
    }

    /// Reads up to `most` bytes in the order of arrival. `None` at the end.
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

    /// Reads the next packet, which has a length prefix. Returns the packet without the prefix.
    /// `None` at the end. Drops an incomplete packet at the end.
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
            // Free the buffer, so that an idle channel uses no memory for it.
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
