//! SSH access in addition to MCP: over WebSockets on the same port, and on its own port.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ab_core::Backend;
use ab_remote::{
    HostKey, HostKeyOrigin, SshAccess, SshConnectionEnd, SshConnectionThreads, SshListenerOptions,
    SshServer, SshServerSettings, SshUsers,
};
use clap::Args;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::sockets;
use crate::commands::input;
use crate::data_dir;
use crate::failure::Failure;
use crate::process;
use crate::secrets;

/// The path of the SSH host key of a daemon that runs as a system service.
const HOST_KEY: &str = "/var/lib/agentbe/ssh_host_ed25519_key";
/// The name of the default user.
const DEFAULT_USER: &str = "root";
/// The password of the default user if the daemon has no token. It is published, because clients
/// know it, so it is not accepted on addresses that other machines can reach.
const PUBLISHED_PASSWORD: &str = "agents";

#[derive(Args, Debug)]
#[command(next_help_heading = "SSH")]
pub(crate) struct Ssh {
    /// Serve no SSH over WebSockets at /ssh
    #[arg(long)]
    disable_ssh_ws: bool,

    /// File with the host key of the SSH server; created if it is missing
    ///
    /// The default for root is /var/lib/agentbe/ssh_host_ed25519_key. The default for other users is
    /// ssh_host_ed25519_key in their state directory, such as ~/.local/state/agent-backend. The file must have mode
    /// 600. If it cannot be written, the daemon creates a new key at every start.
    #[arg(long, value_name = "FILE")]
    ssh_host_key: Option<PathBuf>,

    /// Send a keepalive message to SSH clients that were silent for this time [default: never]
    ///
    /// The daemon closes the connection of a client that does not answer three of them.
    #[arg(long, value_name = "SECONDS", value_parser = super::super::exec::amount::number(1..=u32::MAX))]
    ssh_keepalive: Option<u32>,

    /// Also serve SSH on its own port, for ssh, sftp, scp and rsync
    #[arg(long)]
    conventional_ssh: bool,

    /// Port of --conventional-ssh; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value = "22", requires = "conventional_ssh")]
    ssh_port: u16,

    /// Users of --conventional-ssh, as name:password,name:password
    ///
    /// Other users of this machine can see the passwords while the daemon starts. --ssh-users-file avoids that, and
    /// its passwords can contain commas. The first user can be given as a name without a password, and then logs in
    /// with a public key from --ssh-public-key or --ssh-authorized-keys.
    ///
    /// Without this flag, the only user is root. With public keys, root logs in with one of them. Without public keys,
    /// root logs in with the daemon's token as the password. If the daemon has no token, the password is 'agents', which
    /// works only if the daemon listens on a loopback address.
    #[arg(long, value_name = "USERS", requires = "conventional_ssh")]
    ssh_users: Option<String>,

    /// File with the users of --conventional-ssh, one name:password in each line; use '-' for standard input
    ///
    /// Empty lines and lines that start with # are ignored.
    #[arg(long, value_name = "FILE", requires = "conventional_ssh", conflicts_with = "ssh_users")]
    ssh_users_file: Option<PathBuf>,

    /// Public key of the first user, in the format of authorized_keys
    #[arg(long, value_name = "KEY", requires = "conventional_ssh")]
    ssh_public_key: Option<String>,

    /// File with public keys of the first user, in the format of authorized_keys
    #[arg(long, value_name = "FILE", requires = "conventional_ssh")]
    ssh_authorized_keys: Option<PathBuf>,
}

/// The SSH servers that run beside HTTP.
pub(crate) struct SshServers {
    /// The server for SSH over WebSockets.
    pub(crate) socket: Option<SshServer>,
    /// The server on its own port.
    conventional: Option<(SshServer, TcpListener)>,
    /// How users log in on that port.
    pub(crate) login: Option<SshLogin>,
    pub(crate) fingerprint: Option<String>,
    lanes: Option<SshConnectionThreads>,
}

/// How users log in on the port of plain SSH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SshLogin {
    /// The default user, with the token of the daemon.
    Token,
    /// The default user, with the published password.
    PublishedPassword,
    /// The default user, with a public key.
    Key,
    /// The users that the operator has named.
    Users(Vec<String>),
}

impl SshLogin {
    /// Maximum number of users that are named.
    const MAX_NAMES: usize = 4;

    pub(crate) fn words(&self) -> String {
        match self {
            SshLogin::Token => format!("{DEFAULT_USER} logs in with the token"),
            SshLogin::PublishedPassword => {
                format!("{DEFAULT_USER} logs in with the published password '{PUBLISHED_PASSWORD}'")
            }
            SshLogin::Key => format!("{DEFAULT_USER} logs in with a key"),
            SshLogin::Users(names) if names.len() > Self::MAX_NAMES => {
                format!("{} users log in", names.len())
            }
            SshLogin::Users(names) => {
                let verb = if names.len() == 1 { "logs" } else { "log" };
                let names = ab_core::error::escape_unprintable(&names.join(", "));
                format!("{names} {verb} in")
            }
        }
    }
}

