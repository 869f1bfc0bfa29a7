//! SSH beside MCP: over WebSockets on the same port, and on a port of its own.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ab_core::Backend;
use ab_remote::{Access, Ended, HostKey, Listening, Origin, Server, Settings, Users};
use clap::Args;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::sockets;
use crate::commands::input;
use crate::failure::Failure;

/// Where a daemon that runs as a service keeps its key.
const HOST_KEY: &str = "/var/lib/agentbe/ssh_host_ed25519_key";
/// Whom clients know from before; good enough on this host only.
const KNOWN_USER: &str = "root:agents";

#[derive(Args, Debug)]
#[command(next_help_heading = "SSH")]
pub(crate) struct Ssh {
    /// Do not serve SSH over WebSockets at /ssh
    #[arg(long)]
    disable_ssh_ws: bool,

    /// The key by which clients know this server; made if it is not there, and kept in memory if it
    /// cannot be written
    #[arg(long, value_name = "FILE", default_value = HOST_KEY)]
    ssh_host_key: PathBuf,

    /// After how many seconds of silence an SSH client is asked whether it is there; three times in
    /// vain and it is given up [default: it is not asked]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    ssh_keepalive: Option<u32>,

    /// Serve SSH on a port of its own, to plain ssh, sftp, scp and rsync
    #[arg(long)]
    conventional_ssh: bool,

    /// That port; 0 takes any that is free
    #[arg(long, value_name = "PORT", default_value = "22", requires = "conventional_ssh")]
    ssh_port: u16,

    /// Who may log in there, as name:password,name:password [default: root:agents, on loopback only]
    #[arg(long, value_name = "USERS", requires = "conventional_ssh")]
    ssh_users: Option<String>,

    /// A public key for the first of them, as in authorized_keys
    #[arg(long, value_name = "KEY", requires = "conventional_ssh")]
    ssh_public_key: Option<String>,

    /// A file of public keys for the first of them
    #[arg(long, value_name = "FILE", requires = "conventional_ssh")]
    ssh_authorized_keys: Option<PathBuf>,
}

/// What is served beside HTTP.
pub(crate) struct Beside {
    /// For WebSockets.
    pub(crate) socket: Option<Server>,
    /// On a port of its own.
    conventional: Option<(Server, TcpListener)>,
    pub(crate) fingerprint: Option<String>,
}

impl Ssh {
    pub(crate) async fn open(&self, backend: &Backend, host: IpAddr) -> Result<Beside, Failure> {
        if self.disable_ssh_ws && !self.conventional_ssh {
            return Ok(Beside { socket: None, conventional: None, fingerprint: None });
        }
        let users = match self.conventional_ssh {
            true => Some(self.users(host)?),
            false => None,
        };
        let key = HostKey::load_or_make(&self.ssh_host_key).map_err(|error| {
            Failure::input(format!("use the host key {}", self.ssh_host_key.display()), error)
        })?;
        if let Origin::Ephemeral { why } = key.origin() {
            tracing::warn!(why, "the SSH host key is gone when the daemon ends");
        }
        let fingerprint = Some(key.fingerprint());
        let keepalive = self.ssh_keepalive.map(|seconds| Duration::from_secs(seconds.into()));
        let server = |access| {
            let settings = Settings { keepalive, ..Settings::new(key.clone(), access) };
            Server::new(backend.clone(), settings)
        };
        // Whoever gets as far as the upgrade has shown the token.
        let socket = (!self.disable_ssh_ws).then(|| server(Access::Any));
        let conventional = match users {
            None => None,
            Some(users) => {
                let port = self.ssh_port;
                let listener = sockets::listen(host, port).await.map_err(|error| {
                    Failure::input(format!("listen for SSH on {host}, port {port}"), error)
                        .with_hint("choose another with --ssh-port")
                })?;
                Some((server(Access::Users(users)), listener))
            }
        };
        Ok(Beside { socket, conventional, fingerprint })
    }

    fn users(&self, host: IpAddr) -> Result<Users, Failure> {
        let keys = self.keys()?;
        let named = match &self.ssh_users {
            Some(named) => named.as_str(),
            None if host.is_loopback() => KNOWN_USER,
            None => {
                let message = format!("{host} can be reached by others, and there are no users");
                return Err(Failure::usage(message).with_hint("name them with --ssh-users"));
            }
        };
        let mut users = Users::new();
        let refused = |why: &dyn std::fmt::Display| Failure::usage(format!("--ssh-users: {why}"));
        for (number, pair) in named.split(',').enumerate() {
            let Some((name, password)) = pair.split_once(':') else {
                return Err(refused(&format!("'{pair}' has no ':'"))
                    .with_hint("write --ssh-users name:password,name:password"));
            };
            users.password(name, password).map_err(|why| refused(&why))?;
            if number == 0 {
                for keys in &keys {
                    users.authorized_keys(name, keys).map_err(|why| {
                        Failure::usage(format!("the public keys for '{name}': {why}"))
                    })?;
                }
            }
        }
        Ok(users)
    }

    fn keys(&self) -> Result<Vec<String>, Failure> {
        let mut keys: Vec<String> = self.ssh_public_key.iter().cloned().collect();
        if let Some(path) = &self.ssh_authorized_keys {
            keys.push(String::from_utf8_lossy(&input::file(path)?).into_owned());
        }
        Ok(keys)
    }
}

impl Beside {
    /// Where plain SSH listens.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        let (_, listener) = self.conventional.as_ref()?;
        listener.local_addr().ok()
    }

    /// From here on whoever connects is served.
    pub(crate) fn serve(self) -> Serving {
        let Some((server, listener)) = self.conventional else { return Serving(None) };
        let ended = Arc::new(|peer: SocketAddr, ended: &Ended| {
            tracing::info!(%peer, %ended, "an SSH connection ended");
        });
        let listening = Listening { ended, ..Listening::default() };
        let task = tokio::spawn({
            let server = server.clone();
            async move {
                if let Err(error) = ab_remote::listen(listener, server, listening).await {
                    tracing::error!(%error, "SSH is served no longer");
                }
            }
        });
        Serving(Some((server, task)))
    }
}

/// Plain SSH that is being served.
pub(crate) struct Serving(Option<(Server, JoinHandle<()>)>);

impl Serving {
    /// Ends every connection.
    pub(crate) async fn close(self) {
        if let Some((server, task)) = self.0 {
            server.shut_down().await;
            // A panic in it was told already.
            let _ = task.await;
        }
    }
}
