//! MCP over HTTP. An HTTP server passes its requests to this module. This module keeps no state
//! outside of sessions.
//!
//! Every request is independent. In all protocol revisions, a client can make a call without a
//! handshake before it. A client that wants a session requests it with `?session=true` when it
//! initializes. The session has a stream of messages from the server. A client that loses its
//! connection can later get its answers in the session. A tool call whose client wants only the
//! result is answered [directly](direct). Everything else is handled by rmcp, which supports
//! revisions with and without a handshake.
//!
//! Before the HTTP server passes a request on, it checks Host, Origin and token, and it determines
//! the workspace that the request is about. A request without a workspace is refused.

mod batch;
mod body;
pub(crate) mod direct;
mod disconnect_watcher;
pub(crate) mod running_calls;
mod sessions;

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use ab_core::Backend;
use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorCode, ErrorData, GetMeta,
    ProtocolVersion, RequestId, ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::bounds::{DEFAULT_MAX_BODY_BYTES, MAX_SESSIONS};
use crate::catalog;
use crate::extension::McpServerExtension;
use crate::nonsense::{Refusal, refused};
use crate::outgoing::Metered;
use crate::server::McpServer;
use body::{Bodies, Unread};
use disconnect_watcher::DisconnectWatcher;
use running_calls::{Caller, RunningCall, RunningCalls};
use sessions::Sessions;

pub use running_calls::CallerAddress;

pub type HttpResponse = Response<BoxBody<Bytes, Infallible>>;

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const REVISION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The protocol revision of a request that does not name one.
const REVISION_UNSAID: &str = "2025-03-26";
/// The first protocol revision, which some clients still request.
pub(crate) const FIRST_REVISION: &str = "2024-10-07";

/// Settings of an endpoint.
#[derive(Clone, Debug)]
pub struct McpHttpSettings {
    /// Maximum size of one body in bytes.
    pub max_body_bytes: usize,
    /// Features in addition to the tools of the workspace.
    pub extension: Option<Arc<dyn McpServerExtension>>,
    /// When this is cancelled, the endpoint ends its sessions and refuses further requests.
    pub close_token: CancellationToken,
}

impl Default for McpHttpSettings {
    fn default() -> Self {
        let closed = CancellationToken::new();
        Self { max_body_bytes: DEFAULT_MAX_BODY_BYTES, extension: None, close_token: closed }
    }
}

/// The tools of a workspace, served over HTTP. Cheap to clone.
#[derive(Clone)]
pub struct McpHttpEndpoint {
    server: McpServer,
    alone: StreamableHttpService<McpServer, NeverSessionManager>,
    within: StreamableHttpService<McpServer, LocalSessionManager>,
    sessions: Sessions,
    running_calls: RunningCalls,
    disconnect_watcher: DisconnectWatcher,
    bodies: Bodies,
    closing: CancellationToken,
}

impl McpHttpEndpoint {
    /// Creates an endpoint with the tools that `backend` supports. Each later request comes with
    /// its own backend, such as a scope of `backend`.
    pub fn new(backend: &Backend, settings: &McpHttpSettings) -> McpHttpEndpoint {
        let server = McpServer::of_requests(backend).with_extension(settings.extension.clone());
        let closing = settings.close_token.child_token();
        let config = || {
            StreamableHttpServerConfig::default()
                .disable_allowed_hosts()
                .with_json_response(true)
                .with_max_request_body_bytes(settings.max_body_bytes)
                .with_cancellation_token(closing.clone())
        };
        let running_calls = RunningCalls::default();
        let sessions = Sessions::new(running_calls.clone());
        let make = |server: &McpServer| {
            let server = server.clone();
            move || Ok(server.clone())
        };
        McpHttpEndpoint {
            alone: StreamableHttpService::new(
                make(&server),
                Arc::default(),
                config().with_legacy_session_mode(false),
            ),
            within: StreamableHttpService::new(make(&server), sessions.kept(), config()),
            sessions,
            running_calls,
            disconnect_watcher: DisconnectWatcher::new(closing.clone()),
            bodies: Bodies::new(settings.max_body_bytes),
            server,
            closing,
        }
    }

