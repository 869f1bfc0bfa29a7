//! Posts JSON to an external HTTP endpoint, such as a collector of traces.

use std::time::Duration;

use ab_core::{Error, ErrorCode, ErrorKind, Result};
use ab_remote::client::{WebSocketEndpoint, WebSocketUrl};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Full};

use crate::exchange;

/// Time limit for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for the whole request, including its answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes of an answer that are read.
const MAX_ANSWER: usize = 64 * 1024;
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const AGENT: HeaderValue =
    HeaderValue::from_static(concat!("agent-backend/", env!("CARGO_PKG_VERSION")));

/// An `http` or `https` URL that accepts JSON. Every request uses its own connection.
#[derive(Clone, Debug)]
pub struct JsonEndpoint {
    socket: WebSocketEndpoint,
    host: HeaderValue,
    path: Uri,
    /// The URL as it appears in error messages.
    name: String,
}

impl JsonEndpoint {
    /// Parses a URL.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the URL is not `http` or `https`, or if it contains a user name.
    pub fn parse(url: &str) -> Result<Self> {
        let refuse = || {
            let message = format!("invalid URL {url:?}: must be like http://127.0.0.1:4318");
            Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
        };
        let uri: Uri = url.parse().map_err(|_| refuse())?;
        let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
        let authority = uri.authority().filter(|_| is_web).ok_or_else(refuse)?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Self {
            socket: WebSocketEndpoint::from_url(WebSocketUrl::parse(url)?),
            host: HeaderValue::from_str(authority.as_str()).map_err(|_| refuse())?,
            path: path.parse().map_err(|_| refuse())?,
            name: url.to_owned(),
        })
    }

    /// Posts a JSON document once.
    ///
    /// # Errors
    ///
    /// Fails if the endpoint cannot be reached, does not answer within 10 seconds, or answers with
    /// an error.
    pub async fn post(&self, json: Vec<u8>) -> Result<()> {
        let posted = tokio::time::timeout(TIMEOUT, self.exchange(json)).await;
        posted.unwrap_or_else(|_| {
            let message = format!("{} did not answer in time", self.name);
            Err(Error::new(ErrorCode::Timeout, ErrorKind::Timeout, message))
        })
    }

    async fn exchange(&self, json: Vec<u8>) -> Result<()> {
        let mut request = Request::new(Full::new(Bytes::from(json)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.path.clone();
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(USER_AGENT, AGENT);
        let answer = exchange::send(&self.socket, &self.name, CONNECT_TIMEOUT, request).await?;
        let (head, mut body) = answer.into_parts();
        let mut read = 0;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| exchange::lost(&self.name, error))?;
            read += frame.data_ref().map_or(0, Bytes::len);
            if read > MAX_ANSWER {
                break;
            }
        }
        if head.status.is_success() {
            return Ok(());
        }
        let message = format!("{} answered with {}", self.name, head.status);
        Err(Error::new(ErrorCode::WriteFailed, ErrorKind::CommandFailed, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_web_addresses_are_endpoints() {
        for url in ["", "host:4318", "ws://h", "http://", "ssh://a@b", "http://user:pw@h/"] {
            assert!(JsonEndpoint::parse(url).is_err(), "{url}");
        }
        let endpoint = JsonEndpoint::parse("http://127.0.0.1:4318/v1/traces").unwrap();
        assert_eq!(endpoint.path, "/v1/traces");
    }
}
