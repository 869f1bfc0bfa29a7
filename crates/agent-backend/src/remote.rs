//! Remote workspaces: the WebSocket of an agent-backend daemon, or a host with SSH.
//!
//! ```no_run
//! use agent_backend::RemoteConfig;
//!
//! # async fn example() -> agent_backend::Result<()> {
//! let config = RemoteConfig::parse("wss://box.example/ssh")?.token("the daemon's token")?;
//! let backend = agent_backend::remote_with(config)?;
//! backend.write("notes.txt", "kept over there").await?; // connects when it is first needed
//! println!("{}", backend.exec("wc -c notes.txt").await?.stdout_text());
//! backend.destroy().await
//! # }
//! ```
//!
//! A remote backend starts disconnected and connects with its first call. If the connection is
//! lost, every call in flight fails at once. The error says whether the call
//! [took effect](ab_core::Error::lost_call_effect). The backend then reconnects. The server applies
//! its own rules and isolation.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ab_core::{Backend, BackendOptions, Error, ErrorCode, ErrorKind, Result, WorkspaceLocator};

use crate::mcp::elsewhere::Place;

pub use ab_core::{LostCallEffect, LostCallId};
pub use ab_remote::client::{
    ByteStream, CleartextTokenPolicy, Connector, Credential, HostKeyCheck, HostKeyFingerprint,
    HostPort, Keepalive, KnownHosts, McpEndpoint, Proxy, ReconnectPolicy, RemoteClientSettings,
    RemoteDriver, RemoteEndpoint, RequestHeaders, SecretText, SshEndpoint, TrustRoots,
    WebSocketEndpoint, WebSocketUrl,
};

/// Opens the workspace at a URL. See [`RemoteClientSettings::parse`] for URLs. Does not connect yet.
pub fn remote(url: &str) -> Result<Backend> {
    remote_with(RemoteConfig::parse(url)?)
}

/// Opens a remote workspace with all settings. Does not connect yet.
pub fn remote_with(config: RemoteConfig) -> Result<Backend> {
    let RemoteConfig { settings, backend_options: mut assembly } = config;
    assembly.locator = Some(WorkspaceLocator::opened_by_server(Arc::new(Place::of(&settings)?)));
    Ok(Backend::with_options(Arc::new(RemoteDriver::new(settings)?), assembly))
}

/// The configuration of a remote workspace. The defaults are in the table of [`RemoteClientSettings`].
#[derive(Clone, Debug)]
pub struct RemoteConfig {
    pub settings: RemoteClientSettings,
    /// Actor, journal and other guards on the client side. The guards of the server apply in
    /// addition.
    pub backend_options: BackendOptions,
}

impl RemoteConfig {
    pub fn new(endpoint: RemoteEndpoint) -> Self {
        Self {
            settings: RemoteClientSettings::new(endpoint),
            backend_options: BackendOptions::default(),
        }
    }

    /// Parses a URL: `ws`, `wss`, `http` and `https` for a daemon, `ssh` for an SSH server.
    pub fn parse(url: &str) -> Result<Self> {
        Ok(Self {
            settings: RemoteClientSettings::parse(url)?,
            backend_options: BackendOptions::default(),
        })
    }

    /// Sets the directory on the server that becomes the root of the workspace.
    pub fn root(mut self, root: impl Into<String>) -> Self {
        self.settings.root = Some(root.into());
        self
    }

    /// Sets the token of a daemon. It is used for the daemon's WebSocket and for an MCP server on
    /// the same host.
    pub fn token(mut self, token: impl Into<SecretText>) -> Result<Self> {
        self.web_socket("a token")?.token = Some(token.into());
        Ok(self)
    }

    /// Sets whether the token may be sent to another host without TLS. By default this is refused.
    pub fn cleartext_token_policy(mut self, choice: CleartextTokenPolicy) -> Result<Self> {
        self.web_socket("a token")?.cleartext_token_policy = choice;
        Ok(self)
    }

    /// Adds a header to the request that opens the WebSocket.
    pub fn websocket_header(mut self, name: &str, value: &str) -> Result<Self> {
        self.web_socket("a header")?.headers.insert(name, value)?;
        Ok(self)
    }

    /// Sets a proxy, such as `http://user:password@host:3128`.
    pub fn proxy(mut self, url: &str) -> Result<Self> {
        self.web_socket("a proxy")?.proxy = Some(Proxy::parse(url)?);
        Ok(self)
    }

    /// Sets the certificate authorities that are trusted for a `wss` server.
    pub fn trust_roots(mut self, roots: TrustRoots) -> Result<Self> {
        self.web_socket("roots of trust")?.trust_roots = roots;
        Ok(self)
    }

    /// Adds the password of the SSH user. Credentials are tried in the order in which they were
    /// added.
    pub fn ssh_password(self, password: impl Into<SecretText>) -> Result<Self> {
        self.ssh_credential(Credential::Password(password.into()))
    }

