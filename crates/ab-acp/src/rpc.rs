//! JSON-RPC over a pair of byte streams, one message per line, for both ends of a connection.
//!
//! One task reads and one task writes. Requests and notifications of the peer go to one bounded
//! queue, in the order of arrival. While the queue is full the connection does not read, and the
//! peer blocks on its output. Responses go to the callers that wait for them.

mod line;
mod message;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::bounds::{
    MAX_CONSECUTIVE_INVALID_LINES, MAX_PENDING_INCOMING_REQUESTS, MAX_PENDING_OUTGOING_REQUESTS,
    MAX_QUEUED_MESSAGES, MAX_REPORTED_INVALID_LINE_BYTES, OUTGOING_LINES,
};
use crate::failure::AcpError;
use crate::gateway::RpcMessageKind;
use message::Message;

pub(crate) use line::{Line, Lines};
pub use message::RpcError;
pub(crate) use message::{
    AUTH_REQUIRED, INTERNAL_ERROR, INVALID_PARAMS, METHOD_NOT_FOUND, PARSE_ERROR,
    RESOURCE_NOT_FOUND,
};

/// The kinds of messages that the peer sends by itself. Responses are not among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    Request,
    Notification,
}

/// How a request or notification of the peer is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The message is added to the queue.
    Queue,
    /// The message is dropped. If it is a request, it is answered with "method not found".
    Refuse,
}

/// A message from the peer. Messages are queued in the order of arrival.
#[derive(Debug)]
pub(crate) enum Incoming {
    Request {
        method: String,
        params: Value,
        reply: Reply,
    },
    Notification {
        method: String,
        params: Value,
    },
    /// The response to a request that was registered with [`Rpc::expect_in_order`].
    Answer {
        id: u64,
        result: Result<Value, RpcError>,
    },
    /// A line that is not a message.
    Noise(InvalidLine),
}

/// A line of the peer that is not a message.
#[derive(Debug)]
pub(crate) struct InvalidLine {
    /// The beginning of the line.
    pub(crate) beginning: String,
    pub(crate) why: String,
    /// The kind of message according to the members `id` and `method`, if they can be read.
    pub(crate) kind: Option<RpcMessageKind>,
}

/// The settings of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RpcSettings {
    /// Maximum length of a line in bytes. A longer line ends the connection.
    pub(crate) max_line_bytes: usize,
    pub(crate) at_input_end: AtInputEnd,
}

/// What happens when the peer has closed its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtInputEnd {
    /// The connection ends. Bytes after the last newline are ignored, because the peer may have
    /// crashed while it wrote them.
    Close,
    /// The connection keeps writing until [`Rpc::close`] is called. Bytes after the last newline
    /// count as a line.
    KeepWriting,
}

/// A queued message. It holds permits for its length, which count towards the byte limit of the
/// queue.
#[derive(Debug)]
struct Queued {
    incoming: Incoming,
    _bytes: OwnedSemaphorePermit,
}

/// The queue of messages from the peer.
#[derive(Debug)]
pub(crate) struct Inbox {
    queue: mpsc::Receiver<Queued>,
}

impl Inbox {
    /// Returns the next message, or `None` once the connection has ended and the queue is empty.
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Incoming> {
        self.queue.recv().await.map(|queued| queued.incoming)
    }
}

/// Sends the only reply to a request of the peer. Sending never waits, because the connection
/// reserved a slot in the outgoing queue when the request arrived.
#[derive(Debug)]
pub(crate) struct Reply {
    id: Value,
    place: mpsc::OwnedPermit<Outgoing>,
    _unanswered: OwnedSemaphorePermit,
}

impl Reply {
    pub(crate) fn send(self, result: Result<Value, RpcError>) {
        self.place.send(Outgoing::Line(message::response(&self.id, result)));
    }
}

/// One end of a connection. Clones are handles to the same connection. Dropping the last one ends
/// the connection.
#[derive(Clone, Debug)]
pub(crate) struct Rpc {
    shared: Arc<Shared>,
    _last: Arc<StopOnDrop>,
}

