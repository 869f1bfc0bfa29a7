//! Remote workspaces: flags for the address and the credentials, and hints if the workspace cannot
//! be reached.

use std::env;
use std::path::{Path, PathBuf};

use ab_core::{Backend, Error, ErrorCause, ErrorKind};
use agent_backend::RemoteConfig;
use agent_backend::remote::{
    CleartextTokenPolicy, Credential, HostKeyCheck, HostKeyFingerprint, KnownHosts, RemoteEndpoint,
    SecretText,
};
use clap::Args;

use crate::commands::input;
use crate::failure::Failure;
use crate::passphrase;
use crate::token;

/// The environment variable with the URL of the workspace. Used if no flag names it.
const VARIABLE: &str = "AGENT_BACKEND_REMOTE";
/// The environment variable with the path of the SSH agent's socket.
const AGENT: &str = "SSH_AUTH_SOCK";
/// The file with the known hosts of all users of this machine.
const SYSTEM_KNOWN_HOSTS: &str = "/etc/ssh/ssh_known_hosts";
/// The path of the user's file of known hosts, relative to the home directory.
const USER_KNOWN_HOSTS: &str = ".ssh/known_hosts";

#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Remote workspace")]
pub(crate) struct RemoteFlags {
    /// URL of a daemon or an SSH server
    ///
    /// For example wss://host/ssh or ssh://user@host/path. The environment variable AGENT_BACKEND_REMOTE sets it too.
    #[arg(long, value_name = "URL", global = true)]
    remote: Option<String>,

    /// File with the token of the daemon; use '-' for standard input
    ///
    /// The token can also be in the environment variable AGENT_BACKEND_AUTH_TOKEN.
    #[arg(long, alias = "auth-token-file", value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,

    /// Private key for SSH, tried before the keys of the SSH agent; can be repeated
    #[arg(long, value_name = "FILE", global = true)]
    identity: Vec<PathBuf>,

    /// File with the passphrase of the private keys [default: ask at the terminal]
    #[arg(long, value_name = "FILE", global = true, requires = "identity")]
    identity_passphrase_file: Option<PathBuf>,

    /// File with the password for SSH; use '-' for standard input
    #[arg(long, value_name = "FILE", global = true)]
    password_file: Option<PathBuf>,

    /// Ask for the password for SSH
    #[arg(long, global = true, conflicts_with = "password_file")]
    ask_password: bool,

    /// Allow sending the token to another machine without encryption
    #[arg(long, global = true)]
    allow_insecure_token: bool,

    /// File with keys of known hosts [default: ~/.ssh/known_hosts and the system's]
    #[arg(long, value_name = "FILE", global = true)]
    known_hosts: Option<PathBuf>,

    /// Accept only the host key with this fingerprint, like SHA256:…
    #[arg(long, value_name = "FINGERPRINT", global = true, conflicts_with = "known_hosts")]
    host_key: Option<String>,

    /// Accept and remember the key of an unknown host
    #[arg(long, global = true, conflicts_with = "host_key")]
    accept_new_host_key: bool,

    /// Header to send to the daemon, for a proxy in front of it; can be repeated
    #[arg(long, value_name = "NAME: VALUE", global = true)]
    header: Vec<String>,

    /// File with headers, one on each line; unlike --header, other users cannot see them
    #[arg(long, value_name = "FILE", global = true)]
    header_file: Option<PathBuf>,

    /// HTTP proxy to reach the daemon through, like http://host:3128
    #[arg(long, value_name = "URL", global = true)]
    proxy: Option<String>,
}

impl RemoteFlags {
    /// The URL of the workspace. `None` if the workspace is local.
    pub(crate) fn url(&self) -> Result<Option<String>, Failure> {
        let url = self.remote.clone().or_else(from_environment);
        match (&url, self.lone_flag()) {
            (None, Some(flag)) => Err(Failure::usage(format!("{flag} needs --remote"))
                .with_hint(format!("pass --remote URL, or set {VARIABLE}"))),
            _ => Ok(url),
        }
    }

    /// Adds a hint if the URL comes from the environment, because the user may have forgotten the
    /// variable.
    pub(crate) fn traced(&self, failure: Failure) -> Failure {
        if self.remote.is_some() || from_environment().is_none() {
            return failure;
        }
        let word = format!("the environment variable {VARIABLE} names this workspace");
        let hint = match failure.error().and_then(Error::hint) {
            Some(hint) => format!("{hint}; {word}"),
            None => word,
        };
        failure.with_hint(hint)
    }

