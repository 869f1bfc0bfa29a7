//! One agent server: its state and the calls on it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde_json::json;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::envelope::{RpcId, RpcMessageKind, replace_line_breaks_by_spaces};
use super::failure::{AgentExit, AgentGatewayError};
use super::pending::{AddRequestError, PendingRequests};
use super::replay::{ReplayBatch, ReplayBuffer, ReplayLimits};
use super::sandbox::ServerDirs;
use super::{AgentGatewaySettings, PostMessageOutcome};
use crate::rpc::INTERNAL_ERROR;

/// The maximum size of one batch of events.
const BATCH: ReplayLimits = ReplayLimits { events: 256, bytes: 256 * 1024 };
/// Maximum number of bytes of an invalid line that are reported.
const SHOWN_NOISE: usize = 4 * 1024;
/// How much later pending requests fail than the events about the end of the agent. A client that
/// reads events therefore sees the end of the agent before its requests fail.
const TOLD_AFTER: Duration = Duration::from_millis(100);

/// How long to wait for the exit of a process that has closed its input. If the process exits in
/// this time, the exit is reported instead of the write error.
const EXIT_AFTER_BROKEN_INPUT: Duration = Duration::from_secs(1);

/// The state that is shared by callers and the task that runs the process.
#[derive(Debug)]
pub(super) struct AgentServer {
    pub(super) id: String,
    /// The agent's name in the first request.
    pub(super) agent: String,
    /// The id of the agent in the catalog.
    pub(super) agent_id: String,
    pub(super) created: SystemTime,
    pub(super) place: ServerDirs,
    pub(super) phase: watch::Sender<Phase>,
    /// Cancelled when the server is deleted.
    pub(super) closing: CancellationToken,
    state: Mutex<State>,
    /// The id of the last event. Readers wait for changes of it.
    last_event: watch::Sender<u64>,
    settings: Arc<AgentGatewaySettings>,
}

/// The state of the agent's process, and of the server around it.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    Starting,
    Running(mpsc::Sender<Input>),
    Ended(Arc<AgentExit>),
    /// The process could not be started, or the server was deleted. The server is no longer listed.
    Gone(AgentGatewayError),
}

/// A line to send to the agent, and the channel that reports when it was written.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) line: Bytes,
    pub(super) written: oneshot::Sender<Result<(), Arc<str>>>,
}

type Waiter = oneshot::Sender<Result<Bytes, AgentGatewayError>>;

/// The id of a client's request that was recorded as pending, and the receiver of its response.
struct Noted {
    id: RpcId,
    answer: oneshot::Receiver<Result<Bytes, AgentGatewayError>>,
}

#[derive(Debug)]
struct State {
    pending: PendingRequests<Waiter>,
    replay: ReplayBuffer,
    /// The last time when the agent sent a line or received the response to one of its own
    /// requests. Timeouts count from this time.
    agent_turn: Instant,
}

impl AgentServer {
    pub(super) fn new(
        id: &str,
        agent: &str,
        agent_id: String,
        place: ServerDirs,
        settings: Arc<AgentGatewaySettings>,
    ) -> AgentServer {
        AgentServer {
            id: id.to_owned(),
            agent: agent.to_owned(),
            agent_id,
            created: SystemTime::now(),
            place,
            phase: watch::Sender::new(Phase::Starting),
            closing: CancellationToken::new(),
            state: Mutex::new(State {
                pending: PendingRequests::new(settings.max_requests),
                replay: ReplayBuffer::new(settings.replay),
                agent_turn: Instant::now(),
            }),
            last_event: watch::Sender::new(0),
            settings,
        }
    }

    /// Forwards a message once the process has started. For a request, waits for the response.
    pub(super) async fn post(
        &self,
        envelope: RpcMessageKind,
        body: &[u8],
    ) -> Result<PostMessageOutcome, AgentGatewayError> {
        let input = self.started().await?;
        let noted = self.note(envelope)?;
        let mut line = replace_line_breaks_by_spaces(body).into_owned();
        line.push(b'\n');
        let written = self.write(input, line.into()).await;
        let Some(Noted { id, answer }) = noted else {
            return written.map(|()| PostMessageOutcome::Accepted);
        };
        match written {
            Ok(()) => {}
            // The line may still be written, so its id remains in use.
            Err(error @ AgentGatewayError::Timeout { .. }) => return Err(error),
            Err(error) => {
                let waiter = self.state().pending.take_client_request(&id);
                // The request is no longer in the table. So the end of the process has already
                // answered it, or will answer it.
                if waiter.is_some() || !matches!(error, AgentGatewayError::AgentExited(_)) {
                    return Err(error);
                }
            }
        }
        self.response(answer).await.map(PostMessageOutcome::Response)
    }