#[derive(Debug)]
struct Shared {
    outgoing: mpsc::Sender<Outgoing>,
    waiting: Mutex<Waiting>,
    next_id: AtomicU64,
    stop: CancellationToken,
    tasks: TaskTracker,
}

#[derive(Debug, Default)]
struct Waiting {
    callers: HashMap<u64, Waiter>,
    /// Why the connection ended. `None` while it is open.
    end: Option<AcpError>,
    /// Why writing failed. `None` while writing is possible.
    write_end: Option<AcpError>,
}

/// A message for the writing task.
#[derive(Debug)]
enum Outgoing {
    Line(Vec<u8>),
    /// A request to notify the sender when everything before it has been written.
    Mark(oneshot::Sender<()>),
}

#[derive(Debug)]
enum Waiter {
    Caller(oneshot::Sender<Result<Value, RpcError>>),
    InOrder,
}

#[derive(Debug)]
struct StopOnDrop(CancellationToken);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Rpc {
    /// Starts the reading and the writing task. The reading task calls `route` for each request and
    /// notification to decide how it is handled. `route` must not block.
    pub(crate) fn start<R, W, F>(
        input: R,
        output: W,
        settings: RpcSettings,
        route: F,
    ) -> (Rpc, Inbox)
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
        F: Fn(Arrival, &str, &Value) -> Route + Send + 'static,
    {
        let (outgoing, lines) = mpsc::channel(OUTGOING_LINES);
        let (queue, receiver) = mpsc::channel(MAX_QUEUED_MESSAGES);
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            outgoing,
            waiting: Mutex::default(),
            next_id: AtomicU64::new(1),
            stop: stop.clone(),
            tasks: TaskTracker::new(),
        });
        let mut lines_in = Lines::new(input, settings.max_line_bytes);
        if settings.at_input_end == AtInputEnd::KeepWriting {
            lines_in = lines_in.with_unterminated_line();
        }
        let reading = reading(shared.clone(), lines_in, settings.max_line_bytes, queue, route);
        let (ended, stopped) = (shared.clone(), stop.clone());
        shared.tasks.spawn(async move {
            let end = tokio::select! {
                end = reading => end,
                () = stopped.cancelled() => AcpError::closed("the connection was closed by this end"),
            };
            ended.end(end);
            if settings.at_input_end == AtInputEnd::Close {
                ended.stop.cancel();
            }
        });
        let (ended, stopped) = (shared.clone(), stop.clone());
        shared.tasks.spawn(async move {
            tokio::select! {
                // Keep reading after a write error, because the peer may have sent more before it
                // closed its input.
                end = writing(output, lines) => ended.waiting().write_end = Some(end),
                () = stopped.cancelled() => {}
            }
        });
        shared.tasks.close();
        (Rpc { shared, _last: Arc::new(StopOnDrop(stop)) }, Inbox { queue: receiver })
    }

    /// Sends a request and waits for its response until `deadline`.
    pub(crate) async fn request(
        &self,
        method: impl Into<Cow<'static, str>>,
        params: Value,
        deadline: Duration,
    ) -> Result<Value, AcpError> {
        let method = method.into();
        let (answer, answered) = oneshot::channel();
        let id = self.expect(Waiter::Caller(answer))?;
        let _forget = Forget { shared: &self.shared, id };
        let asked = async {
            self.send(message::request(id, &method, params)).await?;
            answered.await.map_err(|_| self.shared.why())
        };
        match timeout(deadline, asked).await {
            Ok(Ok(Ok(result))) => Ok(result),
            Ok(Ok(Err(error))) => Err(AcpError::RequestFailed { method, error: Box::new(error) }),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(AcpError::Timeout { method, after: deadline }),
        }
    }

    /// Registers a request whose response arrives as [`Incoming::Answer`], after everything that
    /// the peer sent before it. Returns the id for [`Rpc::send_request`].
    pub(crate) fn expect_in_order(&self) -> Result<u64, AcpError> {
        self.expect(Waiter::InOrder)
    }

    pub(crate) async fn send_request(
        &self,
        id: u64,
        method: &str,
        params: Value,
    ) -> Result<(), AcpError> {
        self.send(message::request(id, method, params)).await
    }

    /// Stops waiting for a response. If the response arrives later, it is dropped.
    pub(crate) fn forget(&self, id: u64) {
        self.shared.waiting().callers.remove(&id);
    }

    pub(crate) async fn notify(&self, method: &str, params: Value) -> Result<(), AcpError> {
        self.send(message::notification(method, params)).await
    }

    /// Sends a line that already is a complete message, without changing it.
    pub(crate) async fn send(&self, line: Vec<u8>) -> Result<(), AcpError> {
        self.shared.outgoing.send(Outgoing::Line(line)).await.map_err(|_| self.shared.why())
    }

    /// Ends the connection without waiting. Pending requests fail.
    pub(crate) fn stop(&self) {
        self.shared.stop.cancel();
    }

    /// Ends the connection and waits until its tasks have ended.
    pub(crate) async fn close(&self) {
        self.stop();
        self.shared.tasks.wait().await;
    }

    /// Waits until the connection has ended and returns the reason.
    pub(crate) async fn ended(&self) -> AcpError {
        self.shared.tasks.wait().await;
        self.shared.why()
    }

    /// Why the connection ended. `None` while it is open.
    pub(crate) fn end(&self) -> Option<AcpError> {
        self.shared.waiting().end.clone()
    }

    /// Waits until all sent lines have been written, or writing has failed.
    pub(crate) async fn flushed(&self) {
        let (mark, written) = oneshot::channel();
        if self.shared.outgoing.send(Outgoing::Mark(mark)).await.is_ok() {
            let _ = written.await;
        }
    }

    fn expect(&self, waiter: Waiter) -> Result<u64, AcpError> {
        let mut waiting = self.shared.waiting();
        if let Some(end) = &waiting.end {
            return Err(end.clone());
        }
        if waiting.callers.len() >= MAX_PENDING_OUTGOING_REQUESTS {
            return Err(AcpError::TooManyRequests { requests: MAX_PENDING_OUTGOING_REQUESTS });
        }
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        waiting.callers.insert(id, waiter);
        Ok(id)
    }
}

