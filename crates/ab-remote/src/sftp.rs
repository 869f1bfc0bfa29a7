//! SFTP version 3 over one channel: requests are taken in order, worked on together, answered as
//! they are done.
//!
//! - Everything runs in the one task of the channel and ends with it.
//! - Each request takes its part of a budget of bytes when it begins and gives it back when its
//!   answer is with the connection, so a client that does not read stops being worked for.
//! - A channel whose client sends what is no packet ends; one bad request is refused.

mod attributes;
mod beyond;
mod budget;
mod calls;
pub mod extended;
mod files;
mod handles;
mod long_name;
mod order;
pub mod packet;
mod paths;
mod perform;
mod staging;
pub(crate) mod status;

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Poll;

use ab_core::{Backend, LostCallEffect};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::FuturesUnordered;

pub use attributes::SftpAttributes;
pub(crate) use budget::BUDGET;
use budget::{Budget, Taken};
pub(crate) use handles::Allowance;
use handles::{Handle, Handles};
use order::Flights;
use packet::{ClientPacket, InvalidPacket, MAX_PACKET_BYTES, PacketWriter, SftpRequestId};
pub(crate) use paths::LinkOrder;
use perform::Job;
pub use staging::MAX_STAGED_WRITE_BYTES;
pub(crate) use staging::Staging;
use status::{BAD_MESSAGE, FAILURE, Refusal};

use crate::inbox::Inbox;
use crate::ledger::{Caller, Ledger, Seat, effect_of_failure};
use crate::outlet::Outlet;
use crate::wire;

/// Requests of one channel that are worked on at a time.
const MAX_TOGETHER: usize = 64;
/// What a request takes beside its data.
const OVERHEAD: usize = 512;
/// Bytes of an answer that travel together with its head.
const FIRST: usize = 32 * 1024;

/// Whose turn it is to make a directory, of all channels of a server: looking whether something is
/// there and making it are two calls, and clients use directories as locks.
pub(crate) type Turn = tokio::sync::Mutex<()>;

/// What the requests of a channel work on.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) backend: Backend,
    pub(crate) allowance: Arc<Allowance>,
    pub(crate) links: LinkOrder,
    handles: Handles,
    /// Whether the client is to be told exactly why something failed.
    exact: AtomicBool,
    /// The same workspace, for the calls of our own client, and its scopes that were asked for.
    views: Backend,
    scopes: Mutex<HashMap<String, Backend>>,
    ledger: Arc<Ledger>,
    caller: Arc<Caller>,
    /// The connection's number and its place in the ledger, once a client of ours said hello.
    seat: OnceLock<(u128, Seat)>,
    staging: Staging,
    making: Arc<Turn>,
    /// The calls that can be called off.
    calls: Mutex<HashMap<SftpRequestId, AbortHandle>>,
}

impl Session {
    pub(crate) fn new(
        backend: Backend,
        allowance: Arc<Allowance>,
        links: LinkOrder,
        (ledger, caller): (Arc<Ledger>, Arc<Caller>),
        staging: Staging,
        making: Arc<Turn>,
    ) -> Self {
        Self {
            views: backend.with_reserved_names_allowed(),
            backend,
            allowance,
            links,
            handles: Handles::default(),
            exact: AtomicBool::new(false),
            scopes: Mutex::default(),
            ledger,
            caller,
            seat: OnceLock::new(),
            staging,
            making,
            calls: Mutex::default(),
        }
    }

    fn says_exactly(&self) {
        self.exact.store(true, Ordering::Release);
    }

