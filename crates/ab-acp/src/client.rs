//! The ACP client: controls one agent over a pair of byte streams.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::bounds::{CANCEL_TIMEOUT, INITIALIZE_TIMEOUT, MAX_MESSAGE_LINE_BYTES, REQUEST_TIMEOUT};
use crate::failure::AcpError;
use crate::mcp_server::McpServer;
use crate::permission::{PermissionQuestion, ReplySlot};
use crate::profile::{AgentCapabilities, PROTOCOL_VERSION};
use crate::rpc::{
    AUTH_REQUIRED, Arrival, AtInputEnd, Inbox, Incoming, Route, Rpc, RpcError, RpcSettings,
};
use crate::session_update::SessionUpdate;

const INITIALIZE: &str = "initialize";
const AUTHENTICATE: &str = "authenticate";
const SESSION_NEW: &str = "session/new";
const SESSION_LOAD: &str = "session/load";
const SESSION_RESUME: &str = "session/resume";
const SESSION_PROMPT: &str = "session/prompt";
const SESSION_CANCEL: &str = "session/cancel";
const SESSION_UPDATE: &str = "session/update";
const REQUEST_PERMISSION: &str = "session/request_permission";

/// The id that an agent gave a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AcpSessionId(Arc<str>);

impl AcpSessionId {
    pub fn new(id: &str) -> AcpSessionId {
        AcpSessionId(id.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AcpSessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Settings of a client.
#[derive(Clone, Debug)]
pub struct AcpClientSettings {
    pub initialize_timeout: Duration,
    pub request_timeout: Duration,
    /// If the agent does not end a cancelled turn within this time, the turn ends with an error.
    pub cancel_timeout: Duration,
    /// The login method to use if the agent asks for a login.
    pub auth_method: Option<String>,
}

impl Default for AcpClientSettings {
    fn default() -> Self {
        AcpClientSettings {
            initialize_timeout: INITIALIZE_TIMEOUT,
            request_timeout: REQUEST_TIMEOUT,
            cancel_timeout: CANCEL_TIMEOUT,
            auth_method: None,
        }
    }
}

/// The working directory and the MCP servers of a new session.
#[derive(Clone, Debug)]
pub struct AcpSessionSetup {
    /// An absolute path, in the agent's view of the file system.
    pub cwd: String,
    pub mcp_servers: Vec<McpServer>,
}

/// A part of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptPart {
    Text(String),
    /// A file or another resource that the agent may read.
    Link {
        name: String,
        uri: String,
    },
}

/// How a session was reopened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionReopenMethod {
    Resumed,
    /// The session was reopened with `session/load`. The agent sent the history again, and the
    /// client dropped these updates. `replayed` is their number.
    Loaded {
        replayed: u64,
    },
}

/// Events from the agent, in the order of arrival.
#[derive(Debug)]
pub enum AgentEvent {
    Update {
        session: AcpSessionId,
        update: SessionUpdate,
    },
    Permission(PermissionQuestion),
    /// The end of a turn. Each accepted prompt results in exactly one of these events, after all
    /// updates of the turn.
    TurnEnded {
        session: AcpSessionId,
        result: Result<TurnEnd, AcpError>,
    },
    /// A notification that this client does not know.
    Notification {
        method: String,
        params: Value,
    },
    /// The beginning of a line on the agent's standard output that is not a message.
    InvalidLine(String),
}

/// How a turn ended, as the agent reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnEnd {
    pub stop_reason: StopReason,
    /// Tokens used in this turn, if the agent reports them.
    pub tokens: Option<TokenCounts>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    EndTurn,
    MaxTokens,
    MaxTurnRequests,
    Refusal,
    Cancelled,
    /// A stop reason that this client does not know.
    Other(String),
}

/// The token counts that an agent reports at the end of a turn. See
/// [`AgentTokenReports`](crate::catalog::AgentTokenReports) for the turns that they cover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    pub total: u64,
    pub input: u64,
    pub output: u64,
}

/// A connection to an agent. Clones are handles to the same connection.
///
/// The caller must read events while a request is pending, because a full event queue stops the
/// connection from reading. `initialize` and opening a session produce only a few events, which fit
/// in the queue.
#[derive(Clone, Debug)]
pub struct AcpClient {
    rpc: Rpc,
    state: Arc<State>,
    settings: Arc<AcpClientSettings>,
}

