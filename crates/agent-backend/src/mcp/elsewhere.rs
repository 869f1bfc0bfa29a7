//! The MCP server of a remote workspace. Every message is one HTTP request on its own connection.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use ab_core::{BackendKind, Error, ErrorCode, ErrorKind, Result, WsPath};
use ab_mcp::{McpHttpRequestTarget, forward_lines_over_http};
use ab_remote::client::{
    ByteStream, McpEndpoint, RemoteClientSettings, RemoteEndpoint, SecretText, WebSocketEndpoint,
    WebSocketUrl,
};
use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, Uri};
use http_body_util::Full;

use super::Server;
use crate::exchange::{self, Answer};

const ROOT_DIR: HeaderName = HeaderName::from_static("x-root-dir");
const SCOPE_PATH: HeaderName = HeaderName::from_static("x-scope-path");
/// The default path of a daemon's MCP server.
const PATH: &str = "/mcp";
/// Maximum number of bytes that are buffered in each direction.
const PIPE: usize = 64 * 1024;

/// Where the MCP server of a remote workspace is. It is stored in the workspace's locator.
pub(crate) struct Place {
    /// `None` if the settings contain no MCP server.
    found: Option<Found>,
}

#[derive(Clone)]
struct Found {
    /// The address, proxy and TLS settings of the MCP server. It may run on another machine than
    /// the workspace.
    socket: WebSocketEndpoint,
    target: McpHttpRequestTarget,
    time_limit: Duration,
}

impl Place {
    /// Reads the MCP server from the settings. Fails if the settings are invalid.
    pub(crate) fn of(settings: &RemoteClientSettings) -> Result<Place> {
        let found = settings.mcp.as_ref().map(|mcp| found(settings, mcp)).transpose()?;
        Ok(Place { found })
    }
}

fn found(settings: &RemoteClientSettings, mcp: &McpEndpoint) -> Result<Found> {
    let wrong = |what: &str| {
        let message = format!("the setting mcp {what}");
        Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
    };
    let web = mcp.url.starts_with("http://") || mcp.url.starts_with("https://");
    let uri: Uri = mcp.url.parse().map_err(|_| wrong("is no URL"))?;
    let Some(authority) = uri.authority().filter(|_| web) else {
        return Err(wrong("must be a URL like http://127.0.0.1:3001/mcp"));
    };
    let mut socket = WebSocketEndpoint::from_url(WebSocketUrl::parse(&mcp.url)?);
    let mut headers = HeaderMap::new();
    let mut token = mcp.token.as_ref();
    // If both are on the same host, the MCP server needs the proxy, TLS settings and headers of the
    // daemon. These settings and headers are not sent to another host.
    if let RemoteEndpoint::WebSocket(daemon) = &settings.endpoint
        && daemon.address.host().host() == socket.address.host().host()
    {
        socket.cleartext_token_policy = daemon.cleartext_token_policy;
        socket.proxy.clone_from(&daemon.proxy);
        socket.trust_roots = daemon.trust_roots.clone();
        socket.headers = daemon.headers.clone();
        headers.clone_from(daemon.headers.as_header_map());
        token = token.or(daemon.token.as_ref());
    }
    socket.token = token.cloned();
    socket.check_cleartext_credentials()?;
    let text = |what: &str, text: &str| {
        HeaderValue::from_str(text).map_err(|_| wrong(&format!("cannot send {what}")))
    };
    headers.insert(HOST, text("its host", authority.as_str())?);
    if let Some(token) = token.map(SecretText::reveal) {
        let mut bearer = text("its token", &format!("Bearer {token}"))?;
        bearer.set_sensitive(true);
        headers.insert(AUTHORIZATION, bearer);
    }
    if let Some(root) = &settings.root {
        headers.insert(ROOT_DIR, text("the root", root)?);
    }
    let resource = match (uri.path(), uri.query()) {
        ("" | "/", None) => PATH.to_owned(),
        ("" | "/", Some(query)) => format!("{PATH}?{query}"),
        _ => uri.path_and_query().map_or(PATH, |resource| resource.as_str()).to_owned(),
    };
    let name = format!("the MCP server at {}", socket.address.host());
    let uri = resource.parse().map_err(|_| wrong("has an invalid path"))?;
    let target = McpHttpRequestTarget { uri, headers, server_name: name };
    Ok(Found { socket, target, time_limit: settings.connect_timeout })
}

/// Opens a stream to the MCP server. If `scope` is set, only this directory of the workspace is
/// served.
pub(super) fn start(
    place: &(dyn Any + Send + Sync),
    scope: &WsPath,
) -> Result<(Server, Box<dyn ByteStream>)> {
    let found = place.downcast_ref::<Place>().and_then(|place| place.found.clone());
    let Some(mut found) = found else {
        let message = "MCP needs the setting mcp: the URL of the remote workspace's MCP server";
        return Err(Error::new(ErrorCode::NotImplemented, ErrorKind::Unsupported, message)
            .with_backend_kind(BackendKind::Remote)
            .with_hint("a daemon has it on its port, like http://127.0.0.1:3001/mcp"));
    };
    if !scope.is_root() {
        let path = HeaderValue::from_str(scope.as_str()).map_err(|_| {
            let message = "the path of the scope cannot be sent to the MCP server";
            Error::new(ErrorCode::InvalidPath, ErrorKind::InvalidPath, message)
                .with_path(scope.as_str())
        })?;
        found.target.headers.insert(SCOPE_PATH, path);
    }
    let (ours, theirs) = tokio::io::duplex(PIPE);
    let target = found.target.clone();
    let found = Arc::new(found);
    let serving = tokio::spawn(forward_lines_over_http(theirs, target, move |request| {
        post(found.clone(), request)
    }));
    Ok((Server { companion: None, serving: Some(serving) }, Box::new(ours)))
}

/// Sends one request to the MCP server. It is not repeated if it fails.
async fn post(found: Arc<Found>, request: Request<Full<Bytes>>) -> Result<Response<Answer>> {
    exchange::send(&found.socket, &found.target.server_name, found.time_limit, request).await
}
