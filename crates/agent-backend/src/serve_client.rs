//! A client of `agent-backend serve`: tasks, sessions, their events, and approvals.
//!
//! ```no_run
//! use agent_backend::serve_client::{RequestedAgent, EventKind, RequestedRepo, TaskRequest};
//! use agent_backend::{ServeClient, ServeClientSettings};
//!
//! # async fn example() -> agent_backend::Result<()> {
//! let settings = ServeClientSettings::new("http://127.0.0.1:3001").token("the server's token");
//! let client = ServeClient::new(settings)?;
//! let task = TaskRequest {
//!     prompt: "Fix the failing test".to_owned(),
//!     repo: RequestedRepo { url: Some("/srv/project".to_owned()), ..RequestedRepo::default() },
//!     agent: RequestedAgent { kind: "scripted".to_owned(), ..RequestedAgent::default() },
//!     ..TaskRequest::default()
//! };
//! let session = client.create_task(&task).await?.id;
//! let mut events = client.follow_events(session);
//! while let Some(event) = events.next().await? {
//!     if let EventKind::Log { message, .. } = event.event.kind {
//!         println!("{message}");
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Every request has a connection of its own. An error contains the text of the server's problem
//! document, with the messages about single fields.

mod api_keys;
mod approvals;
mod catalogues;
mod drafts;
mod events;
mod housekeeping;
mod problem;
mod runs;
mod sse;
mod stream;
mod uploads;

use std::io;
use std::pin::Pin;
use std::time::Duration;

use ab_core::{Error, ErrorCode, ErrorKind, Result};
use ab_remote::client::{
    CleartextTokenPolicy, SecretText, TrustRoots, WebSocketEndpoint, WebSocketUrl,
};
use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use serde::de::DeserializeOwned;

use crate::exchange::{self, Answer};

pub use ab_api::{
    ApiKey, ApiKeyCreatedResponse, ApiKeyId, Approval, ApprovalDecider, ApprovalDecision,
    ApprovalId, ApprovalQuestion, ApprovalRequester, ApprovalStatus, ApprovalSubject,
    ApproveOrDeny, ChangeCounts, ContinueRequest, DeciderKind, DecisionChannel, DeliveryMode,
    DeliveryResult, Event, EventKind, LocalWorkspaceAccess, LogLevel, LogSource, LoginLink,
    OpenIdeRequest, OpenIdeResponse, Page, PlanEntry, PlanEntryStatus, PromptEdit, PromptRequest,
    PromptStatus, RequestedAgent, RequestedAgents, RequestedDelivery, RequestedRepo, Session,
    SessionActivity, SessionBudget, SessionEndReason, SessionId, SessionPrompt, SessionStatus,
    SessionUsage, SshWorkspaceAccess, TaskAttachment, TaskCreatedResponse, TaskGroup, TaskRequest,
    Time, ToolExecutionStatus, Upload, UploadId, UploadKind, UploadRequest, UploadStatus,
};
pub use approvals::{ApprovalQuery, ApprovalStream};
pub use catalogues::RepoCatalogueQuery;
pub use events::{SessionEventStream, SessionEventStreamItem};
pub use runs::{
    OperationOutput, OperationOutputChannel, RunUpdate, RunUpdateStream, StartedOperation,
};

/// Maximum size of an answer in bytes, except for event streams.
const MAX_ANSWER: usize = 64 * 1024 * 1024;
/// How long a server may take to answer a request, except for event streams.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The settings of a [`ServeClient`].
#[derive(Clone, Debug)]
pub struct ServeClientSettings {
    /// The address of the server, such as `http://127.0.0.1:3001`.
    pub url: String,
    pub token: Option<SecretText>,
    /// Whether the token may be sent to another machine without TLS.
    pub cleartext_token_policy: CleartextTokenPolicy,
    /// The certificate authorities that are trusted for an `https` server.
    pub trust_roots: TrustRoots,
    pub connect_timeout: Duration,
    /// How long an event stream, or a call that waits for a person's decision, tries to reach a
    /// server that does not answer.
    pub reconnect_timeout: Duration,
}