/// Receives the events of a connection.
#[derive(Debug)]
pub struct AgentEventStream {
    rpc: Rpc,
    inbox: Inbox,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    turns: Mutex<HashMap<AcpSessionId, Turn>>,
    /// Notified when a turn is cancelled and gets a deadline.
    cancelled: Notify,
    /// Sessions whose history the agent is sending again.
    replaying: Mutex<HashSet<AcpSessionId>>,
    replayed: AtomicU64,
    questions: Mutex<Vec<(AcpSessionId, Weak<ReplySlot>)>>,
    profile: OnceLock<AgentCapabilities>,
}

#[derive(Debug)]
struct Turn {
    /// The id of the prompt request.
    request: u64,
    /// When a cancelled turn ends with an error. `None` until the turn is cancelled.
    deadline: Option<CancelDeadline>,
}

#[derive(Clone, Copy, Debug)]
struct CancelDeadline {
    at: Instant,
    after: Duration,
}

impl AcpClient {
    /// Connects to the agent that writes to `input` and reads from `output`. Nothing is sent yet.
    pub fn connect<R, W>(
        input: R,
        output: W,
        settings: AcpClientSettings,
    ) -> (AcpClient, AgentEventStream)
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let state = Arc::new(State::default());
        let routing = state.clone();
        let reading =
            RpcSettings { max_line_bytes: MAX_MESSAGE_LINE_BYTES, at_input_end: AtInputEnd::Close };
        let (rpc, inbox) = Rpc::start(input, output, reading, move |arrival, method, params| {
            routing.route(arrival, method, params)
        });
        let events = AgentEventStream { rpc: rpc.clone(), inbox, state: state.clone() };
        (AcpClient { rpc, state, settings: Arc::new(settings) }, events)
    }

    /// Performs the ACP handshake. Must be called before any other request. The client does not
    /// advertise file system and terminal methods.
    pub async fn initialize(&self) -> Result<&AgentCapabilities, AcpError> {
        let params = json!({
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": {
                "fs": { "readTextFile": false, "writeTextFile": false },
                "terminal": false,
            },
            "clientInfo": {
                "name": "agent-backend",
                "title": "agent-backend",
                "version": env!("CARGO_PKG_VERSION"),
            },
        });
        let answer = self.rpc.request(INITIALIZE, params, self.settings.initialize_timeout).await?;
        let profile = AgentCapabilities::parse(&answer)?;
        Ok(self.state.profile.get_or_init(|| profile))
    }

    /// The agent's answer to [`AcpClient::initialize`].
    pub fn agent_capabilities(&self) -> Option<&AgentCapabilities> {
        self.state.profile.get()
    }

    /// Opens a session. If the agent requires a login, the client logs in once with the method from
    /// its settings.
    pub async fn new_session(&self, setup: &AcpSessionSetup) -> Result<AcpSessionId, AcpError> {
        let params = self.session_params(setup)?;
        let answer = self.logged_in(SESSION_NEW, params).await?;
        match answer["sessionId"].as_str() {
            Some(id) => Ok(AcpSessionId::new(id)),
            None => Err(AcpError::InvalidResponse {
                method: SESSION_NEW.into(),
                reason: "it has no sessionId".to_owned(),
            }),
        }
    }

    /// Reopens a session after the agent was restarted. Uses `session/resume` if the agent supports
    /// it, otherwise `session/load`. The history that the agent sends again is dropped.
    pub async fn load_or_resume_session(
        &self,
        session: &AcpSessionId,
        setup: &AcpSessionSetup,
    ) -> Result<SessionReopenMethod, AcpError> {
        let mut params = self.session_params(setup)?;
        params["sessionId"] = session.as_str().into();
        let profile = self.agent_capabilities();
        if profile.is_some_and(|profile| profile.resumes_sessions) {
            self.logged_in(SESSION_RESUME, params).await?;
            return Ok(SessionReopenMethod::Resumed);
        }
        if !profile.is_some_and(|profile| profile.loads_sessions) {
            return Err(AcpError::Unsupported { what: "reopening a session" });
        }
        let before = self.state.replayed.load(Ordering::Relaxed);
        lock(&self.state.replaying).insert(session.clone());
        let _replay = Replay { state: &self.state, session };
        self.logged_in(SESSION_LOAD, params).await?;
        let replayed = self.state.replayed.load(Ordering::Relaxed).saturating_sub(before);
        Ok(SessionReopenMethod::Loaded { replayed })
    }

    /// Starts a turn. If this returns `Ok`, the end of the turn is reported by
    /// [`AgentEvent::TurnEnded`]. A turn has no deadline.
    ///
    /// # Errors
    ///
    /// [`AcpError::TurnAlreadyRunning`] if the previous turn has not ended.
    pub async fn start_turn(
        &self,
        session: &AcpSessionId,
        prompt: &[PromptPart],
    ) -> Result<(), AcpError> {
        let parts: Value = prompt.iter().map(PromptPart::to_json).collect();
        let params = json!({ "sessionId": session.as_str(), "prompt": parts });
        let request = {
            let mut turns = lock(&self.state.turns);
            if turns.contains_key(session) {
                return Err(AcpError::TurnAlreadyRunning);
            }
            let request = self.rpc.expect_in_order()?;
            turns.insert(session.clone(), Turn { request, deadline: None });
            request
        };
        let mut unsent = Unsent { client: self, session, request, sent: false };
        let sent = self.rpc.send_request(request, SESSION_PROMPT, params).await;
        unsent.sent = sent.is_ok();
        // If the turn has already ended, its end is reported as an event, so the call succeeds.
        if unsent.withdraw() { sent } else { Ok(()) }
    }

    /// Cancels the turn of a session. The open questions of the turn are answered with "cancelled".
    /// The end of the turn is reported by [`AgentEvent::TurnEnded`], at the latest after the cancel
    /// timeout. Does nothing if no turn is running.
    pub async fn cancel_turn(&self, session: &AcpSessionId) -> Result<(), AcpError> {
        let after = self.settings.cancel_timeout;
        {
            let mut turns = lock(&self.state.turns);
            let Some(turn) = turns.get_mut(session) else { return Ok(()) };
            turn.deadline.get_or_insert(CancelDeadline { at: Instant::now() + after, after });
        }
        self.state.cancelled.notify_one();
        self.state.cancel_questions(session);
        let params = json!({ "sessionId": session.as_str() });
        let notified = self.rpc.notify(SESSION_CANCEL, params);
        match tokio::time::timeout(after, notified).await {
            Ok(notified) => notified,
            Err(_) => Err(AcpError::Timeout { method: SESSION_CANCEL.into(), after }),
        }
    }

    /// Closes the connection and waits until its tasks have ended. The event stream ends.
    pub async fn close(&self) {
        self.rpc.close().await;
    }

    /// Waits until the connection has ended and returns the reason.
    pub async fn wait_closed(&self) -> AcpError {
        self.rpc.ended().await
    }

    fn session_params(&self, setup: &AcpSessionSetup) -> Result<Value, AcpError> {
        let takes_http = self.agent_capabilities().is_some_and(|profile| profile.mcp_http);
        let is_http = |server: &McpServer| matches!(server, McpServer::Http { .. });
        if !takes_http && setup.mcp_servers.iter().any(is_http) {
            return Err(AcpError::Unsupported { what: "MCP servers over HTTP" });
        }
        let servers: Value = setup.mcp_servers.iter().map(McpServer::to_json).collect();
        Ok(json!({ "cwd": setup.cwd, "mcpServers": servers }))
    }

    /// Sends a request. If the agent requires a login, logs in and sends the request again.
    async fn logged_in(&self, method: &'static str, params: Value) -> Result<Value, AcpError> {
        let deadline = self.settings.request_timeout;
        let error = match self.rpc.request(method, params.clone(), deadline).await {
            Err(AcpError::RequestFailed { error, .. }) if error.code == AUTH_REQUIRED => error,
            answer => return answer,
        };
        let methods =
            self.agent_capabilities().map(|it| it.auth_methods.clone()).unwrap_or_default();
        let chosen = self.settings.auth_method.as_deref();
        let chosen = chosen.filter(|id| methods.iter().any(|method| method.id == *id));
        let Some(id) = chosen else {
            // If the agent offers no login methods, the error is not about a login, because some
            // agents use this code for other failures.
            return Err(if methods.is_empty() {
                AcpError::RequestFailed { method: method.into(), error }
            } else {
                AcpError::LoginRequired { methods }
            });
        };
        self.rpc.request(AUTHENTICATE, json!({ "methodId": id }), deadline).await?;
        self.rpc.request(method, params, deadline).await
    }
}

