//! JSON-RPC over lines of text, as a transport for rmcp. Invalid lines are answered with an error,
//! and the number of calls without an answer is limited.
//!
//! If a line is too long or is not a valid message, it is answered with an error, and reading
//! continues with the next line. While too many calls have no answer, nothing more is read. When
//! the client closes its side, its remaining calls get some time to end. After that, [`Gone`] tells
//! handlers that the client has disconnected.
//!
//! After the handshake, tool calls that want only a result are answered [directly](Call), without
//! rmcp.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ContentBlock, ErrorCode, JsonRpcMessage, RequestId,
    ServerJsonRpcMessage, ServerResult,
};
use rmcp::service::RoleServer;
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bounds::{ID_WITHIN, LARGE_ANSWER, LAST_CALLS, MAX_MESSAGE_BYTES, MAX_UNANSWERED_CALLS};
use crate::http::direct::Call;
use crate::nonsense::{Refusal, id_within, refused};
use crate::outgoing::Held;
use crate::server::Line;
use crate::tools::WorkspaceTools;

/// Capacity that the line buffer keeps from one line to the next, in bytes.
const LINE_KEPT: usize = 64 * 1024;

/// Tells handlers that the client has disconnected.
#[derive(Clone, Debug)]
pub(crate) struct Gone(watch::Receiver<bool>);

impl Gone {
    pub(crate) async fn wait(&self) {
        let mut gone = self.0.clone();
        // Waiting fails if the transport was dropped. This also means that the client has
        // disconnected.
        let _ = gone.wait_for(|gone| *gone).await;
    }
}

pub(crate) struct Lines<R, W> {
    input: BufReader<R>,
    line: Vec<u8>,
    /// Whether the rest of a line that was too long is being skipped.
    skipping: bool,
    /// Whether a request has arrived. The first message must be a request.
    begun: bool,
    output: Arc<tokio::sync::Mutex<Option<W>>>,
    calls: Arc<Calls>,
    gone: Arc<watch::Sender<bool>>,
    max_line: usize,
    /// The tools with which calls are answered without rmcp. `None` if rmcp answers all calls.
    direct: Option<WorkspaceTools>,
    /// Whether the handshake is complete. Always `false` in revisions without a handshake.
    shaken: bool,
    /// The tasks of calls that are answered without rmcp. Each task ends when its answer has been
    /// written.
    answering: JoinSet<()>,
    /// The task that writes the answer to an invalid line.
    refusing: Option<JoinHandle<()>>,
    /// How long the remaining calls may continue after the end of the input.
    pub(crate) last_calls: Duration,
    /// The time at which the remaining calls must have ended. Set when the input has ended.
    deadline: Option<Instant>,
}

/// The calls that have no answer yet.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    waiting: Mutex<HashMap<RequestId, Waiting>>,
    answered: Notify,
}

#[derive(Debug)]
struct Waiting {
    /// The size of the request in bytes.
    bytes: usize,
    /// Signalled when the call is cancelled.
    cancelled: CancellationToken,
    /// The memory reservation of the answer. It is kept until the answer has been written.
    room: Option<Held>,
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a call and returns its cancellation token. `None` if another call with this id has
    /// no answer yet.
    fn begin(&self, id: &RequestId, bytes: usize) -> Option<CancellationToken> {
        let mut waiting = self.lock();
        if waiting.contains_key(id) {
            return None;
        }
        let cancelled = CancellationToken::new();
        let call = Waiting { bytes, cancelled: cancelled.clone(), room: None };
        waiting.insert(id.clone(), call);
        Some(cancelled)
    }

    /// Keeps a memory reservation until the call is answered.
    pub(crate) fn keep(&self, id: &RequestId, room: Option<Held>) {
        if let Some(call) = self.lock().get_mut(id) {
            call.room = room;
        }
    }

    fn end(&self, id: &RequestId) {
        self.lock().remove(id);
        self.answered.notify_waiters();
    }

    fn cancel(&self, id: &RequestId) {
        if let Some(call) = self.lock().remove(id) {
            call.cancelled.cancel();
        }
        self.answered.notify_waiters();
    }

    /// Waits until `enough` returns `true` for the calls that have no answer.
    async fn until(&self, enough: impl Fn(&HashMap<RequestId, Waiting>) -> bool) {
        loop {
            let mut answered = std::pin::pin!(self.answered.notified());
            answered.as_mut().enable();
            if enough(&self.lock()) {
                return;
            }
            answered.await;
        }
    }

    async fn room(&self, bytes: usize) {
        self.until(|waiting| {
            let held: usize = waiting.values().map(|call| call.bytes).sum();
            waiting.len() < MAX_UNANSWERED_CALLS && held <= bytes
        })
        .await;
    }
}

/// The result of reading a line.
enum Read {
    Whole,
    /// The line is too long. Contains the message's id, if it is near the start of the line.
    TooLong(Option<RequestId>),
    End,
}