/// Removes a pending request when its caller stops waiting.
struct Forget<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.shared.waiting().callers.remove(&self.id);
    }
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records why the connection ended and wakes the waiting callers. If a reason is already
    /// recorded, it is kept.
    fn end(&self, end: AcpError) {
        let callers = {
            let mut waiting = self.waiting();
            waiting.end.get_or_insert(end);
            std::mem::take(&mut waiting.callers)
        };
        drop(callers);
    }

    fn why(&self) -> AcpError {
        let waiting = self.waiting();
        let end = waiting.end.as_ref().or(waiting.write_end.as_ref()).cloned();
        end.unwrap_or_else(|| AcpError::closed("the connection was closed by this end"))
    }
}

/// Reads messages until the connection ends, and returns the reason.
async fn reading<R: AsyncRead + Unpin>(
    shared: Arc<Shared>,
    mut lines: Lines<R>,
    max_line_bytes: usize,
    queue: mpsc::Sender<Queued>,
    route: impl Fn(Arrival, &str, &Value) -> Route,
) -> AcpError {
    // The byte limit of the queue equals the maximum line length, so that one message of any valid
    // length fits.
    let bytes = Arc::new(Semaphore::new(max_line_bytes));
    let unanswered = Arc::new(Semaphore::new(MAX_PENDING_INCOMING_REQUESTS));
    let mut noise = 0;
    loop {
        let line = match lines.next().await {
            Ok(Line::Whole(line)) => line,
            Ok(Line::TooLong) => return AcpError::LineTooLong { limit: max_line_bytes },
            Ok(Line::End) => return AcpError::closed("the agent closed its output"),
            Err(error) => {
                return AcpError::closed(format!("cannot read the agent's output: {error}"));
            }
        };
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let size = u32::try_from(line.len().min(max_line_bytes)).unwrap_or(u32::MAX);
        let message = Message::parse(&line);
        noise = if message.is_some() { 0 } else { noise + 1 };
        if noise > MAX_CONSECUTIVE_INVALID_LINES {
            return AcpError::NotAcp { lines: MAX_CONSECUTIVE_INVALID_LINES };
        }
        let incoming = match message {
            None => Incoming::Noise(InvalidLine::new(&line)),
            Some(Message::Response { id, result }) => {
                let Some(id) = id.as_u64() else { continue };
                let waiter = shared.waiting().callers.remove(&id);
                match waiter {
                    Some(Waiter::Caller(caller)) => {
                        // Sending fails if the caller has stopped waiting. That is no error.
                        let _ = caller.send(result);
                        continue;
                    }
                    Some(Waiter::InOrder) => Incoming::Answer { id, result },
                    // This response belongs to a request whose caller stopped waiting, or to no
                    // known request.
                    None => continue,
                }
            }
            Some(Message::Notification { method, params }) => {
                match route(Arrival::Notification, &method, &params) {
                    Route::Refuse => continue,
                    Route::Queue => Incoming::Notification { method, params },
                }
            }
            Some(Message::Request { id, method, params }) => {
                // The outgoing queue is closed, because the peer closed its input. The peer cannot
                // receive a response.
                let Ok(place) = shared.outgoing.clone().reserve_owned().await else { continue };
                if route(Arrival::Request, &method, &params) == Route::Refuse {
                    let error =
                        RpcError::new(METHOD_NOT_FOUND, format!("unknown method: {method}"));
                    place.send(Outgoing::Line(message::response(&id, Err(error))));
                    continue;
                }
                let Ok(permit) = unanswered.clone().try_acquire_owned() else {
                    let text = format!(
                        "too many requests: {MAX_PENDING_INCOMING_REQUESTS} already wait for a response"
                    );
                    let error = RpcError::new(message::TOO_MANY_REQUESTS, text);
                    place.send(Outgoing::Line(message::response(&id, Err(error))));
                    continue;
                };
                let reply = Reply { id, place, _unanswered: permit };
                Incoming::Request { method, params, reply }
            }
        };
        drop(line);
        let Ok(permit) = bytes.clone().acquire_many_owned(size).await else {
            return shared.why();
        };
        if queue.send(Queued { incoming, _bytes: permit }).await.is_err() {
            return AcpError::closed("the receiver of the agent's messages was dropped");
        }
    }
}

