//! The settings of a remote backend and their defaults.

use std::time::Duration;

use ab_core::{Error, ErrorCode, ErrorKind, Result};

use super::address::{HostPort, parsed};
use super::endpoint::RemoteEndpoint;
use super::secret::SecretText;

/// Default time limit of a call.
pub(crate) const DEFAULT_OPERATION_TIMEOUT: Duration = Duration::from_secs(120);
/// Default time limit of connecting and logging in, for all steps together.
pub(crate) const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Default maximum number of concurrent calls on one connection. Further calls wait.
pub(crate) const DEFAULT_MAX_CONCURRENT_OPERATIONS: usize = 50;

/// All settings of a remote backend, with these defaults:
///
/// | setting | default |
/// | --- | --- |
/// | `endpoint` | none: required |
/// | `root` | the server's own root |
/// | `reconnection.enabled` | yes |
/// | `reconnection.max_retries` | 5; 0 means no limit |
/// | `reconnection.initial` | 1000 ms |
/// | `reconnection.max` | 30000 ms |
/// | `reconnection.multiplier` | 2 |
/// | `keepalive.interval` | 30 s |
/// | `keepalive.missed` | 3 |
/// | `operation_timeout` | 120 s |
/// | `connect_timeout` | 30 s |
/// | `max_operations` | 50 |
/// | `mcp` | none: there is no MCP |
/// | a WebSocket's `token`, `headers`, `proxy` | none |
/// | a WebSocket's `roots` | those of the system |
/// | a WebSocket's `host_key` | unchecked: the token and TLS authenticate the two sides |
/// | an SSH host's `port` | 22 |
/// | an SSH host's `credentials` | none |
/// | an SSH host's `host_key` | must be a known host; the list of known hosts is empty |
#[derive(Clone, Debug)]
pub struct RemoteClientSettings {
    pub endpoint: RemoteEndpoint,
    /// The directory of the workspace on the server.
    pub root: Option<String>,
    pub reconnection: ReconnectPolicy,
    pub keepalive: Keepalive,
    pub operation_timeout: Duration,
    pub connect_timeout: Duration,
    pub max_operations: usize,
    pub mcp: Option<McpEndpoint>,
}

impl RemoteClientSettings {
    pub fn new(endpoint: RemoteEndpoint) -> Self {
        Self {
            endpoint,
            root: None,
            reconnection: ReconnectPolicy::default(),
            keepalive: Keepalive::default(),
            operation_timeout: DEFAULT_OPERATION_TIMEOUT,
            connect_timeout: DEFAULT_CONNECT_TIMEOUT,
            max_operations: DEFAULT_MAX_CONCURRENT_OPERATIONS,
            mcp: None,
        }
    }

    /// Settings from a URL. The other settings have their default values.
    ///
    /// - `ws://host:port/ssh` and `wss://host/ssh`: an agent-backend daemon. The path is the path
    ///   of its WebSocket.
    /// - `http://host` and `https://host`: an agent-backend daemon. The default path is `/ssh`.
    /// - `ssh://user@host:port/path`: an SSH server. The path is the root. A path that begins with
    ///   `/~/` is relative to the user's home.
    pub fn parse(url: &str) -> Result<Self> {
        let (endpoint, root) = parsed(url)?;
        Ok(Self { root, ..Self::new(endpoint) })
    }

    /// Checks that the values are valid and consistent.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: &str| {
            let message = format!("the setting {what}");
            Err(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message))
        };
        let ReconnectPolicy { initial_delay: initial, max_delay: max, multiplier, .. } =
            self.reconnection;
        if !(multiplier.is_finite() && multiplier >= 1.0) {
            return wrong("reconnection.multiplier must be a number of at least 1");
        }
        if initial > max {
            return wrong("reconnection.initial is longer than reconnection.max");
        }
        if self.keepalive.interval.is_zero() {
            return wrong("keepalive.interval must not be zero");
        }
        if self.keepalive.max_missed == 0 {
            return wrong("keepalive.missed must be at least 1");
        }
        if self.operation_timeout.is_zero() {
            return wrong("operation_timeout must not be zero");
        }
        if self.connect_timeout.is_zero() {
            return wrong("connect_timeout must not be zero");
        }
        if let RemoteEndpoint::WebSocket(socket) = &self.endpoint {
            socket.check_cleartext_credentials()?;
        }
        if self.max_operations == 0 {
            return wrong("max_operations must be at least 1");
        }
        if self.root.as_ref().is_some_and(|root| root.is_empty() || root.contains('\0')) {
            return wrong("root must name a directory");
        }
        Ok(())
    }
}

/// When and how often a lost connection is made again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReconnectPolicy {
    pub enabled: bool,
    /// Maximum number of consecutive failed attempts. 0 means no limit.
    pub max_retries: u32,
    /// The pause before the first attempt.
    pub initial_delay: Duration,
    /// The maximum pause.
    pub max_delay: Duration,
    /// The factor by which the pause grows with each attempt.
    pub multiplier: f64,
}

impl Default for ReconnectPolicy {
    fn default() -> Self {
        Self {
            enabled: true,
            max_retries: 5,
            initial_delay: Duration::from_millis(1000),
            max_delay: Duration::from_millis(30_000),
            multiplier: 2.0,
        }
    }
}

impl ReconnectPolicy {
    /// The pause before an attempt. The first attempt has the number 0.
    pub(crate) fn delay_before_attempt(&self, attempt: u32) -> Duration {
        let power = i32::try_from(attempt).unwrap_or(i32::MAX);
        let seconds = self.initial_delay.as_secs_f64() * self.multiplier.powi(power);
        if seconds < self.max_delay.as_secs_f64() {
            Duration::try_from_secs_f64(seconds).unwrap_or(self.max_delay)
        } else {
            self.max_delay
        }
    }