impl<R, W> Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(crate) fn new(input: R, output: W) -> (Lines<R, W>, Line) {
        let (gone, told) = watch::channel(false);
        let lines = Lines {
            input: BufReader::with_capacity(64 * 1024, input),
            line: Vec::new(),
            skipping: false,
            begun: false,
            output: Arc::new(tokio::sync::Mutex::new(Some(output))),
            calls: Arc::default(),
            gone: Arc::new(gone),
            max_line: MAX_MESSAGE_BYTES,
            direct: None,
            shaken: false,
            answering: JoinSet::new(),
            refusing: None,
            last_calls: LAST_CALLS,
            deadline: None,
        };
        let line = Line { gone: Gone(told), calls: lines.calls.clone() };
        (lines, line)
    }

    /// Sets the tools with which calls are answered without rmcp.
    pub(crate) fn answer_by(&mut self, tools: WorkspaceTools) {
        self.direct = Some(tools);
    }

    /// Reads up to the end of the line. If the future is dropped, no input is lost.
    async fn read(&mut self) -> Read {
        loop {
            // An error counts as the end of the stream.
            let Ok(available) = self.input.fill_buf().await else { return Read::End };
            if available.is_empty() {
                // The last line may have no newline.
                let rest = !self.line.is_empty() && !self.skipping;
                return if rest { Read::Whole } else { Read::End };
            }
            let newline = available.iter().position(|byte| *byte == b'\n');
            let taken = newline.map_or(available.len(), |at| at + 1);
            let too_long = !self.skipping && self.line.len() + taken > self.max_line + 1;
            if !self.skipping && !too_long {
                self.line.extend_from_slice(&available[..taken]);
            }
            if too_long {
                // Keep the start of the line, because it may contain the id.
                self.line.truncate(ID_WITHIN);
                let room = ID_WITHIN - self.line.len();
                self.line.extend_from_slice(&available[..taken.min(room)]);
                self.line.shrink_to(LINE_KEPT);
                self.skipping = true;
            }
            self.input.consume(taken);
            match (newline, self.skipping) {
                (None, _) => {}
                (Some(_), false) => return Read::Whole,
                (Some(_), true) => {
                    self.skipping = false;
                    let id = id_within(&self.line);
                    self.line.clear();
                    return Read::TooLong(id);
                }
            }
        }
    }

    /// Parses the line. An invalid line results in an error message.
    fn parse(&mut self) -> Next {
        let line = self.line.trim_ascii();
        if line.is_empty() {
            return Next::Nothing;
        }
        if self.shaken
            && let Some(tools) = &self.direct
            && let Some(call) = Call::parse(line)
        {
            let tools = tools.clone();
            return self.answer(call, tools);
        }
        let error = match serde_json::from_slice::<ClientJsonRpcMessage>(line) {
            Ok(message) => return self.admit(message),
            Err(error) => error,
        };
        Next::Refused(refused(line, &error))
    }

    /// Runs a call in its own task, without rmcp.
    fn answer(&mut self, call: Call, tools: WorkspaceTools) -> Next {
        let id = call.id().clone();
        let Some(cancelled) = self.calls.begin(&id, self.line.len()) else { return in_use(id) };
        let (output, calls, gone) = (self.output.clone(), self.calls.clone(), self.gone.clone());
        // Remove tasks that have ended.
        while self.answering.try_join_next().is_some() {}
        self.answering.spawn(async move {
            // Once writing has begun, the line must be written completely. Only the call itself can
            // be cancelled.
            let written = tokio::select! {
                written = call.written(&tools) => written,
                () = cancelled.cancelled() => return,
                () = told(&gone) => return,
            };
            let _ = match written {
                Ok(line) => write(&output, &line, &gone).await,
                Err(unwritten) => send(&output, &unwritten.told(), &gone).await,
            };
            calls.end(&id);
        });
        Next::Nothing
    }

    fn admit(&mut self, message: ClientJsonRpcMessage) -> Next {
        match &message {
            JsonRpcMessage::Request(request) => {
                if self.calls.begin(&request.id, self.line.len()).is_none() {
                    return in_use(request.id.clone());
                }
                self.begun = true;
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) =
                    &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    // The client cancelled the call and no longer expects an answer.
                    self.calls.cancel(id);
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
        if self.begun {
            Next::Message(Box::new(message))
        } else {
            // Before the first request, there is nothing to answer and nothing to notify.
            Next::Nothing
        }
    }

    /// Sends an error in a separate task, so that the line is never written partially. The future
    /// that waits for the next message may be dropped at any time.
    fn refuse(&mut self, refusal: Refusal) {
        let Refusal { id, error } = refusal;
        let (output, gone) = (self.output.clone(), self.gone.clone());
        self.refusing = Some(tokio::spawn(async move {
            let _ = send(&output, &ServerJsonRpcMessage::error(error, id), &gone).await;
        }));
    }

    /// Waits until the previous error has been written. As long as the client does not read its
    /// errors, no more messages are read from it.
    async fn refused(&mut self) {
        if let Some(refusing) = &mut self.refusing {
            let _ = refusing.await;
            self.refusing = None;
        }
    }
}

/// The result of parsing a line.
enum Next {
    Message(Box<ClientJsonRpcMessage>),
    Nothing,
    Refused(Refusal),
}

