//! The address of a workspace, and how its host and its user are authenticated.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use ab_core::Result;
use async_trait::async_trait;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncRead, AsyncWrite};

use super::address::{self, HostPort, TransportSecurity, WebSocketUrl, invalid};
use super::host_key::HostKeyCheck;
use super::known_hosts::KnownHosts;
use super::secret::SecretText;

/// The address of a workspace on another machine.
#[allow(clippy::large_enum_variant, reason = "a backend has one of them")]
#[derive(Clone, Debug)]
pub enum RemoteEndpoint {
    /// An agent-backend daemon, reached by SSH over its WebSocket.
    WebSocket(WebSocketEndpoint),
    /// Any SSH server, even one that is not agent-backend.
    Ssh(SshEndpoint),
    /// An SSH server behind any byte stream. The server accepts every client that has the stream.
    Stream(Arc<dyn Connector>),
}

/// Whether a token may be sent to another host without TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CleartextTokenPolicy {
    /// The token is not sent, and an error is returned.
    #[default]
    Refused,
    Accepted,
}

/// The WebSocket of an agent-backend daemon.
#[derive(Clone, Debug)]
pub struct WebSocketEndpoint {
    pub address: WebSocketUrl,
    pub token: Option<SecretText>,
    /// Whether the token may be sent to another host without TLS.
    pub cleartext_token_policy: CleartextTokenPolicy,
    /// Headers of the request that opens the WebSocket.
    pub headers: RequestHeaders,
    pub proxy: Option<Proxy>,
    /// The certificate authorities that are trusted for a `wss` server.
    pub trust_roots: TrustRoots,
    pub host_key: HostKeyCheck,
}

impl WebSocketEndpoint {
    /// The WebSocket at a URL. The other fields have their default values.
    pub fn new(url: &str) -> Result<Self> {
        Ok(Self::from_url(WebSocketUrl::parse(url)?))
    }

    /// Fails if a token, or credentials in the headers, would be sent to another machine without
    /// TLS.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](ab_core::ErrorKind::Invalid), unless
    /// [`cleartext_token_policy`](Self::cleartext_token_policy) allows this.
    pub fn check_cleartext_credentials(&self) -> Result<()> {
        let secret =
            self.token.is_some() || self.headers.as_header_map().contains_key(AUTHORIZATION);
        let near = |host: &HostPort| host.is_loopback();
        let stays =
            near(self.address.host()) && self.proxy.as_ref().is_none_or(|it| near(&it.host));
        let covered = self.address.security() == TransportSecurity::Tls || stays;
        if !secret || covered || self.cleartext_token_policy == CleartextTokenPolicy::Accepted {
            return Ok(());
        }
        let message =
            format!("the token would be sent to {} without encryption", self.address.host());
        Err(invalid(message).with_hint(
            "use wss:// or https://, or a tunnel; to send it anyway, pass --allow-insecure-token",
        ))
    }

    pub fn from_url(url: WebSocketUrl) -> Self {
        Self {
            address: url,
            token: None,
            cleartext_token_policy: CleartextTokenPolicy::default(),
            headers: RequestHeaders::default(),
            proxy: None,
            trust_roots: TrustRoots::default(),
            host_key: HostKeyCheck::Unchecked,
        }
    }
}

/// An SSH server that is reached by TCP.
#[derive(Clone, Debug)]
pub struct SshEndpoint {
    pub host: HostPort,
    pub user: String,
    /// The credentials, in the order in which they are tried.
    pub credentials: Vec<Credential>,
    pub host_key: HostKeyCheck,
}

impl SshEndpoint {
    /// A user on a host at port 22. The other fields have their default values.
    pub fn new(user: impl Into<String>, host: &str) -> Self {
        Self {
            host: HostPort::new(host, 22),
            user: user.into(),
            credentials: Vec::new(),
            host_key: HostKeyCheck::KnownHosts(KnownHosts::default()),
        }
    }
}

/// How a user authenticates.
#[derive(Clone, Debug)]
pub enum Credential {
    Password(SecretText),
    /// A private key, as the text of its file.
    Key {
        text: SecretText,
        passphrase: Option<SecretText>,
    },
    /// All keys of an SSH agent.
    SshAgent {
        socket: PathBuf,
    },
}

/// Opens streams to one server. Each connection uses its own stream.
#[async_trait]
pub trait Connector: fmt::Debug + Send + Sync {
    async fn connect(&self) -> io::Result<Box<dyn ByteStream>>;
}

/// A bidirectional byte stream.
pub trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

/// The certificate authorities that are trusted.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum TrustRoots {
    /// The certificate authorities that the system trusts.
    #[default]
    System,
    /// The certificates that the system trusts, and these certificates in PEM format.
    SystemAnd(String),
    /// Only these certificates in PEM format.
    Only(String),
}

impl fmt::Debug for TrustRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrustRoots::System => "System",
            TrustRoots::SystemAnd(_) => "SystemAnd(…)",
            TrustRoots::Only(_) => "Only(…)",
        })
    }
}

/// A proxy that supports HTTP `CONNECT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    pub host: HostPort,
    /// The user name and the password.
    pub credentials: Option<(String, SecretText)>,
}

impl Proxy {
    pub fn new(host: HostPort) -> Self {
        Self { host, credentials: None }
    }

