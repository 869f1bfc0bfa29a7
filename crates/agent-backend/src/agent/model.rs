//! A model behind an OpenAI-compatible HTTP API, for agent loops that use no other client library.

use std::time::Duration;

use ab_core::{Error, ErrorCode, ErrorKind, Result};
use ab_remote::client::{SecretText, TrustRoots, WebSocketEndpoint, WebSocketUrl};
use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use super::tools::AgentTools;
use crate::exchange;

/// How long a model may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(600);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of an answer in bytes.
const MAX_ANSWER: usize = 64 * 1024 * 1024;
/// Maximum number of characters of a failed answer that an error quotes.
const SHOWN_FAILURE: usize = 500;

/// The URL and credentials of a model. Cloning is cheap compared with a request.
#[derive(Clone, Debug)]
pub struct ModelEndpoint {
    socket: WebSocketEndpoint,
    name: String,
    path: String,
    headers: HeaderMap,
    model: String,
}

impl ModelEndpoint {
    /// The model named `model` at `base_url`, such as `https://api.openai.com/v1`. Does not connect
    /// yet.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the URL is not `http` or `https`, or if the key is not a valid
    /// header value or would be sent to another machine without TLS.
    pub fn new(base_url: &str, model: &str, key: Option<&str>) -> Result<Self> {
        let refuse = |why: &str| {
            let message = format!("invalid model URL {base_url:?}: {why}");
            Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
        };
        let shape = "must be like https://api.openai.com/v1";
        let uri: Uri = base_url.parse().map_err(|_| refuse(shape))?;
        let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
        let Some(authority) = uri.authority().filter(|_| is_web && uri.query().is_none()) else {
            return Err(refuse(shape));
        };
        let mut socket = WebSocketEndpoint::from_url(WebSocketUrl::parse(base_url)?);
        let key = key.map(SecretText::from);
        socket.token.clone_from(&key);
        socket.trust_roots = TrustRoots::default();
        socket.check_cleartext_credentials()?;
        let header = |what: &str, text: &str| {
            HeaderValue::from_str(text).map_err(|_| refuse(&format!("{what} cannot be sent")))
        };
        let mut headers = HeaderMap::new();
        headers.insert(HOST, header("its host", authority.as_str())?);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(key) = &key {
            let mut bearer = header("the key", &format!("Bearer {}", key.reveal()))?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        Ok(Self {
            socket,
            name: format!("the model at {}", base_url.trim_end_matches('/')),
            path: format!("{}/chat/completions", uri.path().trim_end_matches('/')),
            headers,
            model: model.to_owned(),
        })
    }

    /// Requests the model's next message after `messages`. The message may call `tools`. The
    /// request is sent only once.
    ///
    /// # Errors
    ///
    /// Fails if the server cannot be reached or refuses the request, or if its answer does not
    /// follow the API.
    pub async fn next_message(&self, messages: &[Value], tools: &AgentTools) -> Result<Value> {
        let mut request = json!({ "model": self.model, "messages": messages });
        // Omit an empty list, because some servers refuse it.
        if !tools.all_tools().is_empty() {
            request["tools"] = tools.openai_tools();
        }
        let asking = self.ask(request.to_string().into());
        let answered = tokio::time::timeout(ANSWER_TIMEOUT, asking).await;
        let body = answered.unwrap_or_else(|_| {
            let message = format!("{} did not answer within {ANSWER_TIMEOUT:?}", self.name);
            Err(Error::new(ErrorCode::Timeout, ErrorKind::Timeout, message))
        })?;
        let mut answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        match answer.pointer_mut("/choices/0/message").map(Value::take) {
            Some(message @ Value::Object(_)) => Ok(message),
            Some(_) | None => {
                Err(self.failed(ErrorKind::Unsupported, "answered without a message", &body))
            }
        }
    }

    async fn ask(&self, body: Bytes) -> Result<Bytes> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.path.parse().map_err(|_| {
            let message = format!("invalid request path {:?}", self.path);
            Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
        })?;
        request.headers_mut().clone_from(&self.headers);
        let response = exchange::send(&self.socket, &self.name, CONNECT_TIMEOUT, request).await?;
        let status = response.status();
        let mut body = response.into_body();
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
        if status.is_success() {
            return Ok(bytes.freeze());
        }
        let kind = match status.as_u16() {
            401 | 403 => ErrorKind::DeniedByPolicy,
            429 | 500.. => ErrorKind::Unavailable,
            _ => ErrorKind::Invalid,
        };
        Err(self.failed(kind, &format!("answered {status}"), &bytes))
    }

    fn failed(&self, kind: ErrorKind, what: &str, body: &[u8]) -> Error {
        let said: String = String::from_utf8_lossy(body).chars().take(SHOWN_FAILURE).collect();
        let message = format!("{} {what}: {}", self.name, said.trim());
        Error::new(ErrorCode::ReadFailed, kind, message)
    }
}