impl<R, W> Transport<RoleServer> for Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (output, calls, gone) = (self.output.clone(), self.calls.clone(), self.gone.clone());
        let answered = match &message {
            JsonRpcMessage::Response(response) => {
                self.shaken |= matches!(response.result, ServerResult::InitializeResult(_));
                Some(response.id.clone())
            }
            JsonRpcMessage::Error(error) => error.id.clone(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        let outgoing = self.direct.as_ref().map(|tools| tools.outgoing().clone());
        async move {
            let text = match outgoing {
                Some(outgoing) => {
                    let weight = weight(&message);
                    outgoing.aside(weight, move || serde_json::to_vec(&message)).await
                }
                None => serde_json::to_vec(&message),
            };
            let sent = write(&output, &text?, &gone).await;
            if let Some(id) = &answered {
                calls.end(id);
            }
            sent
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            if *self.gone.borrow() {
                return None;
            }
            self.refused().await;
            self.calls.room(self.max_line).await;
            let gone = self.gone.clone();
            let read = tokio::select! {
                read = self.read() => read,
                () = told(&gone) => return None,
            };
            let next = match read {
                Read::Whole => {
                    let next = self.parse();
                    self.line.clear();
                    // Release the memory of a single large message.
                    self.line.shrink_to(LINE_KEPT);
                    next
                }
                Read::TooLong(id) => {
                    let why = format!("a message may have up to {} bytes", self.max_line);
                    Next::Refused(Refusal::new(id, ErrorCode::INVALID_REQUEST, why))
                }
                Read::End => {
                    let now = Instant::now();
                    let deadline = *self.deadline.get_or_insert(now + self.last_calls);
                    // Calls that take longer are cancelled.
                    let last = self.calls.until(HashMap::is_empty);
                    let _ = tokio::time::timeout_at(deadline, last).await;
                    self.gone.send_replace(true);
                    return None;
                }
            };
            match next {
                Next::Message(message) => return Some(*message),
                Next::Nothing => {}
                Next::Refused(refusal) => self.refuse(refusal),
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.gone.send_replace(true);
        // Do not wait for the lock. If the client does not read, a task that writes to the client
        // may hold the lock forever.
        let output = self.output.try_lock().ok().and_then(|mut output| output.take());
        match output {
            Some(mut output) => output.shutdown().await,
            None => Ok(()),
        }
    }
}

async fn told(gone: &watch::Sender<bool>) {
    let _ = gone.subscribe().wait_for(|gone| *gone).await;
}

/// The error for a call whose id is already used by another call without an answer.
fn in_use(id: RequestId) -> Next {
    let why = "a call with this id is not answered yet".to_owned();
    Next::Refused(Refusal::new(Some(id), ErrorCode::INVALID_REQUEST, why))
}

/// The approximate size of a message in bytes.
fn weight(message: &ServerJsonRpcMessage) -> usize {
    let JsonRpcMessage::Response(response) = message else { return 0 };
    let ServerResult::CallToolResult(result) = &response.result else { return 0 };
    let content = result.content.iter().map(|block| match block {
        ContentBlock::Text(text) => text.text.len(),
        ContentBlock::Image(image) => image.data.len(),
        ContentBlock::Audio(audio) => audio.data.len(),
        // Other content may contain large embedded resources.
        _ => LARGE_ANSWER,
    });
    2 * content.sum::<usize>()
}

async fn send<W: AsyncWrite + Unpin>(
    output: &tokio::sync::Mutex<Option<W>>,
    message: &ServerJsonRpcMessage,
    gone: &watch::Sender<bool>,
) -> io::Result<()> {
    write(output, &serde_json::to_vec(message)?, gone).await
}

/// Writes one complete line. If this fails, the client has disconnected.
async fn write<W: AsyncWrite + Unpin>(
    output: &tokio::sync::Mutex<Option<W>>,
    line: &[u8],
    gone: &watch::Sender<bool>,
) -> io::Result<()> {
    let mut output = output.lock().await;
    let Some(output) = output.as_mut() else {
        return Err(io::ErrorKind::NotConnected.into());
    };
    let written = async {
        // Write a short line and its newline with a single call.
        if line.len() < LINE_KEPT {
            output.write_all(&[line, b"\n"].concat()).await?;
        } else {
            output.write_all(line).await?;
            output.write_all(b"\n").await?;
        }
        output.flush().await
    };
    let written = written.await;
    if written.is_err() {
        gone.send_replace(true);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_that_is_too_long_is_told_and_the_next_is_read() {
        let long = format!("{{\"id\":5,\"x\":\"{}\"}}\n", "x".repeat(1000));
        let good = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
        let input = io::Cursor::new(format!("{long}{good}").into_bytes());
        let (theirs, ours) = tokio::io::duplex(10_000);
        let (mut lines, _gone) = Lines::new(input, ours);
        lines.max_line = 100;
        assert!(matches!(lines.receive().await, Some(JsonRpcMessage::Request(_))));
        let mut told = String::new();
        BufReader::new(theirs).read_line(&mut told).await.unwrap();
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told["error"]["message"], "a message may have up to 100 bytes");
        assert_eq!(told["id"], 5);
    }
}