impl AgentEventStream {
    /// The next event, or `None` once the connection has ended. Cancel safe.
    pub async fn next(&mut self) -> Option<AgentEvent> {
        loop {
            let deadline = self.state.earliest_deadline();
            let expires = async {
                match deadline {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                incoming = self.inbox.next() => match incoming {
                    Some(incoming) => match self.event(incoming) {
                        Some(event) => return Some(event),
                        None => continue,
                    },
                    None => return self.interrupted_turn(),
                },
                () = expires => {
                    if let Some(event) = self.expired_turn() {
                        return Some(event);
                    }
                }
                () = self.state.cancelled.notified() => {}
            }
        }
    }

    fn event(&self, incoming: Incoming) -> Option<AgentEvent> {
        match incoming {
            Incoming::Noise(line) => Some(AgentEvent::InvalidLine(line.beginning)),
            Incoming::Answer { id, result } => {
                let session = self.state.end_turn(id)?;
                let result = result.map_err(|error| self.turn_error(error));
                Some(AgentEvent::TurnEnded { session, result: result.and_then(TurnEnd::parse) })
            }
            Incoming::Request { method: _, params, reply } => {
                let question = PermissionQuestion::parse(&params, reply)?;
                self.state.remember_question(&question);
                Some(AgentEvent::Permission(question))
            }
            Incoming::Notification { method, mut params } if method == SESSION_UPDATE => {
                let Some(session) = params["sessionId"].as_str().map(AcpSessionId::new) else {
                    return Some(AgentEvent::Notification { method, params });
                };
                let update = SessionUpdate::parse(params["update"].take());
                Some(AgentEvent::Update { session, update })
            }
            Incoming::Notification { method, params } => {
                Some(AgentEvent::Notification { method, params })
            }
        }
    }

    fn turn_error(&self, error: RpcError) -> AcpError {
        let profile = self.state.profile.get();
        let methods = profile.map(|it| it.auth_methods.clone()).unwrap_or_default();
        if error.code == AUTH_REQUIRED && !methods.is_empty() {
            return AcpError::LoginRequired { methods };
        }
        AcpError::RequestFailed { method: SESSION_PROMPT.into(), error: Box::new(error) }
    }

    /// If a turn was running when the connection ended, removes the turn and returns its end with
    /// an error. Each call returns one turn. Returns `None` when no turn is left.
    fn interrupted_turn(&self) -> Option<AgentEvent> {
        let mut turns = lock(&self.state.turns);
        let session = turns.keys().next().cloned()?;
        turns.remove(&session);
        let end = self.rpc.end();
        let error = end.unwrap_or_else(|| AcpError::closed("the agent closed its output"));
        Some(AgentEvent::TurnEnded { session, result: Err(error) })
    }

    /// If a cancelled turn did not end before its deadline, removes the turn and returns its end
    /// with an error.
    fn expired_turn(&self) -> Option<AgentEvent> {
        let now = Instant::now();
        let mut turns = lock(&self.state.turns);
        let (session, turn) = turns.iter().find(|(_, turn)| turn.has_expired(now))?;
        let (session, request) = (session.clone(), turn.request);
        let after = turn.deadline.map(|deadline| deadline.after).unwrap_or_default();
        turns.remove(&session);
        self.rpc.forget(request);
        let error = AcpError::Timeout { method: SESSION_CANCEL.into(), after };
        Some(AgentEvent::TurnEnded { session, result: Err(error) })
    }
}

impl Turn {
    fn has_expired(&self, now: Instant) -> bool {
        self.deadline.is_some_and(|deadline| deadline.at <= now)
    }
}

impl State {
    /// Decides how an incoming message is handled. The reading task calls this for every request
    /// and notification.
    fn route(&self, arrival: Arrival, method: &str, params: &Value) -> Route {
        match (arrival, method) {
            (Arrival::Request, REQUEST_PERMISSION) => Route::Queue,
            (Arrival::Request, _) => Route::Refuse,
            (Arrival::Notification, SESSION_UPDATE) => {
                let replaying = lock(&self.replaying);
                let id = params["sessionId"].as_str().unwrap_or_default();
                if replaying.is_empty() || !replaying.contains(&AcpSessionId::new(id)) {
                    return Route::Queue;
                }
                self.replayed.fetch_add(1, Ordering::Relaxed);
                Route::Refuse
            }
            (Arrival::Notification, _) => Route::Queue,
        }
    }