    /// Waits until the process has started. The timeout of a request begins afterwards.
    async fn started(&self) -> Result<mpsc::Sender<Input>, AgentGatewayError> {
        let mut phases = self.phase.subscribe();
        let phase = phases.wait_for(|phase| !matches!(phase, Phase::Starting)).await;
        match phase.map(|phase| phase.clone()) {
            Ok(Phase::Running(input)) => Ok(input),
            Ok(Phase::Ended(end)) => Err(AgentGatewayError::AgentExited(end)),
            Ok(Phase::Gone(error)) => Err(error),
            Ok(Phase::Starting) | Err(_) => Err(AgentGatewayError::Closed),
        }
    }

    /// Records a client's message in the table of pending requests, before the message is written.
    fn note(&self, envelope: RpcMessageKind) -> Result<Option<Noted>, AgentGatewayError> {
        let mut state = self.state();
        match envelope {
            RpcMessageKind::Request(id) => {
                let (waiter, answer) = oneshot::channel();
                match state.pending.add_client_request(id.clone(), waiter) {
                    Ok(()) => Ok(Some(Noted { id, answer })),
                    Err(AddRequestError::DuplicateId) => {
                        Err(AgentGatewayError::DuplicateRequestId { id })
                    }
                    Err(AddRequestError::Full) => Err(AgentGatewayError::TooManyRequests {
                        bound: self.settings.max_requests,
                    }),
                }
            }
            RpcMessageKind::Response(id) => {
                if state.pending.remove_agent_request(&id) {
                    state.agent_turn = Instant::now();
                }
                Ok(None)
            }
            RpcMessageKind::Notification | RpcMessageKind::Other => Ok(None),
        }
    }

