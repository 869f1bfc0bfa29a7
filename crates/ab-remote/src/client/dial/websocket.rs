//! Opens the WebSocket of an agent-backend daemon and checks that an SSH server answers on it.

use ab_core::ErrorCause;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Error as SocketError;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::handshake::client::{Request, Response};

use super::failure::{ConnectError, TimeLeft, lower};
use super::page::{self, Page};
use super::threshold::Threshold;
use super::{proxy, tcp, tls};
use crate::client::address::{TransportSecurity, invalid};
use crate::client::endpoint::{ByteStream, WebSocketEndpoint};
use crate::client::secret::SecretText;
use crate::websocket::{CloseFrame, WebSocketByteStream};

/// The close code that a daemon sends if the token of the client is missing or wrong.
const UNAUTHORIZED: u16 = 4001;

pub(super) type Opened = WebSocketByteStream<Box<dyn ByteStream>>;

pub(super) async fn open(
    endpoint: &WebSocketEndpoint,
    time_left: TimeLeft,
) -> Result<Opened, ConnectError> {
    endpoint.check_cleartext_credentials()?;
    let who = endpoint.address.to_string();
    let request = request(endpoint)?;
    let stream = Threshold::new(reach(endpoint, time_left).await?);
    let opened = time_left.spend("open", &who, client_async(request, stream)).await?;
    let (handshake, _) = opened.map_err(|error| unopened(&who, endpoint, error))?;
    let (stream, beyond) = handshake.into_inner().cross();
    let mut socket = WebSocketByteStream::new_client(stream).with_unread_bytes(&beyond);
    // The daemon sends the first message: its SSH identification, or a close frame.
    match time_left.spend("open", &who, socket.wait_for_message()).await? {
        Ok(true) => return Ok(socket),
        Ok(false) => {}
        Err(_) => return Err(ConnectError::lost("open", &who, "it does not speak SSH")),
    }
    Err(match socket.close_frame() {
        Some(CloseFrame { code: Some(UNAUTHORIZED), .. }) => unknown(&who, endpoint),
        Some(CloseFrame { code: Some(code), reason }) => {
            let why = format!("it was closed with code {code} {}", lower(reason));
            ConnectError::lost("open", &who, why.trim_end())
        }
        Some(CloseFrame { code: None, .. }) | None => {
            ConnectError::lost("open", &who, "it hung up")
        }
    })
}

/// Opens the byte stream to the HTTP server, over which the WebSocket handshake is made.
pub(super) async fn reach(
    endpoint: &WebSocketEndpoint,
    time_left: TimeLeft,
) -> Result<Box<dyn ByteStream>, ConnectError> {
    let host = endpoint.address.host();
    let stream = match &endpoint.proxy {
        Some(proxy) => proxy::connect(proxy, host, time_left).await?,
        None => tcp::connect(host, time_left).await?,
    };
    Ok(match endpoint.address.security() {
        TransportSecurity::Plain => Box::new(stream),
        TransportSecurity::Tls => {
            Box::new(tls::wrap(stream, host, &endpoint.roots, time_left).await?)
        }
    })
}

fn request(endpoint: &WebSocketEndpoint) -> Result<Request, ConnectError> {
    let url = endpoint.address.url();
    let request = url.into_client_request();
    let mut request = request.map_err(|_| {
        let message = format!("'{}' is not a WebSocket URL", endpoint.address);
        ConnectError::from(invalid(message))
    })?;
    let headers = request.headers_mut();
    for (name, value) in endpoint.headers.as_header_map() {
        headers.insert(name, value.clone());
    }
    if let Some(token) = &endpoint.token {
        let value = HeaderValue::from_str(&format!("Bearer {}", token.reveal()));
        let mut value = value.map_err(|_| {
            ConnectError::from(invalid(
                "the token contains characters that are not allowed in a header",
            ))
        })?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(request)
}

fn unknown(who: &str, endpoint: &WebSocketEndpoint) -> ConnectError {
    let refused = if endpoint.token.is_none() { "requires a token" } else { "refused the token" };
    ConnectError::denied(format!("cannot connect to {who}: the daemon {refused}"))
}

fn unopened(who: &str, endpoint: &WebSocketEndpoint, error: SocketError) -> ConnectError {
    match error {
        SocketError::Http(response) => unwelcome(who, endpoint, &response),
        SocketError::Io(error) => {
            ConnectError::lost("open", who, lower(&error.to_string())).with_source(error)
        }
        SocketError::ConnectionClosed | SocketError::AlreadyClosed => {
            ConnectError::lost("open", who, "it hung up")
        }
        SocketError::Protocol(ProtocolError::HandshakeIncomplete) => {
            ConnectError::lost("open", who, "the connection was closed during the handshake")
                .with_detail(ErrorCause::HandshakeCut)
        }
        SocketError::Protocol(error) => {
            let why =
                format!("it does not speak the WebSocket protocol: {}", lower(&error.to_string()));
            ConnectError::lost("open", who, why).with_detail(ErrorCause::NotWebSocket)
        }
        error => ConnectError::lost("open", who, lower(&error.to_string())),
    }
}

/// The error for an HTTP response that does not accept the WebSocket. It quotes only the bytes of
/// the body that arrived together with the head.
fn unwelcome(who: &str, endpoint: &WebSocketEndpoint, response: &Response) -> ConnectError {
    let status = response.status();
    let page = Page {
        status: status.as_u16(),
        content_type: response.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes),
        body: response.body().as_deref().unwrap_or_default(),
    };
    let host = endpoint.address.host().to_string();
    let why = page.describe(&host, "upgrading to a websocket", secrets(endpoint));
    if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
        return ConnectError::denied(format!("cannot open {who}: {why}"))
            .with_hint("pass the token, or the headers that a proxy in front requires");
    }
    let hint = match (status.is_redirection(), page.is_html()) {
        (true, _) => "the server redirects: use the URL that it names",
        (false, true) => page::HINT,
        (false, false) => "check the path of the URL: the WebSocket of a daemon is at /ssh",
    };
    ConnectError::lost("open", who, why).with_hint(hint)
}

/// The secrets in the request. The quote of a response must not contain them.
fn secrets(endpoint: &WebSocketEndpoint) -> impl Iterator<Item = &str> {
    let token = endpoint.token.iter().map(SecretText::reveal);
    let headers = endpoint.headers.as_header_map().values().filter_map(|value| value.to_str().ok());
    token.chain(headers).chain(endpoint.address.query())
}