    fn earliest_deadline(&self) -> Option<Instant> {
        let turns = lock(&self.turns);
        turns.values().filter_map(|turn| turn.deadline).map(|deadline| deadline.at).min()
    }

    /// Removes the turn that the prompt request `request` started, and returns its session. `None`
    /// if the turn has already ended.
    fn end_turn(&self, request: u64) -> Option<AcpSessionId> {
        let mut turns = lock(&self.turns);
        let session = turns.iter().find(|(_, turn)| turn.request == request)?.0.clone();
        turns.remove(&session);
        Some(session)
    }

    fn remember_question(&self, question: &PermissionQuestion) {
        let mut questions = lock(&self.questions);
        questions.retain(|(_, slot)| slot.strong_count() > 0);
        questions.push((question.session.clone(), question.slot()));
    }

    fn cancel_questions(&self, session: &AcpSessionId) {
        let questions = std::mem::take(&mut *lock(&self.questions));
        let (theirs, others): (Vec<_>, Vec<_>) =
            questions.into_iter().partition(|(asked_in, _)| asked_in == session);
        for slot in theirs.iter().filter_map(|(_, slot)| slot.upgrade()) {
            slot.cancel();
        }
        lock(&self.questions).extend(others);
    }
}

/// Removes the turn of a prompt on drop, unless the prompt was sent.
struct Unsent<'a> {
    client: &'a AcpClient,
    session: &'a AcpSessionId,
    request: u64,
    sent: bool,
}