    /// Ends all sessions and streams. Later requests are refused.
    pub fn close(&self) {
        self.closing.cancel();
    }

    pub fn is_closed(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Handles one request. `backend` is the workspace of the request.
    pub async fn handle_request<B>(&self, backend: Backend, mut request: Request<B>) -> HttpResponse
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: fmt::Display,
    {
        if request.headers().get(REVISION).is_some_and(|named| named == FIRST_REVISION) {
            // Remove the header, because rmcp does not know this revision. The next revision
            // includes everything in this one.
            request.headers_mut().remove(REVISION);
        }
        let caller = Caller::of(&mut request, &backend);
        let answered = match request.method() {
            &Method::POST => self.post(backend, caller, request).await,
            &Method::GET | &Method::DELETE => self.of_session(backend, caller, request).await,
            _ => return not_allowed(),
        };
        answered.unwrap_or_else(|refusal| refusal)
    }

    /// Handles a GET or DELETE request: opens the stream of a session, or ends the session.
    async fn of_session<B>(
        &self,
        backend: Backend,
        caller: Caller,
        request: Request<B>,
    ) -> Result<HttpResponse, HttpResponse> {
        // Without a session there is no stream to open and nothing to end.
        let named = request.headers().get(SESSION).ok_or_else(not_allowed)?;
        let admitted = self.sessions.admit(named, &backend, &caller, None).await?;
        let ends = request.method() == Method::DELETE;
        let returns = request.headers().contains_key(LAST_EVENT);
        let mut request = request.map(|_| Full::<Bytes>::default());
        request.extensions_mut().insert(backend);
        let answer = self.metered(self.within.handle(request).await);
        if ends && answer.status().is_success() {
            self.running_calls.cancel_all(&caller);
        }
        Ok(if returns && answer.status().is_success() {
            answer.map(|body| DisconnectWatcher::of_return(body, &admitted.returned).boxed())
        } else {
            answer
        })
    }

    /// Applies the memory limit for large answers to a response of rmcp.
    fn metered(&self, answer: HttpResponse) -> HttpResponse {
        answer.map(|body| Metered::new(body, self.server.own_tools().outgoing().clone()).boxed())
    }

    async fn post<B>(
        &self,
        backend: Backend,
        caller: Caller,
        request: Request<B>,
    ) -> Result<HttpResponse, HttpResponse>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: fmt::Display,
    {
        let (mut parts, body) = request.into_parts();
        if let Some(refusal) = unacceptable(&mut parts.headers) {
            return Err(refusal);
        }
        let body = self.bodies.read(&parts.headers, body).await.map_err(unread)?;
        if body.bytes().trim_ascii_start().first() == Some(&b'[') {
            return self.batch(backend, &caller, &parts, body.bytes().trim_ascii()).await;
        }
        if direct::is_plain(&parts) {
            let text = body.bytes().clone();
            let parse = move || direct::Call::parse(&text);
            let call = self.server.own_tools().outgoing().aside(body.bytes().len(), parse).await;
            if let Some(call) = call.filter(|call| !self.server.is_of_extension(call.tool())) {
                let running_call = self.running_calls.begin(&caller, call.id());
                return match call
                    .written_unless(&self.server.own_tools().over(backend), &running_call)
                    .await
                {
                    Ok(text) => Ok(answer(StatusCode::OK, JSON, text)),
                    Err(unwritten) => Err(told(unwritten.status(), &unwritten.told())),
                };
            }
        }
        self.by_protocol(backend, &caller, parts, body.into_bytes()).await
    }

    /// Lets rmcp handle a message, inside or outside of a session.
    async fn by_protocol(
        &self,
        backend: Backend,
        caller: &Caller,
        parts: Parts,
        body: Bytes,
    ) -> Result<HttpResponse, HttpResponse> {
        let message = match serde_json::from_slice::<ClientJsonRpcMessage>(&body) {
            Ok(message) => message,
            Err(error) => return Err(nonsense(refused(&body, &error))),
        };
        if let Some(refusal) = unknown_revision(&parts.headers, &message) {
            return Err(refusal);
        }
        let initializes = matches!(
            &message,
            ClientJsonRpcMessage::Request(request)
                if matches!(request.request, ClientRequest::InitializeRequest(_))
        );
        let begins = initializes && wants_session(&parts);
        if begins && self.sessions.are_too_many().await {
            let why = format!("there are {MAX_SESSIONS} sessions already, which is the limit");
            let error = ErrorData::new(ErrorCode(-32000), why, None);
            let message = ServerJsonRpcMessage::error(error, None);
            return Err(told(StatusCode::SERVICE_UNAVAILABLE, &message));
        }
        let named = parts.headers.get(SESSION);
        if named.is_none() && answers_us(&message) {
            // No request of this server waits for this response.
            return Ok(answer(StatusCode::ACCEPTED, "text/plain", Bytes::new()));
        }
        let in_session = begins || named.is_some();
        let admitted = match named {
            Some(named) if !begins && may_have_sessions(&parts.headers) => {
                Some(self.sessions.admit(named, &backend, caller, Some(&message)).await?)
            }
            _ => None,
        };
        let (running_call, returned) = match (admitted, &message) {
            (Some(admitted), _) => (admitted.running_call, Some(admitted.returned)),
            (None, ClientJsonRpcMessage::Request(request)) if !in_session => {
                (Some(self.running_calls.begin(caller, &request.id)), None)
            }
            (None, _) => (None, None),
        };
        let (media, cancels) = (is_media(&message), cancelled_call(&message));
        let weak_call = running_call.as_ref().map(RunningCall::weak_call);
        let mut request = Request::from_parts(parts, Full::new(body));
        request.extensions_mut().insert(backend.clone());
        if let Some(running_call) = running_call {
            request.extensions_mut().insert(running_call);
        }
        if !in_session {
            // rmcp encodes the answer on the thread that waits for it. Encoding a large answer
            // takes long, so both are done on a thread that may block.
            let (alone, runtime) = (self.alone.clone(), Handle::current());
            let answering = async move { alone.handle(request).await };
            let mut answer = self.metered(if media {
                let work = move || runtime.block_on(answering);
                self.server.own_tools().outgoing().aside(usize::MAX, work).await
            } else {
                answering.await
            });
            if answer.status().is_success() {
                if let Some(id) = cancels {
                    self.running_calls.cancel(caller, &id);
                }
                if initializes {
                    answer.headers_mut().insert(SESSION, Caller::new_name());
                }
            }
            return Ok(answer);
        }
        let answer = self.within.handle(request).await;
        if begins {
            self.sessions.begin(answer.headers(), &backend).await;
        }
        let answer = self.metered(answer);
        Ok(match (weak_call, returned) {
            (Some(call), Some(returned)) => {
                answer.map(|body| self.disconnect_watcher.of_call(body, call, &returned).boxed())
            }
            _ => answer,
        })
    }
}

impl fmt::Debug for McpHttpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpHttpEndpoint").field("server", &self.server).finish_non_exhaustive()
    }
}