    /// The first given flag that is valid only for a remote workspace.
    fn lone_flag(&self) -> Option<&'static str> {
        let given = [
            ("--token-file", self.token_file.is_some()),
            ("--identity", !self.identity.is_empty()),
            ("--identity-passphrase-file", self.identity_passphrase_file.is_some()),
            ("--password-file", self.password_file.is_some()),
            ("--ask-password", self.ask_password),
            ("--allow-insecure-token", self.allow_insecure_token),
            ("--known-hosts", self.known_hosts.is_some()),
            ("--host-key", self.host_key.is_some()),
            ("--accept-new-host-key", self.accept_new_host_key),
            ("--header", !self.header.is_empty()),
            ("--header-file", self.header_file.is_some()),
            ("--proxy", self.proxy.is_some()),
        ];
        given.into_iter().find_map(|(flag, given)| given.then_some(flag))
    }

    /// Connects to the workspace at `url`.
    pub(crate) async fn connect(&self, url: &str, root: Option<&Path>) -> Result<Backend, Failure> {
        self.connected(url, root).await.map_err(|failure| self.traced(failure))
    }

    /// The failure if a lost connection could not be restored, with a hint.
    pub(crate) fn lost(&self, why: Error) -> Failure {
        let ssh = self.remote.clone().or_else(from_environment);
        let way = match (ssh.is_some_and(|url| url.starts_with("ssh:")), &self.proxy) {
            (true, _) => Way::Ssh,
            (false, None) => Way::Daemon,
            (false, Some(_)) => Way::Proxy,
        };
        self.traced(unreachable(why, way))
    }

    async fn connected(&self, url: &str, root: Option<&Path>) -> Result<Backend, Failure> {
        let config = self.config(url, root)?;
        let way = match (&config.settings.endpoint, &self.proxy) {
            (RemoteEndpoint::Ssh(_), _) => Way::Ssh,
            (_, None) => Way::Daemon,
            (_, Some(_)) => Way::Proxy,
        };
        let backend = agent_backend::remote_with(config).map_err(senseless)?;
        match backend.connect().await {
            Ok(()) => Ok(backend),
            Err(error) => {
                backend.destroy().await?;
                Err(unreachable(error, way))
            }
        }
    }

    fn config(&self, url: &str, root: Option<&Path>) -> Result<RemoteConfig, Failure> {
        let mut config = RemoteConfig::parse(url).map_err(senseless)?;
        if let Some(root) = root {
            let root = root.to_str().filter(|root| !root.is_empty()).ok_or_else(|| {
                Failure::usage("--root does not name a directory of the remote workspace")
                    .with_hint("name a directory of the remote machine, or remove --root")
            })?;
            config = config.root(root);
        }
        if let Some(check) = self.host_key_check(&config.settings.endpoint)? {
            config = config.host_key_check(check).map_err(senseless)?;
        }
        if let Some(proxy) = &self.proxy {
            config = config.proxy(proxy).map_err(senseless)?;
        }
        for header in self.headers()? {
            config = with_header(config, &header)?;
        }
        match config.settings.endpoint {
            RemoteEndpoint::Ssh(_) => self.as_user(config),
            RemoteEndpoint::WebSocket(_) | RemoteEndpoint::Stream(_) => self.with_token(config),
        }
    }

    /// The headers in the file, followed by those of the flags. A flag overrides the same header in
    /// the file.
    fn headers(&self) -> Result<Vec<String>, Failure> {
        let in_file = match &self.header_file {
            Some(path) => {
                let bytes = input::file(path).map_err(|failure| named(failure, "--header-file"))?;
                String::from_utf8_lossy(&bytes).into_owned()
            }
            None => String::new(),
        };
        let lines = in_file.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned);
        Ok(lines.chain(self.header.iter().cloned()).collect())
    }

    fn with_token(&self, config: RemoteConfig) -> Result<RemoteConfig, Failure> {
        if let Some(flag) = [
            ("--identity", !self.identity.is_empty()),
            ("--password-file", self.password_file.is_some()),
            ("--ask-password", self.ask_password),
        ]
        .into_iter()
        .find_map(|(flag, given)| given.then_some(flag))
        {
            let message = format!("{flag} is for ssh:// URLs");
            return Err(
                Failure::usage(message).with_hint("a daemon needs a token: pass --token-file")
            );
        }
        let named = |failure: Failure| named(failure, "--token-file");
        let token = match &self.token_file {
            Some(path) => Some(token::in_file(path).map_err(named)?),
            None => token::in_environment().map_err(|failure| {
                failure.with_hint(
                    "set AGENT_BACKEND_AUTH_TOKEN to the token of the daemon, or unset it",
                )
            })?,
        };
        let config = if self.allow_insecure_token {
            config.cleartext_token_policy(CleartextTokenPolicy::Accepted).map_err(senseless)?
        } else {
            config
        };
        match token {
            Some(token) => config.token(token).map_err(senseless),
            None => Ok(config),
        }
    }

    /// Adds the credentials of an SSH user: first the named keys, then the SSH agent, then a
    /// password.
    fn as_user(&self, mut config: RemoteConfig) -> Result<RemoteConfig, Failure> {
        if self.token_file.is_some() {
            return Err(Failure::usage("--token-file is for ws:// and wss:// URLs").with_hint(
                "an SSH server needs a key (--identity) or a password (--password-file)",
            ));
        }
        let passphrase = self.identity_passphrase_file.as_deref().map(passphrase::in_file);
        let passphrase = passphrase.transpose();
        let passphrase =
            passphrase.map_err(|failure| named(failure, "--identity-passphrase-file"))?;
        for path in &self.identity {
            config = config.ssh_key_file(path, None).map_err(senseless)?;
            unlock(&mut config, path, passphrase.as_ref())?;
        }
        if let Some(socket) = env::var_os(AGENT).filter(|socket| !socket.is_empty()) {
            let socket = PathBuf::from(socket);
            // The variable may contain the path of a socket that no longer exists.
            if socket.exists() {
                config = config.ssh_agent(socket).map_err(senseless)?;
            }
        }
        if let Some(path) = &self.password_file {
            let password = passphrase::in_file(path);
            let password = password.map_err(|failure| named(failure, "--password-file"))?;
            config = config.ssh_password(password).map_err(senseless)?;
        }
        if self.ask_password {
            let whose = match &config.settings.endpoint {
                RemoteEndpoint::Ssh(ssh) => format!("{}@{}", ssh.user, ssh.host.host()),
                RemoteEndpoint::WebSocket(_) | RemoteEndpoint::Stream(_) => "the user".to_owned(),
            };
            config = config.ssh_password(passphrase::asked_password(&whose)?).map_err(senseless)?;
        }
        Ok(config)
    }

    /// How the host key is checked. `None` for the default.
    fn host_key_check(&self, endpoint: &RemoteEndpoint) -> Result<Option<HostKeyCheck>, Failure> {
        if let Some(text) = &self.host_key {
            let pin: HostKeyFingerprint = text.parse().map_err(senseless)?;
            return Ok(Some(HostKeyCheck::Pin(pin)));
        }
        let own = env::var_os("HOME").map(|home| PathBuf::from(home).join(USER_KNOWN_HOSTS));
        if self.accept_new_host_key {
            // The same files are searched with and without the flag.
            let files = match (&self.known_hosts, own) {
                (Some(file), _) => vec![file.clone()],
                (None, Some(own)) => vec![own, PathBuf::from(SYSTEM_KNOWN_HOSTS)],
                (None, None) => {
                    return Err(Failure::usage(
                        "there is no file to store the host key in: HOME is not set",
                    )
                    .with_hint("name a file with --known-hosts"));
                }
            };
            return Ok(Some(HostKeyCheck::AcceptNew(KnownHosts::from_files(files))));
        }
        Ok(match (&self.known_hosts, endpoint) {
            (Some(file), _) => Some(HostKeyCheck::KnownHosts(KnownHosts::from_files([file]))),
            (None, RemoteEndpoint::Ssh(_)) => {
                let files = own.into_iter().chain([PathBuf::from(SYSTEM_KNOWN_HOSTS)]);
                Some(HostKeyCheck::KnownHosts(KnownHosts::from_files(files)))
            }
            (None, RemoteEndpoint::WebSocket(_) | RemoteEndpoint::Stream(_)) => None,
        })
    }
}