    /// Adds a private key from a file. The file is read immediately.
    pub fn ssh_key_file(
        self,
        path: impl AsRef<Path>,
        passphrase: Option<SecretText>,
    ) -> Result<Self> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let message = format!("cannot read the key {}: {error}", path.display());
            Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
                .with_source(error)
        })?;
        self.ssh_credential(Credential::Key { text: text.into(), passphrase })
    }

    /// Adds the keys of the SSH agent at a socket.
    pub fn ssh_agent(self, socket: impl Into<PathBuf>) -> Result<Self> {
        self.ssh_credential(Credential::SshAgent { socket: socket.into() })
    }

    /// Adds another credential for an SSH server.
    pub fn ssh_credential(mut self, credential: Credential) -> Result<Self> {
        let RemoteEndpoint::Ssh(ssh) = &mut self.settings.endpoint else {
            return Err(misplaced("a credential", "an ssh URL"));
        };
        ssh.credentials.push(credential);
        Ok(self)
    }

    /// Sets how the host key is checked.
    pub fn host_key_check(mut self, check: HostKeyCheck) -> Result<Self> {
        match &mut self.settings.endpoint {
            RemoteEndpoint::WebSocket(socket) => socket.host_key = check,
            RemoteEndpoint::Ssh(ssh) => ssh.host_key = check,
            RemoteEndpoint::Stream(_) => return Err(misplaced("a host key", "a host")),
        }
        Ok(self)
    }

    /// Sets how a lost connection is re-established.
    pub fn reconnection(mut self, reconnection: ReconnectPolicy) -> Self {
        self.settings.reconnection = reconnection;
        self
    }

    /// Sets how a dead peer is detected.
    pub fn keepalive(mut self, keepalive: Keepalive) -> Self {
        self.settings.keepalive = keepalive;
        self
    }

    /// Sets how long a call may take.
    pub fn operation_timeout(mut self, timeout: Duration) -> Self {
        self.settings.operation_timeout = timeout;
        self
    }

    /// Sets how long connecting and logging in may take.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect_timeout = timeout;
        self
    }

    /// Sets the URL of the workspace's MCP server, such as `http://127.0.0.1:3001/mcp`. If the
    /// server is on the same host as the WebSocket, the token of the WebSocket is sent to it.
    pub fn mcp_url(mut self, url: impl Into<String>) -> Self {
        self.settings.mcp = Some(McpEndpoint { url: url.into(), token: None });
        self
    }

    /// Sets the URL of the workspace's MCP server, which has its own token.
    pub fn mcp_url_with_token(
        mut self,
        url: impl Into<String>,
        token: impl Into<SecretText>,
    ) -> Self {
        self.settings.mcp = Some(McpEndpoint { url: url.into(), token: Some(token.into()) });
        self
    }

    fn web_socket(&mut self, what: &str) -> Result<&mut WebSocketEndpoint> {
        match &mut self.settings.endpoint {
            RemoteEndpoint::WebSocket(socket) => Ok(socket),
            RemoteEndpoint::Ssh(_) | RemoteEndpoint::Stream(_) => {
                Err(misplaced(what, "a daemon's websocket"))
            }
        }
    }
}

fn misplaced(what: &str, place: &str) -> Error {
    let message = format!("{what} can only be set for {place}");
    Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(made: Result<RemoteConfig>, says: &str) {
        let error = made.unwrap_err();
        assert_eq!(
            (error.code(), error.kind()),
            (ErrorCode::InvalidConfiguration, ErrorKind::Invalid)
        );
        assert!(error.message().contains(says), "{error}");
    }

    #[test]
    fn what_an_endpoint_has_no_place_for_is_refused() {
        let ssh = || RemoteConfig::parse("ssh://ada@box.example/srv/project").unwrap();
        let socket = || RemoteConfig::parse("ws://box.example/ssh").unwrap();
        wrong(ssh().token("t"), "a token can only be set for a daemon's websocket");
        wrong(ssh().websocket_header("x-a", "b"), "a header");
        wrong(ssh().proxy("http://p:1"), "a proxy");
        wrong(ssh().trust_roots(TrustRoots::System), "roots of trust");
        wrong(socket().ssh_password("p"), "a credential can only be set for an ssh URL");
        wrong(socket().ssh_key_file("no/such/key", None), "cannot read the key no/such/key");
        wrong(RemoteConfig::parse("nonsense"), "");
    }

    #[test]
    fn settings_are_set() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "a key").unwrap();
        let pin = "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU".parse().unwrap();
        let config = RemoteConfig::parse("ssh://ada@box.example/srv/project").unwrap();
        let config = config.ssh_password("first").unwrap();
        let config = config.ssh_key_file(file.path(), Some("open".into())).unwrap();
        let config = config.ssh_agent("socket").unwrap();
        let config = config.host_key_check(HostKeyCheck::Pin(pin)).unwrap();
        let config = config.root("/srv/other").mcp_url_with_token("https://box.example", "t");
        assert_eq!(config.settings.root.as_deref(), Some("/srv/other"));
        let RemoteEndpoint::Ssh(ssh) = &config.settings.endpoint else { panic!("{config:?}") };
        assert_eq!((ssh.credentials.len(), &ssh.host_key), (3, &HostKeyCheck::Pin(pin)));
        assert!(matches!(&ssh.credentials[1],
            Credential::Key { text, passphrase: Some(_) } if text.reveal() == "a key"));
        assert!(!format!("{config:?}").contains("first"));
        remote_with(config).unwrap();
    }

    #[test]
    fn an_mcp_setting_that_is_no_url_is_told_when_the_backend_is_made() {
        for url in ["", "nonsense", "ws://box.example/mcp", "http://"] {
            let config = RemoteConfig::parse("ws://box.example/ssh").unwrap().mcp_url(url);
            let error = remote_with(config).unwrap_err();
            assert!(error.message().contains("mcp") || error.message().contains("URL"), "{error}");
        }
    }
}