/// Whether the revision of the request supports sessions. In other revisions the session header has
/// no meaning.
fn may_have_sessions(headers: &HeaderMap) -> bool {
    headers.get(REVISION).is_none_or(direct::has_handshake)
}

/// Whether the message is a response to a request of this server.
fn answers_us(message: &ClientJsonRpcMessage) -> bool {
    matches!(message, ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_))
}

/// The id of the call that the message cancels. `None` if it is not a cancellation.
fn cancelled_call(message: &ClientJsonRpcMessage) -> Option<RequestId> {
    let ClientJsonRpcMessage::Notification(note) = message else { return None };
    match &note.notification {
        ClientNotification::CancelledNotification(note) => note.params.request_id.clone(),
        _ => None,
    }
}

/// Whether the message requests the bytes of a file, which may be large.
fn is_media(message: &ClientJsonRpcMessage) -> bool {
    matches!(
        message,
        ClientJsonRpcMessage::Request(request) if matches!(
            &request.request,
            ClientRequest::CallToolRequest(call) if call.params.name == catalog::MEDIA
        )
    )
}

/// Refuses a request whose client does not accept both JSON and an event stream, because the answer
/// may be either.
fn unacceptable(headers: &mut HeaderMap) -> Option<HttpResponse> {
    let said = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let accept = said(ACCEPT).unwrap_or_default();
    let takes = |kind: &str| accept.contains("*/*") || accept.contains(kind);
    if !takes(JSON) || !takes(EVENTS) {
        let why = "Not Acceptable: Accept must name application/json and text/event-stream";
        return Some(plainly(StatusCode::NOT_ACCEPTABLE, why));
    }
    let kind = said(CONTENT_TYPE).unwrap_or_default();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case(JSON) {
        let why = "Unsupported Media Type: Content-Type must be application/json";
        return Some(plainly(StatusCode::UNSUPPORTED_MEDIA_TYPE, why));
    }
    // Set exactly the values that rmcp expects.
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    None
}