impl ServeClientSettings {
    /// Settings for the server at `url`, without a token.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            token: None,
            cleartext_token_policy: CleartextTokenPolicy::default(),
            trust_roots: TrustRoots::default(),
            connect_timeout: Duration::from_secs(10),
            reconnect_timeout: Duration::from_secs(30),
        }
    }

    /// Sets the token.
    pub fn token(mut self, token: impl Into<SecretText>) -> Self {
        self.token = Some(token.into());
        self
    }
}

/// Filters and the page of a list of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionQuery {
    pub status: Option<SessionStatus>,
    pub project_id: Option<String>,
    pub agent: Option<String>,
    /// The URL of the repository.
    pub repo: Option<String>,
    /// A label as `name=value`.
    pub label: Option<String>,
    /// The first session of a task that made several sessions.
    pub task_id: Option<SessionId>,
    pub page: Option<u32>,
    pub per_page: Option<u32>,
}

/// A client of a server that runs sessions. Cloning is cheap compared with a request.
#[derive(Clone, Debug)]
pub struct ServeClient {
    socket: WebSocketEndpoint,
    /// The name of the server in error messages.
    name: String,
    /// The part of the URL's path before `/api`, without a slash at the end.
    prefix: String,
    headers: HeaderMap,
    connect_timeout: Duration,
    pub(crate) reconnect_for: Duration,
}

impl ServeClient {
    /// Creates a client. Does not connect yet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the URL is not `http` or `https`, if the token is not a valid
    /// header value, or if the token would be sent to another machine without TLS.
    pub fn new(settings: ServeClientSettings) -> Result<Self> {
        let url = &settings.url;
        let refuse = |why: &str| {
            let message = format!("invalid server URL {url:?}: {why}");
            Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
        };
        let uri: Uri = url.parse().map_err(|_| refuse("must be like http://127.0.0.1:3001"))?;
        let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
        let Some(authority) = uri.authority().filter(|_| is_web && uri.query().is_none()) else {
            return Err(refuse("must be like http://127.0.0.1:3001"));
        };
        let mut socket = WebSocketEndpoint::from_url(WebSocketUrl::parse(url)?);
        socket.token.clone_from(&settings.token);
        socket.cleartext_token_policy = settings.cleartext_token_policy;
        socket.trust_roots = settings.trust_roots;
        socket.check_cleartext_credentials()?;
        let header = |what: &str, text: &str| {
            HeaderValue::from_str(text).map_err(|_| refuse(&format!("{what} cannot be sent")))
        };
        let mut headers = HeaderMap::new();
        headers.insert(HOST, header("its host", authority.as_str())?);
        if let Some(token) = &settings.token {
            let mut bearer = header("the token", &format!("Bearer {}", token.reveal()))?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        Ok(Self {
            name: format!("the server at {}", url.trim_end_matches('/')),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            socket,
            headers,
            connect_timeout: settings.connect_timeout,
            reconnect_for: settings.reconnect_timeout,
        })
    }

    /// Creates a session for a task.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the server does not accept the task. The error has a message for
    /// each wrong field.
    pub async fn create_task(&self, task: &TaskRequest) -> Result<TaskCreatedResponse> {
        self.json(Method::POST, "/api/v1/tasks", body(task)?).await
    }

    /// Returns one page of the sessions that match the query, newest first.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached or reports an error.
    pub async fn sessions(&self, query: &SessionQuery) -> Result<Page<Session>> {
        let SessionQuery { status, project_id, agent, repo, label, task_id, page, per_page } =
            query;
        let number = |number: &Option<u32>| number.map(|number| number.to_string());
        let path = with_query(
            "/api/v1/sessions",
            &[
                ("status", status.map(|status| status.to_string())),
                ("projectId", project_id.clone()),
                ("agent", agent.clone()),
                ("repo", repo.clone()),
                ("label", label.clone()),
                ("taskId", task_id.map(|id| id.to_string())),
                ("page", number(page)),
                ("perPage", number(per_page)),
            ],
        );
        self.json(Method::GET, &path, Bytes::new()).await
    }

    /// Returns the session with this id.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if there is no such session.
    pub async fn session(&self, id: SessionId) -> Result<Session> {
        self.json(Method::GET, &session_path(id, ""), Bytes::new()).await
    }

    /// Follows the events of a session: first the stored events, then new ones as they happen,
    /// until the session has ended.
    pub fn follow_events(&self, id: SessionId) -> SessionEventStream {
        self.follow_events_after(id, 0)
    }

    /// Follows the events of a session, starting after the event with the id `after`.
    pub fn follow_events_after(&self, id: SessionId, after: u64) -> SessionEventStream {
        SessionEventStream::new(self.clone(), id, after)
    }

    /// Returns all events of a session that are stored so far, oldest first.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if there is no such session.
    pub async fn stored_events(&self, id: SessionId) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        let mut after = 0;
        loop {
            let path = session_path(id, &format!("/events?after={after}"));
            let part: History = self.json(Method::GET, &path, Bytes::new()).await?;
            events.extend(part.items);
            after = part.last_event_id;
            if !part.has_more {
                return Ok(events);
            }
        }
    }

