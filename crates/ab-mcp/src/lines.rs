//! JSON-RPC over lines, as a transport: what is no message gets the protocol's own error, and what
//! is on its way is bounded.
//!
//! A line that is too long, no JSON or no message is answered and forgotten; the lines after it are
//! read as ever. While too many calls wait for their answers, nothing more is read. When the caller
//! closes its end, its last calls have a moment to end; then whoever listens to [`Gone`] is told.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ErrorCode, JsonRpcMessage, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::service::RoleServer;
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::bounds::{CALLS_IN_FLIGHT, LAST_CALLS, MAX_LINE};
use crate::nonsense::{Refusal, refused};

/// Bytes that the buffer of a line keeps from one to the next.
const LINE_KEPT: usize = 64 * 1024;

/// Tells when the caller is gone.
#[derive(Clone, Debug)]
pub(crate) struct Gone(watch::Receiver<bool>);

impl Gone {
    pub(crate) async fn wait(&self) {
        let mut gone = self.0.clone();
        // The transport that would tell is gone itself.
        let _ = gone.wait_for(|gone| *gone).await;
    }
}

pub(crate) struct Lines<R, W> {
    input: BufReader<R>,
    line: Vec<u8>,
    /// Inside a line that was too long, until it ends.
    skipping: bool,
    /// Whether a request came, which has to be the first thing that comes.
    begun: bool,
    output: Arc<tokio::sync::Mutex<Option<W>>>,
    calls: Arc<Calls>,
    gone: Arc<watch::Sender<bool>>,
    max_line: usize,
    /// The answer to a line that was no message, while it is written.
    refusing: Option<JoinHandle<()>>,
    /// When the last calls must have ended, once no more can come.
    deadline: Option<Instant>,
}

/// The calls that wait for an answer, and the bytes they came in.
#[derive(Debug, Default)]
struct Calls {
    waiting: Mutex<HashMap<RequestId, usize>>,
    answered: Notify,
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, HashMap<RequestId, usize>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call, unless one with this id is waiting already.
    fn begin(&self, id: &RequestId, bytes: usize) -> bool {
        let mut waiting = self.lock();
        let new = !waiting.contains_key(id);
        if new {
            waiting.insert(id.clone(), bytes);
        }
        new
    }

    fn end(&self, id: &RequestId) {
        self.lock().remove(id);
        self.answered.notify_waiters();
    }

    /// Waits until `enough` says so.
    async fn until(&self, enough: impl Fn(&HashMap<RequestId, usize>) -> bool) {
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
            let held: usize = waiting.values().sum();
            waiting.len() < CALLS_IN_FLIGHT && held <= bytes
        })
        .await;
    }
}

/// What the next line was.
enum Line {
    Whole,
    TooLong,
    End,
}

