//! Forwards the JSON lines of an MCP client over HTTP. Each message becomes one request. A function
//! of the caller sends this request.
//!
//! Every message is sent once. If a request fails, the caller gets an error with the reason and can
//! decide whether to try again. When a call is cancelled, its request is dropped, and the server
//! sees the end of the connection.

mod events;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ab_core::{Error, ErrorCode, ErrorKind, Result};
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body::Body;
use http_body_util::{BodyExt, Full, Limited};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::bounds::{MAX_CONCURRENT_CALLS, MAX_EXEC_TIMEOUT, MAX_MESSAGE_BYTES};
use events::Events;

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
const BOTH: &str = "application/json, text/event-stream";
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const REVISION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// Maximum number of answers that are queued for a slow reader.
const ANSWERS: usize = 16;
/// Maximum number of bytes of an error response that are read.
const REFUSAL: usize = 64 * 1024;
/// Time limit of an answer: the maximum duration of a call plus one minute.
const TIMEOUT: Duration = MAX_EXEC_TIMEOUT.saturating_add(Duration::from_secs(60));
/// The JSON-RPC error code for errors that the server defines.
const FAILED: i32 = -32000;

/// The server that messages are sent to, and the headers of the requests.
#[derive(Clone, Debug)]
pub struct McpHttpRequestTarget {
    pub uri: Uri,
    /// Headers that are added to every request.
    pub headers: HeaderMap,
    /// The name of the server in error messages.
    pub server_name: String,
}

/// Sends every line of `stream` to the target and writes the answers back, until the stream ends.
/// Dropping the future ends all requests.
pub async fn forward_lines_over_http<S, P, F, B>(stream: S, target: McpHttpRequestTarget, post: P)
where
    S: AsyncRead + AsyncWrite,
    P: Fn(Request<Full<Bytes>>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Response<B>>> + Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let (input, output) = tokio::io::split(stream);
    let (answers, told) = mpsc::channel(ANSWERS);
    let carrier = Carrier { target, post, known: Mutex::default(), answers };
    // Ignore the results, because the owner of the stream notices itself when the stream ends.
    let _ = tokio::join!(read(input, Arc::new(carrier)), write(output, told));
}

async fn write(
    mut output: impl AsyncWrite + Unpin,
    mut told: mpsc::Receiver<Value>,
) -> io::Result<()> {
    while let Some(answer) = told.recv().await {
        let mut line = answer.to_string();
        line.push('\n');
        output.write_all(line.as_bytes()).await?;
        output.flush().await?;
    }
    output.shutdown().await
}

async fn read<P, F, B>(input: impl AsyncRead + Unpin, carrier: Arc<Carrier<P>>) -> io::Result<()>
where
    P: Fn(Request<Full<Bytes>>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Response<B>>> + Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    let mut input = BufReader::new(input);
    let mut calls = JoinSet::new();
    let mut running: HashMap<String, AbortHandle> = HashMap::new();
    loop {
        while calls.try_join_next().is_some() {}
        if calls.len() >= MAX_CONCURRENT_CALLS {
            calls.join_next().await;
        }
        let mut line = Vec::new();
        let mut bounded = (&mut input).take(MAX_MESSAGE_BYTES as u64 + 1);
        if bounded.read_until(b'\n', &mut line).await? == 0 || line.len() > MAX_MESSAGE_BYTES {
            break;
        }
        let Ok(message) = serde_json::from_slice::<Value>(&line) else { continue };
        if message["method"] == "notifications/cancelled"
            && let Some(call) = running.remove(&message["params"]["requestId"].to_string())
        {
            call.abort();
        }
        let id = message.get("id").filter(|_| message.get("method").is_some()).cloned();
        let (carrier, key) = (carrier.clone(), id.as_ref().map(Value::to_string));
        let call = calls.spawn(async move { carrier.send(line.into(), id).await });
        running.retain(|_, call| !call.is_finished());
        if let Some(key) = key {
            running.insert(key, call);
        }
    }
    while calls.join_next().await.is_some() {}
    Ok(())
}

struct Carrier<P> {
    target: McpHttpRequestTarget,
    post: P,
    known: Mutex<Known>,
    answers: mpsc::Sender<Value>,
}

/// The session id and the protocol revision that the server's first answers contained.
#[derive(Clone, Debug, Default)]
struct Known {
    session: Option<HeaderValue>,
    revision: Option<HeaderValue>,
}