/// Sets the passphrase of the key that was added last. Asks the person for it if necessary.
fn unlock(
    config: &mut RemoteConfig,
    path: &Path,
    known: Option<&SecretText>,
) -> Result<(), Failure> {
    let RemoteEndpoint::Ssh(ssh) = &mut config.settings.endpoint else { return Ok(()) };
    if let Some(Credential::Key { text, passphrase }) = ssh.credentials.last_mut()
        && text.is_encrypted_private_key()
    {
        *passphrase = Some(match known {
            Some(known) => known.clone(),
            None => passphrase::asked(path)?,
        });
    }
    Ok(())
}

/// Adds a header. Errors do not contain the value of the header, because it may be a secret.
fn with_header(config: RemoteConfig, header: &str) -> Result<RemoteConfig, Failure> {
    match header.split_once(':') {
        Some((name, value)) => {
            config.websocket_header(name.trim(), value.trim()).map_err(senseless)
        }
        None => Err(Failure::usage("invalid header: ':' is missing")
            .with_hint("write --header 'Name: value'; a file has one header on each line")),
    }
}

/// Converts the failure to read a file to a usage error that names the flag.
fn named(failure: Failure, flag: &str) -> Failure {
    failure.into_usage().with_hint(format!("check the path in {flag}"))
}