    /// Parses a URL such as `http://user:password@host:3128`.
    pub fn parse(url: &str) -> Result<Self> {
        address::proxy(url)
    }
}

/// Headers of a request. `Debug` does not print their values.
#[derive(Clone, Default)]
pub struct RequestHeaders(HeaderMap);

/// The names of headers that the WebSocket handshake sets itself.
const RESERVED: [HeaderName; 8] = [
    http::header::HOST,
    http::header::CONNECTION,
    http::header::UPGRADE,
    http::header::SEC_WEBSOCKET_KEY,
    http::header::SEC_WEBSOCKET_VERSION,
    http::header::SEC_WEBSOCKET_PROTOCOL,
    http::header::SEC_WEBSOCKET_EXTENSIONS,
    http::header::SEC_WEBSOCKET_ACCEPT,
];

impl RequestHeaders {
    /// Adds a header. Replaces a header with the same name.
    pub fn insert(&mut self, name: &str, value: &str) -> Result<()> {
        let Ok(key) = name.parse::<HeaderName>() else {
            return Err(invalid(format!("'{}' is not a valid header name", printable(name))));
        };
        if RESERVED.contains(&key) {
            return Err(invalid(format!(
                "the header '{key}' is set by the WebSocket protocol itself"
            )));
        }
        let Ok(mut value) = HeaderValue::from_str(value) else {
            return Err(invalid(format!("the value of the header '{key}' is invalid")));
        };
        value.set_sensitive(true);
        self.0.insert(key, value);
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All headers with their values.
    pub fn as_header_map(&self) -> &HeaderMap {
        &self.0
    }
}

fn printable(name: &str) -> String {
    ab_core::error::escape_unprintable(name)
}

impl fmt::Debug for RequestHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys().map(HeaderName::as_str)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_without_tls_to_this_host_only() {
        let check = |url: &str, change: &dyn Fn(&mut WebSocketEndpoint)| {
            let mut socket = WebSocketEndpoint::new(url).unwrap();
            socket.token = Some(SecretText::new("secret"));
            change(&mut socket);
            socket.check_cleartext_credentials()
        };
        let as_it_is = &|_: &mut WebSocketEndpoint| {};
        for near in [
            "ws://127.0.0.1:3001/ssh",
            "ws://127.9.9.9/ssh",
            "ws://[::1]/ssh",
            "ws://[::ffff:127.0.0.1]/ssh",
            "http://LOCALHOST",
            "ws://box.localhost./ssh",
            "wss://box.example/ssh",
        ] {
            check(near, as_it_is).unwrap();
        }
        for far in [
            "ws://box.example/ssh",
            "http://10.0.0.1",
            "ws://127.0.0.1.box.example/ssh",
            "ws://0.0.0.0/ssh",
            "ws://localhost.example/ssh",
        ] {
            let error = check(far, as_it_is).unwrap_err();
            assert!(error.message().contains("without encryption"), "{error}");
            check(far, &|socket| socket.cleartext_token_policy = CleartextTokenPolicy::Accepted)
                .unwrap();
            check(far, &|socket| socket.token = None).unwrap();
            let by_header = |socket: &mut WebSocketEndpoint| {
                socket.token = None;
                socket.headers.insert("Authorization", "Basic eDp5").unwrap();
            };
            assert!(check(far, &by_header).is_err(), "{far}");
        }
        // With a proxy on another machine, the token leaves this machine even if the host is local.
        let proxy = |url: &'static str| {
            move |socket: &mut WebSocketEndpoint| socket.proxy = Some(Proxy::parse(url).unwrap())
        };
        assert!(check("ws://127.0.0.1/ssh", &proxy("http://10.0.0.1:3128")).is_err());
        check("ws://127.0.0.1/ssh", &proxy("http://127.0.0.1:3128")).unwrap();
    }

    #[test]
    fn headers_are_checked_and_not_shown() {
        let mut headers = RequestHeaders::default();
        headers.insert("X-Access", "secret").unwrap();
        headers.insert("x-access", "another secret").unwrap();
        assert_eq!(format!("{headers:?}"), "[\"x-access\"]");
        assert_eq!(headers.as_header_map().len(), 1);
        for (name, value, what) in [
            ("a b", "", "'a b' is not a valid header name"),
            ("Host", "h", "'host' is set by the WebSocket protocol"),
            ("sec-websocket-key", "k", "set by the WebSocket protocol"),
            ("x", "secret\r\nHost: evil", "value of the header 'x'"),
        ] {
            let error = headers.insert(name, value).unwrap_err();
            assert!(error.message().contains(what), "{error}");
            assert!(!error.message().contains("secret"), "{error}");
        }
    }

    #[test]
    fn credentials_are_not_shown() {
        let mut socket = WebSocketEndpoint::new("ws://h/ssh").unwrap();
        socket.token = Some("secret".into());
        socket.proxy = Some(Proxy::parse("ada:secret@h").unwrap());
        let mut ssh = SshEndpoint::new("ada", "h");
        ssh.credentials = vec![
            Credential::Password("secret".into()),
            Credential::Key { text: "secret".into(), passphrase: Some("secret".into()) },
        ];
        for endpoint in [RemoteEndpoint::WebSocket(socket), RemoteEndpoint::Ssh(ssh)] {
            assert!(!format!("{endpoint:?}").contains("secret"));
        }
    }
}