/// Writes lines until the connection ends, and returns the reason.
async fn writing<W: AsyncWrite + Unpin>(
    mut output: W,
    mut lines: mpsc::Receiver<Outgoing>,
) -> AcpError {
    while let Some(outgoing) = lines.recv().await {
        let line = match outgoing {
            Outgoing::Line(line) => line,
            Outgoing::Mark(mark) => {
                let _ = mark.send(());
                continue;
            }
        };
        let written = async {
            output.write_all(&line).await?;
            output.flush().await
        };
        if let Err(error) = written.await {
            return AcpError::closed(format!("cannot write to the agent: {error}"));
        }
    }
    AcpError::closed("the connection was closed by this end")
}

impl InvalidLine {
    fn new(line: &[u8]) -> InvalidLine {
        let why = match serde_json::from_slice::<Value>(line) {
            Ok(_) => "it is not a request, notification or response".to_owned(),
            Err(error) => error.to_string(),
        };
        InvalidLine { beginning: beginning(line), why, kind: RpcMessageKind::parse(line).ok() }
    }
}

/// The beginning of a line as text.
fn beginning(line: &[u8]) -> String {
    let cut = &line[..line.len().min(MAX_REPORTED_INVALID_LINE_BYTES)];
    let mut text = String::from_utf8_lossy(cut).into_owned();
    if cut.len() < line.len() {
        text.push('…');
    }
    text
}