    /// Calls a request off, if it is under way.
    fn cancel(&self, request: SftpRequestId) {
        if let Some(call) = self.calls().remove(&request) {
            call.abort();
        }
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<SftpRequestId, AbortHandle>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until somebody asks what became of this connection's calls on another one.
    async fn retired(&self) {
        match self.seat.get() {
            Some((_, seat)) => seat.retired().await,
            None => std::future::pending().await,
        }
    }

    fn handle(&self, handle: &Bytes) -> Result<Arc<Handle>, Refusal> {
        self.handles.get(handle).ok_or_else(|| Refusal::new(FAILURE, "no such handle"))
    }
}

/// The answer to a request, with what it took of the budget.
struct Reply {
    head: Bytes,
    body: Bytes,
    _permit: Taken,
}

/// Answers on their way from one half of a task to the other.
///
/// Whoever takes them is polled after whoever puts them, each time, so nobody has to be woken. A
/// task that woke itself would be queued behind the connection it just gave the answer to, and
/// another thread woken to share that queue.
#[derive(Default)]
struct Replies(Mutex<ReplyQueue>);

#[derive(Default)]
struct ReplyQueue {
    waiting: VecDeque<Reply>,
    ended: bool,
}

impl Replies {
    fn push(&self, replies: impl IntoIterator<Item = Reply>) {
        self.lock().waiting.extend(replies);
    }

    /// There will be no more.
    fn end(&self) {
        self.lock().ended = true;
    }