    /// Returns the last `tail` log events of a session, oldest first. At most 1000.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if there is no such session.
    pub async fn last_events(&self, id: SessionId, tail: u32) -> Result<Vec<Event>> {
        let path = session_path(id, &format!("/logs?tail={tail}"));
        let page: Items<Event> = self.json(Method::GET, &path, Bytes::new()).await?;
        Ok(page.items)
    }

    /// Asks a session to end and gives its agent time to finish.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if there is no such session.
    pub async fn stop_session(&self, id: SessionId) -> Result<()> {
        self.answer(Method::POST, &session_path(id, "/stop"), Bytes::new()).await.map(drop)
    }

    /// Starts a new session on the workspace of a session that was stopped or failed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] while the earlier session runs. Also fails if its workspace no
    /// longer exists.
    pub async fn continue_session(
        &self,
        id: SessionId,
        continuation: &ContinueRequest,
    ) -> Result<TaskCreatedResponse> {
        self.json(Method::POST, &session_path(id, "/continue"), body(continuation)?).await
    }

    /// Creates a one-time link that logs a browser in.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached or reports an error.
    pub async fn create_login_link(&self) -> Result<LoginLink> {
        self.json(Method::POST, "/api/v1/login-links", Bytes::new()).await
    }

    /// Sends another prompt to the agent of a session. The prompt is queued after earlier prompts.
    /// With `now` it is sent first, and the agent's current turn is cancelled.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] while the result is delivered. Also fails if the session has ended.
    pub async fn send_prompt(
        &self,
        id: SessionId,
        follow_up: &PromptRequest,
    ) -> Result<SessionPrompt> {
        self.json(Method::POST, &session_path(id, "/prompt"), body(follow_up)?).await
    }

    /// Returns one page of the prompts of a session: first the sent prompts, then the queue in its
    /// order.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if there is no such session.
    pub async fn session_prompts(&self, id: SessionId, page: u32) -> Result<Page<SessionPrompt>> {
        let path = session_path(id, &format!("/prompts?page={page}&perPage=200"));
        self.json(Method::GET, &path, Bytes::new()).await
    }

    /// Changes the text of a queued prompt.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if the prompt is no longer in the queue. [`ErrorKind::NotFound`] if
    /// there is no such prompt.
    pub async fn change_prompt(
        &self,
        id: SessionId,
        number: u32,
        edit: &PromptEdit,
    ) -> Result<SessionPrompt> {
        let path = session_path(id, &format!("/prompts/{number}"));
        self.json(Method::PUT, &path, body(edit)?).await
    }

    /// Removes a prompt from the queue.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if the prompt is no longer in the queue. [`ErrorKind::NotFound`] if
    /// there is no such prompt.
    pub async fn withdraw_prompt(&self, id: SessionId, number: u32) -> Result<SessionPrompt> {
        let path = session_path(id, &format!("/prompts/{number}"));
        self.json(Method::DELETE, &path, Bytes::new()).await
    }

    /// Delivers the result of a session that waits for a prompt, and completes the session.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if the session does not wait for a prompt. Also fails if the session
    /// has ended.
    pub async fn finish_session(&self, id: SessionId) -> Result<()> {
        self.answer(Method::POST, &session_path(id, "/finish"), Bytes::new()).await.map(drop)
    }

    /// Freezes the processes of a running session.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if the session is not running. [`ErrorKind::NotFound`] if there is
    /// no such session.
    pub async fn pause_session(&self, id: SessionId) -> Result<()> {
        self.answer(Method::POST, &session_path(id, "/pause"), Bytes::new()).await.map(drop)
    }