/// Refuses an unknown protocol revision. Requests of revisions without a handshake name their
/// revision in the message. rmcp answers these requests with the error that their revisions define.
fn unknown_revision(headers: &HeaderMap, message: &ClientJsonRpcMessage) -> Option<HttpResponse> {
    let named = headers.get(REVISION)?;
    let known = |known: &ProtocolVersion| named == known.as_str();
    if ProtocolVersion::KNOWN_VERSIONS.iter().any(known) {
        return None;
    }
    let id = match message {
        ClientJsonRpcMessage::Request(request) => {
            if request.request.get_meta().protocol_version().is_some() {
                return None;
            }
            Some(request.id.clone())
        }
        _ => None,
    };
    let named = ab_core::error::escape_unprintable(&String::from_utf8_lossy(named.as_bytes()));
    let known = ProtocolVersion::KNOWN_VERSIONS.iter().map(ProtocolVersion::as_str);
    let known = known.collect::<Vec<_>>().join(", ");
    let why = format!("Bad Request: unsupported MCP-Protocol-Version {named}; known are {known}");
    let error = ErrorData::new(ErrorCode(-32000), why, None);
    Some(told(StatusCode::BAD_REQUEST, &ServerJsonRpcMessage::error(error, id)))
}

fn wants_session(parts: &Parts) -> bool {
    let query = parts.uri.query().unwrap_or_default();
    query.split('&').any(|pair| matches!(pair, "session" | "session=true" | "session=1"))
}

fn unread(unread: Unread) -> HttpResponse {
    let (status, why) = match unread {
        Unread::TooLarge(bound) => (
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is too large: it may have up to {bound} bytes"),
        ),
        Unread::TooSlow => {
            (StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time".to_owned())
        }
        Unread::Crowded => (
            StatusCode::SERVICE_UNAVAILABLE,
            "other large bodies take all the room: try again later".to_owned(),
        ),
        Unread::Broken(error) => {
            (StatusCode::BAD_REQUEST, format!("the body was cut off: {error}"))
        }
    };
    refusal(status, None, ErrorCode::INVALID_REQUEST, why)
}

fn nonsense(refusal: Refusal) -> HttpResponse {
    let message = ServerJsonRpcMessage::error(refusal.error, refusal.id);
    told(StatusCode::BAD_REQUEST, &message)
}

fn refusal(
    status: StatusCode,
    id: Option<RequestId>,
    code: ErrorCode,
    why: String,
) -> HttpResponse {
    told(status, &ServerJsonRpcMessage::error(ErrorData::new(code, why, None), id))
}

fn not_allowed() -> HttpResponse {
    let mut answer = plainly(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    answer
}

fn plainly(status: StatusCode, why: &'static str) -> HttpResponse {
    answer(status, "text/plain; charset=utf-8", Bytes::from_static(why.as_bytes()))
}

fn told(status: StatusCode, message: &ServerJsonRpcMessage) -> HttpResponse {
    match serde_json::to_vec(message) {
        Ok(text) => answer(status, JSON, text.into()),
        Err(_) => plainly(StatusCode::INTERNAL_SERVER_ERROR, "the answer cannot be written"),
    }
}

fn answer(status: StatusCode, kind: &'static str, body: Bytes) -> HttpResponse {
    let mut answer = Response::new(Full::new(body).boxed());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