/// The URL from the environment, if it is set.
fn from_environment() -> Option<String> {
    env::var(VARIABLE).ok().filter(|url| !url.is_empty())
}

/// Converts an error about a URL or a flag to a usage error.
fn senseless(error: Error) -> Failure {
    Failure::from(error).into_usage()
}

/// The kind of connection that was attempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Daemon,
    /// A connection to a daemon through a proxy.
    Proxy,
    Ssh,
}

/// Adds a hint to the error of a failed connection.
fn unreachable(error: Error, way: Way) -> Failure {
    let known = error.hint().map(str::to_owned);
    let hint = match (error.kind(), way) {
        // A token or a flag does not help against these errors.
        (ErrorKind::DeniedByPolicy, _)
            if matches!(
                error.cause(),
                Some(ErrorCause::CertificateRefused | ErrorCause::HostKeyRefused)
            ) =>
        {
            return error.into();
        }
        (ErrorKind::DeniedByPolicy, _) if error.cause() == Some(ErrorCause::HostKeyUnknown) => {
            "or pin it with --host-key, or pass --accept-new-host-key"
        }
        (ErrorKind::DeniedByPolicy, Way::Daemon | Way::Proxy) if known.is_some() => {
            "pass credentials with --token-file, AGENT_BACKEND_AUTH_TOKEN or --header"
        }
        (ErrorKind::DeniedByPolicy, Way::Daemon | Way::Proxy) => {
            "pass the token with --token-file or in AGENT_BACKEND_AUTH_TOKEN"
        }
        (ErrorKind::DeniedByPolicy, Way::Ssh) => {
            "pass a key with --identity, start an SSH agent, or pass --password-file"
        }
        (ErrorKind::Invalid, Way::Ssh)
            if error.cause() == Some(ErrorCause::PrivateKeyUnreadable) =>
        {
            "check the files that --identity names"
        }
        // The error already has a hint.
        (ErrorKind::Disconnected | ErrorKind::Timeout, _) if known.is_some() => {
            return error.into();
        }
        (ErrorKind::Disconnected | ErrorKind::Timeout, way) => out_of_reach(error.cause(), way),
        _ => return error.into(),
    };
    let hint = match known {
        Some(known) => format!("{known}; {hint}"),
        None => hint.to_owned(),
    };
    Failure::from(error).with_hint(hint)
}

/// The hint if no server answers at the address, or if it is a server of a different kind.
fn out_of_reach(detail: Option<ErrorCause>, way: Way) -> &'static str {
    match (way, detail) {
        (_, Some(ErrorCause::HostNotFound)) => "check the host name in the URL",
        (Way::Daemon, Some(ErrorCause::NotTls)) => {
            "for a daemon without TLS, use ws:// instead of wss://"
        }
        (Way::Daemon, Some(ErrorCause::NotWebSocket)) => {
            "is that the port of an SSH server? then use ssh://user@host:port"
        }
        (Way::Daemon | Way::Proxy, Some(ErrorCause::HandshakeInterrupted)) => {
            "the daemon may have stopped, or a proxy closes connections: try again"
        }
        (Way::Daemon, _) => {
            "check the host and port of --remote; on that machine: agent-backend daemon --root DIR --port PORT"
        }
        (Way::Proxy, _) => "check the URL of --proxy, and that a daemon runs behind the proxy",
        (Way::Ssh, Some(ErrorCause::SshHandshakeFailed)) => {
            "is that the port of a daemon? then use ws://host:port/ssh"
        }
        (Way::Ssh, _) => "is an SSH server running there? check the host and the port in the URL",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_nowhere_is_looked_at_first() {
        for way in [Way::Daemon, Way::Proxy, Way::Ssh] {
            let hint = out_of_reach(Some(ErrorCause::HostNotFound), way);
            assert_eq!(hint, "check the host name in the URL");
        }
    }

    #[test]
    fn a_new_key_is_accepted_only_where_strict_files_know_none() {
        let ssh = agent_backend::RemoteConfig::parse("ssh://ada@box/srv").unwrap();
        let files = |flags: &RemoteFlags| match flags.host_key_check(&ssh.settings.endpoint) {
            Ok(Some(HostKeyCheck::KnownHosts(known) | HostKeyCheck::AcceptNew(known))) => {
                known.files
            }
            other => panic!("{other:?}"),
        };
        let new = RemoteFlags { accept_new_host_key: true, ..RemoteFlags::default() };
        let strict = files(&RemoteFlags::default());
        assert_eq!(files(&new), strict);
        assert_eq!((strict.len(), strict[1].to_str()), (2, Some(SYSTEM_KNOWN_HOSTS)));
    }
}