impl<P, F, B> Carrier<P>
where
    P: Fn(Request<Full<Bytes>>) -> F + Send + Sync,
    F: Future<Output = Result<Response<B>>> + Send,
    B: Body<Data = Bytes> + Send + Unpin,
    B::Error: std::error::Error + Send + Sync + 'static,
{
    /// Sends one message to the server. If the message has an id, an answer is always written. The
    /// answer may be an error.
    async fn send(&self, message: Bytes, id: Option<Value>) {
        let name = &self.target.server_name;
        let asked = match timeout(TIMEOUT, self.ask(message, id.as_ref())).await {
            Ok(asked) => asked,
            Err(_) => {
                let why = format!("{name} did not answer within {TIMEOUT:?}");
                Err(Error::new(ErrorCode::Timeout, ErrorKind::Timeout, why))
            }
        };
        let error = match asked {
            Ok(true) => return,
            Ok(false) => lost(name, "it answered something else"),
            Err(error) => error,
        };
        // A message without an id is a notification and has no answer.
        if let Some(id) = id {
            let mut data = json!({ "code": error.code().as_str(), "kind": error.kind().as_str() });
            if let Some(hint) = error.hint() {
                data["hint"] = hint.into();
            }
            let told = json!({ "code": FAILED, "message": error.message(), "data": data });
            self.tell(json!({ "jsonrpc": "2.0", "id": id, "error": told })).await;
        }
    }

    /// Sends one message and writes the answers of the server. Returns whether these answers
    /// contained the answer to `id`.
    async fn ask(&self, message: Bytes, id: Option<&Value>) -> Result<bool> {
        let response = (self.post)(self.request(message)).await?;
        let (head, body) = response.into_parts();
        let name = &self.target.server_name;
        if !head.status.is_success() {
            let bytes = Limited::new(body, REFUSAL).collect().await;
            let bytes = bytes.map(|bytes| bytes.to_bytes()).unwrap_or_default();
            return self.refusal(head.status, &bytes, id).await;
        }
        if let Some(session) = head.headers.get(SESSION) {
            self.known().session = Some(session.clone());
        }
        let kind = head.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let mut answered = id.is_none();
        match kind.map(|kind| kind.split(';').next().unwrap_or_default().trim()) {
            Some(JSON) => {
                let bytes = Limited::new(body, MAX_MESSAGE_BYTES).collect().await;
                let bytes = bytes.map_err(|error| lost(name, error))?.to_bytes();
                let Ok(value) = serde_json::from_slice(&bytes) else {
                    return Err(lost(name, "the answer is not JSON"));
                };
                answered |= self.hear(value, id).await;
            }
            Some(EVENTS) => {
                let mut body = body;
                let mut events = Events::new(MAX_MESSAGE_BYTES);
                while let Some(frame) = body.frame().await {
                    let frame = frame.map_err(|error| lost(name, error))?;
                    let Some(bytes) = frame.data_ref() else { continue };
                    for data in events.feed(bytes).map_err(|why| lost(name, why))? {
                        let Ok(value) = serde_json::from_slice(&data) else { continue };
                        answered |= self.hear(value, id).await;
                    }
                }
            }
            _ => {}
        }
        Ok(answered)
    }

    fn request(&self, message: Bytes) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(message));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.target.uri.clone();
        let headers = request.headers_mut();
        headers.clone_from(&self.target.headers);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        headers.insert(ACCEPT, HeaderValue::from_static(BOTH));
        let Known { session, revision } = self.known().clone();
        for (name, value) in [(SESSION, session), (REVISION, revision)] {
            if let Some(value) = value {
                headers.insert(name, value);
            }
        }
        request
    }

    /// Writes a message from the server. Returns whether it is the answer to `id`.
    async fn hear(&self, value: Value, id: Option<&Value>) -> bool {
        if let Value::Array(messages) = value {
            let mut answered = false;
            for message in messages {
                answered |= Box::pin(self.hear(message, id)).await;
            }
            return answered;
        }
        let revision = value["result"]["protocolVersion"].as_str();
        if let Some(revision) = revision.and_then(|text| HeaderValue::from_str(text).ok()) {
            self.known().revision = Some(revision);
        }
        let answers = value.get("method").is_none() && value.get("id") == id && id.is_some();
        self.tell(value).await;
        answers
    }

    async fn tell(&self, value: Value) {
        // Sending fails only if the reader is gone.
        let _ = self.answers.send(value).await;
    }

    /// Handles an HTTP error response. If it contains a JSON-RPC error, this error is written.
    /// Otherwise returns an error.
    async fn refusal(&self, status: StatusCode, body: &[u8], id: Option<&Value>) -> Result<bool> {
        let value: Value = serde_json::from_slice(body).unwrap_or_default();
        if value.get("jsonrpc").is_some() && value.get("error").is_some() {
            return Ok(self.hear(value, id).await);
        }
        let name = &self.target.server_name;
        let said = value["message"].as_str().map(|said| format!(": {said}")).unwrap_or_default();
        let said = ab_core::error::escape_unprintable(&said);
        let message = format!("{name} answered {status}{said}");
        Err(match status {
            StatusCode::UNAUTHORIZED => {
                Error::new(ErrorCode::AuthFailed, ErrorKind::DeniedByPolicy, message)
                    .with_hint("the server refused the token of the mcp setting")
            }
            StatusCode::FORBIDDEN => {
                Error::new(ErrorCode::AuthFailed, ErrorKind::DeniedByPolicy, message)
            }
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
                Error::new(ErrorCode::ConnectionClosed, ErrorKind::Unavailable, message)
                    .with_hint("check the path of the URL: the MCP endpoint of a daemon is at /mcp")
            }
            _ => Error::new(ErrorCode::ConnectionClosed, ErrorKind::Unavailable, message),
        })
    }
}

impl<P> Carrier<P> {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lost(name: &str, why: impl fmt::Display) -> Error {
    let message = format!("{name} gave no answer: {why}");
    Error::new(ErrorCode::ConnectionClosed, ErrorKind::Disconnected, message)
}

/// Parses the error code and kind that were sent inside a JSON-RPC error.
pub(crate) fn carried_error(code: &str, kind: &str) -> Option<(ErrorCode, ErrorKind)> {
    let code = ErrorCode::ALL.into_iter().find(|known| known.as_str() == code)?;
    let kind = ErrorKind::ALL.into_iter().find(|known| known.as_str() == kind)?;
    Some((code, kind))
}
