//! Where a workspace is, and how its host and its user prove who they are.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use ab_core::Result;
use async_trait::async_trait;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncRead, AsyncWrite};

use super::address::{self, Address, Host, invalid};
use super::host_key::HostKeyCheck;
use super::known_hosts::KnownHosts;
use super::secret::Secret;

/// Where a workspace is.
#[allow(clippy::large_enum_variant, reason = "a backend has one of them")]
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// A daemon, by SSH over its WebSocket.
    WebSocket(WebSocket),
    /// An SSH server, ours or any other.
    Ssh(Ssh),
    /// A server behind any stream of bytes, which lets in whoever has that stream.
    Stream(Arc<dyn Connector>),
}

/// A daemon's WebSocket.
#[derive(Clone, Debug)]
pub struct WebSocket {
    pub address: Address,
    pub token: Option<Secret>,
    /// Sent with the request that opens the WebSocket.
    pub headers: Headers,
    pub proxy: Option<Proxy>,
    /// Who may vouch for a `wss` server.
    pub roots: Roots,
    pub host_key: HostKeyCheck,
}

impl WebSocket {
    /// The one at a URL, with defaults for the rest.
    pub fn new(url: &str) -> Result<Self> {
        Ok(Self::at(Address::parse(url)?))
    }

    pub fn at(address: Address) -> Self {
        Self {
            address,
            token: None,
            headers: Headers::default(),
            proxy: None,
            roots: Roots::default(),
            host_key: HostKeyCheck::Unchecked,
        }
    }
}

/// A host that speaks SSH over TCP.
#[derive(Clone, Debug)]
pub struct Ssh {
    pub host: Host,
    pub user: String,
    /// Tried in this order.
    pub credentials: Vec<Credential>,
    pub host_key: HostKeyCheck,
}

impl Ssh {
    /// A user of a host, at the usual port, with defaults for the rest.
    pub fn new(user: impl Into<String>, host: &str) -> Self {
        Self {
            host: Host::new(host, 22),
            user: user.into(),
            credentials: Vec::new(),
            host_key: HostKeyCheck::KnownHosts(KnownHosts::default()),
        }
    }
}

/// What a user is known by.
#[derive(Clone, Debug)]
pub enum Credential {
    Password(Secret),
    /// A private key, as its file has it.
    Key {
        text: Secret,
        passphrase: Option<Secret>,
    },
    /// Every key of an SSH agent.
    Agent {
        socket: PathBuf,
    },
}

/// Makes streams to one server, one for every connection.
#[async_trait]
pub trait Connector: fmt::Debug + Send + Sync {
    async fn connect(&self) -> io::Result<Box<dyn Stream>>;
}

/// Bytes both ways.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Who may vouch for a server's certificate.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Roots {
    /// Whom the system trusts.
    #[default]
    System,
    /// These certificates, in PEM, beside those of the system.
    SystemAnd(String),
    /// These certificates, in PEM, alone.
    Only(String),
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Roots::System => "System",
            Roots::SystemAnd(_) => "SystemAnd(…)",
            Roots::Only(_) => "Only(…)",
        })
    }
}

/// A proxy that connects us by HTTP's `CONNECT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    pub host: Host,
    /// A user and a password.
    pub credentials: Option<(String, Secret)>,
}

impl Proxy {
    pub fn new(host: Host) -> Self {
        Self { host, credentials: None }
    }

    /// A URL like `http://user:password@host:3128`.
    pub fn parse(url: &str) -> Result<Self> {
        address::proxy(url)
    }
}

/// Headers of a request. What they say is not shown.
#[derive(Clone, Default)]
pub struct Headers(HeaderMap);

/// What a WebSocket's own handshake says.
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

impl Headers {
    /// Adds a header; one of the same name is replaced.
    pub fn insert(&mut self, name: &str, value: &str) -> Result<()> {
        let Ok(key) = name.parse::<HeaderName>() else {
            return Err(invalid(format!("'{}' is no name of a header", printable(name))));
        };
        if RESERVED.contains(&key) {
            return Err(invalid(format!("the header '{key}' is the websocket's own")));
        }
        let Ok(mut value) = HeaderValue::from_str(value) else {
            return Err(invalid(format!("the value of the header '{key}' is none")));
        };
        value.set_sensitive(true);
        self.0.insert(key, value);
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// For whoever has to send them.
    pub fn map(&self) -> &HeaderMap {
        &self.0
    }
}

fn printable(name: &str) -> String {
    ab_core::error::printable(name)
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.keys().map(HeaderName::as_str)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_checked_and_not_shown() {
        let mut headers = Headers::default();
        headers.insert("X-Access", "secret").unwrap();
        headers.insert("x-access", "another secret").unwrap();
        assert_eq!(format!("{headers:?}"), "[\"x-access\"]");
        assert_eq!(headers.map().len(), 1);
        for (name, value, what) in [
            ("a b", "", "'a b' is no name"),
            ("Host", "h", "'host' is the websocket's own"),
            ("sec-websocket-key", "k", "websocket's own"),
            ("x", "secret\r\nHost: evil", "value of the header 'x'"),
        ] {
            let error = headers.insert(name, value).unwrap_err();
            assert!(error.message().contains(what), "{error}");
            assert!(!error.message().contains("secret"), "{error}");
        }
    }

    #[test]
    fn credentials_are_not_shown() {
        let mut socket = WebSocket::new("ws://h/ssh").unwrap();
        socket.token = Some("secret".into());
        socket.proxy = Some(Proxy::parse("ada:secret@h").unwrap());
        let mut ssh = Ssh::new("ada", "h");
        ssh.credentials = vec![
            Credential::Password("secret".into()),
            Credential::Key { text: "secret".into(), passphrase: Some("secret".into()) },
        ];
        for endpoint in [Endpoint::WebSocket(socket), Endpoint::Ssh(ssh)] {
            assert!(!format!("{endpoint:?}").contains("secret"));
        }
    }
}