    /// Resumes a paused session.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if the session is not paused. [`ErrorKind::NotFound`] if there is no
    /// such session.
    pub async fn resume_session(&self, id: SessionId) -> Result<()> {
        self.answer(Method::POST, &session_path(id, "/resume"), Bytes::new()).await.map(drop)
    }

    /// Ends a session at once and removes its workspace.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if there is no such session.
    pub async fn cancel_session(&self, id: SessionId) -> Result<()> {
        self.answer(Method::DELETE, &session_path(id, ""), Bytes::new()).await.map(drop)
    }

    /// Asks how the workspace of a session can be opened in an IDE.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if the session has no workspace yet. Also fails if the workspace no
    /// longer exists.
    pub async fn open_ide(
        &self,
        id: SessionId,
        request: &OpenIdeRequest,
    ) -> Result<OpenIdeResponse> {
        self.json(Method::POST, &session_path(id, "/open/ide"), body(request)?).await
    }

    /// Returns the changes of a session so far, as a unified diff.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NotFound`] if there is no such session, or if neither its workspace nor a
    /// stored diff exists.
    pub async fn session_diff(&self, id: SessionId) -> Result<Vec<u8>> {
        let path = session_path(id, "/diff");
        Ok(self.answer(Method::GET, &path, Bytes::new()).await?.body.to_vec())
    }

    /// Sends any request of the API and returns its JSON answer, or `null` if the answer has no
    /// body. There is no time limit, because a run may take as long as its operations.
    ///
    /// # Errors
    ///
    /// Fails if the method is not an HTTP method, if the server cannot be reached, or if it refuses
    /// the request.
    pub async fn send_request(
        &self,
        method: &str,
        path: &str,
        json: Option<&serde_json::Value>,
    ) -> Result<serde_json::Value> {
        let method: Method = method.parse().map_err(|_| {
            let message = format!("invalid HTTP method {method:?}");
            Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
        })?;
        let bytes = match json {
            Some(json) => body(json)?,
            None => Bytes::new(),
        };
        let whole: BoxedAnswer<'_> = Box::pin(self.whole(method, path, bytes, HeaderMap::new()));
        let answer = whole.await?;
        if answer.body.is_empty() {
            return Ok(serde_json::Value::Null);
        }
        serde_json::from_slice(&answer.body).map_err(|error| {
            let message = format!("{} sent a response that is not JSON: {error}", self.name);
            Error::new(ErrorCode::ReadFailed, ErrorKind::Unsupported, message)
        })
    }

    async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T> {
        let answer = self.answer(method, path, body).await?;
        self.parsed(&answer)
    }

    fn parsed<T: DeserializeOwned>(&self, answer: &WholeAnswer) -> Result<T> {
        serde_json::from_slice(&answer.body).map_err(|error| {
            let message = format!("{} sent an unexpected response: {error}", self.name);
            Error::new(ErrorCode::ReadFailed, ErrorKind::Unsupported, message)
                .with_hint("client and server may be of different versions: agent-backend version")
        })
    }

    /// Sends a request and returns the whole answer.
    async fn answer(&self, method: Method, path: &str, body: Bytes) -> Result<WholeAnswer> {
        self.answer_with(method, path, body, HeaderMap::new()).await
    }

    async fn answer_with(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        more: HeaderMap,
    ) -> Result<WholeAnswer> {
        // The boxed future keeps the connection's types out of the types of the callers' futures.
        let whole: BoxedAnswer<'_> = Box::pin(self.whole(method, path, body, more));
        tokio::time::timeout(ANSWER_TIMEOUT, whole).await.unwrap_or_else(|_| {
            let message = format!("{} did not answer in time", self.name);
            Err(Error::new(ErrorCode::Timeout, ErrorKind::Timeout, message))
        })
    }

    async fn whole(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        more: HeaderMap,
    ) -> Result<WholeAnswer> {
        let response = self.send(method, path, body, more).await?;
        let (head, body) = response.into_parts();
        let body = self.read(body).await?;
        if head.status.is_success() {
            return Ok(WholeAnswer { body });
        }
        Err(problem::error(&self.name, path, head.status, &head.headers, &body))
    }

