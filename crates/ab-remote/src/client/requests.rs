//! Requests on their way and answers on theirs, over one SFTP channel.
//!
//! Any number of callers ask at once; each answer finds its caller by its number. Whoever goes away
//! before its answer is there is not waited for. When the channel ends, everybody who waits is told
//! at once, and whether its request was sent at all.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, Bytes, BytesMut};
use russh::ChannelId;
use tokio::sync::oneshot;

use super::carrier::Carrier;
use super::lines::Line;
use super::reply::{self, Arrived, Reply, Version};

/// Longest packet that is taken, without its length.
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

/// There is no answer and never will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unanswered {
    pub(crate) number: u32,
    /// Whether the request may have reached the server.
    pub(crate) sent: bool,
}

impl Requests {
    /// Also gives what will be the server's first packet.
    pub(crate) fn new(
        carrier: Carrier,
        channel: ChannelId,
    ) -> (Arc<Self>, oneshot::Receiver<Version>) {
        let (greeting, version) = oneshot::channel();
        let state = State { greeting: Some(greeting), ..State::default() };
        let next = AtomicU32::new(1);
        (Arc::new(Self { carrier, channel, next, state: Mutex::new(state) }), version)
    }

    /// Whether nothing will be answered any more.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().over
    }

    /// A number for a request, or for whatever else is to be told from them.
    pub(crate) fn number(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a packet that nobody waits for the answer to.
    pub(crate) async fn send(&self, packet: Bytes) -> Result<(), ()> {
        self.carrier.data(self.channel, packet).await.map_err(drop)
    }

    /// Sends a request, whose packet has this number, and waits for the answer.
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

/// Somebody who waits for an answer, or did.
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
        // Most answers arrive whole, and then nothing is kept.
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

/// Nobody is answered any more.
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
