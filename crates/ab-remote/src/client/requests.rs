//! Sends requests on an SFTP channel and matches the answers to them.
//!
//! Any number of callers may send requests at the same time. Each answer is matched to its caller
//! by the number of the request. A caller may drop its future before the answer arrives. When the
//! channel ends, all waiting callers fail at once, and their errors say whether the request was
//! sent.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, Bytes, BytesMut};
use russh::ChannelId;
use tokio::sync::oneshot;

use super::carrier::Carrier;
use super::lines::Line;
use super::reply::{self, Arrived, Reply, Version};

/// Maximum length of a packet in bytes, without its length prefix.
const LONGEST: usize = 2 * 1024 * 1024;

pub(crate) struct Requests {
    carrier: Carrier,
    channel: ChannelId,
    next: AtomicU32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: HashMap<u32, oneshot::Sender<Reply>>,
    greeting: Option<oneshot::Sender<Version>>,
    unread: BytesMut,
    over: bool,
}

/// The error if the channel ended before the answer arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unanswered {
    pub(crate) number: u32,
    /// Whether the request may have reached the server.
    pub(crate) sent: bool,
}

impl Requests {
    /// Creates the state of an SFTP channel. Also returns a receiver for the first packet of the
    /// server.
    pub(crate) fn new(
        carrier: Carrier,
        channel: ChannelId,
    ) -> (Arc<Self>, oneshot::Receiver<Version>) {
        let (greeting, version) = oneshot::channel();
        let state = State { greeting: Some(greeting), ..State::default() };
        let next = AtomicU32::new(1);
        (Arc::new(Self { carrier, channel, next, state: Mutex::new(state) }), version)
    }

    /// Whether the SFTP channel has ended, so that no more answers will arrive.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().over
    }

    /// A new number for a request, or for anything else that needs a unique number.
    pub(crate) fn number(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a packet without waiting for an answer.
    pub(crate) async fn send(&self, packet: Bytes) -> Result<(), ()> {
        self.carrier.data(self.channel, packet).await.map_err(drop)
    }

    /// Sends a request whose packet has this number, and waits for the answer.
    pub(crate) async fn ask(&self, number: u32, packet: Bytes) -> Result<Reply, Unanswered> {
        let (answer, answered) = oneshot::channel();
        {
            let mut state = self.lock();
            if state.over {
                return Err(Unanswered { number, sent: false });
            }
            state.waiting.insert(number, answer);
        }
        let _waiting = Waiting { requests: self, number };
        if self.carrier.data(self.channel, packet).await.is_err() {
            return Err(Unanswered { number, sent: false });
        }
        answered.await.map_err(|_| Unanswered { number, sent: true })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the request from the table of waiting requests when its caller stops waiting.
struct Waiting<'a> {
    requests: &'a Requests,
    number: u32,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.requests.lock().waiting.remove(&self.number);
    }
}

impl Line for Requests {
    fn data(&self, bytes: &[u8]) {
        let mut state = self.lock();
        if state.over {
            return;
        }
        // Most answers arrive in one piece. In this case nothing is buffered.
        let mut whole;
        let unread: &mut BytesMut = if state.unread.is_empty() {
            whole = BytesMut::from(bytes);
            &mut whole
        } else {
            state.unread.extend_from_slice(bytes);
            whole = std::mem::take(&mut state.unread);
            &mut whole
        };
        while let Some(header) = unread.first_chunk::<4>() {
            let length = u32::from_be_bytes(*header) as usize;
            if length > LONGEST {
                fail(&mut state);
                return;
            }
            if unread.len() < 4 + length {
                unread.reserve(4 + length - unread.len());
                break;
            }
            unread.advance(4);
            let packet = unread.split_to(length).freeze();
            match reply::decode(packet) {
                Ok(Arrived::Version(version)) => {
                    if let Some(greeting) = state.greeting.take() {
                        let _ = greeting.send(version);
                    }
                }
                Ok(Arrived::Reply(number, reply)) => {
                    if let Some(answer) = state.waiting.remove(&number) {
                        let _ = answer.send(reply);
                    }
                }
                Err(_) => {
                    fail(&mut state);
                    return;
                }
            }
        }
        if !unread.is_empty() {
            let left = std::mem::take(unread);
            state.unread = left;
        }
    }

    fn refused(&self) {
        self.over();
    }

    fn over(&self) {
        fail(&mut self.lock());
    }
}

/// Fails all requests that wait for an answer.
fn fail(state: &mut State) {
    state.over = true;
    state.waiting.clear();
    state.greeting = None;
    state.unread = BytesMut::new();
}

impl std::fmt::Debug for Requests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").field("channel", &self.channel).finish_non_exhaustive()
    }
}