    /// Whether the attempt with this number is made. The first attempt has the number 0.
    pub(crate) fn allows_attempt(&self, attempt: u32) -> bool {
        self.enabled && (self.max_retries == 0 || attempt < self.max_retries)
    }
}

/// How a peer that no longer answers is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// If the peer is silent for this time, a keepalive is sent.
    pub interval: Duration,
    /// Maximum number of unanswered keepalives. After that the connection is considered dead.
    pub max_missed: usize,
}

impl Default for Keepalive {
    fn default() -> Self {
        Self { interval: Duration::from_secs(30), max_missed: 3 }
    }
}

/// The MCP server of the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpEndpoint {
    pub url: String,
    pub token: Option<SecretText>,
}

impl RemoteClientSettings {
    /// The host name and port of the server. `None` if the endpoint has none.
    pub(crate) fn host(&self) -> Option<HostPort> {
        match &self.endpoint {
            RemoteEndpoint::WebSocket(socket) => Some(socket.address.host().clone()),
            RemoteEndpoint::Ssh(ssh) => Some(ssh.host.clone()),
            RemoteEndpoint::Stream(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::endpoint::{SshEndpoint, TrustRoots};
    use super::super::host_key::HostKeyCheck;
    use super::super::known_hosts::KnownHosts;
    use super::*;

    #[test]
    fn defaults_are_those_of_the_table() {
        let settings = RemoteClientSettings::parse("ws://127.0.0.1:3001/ssh").unwrap();
        assert_eq!(settings.root, None);
        let reconnection = ReconnectPolicy {
            enabled: true,
            max_retries: 5,
            initial_delay: Duration::from_millis(1000),
            max_delay: Duration::from_millis(30_000),
            multiplier: 2.0,
        };
        assert_eq!(settings.reconnection, reconnection);
        let keepalive = Keepalive { interval: Duration::from_secs(30), max_missed: 3 };
        assert_eq!(settings.keepalive, keepalive);
        assert_eq!(settings.operation_timeout, Duration::from_secs(120));
        assert_eq!(settings.connect_timeout, Duration::from_secs(30));
        assert_eq!(settings.max_operations, 50);
        assert_eq!(settings.mcp, None);
        let RemoteEndpoint::WebSocket(socket) = &settings.endpoint else { panic!("{settings:?}") };
        assert_eq!((&socket.token, &socket.proxy), (&None, &None));
        assert!(socket.headers.is_empty());
        assert_eq!(socket.trust_roots, TrustRoots::System);
        assert_eq!(socket.host_key, HostKeyCheck::Unchecked);
        settings.check().unwrap();

        let SshEndpoint { host, user, credentials, host_key } =
            SshEndpoint::new("ada", "box.example");
        assert_eq!((host.port(), user.as_str()), (22, "ada"));
        assert!(credentials.is_empty());
        assert_eq!(host_key, HostKeyCheck::KnownHosts(KnownHosts::default()));
    }

    #[test]
    fn waits_grow_up_to_a_limit() {
        let seconds = |reconnection: ReconnectPolicy, attempt| {
            reconnection.delay_before_attempt(attempt).as_secs_f64()
        };
        let usual = ReconnectPolicy::default();
        let waits: Vec<f64> = (0..7).map(|attempt| seconds(usual, attempt)).collect();
        assert_eq!(waits, [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]);
        assert_eq!(usual.delay_before_attempt(u32::MAX), usual.max_delay);
        for multiplier in [f64::NAN, f64::INFINITY, -1.0, 0.0, 1.0] {
            assert!(
                ReconnectPolicy { multiplier, ..usual }.delay_before_attempt(3) <= usual.max_delay
            );
        }
        assert_eq!(seconds(ReconnectPolicy { multiplier: 1.5, ..usual }, 2), 2.25);
        let none = ReconnectPolicy { initial_delay: Duration::ZERO, ..usual };
        assert_eq!(none.delay_before_attempt(9), Duration::ZERO);
    }

    #[test]
    fn attempts_are_counted() {
        let usual = ReconnectPolicy::default();
        assert!(usual.allows_attempt(4) && !usual.allows_attempt(5));
        assert!(ReconnectPolicy { max_retries: 0, ..usual }.allows_attempt(u32::MAX));
        assert!(!ReconnectPolicy { enabled: false, ..usual }.allows_attempt(0));
    }

    #[test]
    fn what_cannot_be_meant_is_named() {
        let good = RemoteClientSettings::parse("ws://127.0.0.1:3001/ssh").unwrap();
        let check = |what: &str, change: fn(&mut RemoteClientSettings)| {
            let mut settings = good.clone();
            change(&mut settings);
            let error = settings.check().unwrap_err();
            assert_eq!(
                (error.code(), error.kind()),
                (ErrorCode::InvalidConfiguration, ErrorKind::Invalid)
            );
            assert!(error.message().contains(what), "{error}");
        };
        check("reconnection.multiplier", |it| it.reconnection.multiplier = f64::NAN);
        check("reconnection.multiplier", |it| it.reconnection.multiplier = 0.5);
        check("reconnection.initial", |it| it.reconnection.max_delay = Duration::ZERO);
        check("keepalive.interval", |it| it.keepalive.interval = Duration::ZERO);
        check("keepalive.missed", |it| it.keepalive.max_missed = 0);
        check("operation_timeout", |it| it.operation_timeout = Duration::ZERO);
        check("connect_timeout", |it| it.connect_timeout = Duration::ZERO);
        check("max_operations", |it| it.max_operations = 0);
        check("root", |it| it.root = Some(String::new()));
    }
}
