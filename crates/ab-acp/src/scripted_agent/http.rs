//! A simple HTTP client for the MCP server that is offered to the agent: one connection per
//! request.

use std::sync::Arc;
use std::time::Duration;

use ab_core::{Error, ErrorCode, ErrorKind, Result};
use ab_mcp::{Client, McpHttpRequestTarget, forward_lines_over_http};
use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

/// Timeout of connecting and of the MCP handshake, each.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Size of the buffer in each direction.
const PIPE: usize = 64 * 1024;

/// A connected client, and the task that forwards its messages.
#[derive(Debug)]
pub(super) struct HttpMcp {
    pub(super) client: Client,
    _carrier: AbortOnDropHandle<()>,
}

impl HttpMcp {
    /// Connects to an MCP server at an `http://` URL.
    pub(super) async fn connect(url: &str, headers: &[(String, String)]) -> Result<HttpMcp> {
        let (address, target) = target(url, headers)?;
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let carrying =
            forward_lines_over_http(theirs, target, move |request| post(address.clone(), request));
        let carrier = AbortOnDropHandle::new(tokio::spawn(carrying));
        let client = Client::connect(ours, CONNECT_TIMEOUT).await?;
        Ok(HttpMcp { client, _carrier: carrier })
    }
}

/// The address to connect to, and the headers of every request.
fn target(url: &str, headers: &[(String, String)]) -> Result<(Arc<str>, McpHttpRequestTarget)> {
    let wrong = |what: &str| {
        let message = format!("invalid URL of the MCP server {url:?}: {what}");
        Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
    };
    let uri: Uri = url.parse().map_err(|_| wrong("it cannot be parsed"))?;
    if uri.scheme_str() != Some("http") {
        return Err(wrong("the scripted agent supports http:// only"));
    }
    let authority = uri.authority().ok_or_else(|| wrong("it has no host"))?;
    let address = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80));
    let mut map = HeaderMap::new();
    let host = HeaderValue::from_str(authority.as_str()).map_err(|_| wrong("invalid host"))?;
    map.insert(HOST, host);
    for (name, value) in headers {
        let name: HeaderName = name.parse().map_err(|_| wrong("invalid name of a header"))?;
        let value = HeaderValue::from_str(value).map_err(|_| wrong("invalid value of a header"))?;
        map.append(name, value);
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let path = path.parse().map_err(|_| wrong("invalid path"))?;
    let name = format!("the MCP server at {authority}");
    Ok((address.into(), McpHttpRequestTarget { uri: path, headers: map, server_name: name }))
}

async fn post(address: Arc<str>, request: Request<Full<Bytes>>) -> Result<Response<Incoming>> {
    let lost = |why: String| {
        let message = format!("cannot reach the MCP server at {address}: {why}");
        Error::new(ErrorCode::ConnectionClosed, ErrorKind::Disconnected, message)
    };
    let connecting = timeout(CONNECT_TIMEOUT, TcpStream::connect(&*address)).await;
    let stream =
        connecting.map_err(|_| lost(format!("no connection within {CONNECT_TIMEOUT:?}")))?;
    let stream = stream.map_err(|error| lost(error.to_string()))?;
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|error| lost(error.to_string()))?;
    // The server sends only one response on this connection. The sender is dropped at the end of
    // this function, which ends the connection task.
    tokio::spawn(connection);
    sender.send_request(request).await.map_err(|error| lost(error.to_string()))
}
