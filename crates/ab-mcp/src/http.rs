//! MCP over HTTP, for whoever owns the port: one request in, one answer out, nothing kept.
//!
//! Every request stands alone: a call needs no handshake before it, in the old revisions and in the
//! new one. Who wants a session asks for it with `?session=true` when it initializes; then there is
//! a stream to listen on and answers survive a dropped connection. A plain call is answered
//! [directly](direct); everything else goes through rmcp, which knows both eras.
//!
//! The port's owner has looked at Host, Origin and token before a request comes here, and says which
//! workspace the request is about. A request without one is refused, never served from another.

mod batch;
mod body;
mod direct;

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
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, GetMeta, ProtocolVersion, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use crate::bounds::{DEFAULT_BODY, MAX_SESSIONS};
use crate::nonsense::{Refusal, refused};
use crate::server::Server;
use body::{Bodies, Unread};

pub type Answer = Response<BoxBody<Bytes, Infallible>>;

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const REVISION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// What the header of a request that has none means.
const REVISION_UNSAID: &str = "2025-03-26";

/// What may be set.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// Bytes of one body.
    pub max_body: usize,
    /// Serve what the official conformance suite calls by name, beside the tools.
    pub conformance_fixtures: bool,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self { max_body: DEFAULT_BODY, conformance_fixtures: false }
    }
}

/// The tools of a workspace at one address. Cheap to clone.
#[derive(Clone)]
pub struct Endpoint {
    server: Server,
    alone: StreamableHttpService<Server, NeverSessionManager>,
    within: StreamableHttpService<Server, LocalSessionManager>,
    sessions: Arc<LocalSessionManager>,
    bodies: Bodies,
    closing: CancellationToken,
}

impl Endpoint {
    /// `backend` says which tools there are; each request brings a view of it.
    pub fn new(backend: &Backend, settings: &HttpSettings) -> Endpoint {
        let server = match settings.conformance_fixtures {
            true => Server::of_requests(backend).with_fixtures(),
            false => Server::of_requests(backend),
        };
        let closing = CancellationToken::new();
        let config = || {
            StreamableHttpServerConfig::default()
                .disable_allowed_hosts()
                .with_json_response(true)
                .with_max_request_body_bytes(settings.max_body)
                .with_cancellation_token(closing.clone())
        };
        let sessions = Arc::new(LocalSessionManager::default());
        let make = |server: &Server| {
            let server = server.clone();
            move || Ok(server.clone())
        };
        Endpoint {
            alone: StreamableHttpService::new(
                make(&server),
                Arc::default(),
                config().with_legacy_session_mode(false),
            ),
            within: StreamableHttpService::new(make(&server), sessions.clone(), config()),
            sessions,
            bodies: Bodies::new(settings.max_body),
            server,
            closing,
        }
    }

    /// Ends sessions and streams; what is asked from now on is refused.
    pub fn close(&self) {
        self.closing.cancel();
    }

    /// Answers one request about `backend`.
    pub async fn handle<B>(&self, backend: Backend, request: Request<B>) -> Answer
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: fmt::Display,
    {
        let answered = match request.method() {
            &Method::POST => self.post(backend, request).await,
            &Method::GET | &Method::DELETE if request.headers().contains_key(SESSION) => {
                let mut request = request.map(|_| Full::<Bytes>::default());
                request.extensions_mut().insert(backend);
                Ok(self.within.handle(request).await)
            }
            // There is no stream to listen on, and nothing to end.
            _ => return not_allowed(),
        };
        answered.unwrap_or_else(|refusal| refusal)
    }

    async fn post<B>(&self, backend: Backend, request: Request<B>) -> Result<Answer, Answer>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: fmt::Display,
    {
        let (mut parts, body) = request.into_parts();
        if let Some(refusal) = unacceptable(&mut parts.headers) {
            return Err(refusal);
        }
        let body = self.bodies.read(&parts.headers, body).await.map_err(unread)?;
        let text = body.bytes().trim_ascii();
        if text.first() == Some(&b'[') {
            return self.batch(backend, &parts, text).await;
        }
        if direct::is_plain(&parts)
            && let Some(call) = direct::Call::parse(text)
            && !self.server.is_fixture(call.tool())
        {
            let server = self.server.over(backend);
            return Ok(written(StatusCode::OK, call.written(&server).await));
        }
        self.by_protocol(backend, parts, body.into_bytes()).await
    }

    /// Through rmcp, with or without a session.
    async fn by_protocol(
        &self,
        backend: Backend,
        parts: Parts,
        body: Bytes,
    ) -> Result<Answer, Answer> {
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
        if begins && self.sessions.sessions.read().await.len() >= MAX_SESSIONS {
            let why = format!("there are {MAX_SESSIONS} sessions already, which is the limit");
            let error = ErrorData::new(ErrorCode(-32000), why, None);
            let message = ServerJsonRpcMessage::error(error, None);
            return Err(told(StatusCode::SERVICE_UNAVAILABLE, &message));
        }
        let in_session = begins || parts.headers.contains_key(SESSION);
        let mut request = Request::from_parts(parts, Full::new(body));
        request.extensions_mut().insert(backend);
        Ok(match in_session {
            true => self.within.handle(request).await,
            false => self.alone.handle(request).await,
        })
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("server", &self.server).finish_non_exhaustive()
    }
}

/// Both kinds of answer have to be welcome, since it may become a stream.
fn unacceptable(headers: &mut HeaderMap) -> Option<Answer> {
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
    // rmcp looks for the words themselves.
    headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    None
}

/// A revision that nobody speaks. Requests of the new era name theirs themselves, and get that
/// era's own error.
fn unknown_revision(headers: &HeaderMap, message: &ClientJsonRpcMessage) -> Option<Answer> {
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
    let named = ab_core::error::printable(&String::from_utf8_lossy(named.as_bytes()));
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

fn unread(unread: Unread) -> Answer {
    let (status, why) = match unread {
        Unread::TooLarge(bound) => (
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body is too large: it may have up to {bound} bytes"),
        ),
        Unread::TooSlow => {
            (StatusCode::REQUEST_TIMEOUT, "the body did not come in time".to_owned())
        }
        Unread::Broken(error) => (StatusCode::BAD_REQUEST, format!("the body broke off: {error}")),
    };
    refusal(status, None, ErrorCode::INVALID_REQUEST, why)
}

fn nonsense(refusal: Refusal) -> Answer {
    let message = ServerJsonRpcMessage::error(refusal.error, refusal.id);
    told(StatusCode::BAD_REQUEST, &message)
}

fn refusal(status: StatusCode, id: Option<RequestId>, code: ErrorCode, why: String) -> Answer {
    told(status, &ServerJsonRpcMessage::error(ErrorData::new(code, why, None), id))
}

fn not_allowed() -> Answer {
    let mut answer = plainly(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed");
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    answer
}

fn plainly(status: StatusCode, why: &'static str) -> Answer {
    answer(status, "text/plain; charset=utf-8", Bytes::from_static(why.as_bytes()))
}

fn told(status: StatusCode, message: &ServerJsonRpcMessage) -> Answer {
    json(status, message)
}

fn json(status: StatusCode, value: &impl serde::Serialize) -> Answer {
    written(status, serde_json::to_vec(value))
}

fn written(status: StatusCode, text: serde_json::Result<Vec<u8>>) -> Answer {
    match text {
        Ok(text) => answer(status, JSON, text.into()),
        Err(_) => plainly(StatusCode::INTERNAL_SERVER_ERROR, "the answer cannot be written"),
    }
}

fn answer(status: StatusCode, kind: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body).boxed());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}