impl Ssh {
    /// Opens the SSH servers. `token` is the token of the daemon.
    pub(crate) async fn open(
        &self,
        backend: &Backend,
        host: IpAddr,
        token: Option<&str>,
    ) -> Result<SshServers, Failure> {
        if self.disable_ssh_ws && !self.conventional_ssh {
            return Ok(SshServers {
                socket: None,
                conventional: None,
                login: None,
                fingerprint: None,
                lanes: None,
            });
        }
        let users = if self.conventional_ssh { Some(self.users(host, token)?) } else { None };
        let (users, login) = users.unzip();
        let key = self.host_key()?;
        if let HostKeyOrigin::Ephemeral { why } = key.origin() {
            tracing::warn!(why, "the SSH host key is not stored and changes with the next start");
        }
        let fingerprint = Some(key.fingerprint());
        let keepalive = self.ssh_keepalive.map(|seconds| Duration::from_secs(seconds.into()));
        let lanes = SshConnectionThreads::start(process::threads())
            .map_err(|error| Failure::input("start the threads for SSH", error))?;
        let server = |access| {
            let settings =
                SshServerSettings { keepalive, ..SshServerSettings::new(key.clone(), access) };
            SshServer::with_threads(backend.clone(), settings, lanes.clone())
        };
        // Any SSH login is accepted here, because the server checks the token before it upgrades
        // the connection.
        let socket = (!self.disable_ssh_ws).then(|| server(SshAccess::AnyUser));
        let conventional = match users {
            None => None,
            Some(users) => {
                let port = self.ssh_port;
                let listener = sockets::listen(host, port).await.map_err(|error| {
                    Failure::input(format!("listen for SSH on {host}, port {port}"), error)
                        .with_hint("choose another port with --ssh-port")
                })?;
                Some((server(SshAccess::Users(users)), listener))
            }
        };
        Ok(SshServers { socket, conventional, login, fingerprint, lanes: Some(lanes) })
    }

    fn host_key(&self) -> Result<HostKey, Failure> {
        let default =
            || default_host_key(rustix::process::geteuid().is_root(), data_dir::default());
        let path = &self.ssh_host_key.clone().unwrap_or_else(default);
        let unusable = |error| {
            let failure = Failure::input(format!("use the SSH host key {}", path.display()), error);
            failure
                .with_hint("make it readable only by its owner (chmod 600), or name another file with --ssh-host-key")
        };
        match HostKey::load_or_create(path) {
            // The key of the service belongs to another user. Use a temporary key instead.
            Err(error)
                if path == Path::new(HOST_KEY)
                    && error.kind() == std::io::ErrorKind::PermissionDenied =>
            {
                HostKey::generate_ephemeral(format!("read {}: {error}", path.display()))
                    .map_err(unusable)
            }
            loaded => loaded.map_err(unusable),
        }
    }

    fn users(&self, host: IpAddr, token: Option<&str>) -> Result<(SshUsers, SshLogin), Failure> {
        let keys = self.keys()?;
        if let Some(path) = &self.ssh_users_file {
            secrets::shield();
            let text = String::from_utf8_lossy(&input::secrets_file(path)?).into_owned();
            let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
            return named_users(UsersFrom::File, &lines.collect::<Vec<_>>(), &keys);
        }
        if let Some(named) = &self.ssh_users {
            return named_users(UsersFrom::Flag, &named.split(',').collect::<Vec<_>>(), &keys);
        }
        if !keys.is_empty() {
            let (users, _) = named_users(UsersFrom::Flag, &[DEFAULT_USER], &keys)?;
            return Ok((users, SshLogin::Key));
        }
        let (password, login) = match token {
            Some(token) => (token, SshLogin::Token),
            None if host.is_loopback() => (PUBLISHED_PASSWORD, SshLogin::PublishedPassword),
            None => {
                let message = format!("other machines can reach {host}, but no SSH users are set");
                return Err(Failure::usage(message).with_hint(
                    "set users with --ssh-users-file, or keys with --ssh-authorized-keys",
                ));
            }
        };
        let mut users = SshUsers::new();
        users.add_password(DEFAULT_USER, password).map_err(|why| {
            Failure::usage(format!("the token cannot be the SSH password: {why}"))
                .with_hint("use a shorter token, or set users with --ssh-users-file")
        })?;
        Ok((users, login))
    }

    fn keys(&self) -> Result<Vec<String>, Failure> {
        let mut keys: Vec<String> = self.ssh_public_key.iter().cloned().collect();
        if let Some(path) = &self.ssh_authorized_keys {
            keys.push(String::from_utf8_lossy(&input::file(path)?).into_owned());
        }
        Ok(keys)
    }
}

/// The default path of the host key. For root this is a path in the directory of the service. Other
/// users cannot write there, so their key is in `state`.
fn default_host_key(is_root: bool, state: Result<PathBuf, Failure>) -> PathBuf {
    match state {
        Ok(state) if !is_root => state.join("ssh_host_ed25519_key"),
        Ok(_) | Err(_) => PathBuf::from(HOST_KEY),
    }
}