    async fn next(&self) -> Option<Reply> {
        poll_fn(|_| {
            let mut queue = self.lock();
            match queue.waiting.pop_front() {
                None if !queue.ended => Poll::Pending,
                next => Poll::Ready(next),
            }
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, ReplyQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a request comes to.
#[derive(Debug)]
enum Outcome {
    Done,
    Data(Bytes),
    Packet(PacketWriter),
    /// A packet that goes on with these bytes.
    Parts(PacketWriter, Bytes),
}

/// A request that is worked on: its flight, its lane, its answer.
type Running = Pin<Box<dyn Future<Output = (u64, Option<u32>, Reply)> + Send>>;

/// How a channel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SftpEnded {
    /// The client said that it was done.
    ByClient,
    /// The client sent what is no SFTP.
    Garbage(&'static str),
    Gone,
}

/// Serves a channel until its client is done.
pub(crate) async fn serve(session: Session, inbox: Arc<Inbox>, outlet: Outlet) {
    let replies = Replies::default();
    let sending = async {
        while let Some(reply) = replies.next().await {
            outlet.stdout(reply.head).await.map_err(|_| SftpEnded::Gone)?;
            outlet.stdout(reply.body).await.map_err(|_| SftpEnded::Gone)?;
        }
        Ok(())
    };
    let working = async {
        let ended = work(&Arc::new(session), &inbox, &replies).await;
        replies.end();
        Ok(ended)
    };
    // In this order, as `Replies` wants it.
    let ended = match tokio::try_join!(biased; working, sending) {
        Ok((ended, ())) | Err(ended) => ended,
    };
    // A client that is gone needs no answer.
    let _ = match ended {
        SftpEnded::ByClient => outlet.exit(0).await,
        SftpEnded::Garbage(what) => {
            let _ = outlet.stderr(Bytes::from(format!("sftp: {what}\n"))).await;
            outlet.exit(1).await
        }
        SftpEnded::Gone => Ok(()),
    };
    inbox.close();
}

async fn work(session: &Arc<Session>, inbox: &Inbox, replies: &Replies) -> SftpEnded {
    let budget = Budget::new(session.allowance.purse());
    let mut running: FuturesUnordered<Running> = FuturesUnordered::new();
    let mut flights = Flights::default();
    let mut greeted = false;
    let ended = 'serving: loop {
        let packet = tokio::select! {
            biased;
            // What was asked for and has not begun is said never to happen.
            () = session.retired() => break SftpEnded::ByClient,
            Some((flight, lane, reply)) = running.next(), if !running.is_empty() => {
                replies.push(flights.land(flight, lane, reply));
                continue;
            }
            packet = inbox.packet(MAX_PACKET_BYTES) => packet,
        };
        let packet = match packet {
            Ok(Some(packet)) => packet,
            Ok(None) => break SftpEnded::ByClient,
            Err(_) => break SftpEnded::Garbage("a packet is longer than any may be"),
        };
        let length = packet.len();
        let (id, job) = match packet::decode_client_packet(packet) {
            Ok(ClientPacket::Init { .. }) if !greeted => {
                greeted = true;
                let permit = budget.take(OVERHEAD).await;
                let head = perform::greeting().finish(packet::SFTP_VERSION);
                replies.push([Reply { head, body: Bytes::new(), _permit: permit }]);
                continue;
            }
            Ok(ClientPacket::Init { .. }) => {
                break SftpEnded::Garbage("a session begins only once");
            }
            Ok(ClientPacket::Request { .. }) if !greeted => {
                break SftpEnded::Garbage("a session begins with its version");
            }
            Ok(ClientPacket::Request { id, request }) => (id, Job::new(session, request)),
            Err(InvalidPacket { id: Some(id), what }) => {
                (id, Job::refuse(Refusal::new(BAD_MESSAGE, what)))
            }
            Err(InvalidPacket { id: None, what }) => break SftpEnded::Garbage(what),
        };
        let cost = (job.cost() + length + OVERHEAD).min(BUDGET);
        let permit = budget.take(cost);
        tokio::pin!(permit);
        let mut held = None;
        let permit = loop {
            let free = flights.len() < MAX_TOGETHER && flights.is_free(job.footprint());
            match held.take() {
                Some(permit) if free => break permit,
                still => held = still,
            }
            tokio::select! {
                biased;
                () = session.retired() => break 'serving SftpEnded::ByClient,
                permit = &mut permit, if held.is_none() => held = Some(permit),
                Some((flight, lane, reply)) = running.next(), if !running.is_empty() => {
                    replies.push(flights.land(flight, lane, reply));
                }
            }
        };
        let lane = job.lane();
        let flight = flights.start(job.footprint().clone(), lane);
        running.push(Box::pin(fly(session.clone(), id, job, permit, flight)));
    };
    while let Some((flight, lane, reply)) = running.next().await {
        replies.push(flights.land(flight, lane, reply));
    }
    ended
}

/// Works on one request, and enters in the book what became of it.
async fn fly(
    session: Arc<Session>,
    id: SftpRequestId,
    job: Job,
    permit: Taken,
    flight: u64,
) -> (u64, Option<u32>, Reply) {
    let lane = job.lane();
    let wholly = job.fails_wholly();
    let entry = match session.seat.get() {
        Some((_, seat)) if job.modifies() => Some(seat.begin(id)),
        _ => None,
    };
    let outcome = if job.can_be_called_off() {
        let (handle, registration) = AbortHandle::new_pair();
        session.calls().insert(id, handle);
        let outcome = Abortable::new(job.run(&session), registration).await;
        session.calls().remove(&id);
        outcome.unwrap_or_else(|_| Err(Refusal::new(FAILURE, "called off")))
    } else {
        job.run(&session).await
    };
    if let Some(entry) = entry {
        match &outcome {
            Ok(_) => entry.done(LostCallEffect::Applied),
            Err(Refusal { error: Some(error), .. }) if wholly => {
                entry.done(effect_of_failure(error));
            }
            Err(_) => entry.done(LostCallEffect::Unknown),
        }
    }
    let exact = session.exact.load(Ordering::Acquire);
    (flight, lane, reply(id, outcome, exact, permit))
}

fn reply(
    id: SftpRequestId,
    outcome: Result<Outcome, Refusal>,
    exact: bool,
    permit: Taken,
) -> Reply {
    let (head, body) = match outcome {
        Ok(Outcome::Done) => (PacketWriter::status(status::OK, "").finish(id), Bytes::new()),
        Ok(Outcome::Packet(answer)) => (answer.finish(id), Bytes::new()),
        Ok(Outcome::Data(data)) => together(&PacketWriter::data_header(id, data.len()), data),
        Ok(Outcome::Parts(answer, body)) => together(&answer.finish_before(id, body.len()), body),
        Err(refusal) => {
            let mut answer = PacketWriter::status(refusal.code, &refusal.message);
            if exact && let Some(error) = &refusal.error {
                answer.string(&wire::encode(error));
            }
            (answer.finish(id), Bytes::new())
        }
    };
    Reply { head, body, _permit: permit }
}

/// A packet in two pieces, of which the first fills what most clients take at once: a head alone would
/// be one more for them to look at.
fn together(head: &[u8], mut body: Bytes) -> (Bytes, Bytes) {
    let along = body.split_to(body.len().min(FIRST.saturating_sub(head.len())));
    (Bytes::from([head, &along[..]].concat()), body)
}
