//! SFTP version 3 on one channel. Requests start in the order of their arrival and run
//! concurrently. Each is answered when it is done.
//!
//! - Everything runs in the single task of the channel and ends with this task.
//! - Each request takes bytes from a budget when it begins, and returns them when its answer is
//!   passed to the connection. The server therefore stops working for a client that does not read.
//! - An invalid packet ends the channel. An invalid request is refused.

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
use packet::{ClientPacket, InvalidPacket, MAX_PACKET_BYTES, SftpRequestId, SshFieldWriter};
pub(crate) use paths::LinkOrder;
use perform::Job;
pub use staging::MAX_STAGED_WRITE_BYTES;
pub(crate) use staging::Staging;
use status::{BAD_MESSAGE, FAILURE, Refusal};

use crate::inbox::Inbox;
use crate::ledger::{Caller, Ledger, Seat, effect_of_failure};
use crate::outlet::Outlet;
use crate::wire;

/// Maximum number of requests of one channel that run concurrently.
const MAX_TOGETHER: usize = 64;
/// Number of bytes that a request counts towards the budget in addition to its data.
const OVERHEAD: usize = 512;
/// Maximum number of bytes of an answer's data that are sent together with its header.
const FIRST: usize = 32 * 1024;

/// A lock for the creation of directories, shared by all channels of a server. The lock is needed
/// because clients use the creation of directories as a lock, and the check whether a directory
/// exists and its creation are two calls.
pub(crate) type Turn = tokio::sync::Mutex<()>;

/// The state of one SFTP channel.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) backend: Backend,
    pub(crate) allowance: Arc<Allowance>,
    pub(crate) links: LinkOrder,
    handles: Handles,
    /// Whether the client receives complete errors and not only status codes.
    exact: AtomicBool,
    /// A handle on the same workspace for the calls of agent-backend clients. `scopes` contains
    /// handles on the scopes that were used.
    views: Backend,
    scopes: Mutex<HashMap<String, Backend>>,
    ledger: Arc<Ledger>,
    caller: Arc<Caller>,
    /// The number of the connection, which the client sends in a hello, and the record of the
    /// connection's calls.
    seat: OnceLock<(u128, Seat)>,
    staging: Staging,
    making: Arc<Turn>,
    /// The running calls that can be cancelled.
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

    /// Cancels a request that is running.
    fn cancel(&self, request: SftpRequestId) {
        if let Some(call) = self.calls().remove(&request) {
            call.abort();
        }
    }

    fn calls(&self) -> MutexGuard<'_, HashMap<SftpRequestId, AbortHandle>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the client asks, on another connection, for the effect of a call on this
    /// connection. Never completes for clients whose calls are not recorded.
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

/// The answer to a request, and the bytes that it has taken from the budget.
struct Reply {
    head: Bytes,
    body: Bytes,
    _permit: Taken,
}

/// The queue of answers. Both halves run in the same task: the working half makes the answers, and
/// the sending half sends them.
///
/// The sending half is always polled after the working half, so it need not be woken. If the task
/// woke itself, it would be queued behind the connection that has just received the answer. Another
/// thread would then be woken to work on this queue.
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

    /// Marks the end of the queue: no more answers follow.
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

/// The result of a request.
#[derive(Debug)]
enum Outcome {
    Done,
    Data(Bytes),
    Packet(SshFieldWriter),
    /// A packet that is followed by these bytes.
    Parts(SshFieldWriter, Bytes),
}

/// A running request. Returns its number in [`Flights`], the handle that it uses, and its answer.
type Running = Pin<Box<dyn Future<Output = (u64, Option<u32>, Reply)> + Send>>;

/// How a channel has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SftpEnded {
    /// The client closed its side.
    ByClient,
    /// The client sent something that is not valid SFTP.
    Garbage(&'static str),
    Gone,
}

/// Serves a channel until the client closes it.
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
    // `Replies` requires that the working half is polled first.
    let ended = match tokio::try_join!(biased; working, sending) {
        Ok((ended, ())) | Err(ended) => ended,
    };
    // An error means that the client has disconnected and needs no answer.
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
    let budget = Budget::new(session.allowance.shared_budget());
    let mut running: FuturesUnordered<Running> = FuturesUnordered::new();
    let mut flights = Flights::default();
    let mut greeted = false;
    let ended = 'serving: loop {
        let packet = tokio::select! {
            biased;
            // Stop here. The server has told the client, on another connection, that requests which
            // have not begun will never take effect.
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
            Err(InvalidPacket { id: Some(id), reason: what }) => {
                (id, Job::refuse(Refusal::new(BAD_MESSAGE, what)))
            }
            Err(InvalidPacket { id: None, reason: what }) => break SftpEnded::Garbage(what),
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

/// Performs one request. If it may change something, its effect is recorded for a client that loses
/// its connection.
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
        Ok(Outcome::Done) => (SshFieldWriter::status(status::OK, "").finish(id), Bytes::new()),
        Ok(Outcome::Packet(answer)) => (answer.finish(id), Bytes::new()),
        Ok(Outcome::Data(data)) => together(&SshFieldWriter::data_header(id, data.len()), data),
        Ok(Outcome::Parts(answer, body)) => together(&answer.finish_before(id, body.len()), body),
        Err(refusal) => {
            let mut answer = SshFieldWriter::status(refusal.code, &refusal.message);
            if exact && let Some(error) = &refusal.error {
                answer.write_string(&wire::encode(error));
            }
            (answer.finish(id), Bytes::new())
        }
    };
    Reply { head, body, _permit: permit }
}

/// Splits an answer in two. The first piece contains the header and as much data as most clients
/// read at once. If the header were sent alone, clients would need an additional read.
fn together(head: &[u8], mut body: Bytes) -> (Bytes, Bytes) {
    let along = body.split_to(body.len().min(FIRST.saturating_sub(head.len())));
    (Bytes::from([head, &along[..]].concat()), body)
}