    /// Sends a request and returns the head of its answer.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        more: HeaderMap,
    ) -> Result<Response<Answer>> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        let uri = format!("{}{path}", self.prefix);
        *request.uri_mut() = uri.parse().map_err(|_| {
            let message = format!("invalid request path {uri:?}");
            Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
        })?;
        let headers = request.headers_mut();
        headers.clone_from(&self.headers);
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, */*;q=0.5"));
        headers.extend(more);
        let sent = exchange::send(&self.socket, &self.name, self.connect_timeout, request).await;
        sent.map_err(with_start_hint)
    }

    async fn read(&self, mut body: Answer) -> Result<Bytes> {
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| exchange::lost(&self.name, error))?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > MAX_ANSWER {
                let message = format!("{} sent more than {MAX_ANSWER} bytes", self.name);
                return Err(Error::new(ErrorCode::TooLarge, ErrorKind::TooLarge, message));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes.freeze())
    }
}

/// Adds a hint to the error of a host on which no server listens.
fn with_start_hint(error: Error) -> Error {
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref());
    let is_refused = source.map(io::Error::kind) == Some(io::ErrorKind::ConnectionRefused);
    if is_refused && error.hint().is_none() {
        error.with_hint("start one with `agent-backend serve`, or name one with --server URL")
    } else {
        error
    }
}

type BoxedAnswer<'a> = Pin<Box<dyn Future<Output = Result<WholeAnswer>> + Send + 'a>>;

/// A complete answer of a server.
struct WholeAnswer {
    body: Bytes,
}

/// The list in one page of an answer.
#[derive(serde::Deserialize)]
struct Items<T> {
    items: Vec<T>,
}

/// The stored events of a session, as the server returns them.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct History {
    items: Vec<Event>,
    last_event_id: u64,
    has_more: bool,
}

fn session_path(id: SessionId, rest: &str) -> String {
    format!("/api/v1/sessions/{id}{rest}")
}

fn body(value: &impl serde::Serialize) -> Result<Bytes> {
    let written = serde_json::to_vec(value).map_err(|error| {
        let message = format!("cannot write the request: {error}");
        Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
    })?;
    Ok(written.into())
}

/// Appends the query parameters that have a value to `path`.
fn with_query(path: &str, parameters: &[(&str, Option<String>)]) -> String {
    let mut uri = path.to_owned();
    let mut separator = '?';
    for (name, value) in parameters {
        let Some(value) = value else { continue };
        uri.push(separator);
        uri.push_str(name);
        uri.push('=');
        for byte in value.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    uri.push(char::from(byte));
                }
                _ => uri.push_str(&format!("%{byte:02X}")),
            }
        }
        separator = '&';
    }
    uri
}

/// Whether the server would refuse the same request again, so that a retry is useless.
fn is_final(status: StatusCode) -> bool {
    status.is_client_error()
        && status != StatusCode::REQUEST_TIMEOUT
        && status != StatusCode::TOO_MANY_REQUESTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_values_are_escaped() {
        let path = with_query(
            "/s",
            &[("a", Some("x y&z=ü".to_owned())), ("b", None), ("c", Some("1".to_owned()))],
        );
        assert_eq!(path, "/s?a=x%20y%26z%3D%C3%BC&c=1");
        assert_eq!(with_query("/s", &[("b", None)]), "/s");
    }

    #[test]
    fn urls_that_are_not_of_a_server_are_refused() {
        for url in ["ws://host", "host:1", "http://", "http://h?q=1", "ssh://a@b"] {
            let error = ServeClient::new(ServeClientSettings::new(url)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        }
        let client = ServeClient::new(ServeClientSettings::new("https://box.example/ab/")).unwrap();
        assert_eq!(
            (client.prefix.as_str(), client.name.as_str()),
            ("/ab", "the server at https://box.example/ab")
        );
    }

    #[test]
    fn a_token_does_not_leave_the_machine_without_tls() {
        let settings = |url: &str| ServeClientSettings::new(url).token("secret");
        assert!(ServeClient::new(settings("http://127.0.0.1:3001")).is_ok());
        assert!(ServeClient::new(settings("https://box.example")).is_ok());
        let error = ServeClient::new(settings("http://box.example")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let shown = format!("{:?}", ServeClient::new(settings("http://localhost:1")).unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }
}