    /// Sends a line to the writing task and waits until it is written. If the caller stops waiting,
    /// the complete line is still written.
    async fn write(
        &self,
        input: mpsc::Sender<Input>,
        line: Bytes,
    ) -> Result<(), AgentGatewayError> {
        let (written, done) = oneshot::channel();
        let writing = async {
            if input.send(Input { line, written }).await.is_err() {
                return Err(self.ended());
            }
            match done.await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(why)) => Err(self.write_failed(why).await),
                Err(_) => Err(self.ended()),
            }
        };
        tokio::select! {
            written = writing => written,
            timeout = self.quiet() => Err(timeout),
        }
    }

    async fn response(
        &self,
        answer: oneshot::Receiver<Result<Bytes, AgentGatewayError>>,
    ) -> Result<Bytes, AgentGatewayError> {
        tokio::select! {
            answer = answer => answer.unwrap_or_else(|_| Err(self.ended())),
            timeout = self.quiet() => Err(timeout),
        }
    }

    /// Waits until the agent has been silent for too long, and returns the error. The time in which
    /// the agent waits for a client does not count. Other messages of clients do not reset the
    /// timer.
    async fn quiet(&self) -> AgentGatewayError {
        let after = self.settings.request_timeout;
        let total = self.settings.total_timeout;
        let begun = Instant::now();
        let most = total.and_then(|total| begun.checked_add(total));
        loop {
            let (agent_turn, agent_waits) = {
                let state = self.state();
                (state.agent_turn, state.pending.has_agent_requests())
            };
            let now = Instant::now();
            let from = if agent_waits { now } else { begun.max(agent_turn) };
            let deadline = from + after;
            if let (Some(most), Some(total)) = (most, total)
                && most <= now
            {
                return AgentGatewayError::Timeout { after: total };
            }
            if deadline <= now {
                return AgentGatewayError::Timeout { after };
            }
            sleep_until(most.map_or(deadline, |most| most.min(deadline))).await;
        }
    }

    /// The error for a line that could not be written. Usually the process has exited. Its exit
    /// status is then a better error than the write error.
    async fn write_failed(&self, why: Arc<str>) -> AgentGatewayError {
        let mut phases = self.phase.subscribe();
        let exit = phases.wait_for(|phase| !matches!(phase, Phase::Running(_)));
        if timeout(EXIT_AFTER_BROKEN_INPUT, exit).await.is_ok() {
            self.ended()
        } else {
            AgentGatewayError::WriteFailed { why }
        }
    }

    /// Why the process accepts no more input. Called after it has ended.
    fn ended(&self) -> AgentGatewayError {
        match &*self.phase.borrow() {
            Phase::Ended(end) => AgentGatewayError::AgentExited(Arc::clone(end)),
            Phase::Gone(error) => error.clone(),
            Phase::Starting | Phase::Running(_) => AgentGatewayError::Closed,
        }
    }

    /// Handles a line from the agent: adds it to the events and sends a response to the caller that
    /// waits for it.
    pub(super) fn line(&self, line: Vec<u8>) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        let envelope = match RpcMessageKind::parse(&line) {
            Ok(envelope) => envelope,
            Err(error) => {
                let mut shown = String::from_utf8_lossy(&line).into_owned();
                if shown.len() > SHOWN_NOISE {
                    shown.truncate(shown.floor_char_boundary(SHOWN_NOISE));
                    shown.push('…');
                }
                let params = json!({ "error": error.to_string(), "raw": shown });
                self.state().agent_turn = Instant::now();
                return self.synthetic("_adapter/invalid_stdout", params);
            }
        };
        let data = match replace_line_breaks_by_spaces(&line) {
            std::borrow::Cow::Borrowed(_) => Bytes::from(line),
            std::borrow::Cow::Owned(line) => Bytes::from(line),
        };
        let mut state = self.state();
        state.agent_turn = Instant::now();
        let waiter = match envelope {
            RpcMessageKind::Response(id) => state.pending.take_client_request(&id),
            RpcMessageKind::Request(id) => {
                state.pending.add_agent_request(id);
                None
            }
            RpcMessageKind::Notification | RpcMessageKind::Other => None,
        };
        let last = state.replay.push(data.clone());
        drop(state);
        self.last_event.send_replace(last);
        if let Some(waiter) = waiter {
            // Sending fails if the caller has stopped waiting. That is no error.
            let _ = waiter.send(Ok(data));
        }
    }

    /// Adds a notification that the gateway itself makes to the agent's messages.
    fn synthetic(&self, method: &str, params: serde_json::Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.publish(message.to_string().into());
    }

    fn publish(&self, message: Bytes) {
        let last = self.state().replay.push(message);
        self.last_event.send_replace(last);
    }

    /// Reports the end of the process. First adds an error response to the events for each pending
    /// request. Clients that read events expect failures there, and some of these clients stop
    /// reading when the POST fails.
    pub(super) async fn end(&self, phase: Phase) {
        let mut waiters = self.state().pending.drain_client_requests();
        if let Phase::Ended(end) = &phase {
            for (id, _) in &waiters {
                self.publish(error_response(id, end).into());
            }
            let params = json!({ "success": end.is_success(), "code": end.exit_code });
            self.synthetic("_adapter/agent_exited", params);
        }
        let is_read = matches!(phase, Phase::Ended(_)) && self.last_event.receiver_count() > 0;
        self.phase.send_replace(phase);
        let error = self.ended();
        // Also fail the requests that callers recorded while the task waited.
        let late = self.state().pending.drain_client_requests();
        if let AgentGatewayError::AgentExited(end) = &error {
            for (id, _) in &late {
                self.publish(error_response(id, end).into());
            }
        }
        waiters.extend(late);
        if is_read && !waiters.is_empty() {
            sleep(TOLD_AFTER).await;
        }
        for (_, waiter) in waiters {
            // Sending fails if the caller has stopped waiting. That is no error.
            let _ = waiter.send(Err(error.clone()));
        }
    }

    /// Prepares a restart of the process. Returns `true` if this call prepared the restart, and
    /// `false` if the process has not ended.
    pub(super) fn restart(&self) -> bool {
        self.phase.send_if_modified(|phase| {
            let has_ended = matches!(phase, Phase::Ended(_));
            if has_ended {
                *phase = Phase::Starting;
            }
            has_ended
        })
    }

    pub(super) fn subscribe(self: &Arc<Self>, last_event_id: Option<u64>) -> ReplayReader {
        let cursor = self.state().replay.start_cursor(last_event_id);
        ReplayReader { server: Arc::clone(self), cursor, wake: self.last_event.subscribe() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The error response to a request that the agent can no longer answer, as JSON.
fn error_response(id: &RpcId, end: &AgentExit) -> String {
    let data = json!({ "exitCode": end.exit_code, "stderr": end.stderr });
    let error = json!({ "code": INTERNAL_ERROR, "message": end.to_string(), "data": data });
    format!(r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#, id.to_json())
}

/// A reader of a server's events. It reads from the buffer at its own pace and does not delay other
/// readers.
#[derive(Debug)]
pub struct ReplayReader {
    server: Arc<AgentServer>,
    cursor: u64,
    wake: watch::Receiver<u64>,
}

impl ReplayReader {
    /// Returns the next events. `None` if the server was deleted.
    pub async fn next(&mut self) -> Option<ReplayBatch> {
        loop {
            self.wake.borrow_and_update();
            let batch = self.server.state().replay.events_after(self.cursor, BATCH);
            if let Some(last) = batch.events.last() {
                self.cursor = last.id;
                return Some(batch);
            }
            tokio::select! {
                changed = self.wake.changed() => changed.ok()?,
                () = self.server.closing.cancelled() => return None,
            }
        }
    }
}