/// Where the user named the users of SSH, for error messages.
#[derive(Clone, Copy)]
enum UsersFrom {
    Flag,
    File,
}

impl UsersFrom {
    fn refused(self, why: &str) -> Failure {
        let (flag, hint) = match self {
            UsersFrom::Flag => (
                "--ssh-users",
                "write --ssh-users name:password,name:password, without commas in passwords",
            ),
            UsersFrom::File => ("--ssh-users-file", "write name:password on each line of the file"),
        };
        Failure::usage(format!("{flag}: {why}")).with_hint(hint)
    }
}

/// Parses the users in these entries. The keys belong to the first user. Error messages never
/// contain a password.
fn named_users(
    from: UsersFrom,
    entries: &[&str],
    keys: &[String],
) -> Result<(SshUsers, SshLogin), Failure> {
    let refused = |why: String| from.refused(&why);
    if entries.is_empty() {
        return Err(refused("it contains no users".to_owned()));
    }
    let mut users = SshUsers::new();
    let mut names = Vec::new();
    for (number, entry) in entries.iter().enumerate() {
        let (name, password) = match entry.split_once(':') {
            Some((name, password)) => (name, Some(password)),
            None => (*entry, None),
        };
        if name.is_empty() {
            return Err(refused(format!("entry {} has no name", number + 1)));
        }
        if names.iter().any(|known| known == name) {
            return Err(refused(format!("user '{name}' is listed twice")));
        }
        names.push(name.to_owned());
        if let Some(password) = password {
            users.add_password(name, password).map_err(|why| refused(why.to_string()))?;
        }
        let mut known = 0;
        for keys in keys.iter().filter(|_| number == 0) {
            known += users
                .add_authorized_keys(name, keys)
                .map_err(|why| Failure::usage(format!("the public keys for '{name}': {why}")))?;
        }
        if password.is_none() && known == 0 {
            return Err(match number {
                0 => refused(format!("user '{name}' has neither a password nor a key")),
                // Do not show the entry, because it may be a part of a password.
                _ => refused(format!(
                    "entry {} has no password; only the first user can have keys",
                    number + 1
                )),
            });
        }
    }
    Ok((users, SshLogin::Users(names)))
}

impl SshServers {
    /// Returns a guard for the connection threads. The guard must be dropped last, because commands
    /// that clients started over SSH run on these threads and must end there.
    pub(crate) fn lanes(&self) -> LastOfAll {
        LastOfAll(self.lanes.clone())
    }

    /// The address of the separate SSH port, if there is one.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        let (_, listener) = self.conventional.as_ref()?;
        listener.local_addr().ok()
    }

    /// Starts to accept SSH connections.
    pub(crate) fn serve(self) -> Serving {
        let Some((server, listener)) = self.conventional else { return Serving(None) };
        let ended = Arc::new(|peer: SocketAddr, ended: &SshConnectionEnd| {
            tracing::info!(%peer, %ended, "an SSH connection ended");
        });
        let listening =
            SshListenerOptions { on_connection_end: ended, ..SshListenerOptions::default() };
        let task = tokio::spawn({
            let server = server.clone();
            async move {
                if let Err(error) =
                    ab_remote::serve_ssh_on_listener(listener, server, listening).await
                {
                    tracing::error!(%error, "the SSH server has stopped");
                }
            }
        });
        Serving(Some((server, task)))
    }
}

/// Stops the SSH threads when it is dropped, and waits for them.
pub(crate) struct LastOfAll(Option<SshConnectionThreads>);

impl Drop for LastOfAll {
    fn drop(&mut self) {
        if let Some(lanes) = &self.0 {
            lanes.stop(process::GRACE);
        }
    }
}

/// A running plain SSH server.
pub(crate) struct Serving(Option<(SshServer, JoinHandle<()>)>);

impl Serving {
    /// Closes every connection.
    pub(crate) async fn close(self) {
        if let Some((server, task)) = self.0 {
            server.shut_down().await;
            // A panic in the task has already been reported.
            let _ = task.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_line_names_few_users() {
        let users = |names: &[&str]| SshLogin::Users(names.iter().map(|it| (*it).into()).collect());
        assert_eq!(users(&["ada"]).words(), "ada logs in");
        assert_eq!(users(&["ada", "b\n"]).words(), "ada, b\\n log in");
        assert_eq!(users(&["a", "b", "c", "d", "e"]).words(), "5 users log in");
    }

    #[test]
    fn users_other_than_root_have_a_host_key_in_their_state_directory() {
        let state = || Ok(PathBuf::from("/state/agent-backend"));
        let own = Path::new("/state/agent-backend/ssh_host_ed25519_key");
        assert_eq!(default_host_key(false, state()), own);
        assert_eq!(default_host_key(true, state()), Path::new(HOST_KEY));
        assert_eq!(default_host_key(false, Err(Failure::No)), Path::new(HOST_KEY));
    }
}