impl Unsent<'_> {
    /// Removes the turn of an unsent prompt. Returns `false` if the turn has already ended.
    fn withdraw(&self) -> bool {
        if self.sent {
            return true;
        }
        self.client.rpc.forget(self.request);
        self.client.state.end_turn(self.request).is_some()
    }
}

impl Drop for Unsent<'_> {
    fn drop(&mut self) {
        self.withdraw();
    }
}

impl fmt::Debug for Unsent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unsent({})", self.session)
    }
}

/// Marks a session whose history the agent is sending again, until the value is dropped.
struct Replay<'a> {
    state: &'a State,
    session: &'a AcpSessionId,
}

impl Drop for Replay<'_> {
    fn drop(&mut self) {
        lock(&self.state.replaying).remove(self.session);
    }
}

impl PromptPart {
    fn to_json(&self) -> Value {
        match self {
            PromptPart::Text(text) => json!({ "type": "text", "text": text }),
            PromptPart::Link { name, uri } => {
                json!({ "type": "resource_link", "name": name, "uri": uri })
            }
        }
    }
}

impl TurnEnd {
    fn parse(answer: Value) -> Result<TurnEnd, AcpError> {
        let Some(word) = answer["stopReason"].as_str() else {
            let reason = "it has no stopReason".to_owned();
            return Err(AcpError::InvalidResponse { method: SESSION_PROMPT.into(), reason });
        };
        Ok(TurnEnd { stop_reason: StopReason::parse(word), tokens: TokenCounts::parse(&answer) })
    }
}

impl TokenCounts {
    fn parse(answer: &Value) -> Option<TokenCounts> {
        let usage = &answer["usage"];
        if usage.is_object() {
            let count = |key: &str| usage[key].as_u64().unwrap_or_default();
            let (input, output) = (count("inputTokens"), count("outputTokens"));
            return Some(TokenCounts { total: count("totalTokens"), input, output });
        }
        // Gemini CLI.
        let quota = &answer["_meta"]["quota"]["token_count"];
        let count = |key: &str| quota[key].as_u64().unwrap_or_default();
        let (input, output) = (count("input_tokens"), count("output_tokens"));
        quota.is_object().then(|| TokenCounts {
            total: input.saturating_add(output),
            input,
            output,
        })
    }
}

impl StopReason {
    pub fn as_str(&self) -> &str {
        match self {
            StopReason::EndTurn => "end_turn",
            StopReason::MaxTokens => "max_tokens",
            StopReason::MaxTurnRequests => "max_turn_requests",
            StopReason::Refusal => "refusal",
            StopReason::Cancelled => "cancelled",
            StopReason::Other(word) => word,
        }
    }

    fn parse(word: &str) -> StopReason {
        match word {
            "end_turn" => StopReason::EndTurn,
            "max_tokens" => StopReason::MaxTokens,
            "max_turn_requests" => StopReason::MaxTurnRequests,
            "refusal" => StopReason::Refusal,
            "cancelled" => StopReason::Cancelled,
            other => StopReason::Other(other.to_owned()),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