impl<R, W> Lines<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub(crate) fn new(input: R, output: W) -> (Lines<R, W>, Gone) {
        let (gone, told) = watch::channel(false);
        let lines = Lines {
            input: BufReader::with_capacity(64 * 1024, input),
            line: Vec::new(),
            skipping: false,
            begun: false,
            output: Arc::new(tokio::sync::Mutex::new(Some(output))),
            calls: Arc::default(),
            gone: Arc::new(gone),
            max_line: MAX_LINE,
            refusing: None,
            deadline: None,
        };
        (lines, Gone(told))
    }

    /// Reads on to the end of the line. Nothing that was read is lost when this is dropped.
    async fn read(&mut self) -> Line {
        loop {
            // A stream that fails has ended as far as we are concerned.
            let Ok(available) = self.input.fill_buf().await else { return Line::End };
            if available.is_empty() {
                // The last line may lack its end.
                let rest = !self.line.is_empty() && !self.skipping;
                return if rest { Line::Whole } else { Line::End };
            }
            let newline = available.iter().position(|byte| *byte == b'\n');
            let taken = newline.map_or(available.len(), |at| at + 1);
            let too_long = !self.skipping && self.line.len() + taken > self.max_line + 1;
            if !self.skipping && !too_long {
                self.line.extend_from_slice(&available[..taken]);
            }
            self.input.consume(taken);
            if too_long {
                self.line = Vec::new();
                self.skipping = true;
            }
            match (newline, self.skipping) {
                (None, _) => {}
                (Some(_), false) => return Line::Whole,
                (Some(_), true) => {
                    self.skipping = false;
                    return Line::TooLong;
                }
            }
        }
    }

    /// The message on a line, or the error that it deserves.
    fn parse(&mut self) -> Next {
        let line = self.line.trim_ascii();
        if line.is_empty() {
            return Next::Nothing;
        }
        let error = match serde_json::from_slice::<ClientJsonRpcMessage>(line) {
            Ok(message) => return self.admit(message),
            Err(error) => error,
        };
        Next::Refused(refused(line, &error))
    }

    fn admit(&mut self, message: ClientJsonRpcMessage) -> Next {
        match &message {
            JsonRpcMessage::Request(request) => {
                if !self.calls.begin(&request.id, self.line.len()) {
                    let why = "a call with this id is not answered yet".to_owned();
                    let id = Some(request.id.clone());
                    return Next::Refused(Refusal::new(id, ErrorCode::INVALID_REQUEST, why));
                }
                self.begun = true;
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) =
                    &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    // Nobody answers it any more.
                    self.calls.end(id);
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
        match self.begun {
            true => Next::Message(Box::new(message)),
            // Before there is a conversation there is nothing to answer or to notify.
            false => Next::Nothing,
        }
    }

    /// Answers in a task, since whoever waits for the next message may stop waiting at any time,
    /// and half a line must never be written.
    fn refuse(&mut self, refusal: Refusal) {
        let Refusal { id, error } = refusal;
        let (output, gone) = (self.output.clone(), self.gone.clone());
        self.refusing = Some(tokio::spawn(async move {
            let _ = write(&output, &ServerJsonRpcMessage::error(error, id), &gone).await;
        }));
    }

    /// One such answer at a time: a caller that does not read them is not read either.
    async fn refused(&mut self) {
        if let Some(refusing) = &mut self.refusing {
            let _ = refusing.await;
            self.refusing = None;
        }
    }
}

/// What a line came to.
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
        async move {
            let sent = write(&output, &message, &gone).await;
            match &message {
                JsonRpcMessage::Response(response) => calls.end(&response.id),
                JsonRpcMessage::Error(error) => {
                    if let Some(id) = &error.id {
                        calls.end(id);
                    }
                }
                JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => {}
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
                Line::Whole => {
                    let next = self.parse();
                    self.line.clear();
                    // One large message does not hold its memory for ever.
                    self.line.shrink_to(LINE_KEPT);
                    next
                }
                Line::TooLong => {
                    let why = format!("a message may have up to {} bytes", self.max_line);
                    Next::Refused(Refusal::new(None, ErrorCode::INVALID_REQUEST, why))
                }
                Line::End => {
                    let now = Instant::now();
                    let deadline = *self.deadline.get_or_insert(now + LAST_CALLS);
                    // Those that go on for longer have lost their caller.
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
        // An answer that nobody takes may hold it for ever.
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

/// Writes one line, whole. A caller that does not take it is gone.
async fn write<W: AsyncWrite + Unpin>(
    output: &tokio::sync::Mutex<Option<W>>,
    message: &ServerJsonRpcMessage,
    gone: &watch::Sender<bool>,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut output = output.lock().await;
    let Some(output) = output.as_mut() else {
        return Err(io::ErrorKind::NotConnected.into());
    };
    let written = async {
        output.write_all(&line).await?;
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
        let long = format!("{}\n", "x".repeat(1000));
        let good = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n";
        let input = io::Cursor::new(format!("{long}{good}").into_bytes());
        let (theirs, ours) = tokio::io::duplex(10_000);
        let (mut lines, _gone) = Lines::new(input, ours);
        lines.max_line = 100;
        assert!(matches!(lines.receive().await, Some(JsonRpcMessage::Request(_))));
        let mut told = String::new();
        BufReader::new(theirs).read_line(&mut told).await.unwrap();
        assert!(told.contains("a message may have up to 100 bytes"), "{told}");
    }
}
