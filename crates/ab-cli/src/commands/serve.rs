//! `serve`: serves tasks for agents over HTTP until it is interrupted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use ab_core::effective_policy::{Isolation, NetworkAccess};
use ab_core::error::escape_unprintable;
use ab_server::{
    AccessToken, AgentGatewayRoutes, CookieSigningKey, HttpAccessPolicy, HttpServer, TlsConfig,
};
use agent_backend::LocalWorkspaceConfig;
use clap::Args;
use tokio::net::TcpListener;

use super::daemon::{ServedRoot, logs, open_files, sockets};
use super::{CliCommand, RunningCommand};
use crate::browser;
use crate::config::{Config, Origin, ServeFlags};
use crate::data_dir::{self, AddressFile};
use crate::failure::Failure;
use crate::signals::Signals;
use crate::terminal::{Terminal, talk};
use crate::token;
use crate::wire::{self, Parts};

const EXAMPLES: &str = "\
Examples:
  agent-backend serve
  agent-backend serve --port 0 --data-dir ./state
  agent-backend serve --root ./project
  agent-backend serve --config ./config.toml
  agent-backend serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem

The data directory contains sessions, their events and the token. Only one server can use it at a
time, and clients on this machine find the server there. On Ctrl-C the server stops; running sessions
continue when it starts again.

The configuration file has more settings for sessions, under [sessions]. `agent-backend config show`
prints all settings with their origin.";

/// The warning that is printed before the notice.
const NO_AUTH_WARNING: &str = "\
warning: --no-auth: this server requires no token. Every program and every user of this machine can
         start agents, read their work and approve their requests. Sessions get no network, so that
         agents cannot approve their own requests.
";

/// Take tasks for agents and run them in sandboxes
///
/// Serves an HTTP API at /api/v1 and a web page at /ui. Callers need the token from the data
/// directory, or the one-time link that is printed at the start.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    #[command(flatten)]
    flags: ServeFlags,
}

impl CliCommand for Serve {
    fn handles_signals(&self) -> bool {
        true
    }

    fn run(self: Box<Self>, _: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self))
    }
}

pub(crate) async fn run(serve: Serve) -> Result<(), Failure> {
    run_with(Config::load(&serve.flags)?, AfterStart::Nothing).await
}

/// What to do once the server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterStart {
    Nothing,
    /// Opens the page in the browser of this desktop.
    OpenBrowser,
}

/// Serves until the process receives a signal.
pub(crate) async fn run_with(config: Config, after: AfterStart) -> Result<(), Failure> {
    let directory = config.data_dir.value.clone();
    let tls = tls(&config)?;
    let is_encrypted = tls.is_some();
    let scheme = if is_encrypted { "https" } else { "http" };
    logs::start(config.log_format.value, &config.log_level.value);
    let mut signals = Signals::watch();
    open_files::raise();
    let (host, port) = (config.host.value, config.port.value);
    // Opening the store locks the data directory. Only then is anything else in it read or created.
    let store = wire::store(&directory).await?;
    let token = if config.no_auth.value { None } else { Some(token(&config)?) };
    let served = match &config.root.value {
        Some(root) => Some(ServedRoot::open(root, &directory, &config).await?),
        None => None,
    };
    let listener = listen(host, port).await?;
    let browser_key = match &token {
        Some(_) => Some(CookieSigningKey::from_secret(&data_dir::made_browser_key(&directory)?)),
        None => None,
    };
    let gate = HttpAccessPolicy {
        token: token.as_deref().map(AccessToken::new),
        allowed_hosts: config.allowed_hosts.value.clone(),
        allowed_origins: Vec::new(),
        cookie_signing_key: browser_key,
    };
    // Agents do not trust the server's certificate, so they use a separate unencrypted address that
    // only this machine can reach.
    let agents = match &tls {
        Some(_) => Some(listen(Ipv4Addr::LOCALHOST.into(), 0).await?),
        None => None,
    };
    let agents_address = agents.as_ref().unwrap_or(&listener).local_addr();
    let agents_address = agents_address.map_err(|error| Failure::input("listen", error))?;
    let agents_url = format!("http://{}", reachable(agents_address));
    let Parts { mut app, control, spaces, traces } =
        wire::assemble(store, &config, gate, agents_url).await?;
    if let Some(served) = &served {
        app = app.with_daemon_routes(served.surface());
    }
    let gateway = wire::gateway(&config, served.as_ref()).await?;
    let mut gateway = AgentGatewayRoutes::new(gateway);
    if let Some(served) = &served {
        gateway = gateway.with_files(served.files());
    }
    app = app.with_agent_gateway_routes(gateway);
    let agents = agents.map(|listener| HttpServer::new(app.clone()).start(listener)).transpose();
    let agents = agents.map_err(|error| Failure::input("open the port of agents", error))?;
    let opened = HttpServer::new(app.clone()).with_tls(tls).start(listener);
    let opened = opened.map_err(|error| Failure::input("open the port", error))?;
    let address = opened.address();
    let url = format!("{scheme}://{}", reachable(address));
    let link = if config.no_auth.value {
        format!("{url}/ui")
    } else {
        let link = app.create_login_link(scheme, address.port());
        link.map_err(|error| Failure::input("make the link to the page", error))?
    };
    let address_file = AddressFile::write(&directory, &url)?;
    let isolation = isolation(&config).await;
    if config.no_auth.value {
        talk(NO_AUTH_WARNING);
    }
    if !host.is_loopback() && !is_encrypted {
        talk(&clear_text_warning(host));
    }
    talk(&notice(&Notice {
        url: &url,
        link: &link,
        directory: &directory,
        is_named: matches!(config.data_dir.origin, Origin::Flag | Origin::File(..)),
        root: config.root.value.as_deref(),
        has_agents: served.as_ref().is_none_or(|served| served.hidden().is_none()),
        isolation,
        network: if config.no_auth.value {
            NetworkAccess::None
        } else {
            config.sessions.network.value
        },
    }));
    let browser = async {
        if after == AfterStart::OpenBrowser {
            browser::open(&link).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        _ = signals.first() => {}
        () = browser => {}
    }
    tracing::info!("closing");
    drop(address_file);
    let ended = async {
        opened.shutdown().await;
        if let Some(agents) = agents {
            agents.shutdown().await;
        }
        spaces.shutdown().await;
        control.shutdown().await;
        // Nothing uses the store any more. Closing it merges its log file into the database.
        control.store().close().await;
        if let Some(traces) = traces {
            traces.close().await;
        }
        if let Some(served) = served {
            served.close().await;
        }
    };
    tokio::select! {
        () = ended => Ok(()),
        // A second signal exits at once.
        exit = signals.next() => Err(Failure::Told(exit)),
    }
}

/// The token, from the first of these sources that has one: the file in a flag, the environment,
/// the configuration, the data directory. If no source has a token, creates one in the data
/// directory.
fn token(config: &Config) -> Result<String, Failure> {
    match given_token(config)? {
        Some(token) => Ok(token),
        None => data_dir::made_token(&config.data_dir.value),
    }
}

/// The token of the server that runs with this configuration. `None` if the server requires no
/// token.
///
/// # Errors
///
/// Fails if a file should contain the token and contains none.
pub(crate) fn token_of_running(config: &Config) -> Result<Option<String>, Failure> {
    match given_token(config)? {
        Some(token) => Ok(Some(token)),
        None => data_dir::token(&config.data_dir.value),
    }
}

fn given_token(config: &Config) -> Result<Option<String>, Failure> {
    let file = &config.auth_token_file;
    let given = match (&file.value, &file.origin) {
        (Some(path), Origin::Flag) => Some(token::in_file(path)?),
        _ => token::in_environment()?,
    };
    match (given, &file.value) {
        (Some(token), _) => Ok(Some(token)),
        (None, Some(path)) => token::in_file(path).map(Some),
        (None, None) => Ok(None),
    }
}

fn tls(config: &Config) -> Result<Option<TlsConfig>, Failure> {
    let (Some(certificates), Some(key)) = (&config.tls_cert.value, &config.tls_key.value) else {
        return Ok(None);
    };
    let loaded = TlsConfig::load(certificates, key);
    loaded.map(Some).map_err(|failure| {
        Failure::usage(format!("cannot use the TLS certificate or key: {failure}"))
    })
}

pub(super) async fn listen(host: IpAddr, port: u16) -> Result<TcpListener, Failure> {
    sockets::listen(host, port).await.map_err(|error| {
        let kind = error.kind();
        let failure = Failure::input(format!("listen on {host}, port {port}"), error);
        match kind {
            std::io::ErrorKind::AddrInUse => {
                failure.with_hint("another program uses this port; choose another one with --port")
            }
            std::io::ErrorKind::AddrNotAvailable => {
                failure.with_hint("--host must be an address of this machine")
            }
            _ => failure,
        }
    })
}

/// The address by which clients on this machine reach a socket that listens on `address`.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, address.port())
}

/// The warning for an address at which other machines could read the traffic.
fn clear_text_warning(host: IpAddr) -> String {
    format!(
        "warning: other machines can reach {host}, and connections are not encrypted. Others on the network can read the
         token and use it. Use --tls-cert and --tls-key, or listen on 127.0.0.1 and
         connect through an SSH tunnel.\n"
    )
}

/// The isolation of sessions with this configuration. Fails with the reason if no session can
/// start.
async fn isolation(config: &Config) -> Result<Option<Isolation>, ab_core::Error> {
    let mut probe = LocalWorkspaceConfig::new(&config.data_dir.value);
    probe.options.exec.isolation = config.sessions.isolation.value;
    probe.options.exec.minimum_isolation = config.sessions.minimum_isolation.value;
    probe.options.exec.temporary_dir = crate::workspace::temporary_dir();
    let backend = agent_backend::local_with(probe)?;
    let policy = backend.effective_policy().await;
    backend.destroy().await?;
    Ok(policy?.isolation)
}

/// The text that is printed at the start.
struct Notice<'a> {
    url: &'a str,
    link: &'a str,
    directory: &'a Path,
    /// Whether a flag or a configuration file names the directory. Then clients need the flag too.
    is_named: bool,
    /// The directory at `/mcp` and `/ssh`.
    root: Option<&'a Path>,
    /// Whether agents can be started at `/v1/acp`.
    has_agents: bool,
    isolation: Result<Option<Isolation>, ab_core::Error>,
    network: NetworkAccess,
}

fn notice(notice: &Notice<'_>) -> String {
    let Notice { url, link, directory, is_named, root, has_agents, isolation, network } = notice;
    let directory = directory.display();
    let named = if *is_named { format!(" --data-dir {directory}") } else { String::new() };
    let network = match network {
        NetworkAccess::Shared => "network shared with this machine",
        NetworkAccess::None => "no network",
    };
    let isolation = match isolation {
        Ok(Some(isolation)) => format!("{}, {network}", isolation.as_str()),
        Ok(None) => "unknown; see `agent-backend doctor`".to_owned(),
        Err(error) => {
            format!("no session can start: {}", escape_unprintable(&error.to_string()))
        }
    };
    let root = root.map(|root| format!("  workspace  {} at /mcp and /ssh\n", root.display()));
    let root = root.unwrap_or_default();
    let agents = if *has_agents {
        String::new()
    } else {
        format!("  agents     none at /v1/acp: {}\n", wire::NO_AGENTS_IN_ROOT)
    };
    format!(
        "agent-backend serves {url}\n\
         \x20 browser    {link}\n\
         \x20 data       {directory}\n\
         {root}{agents}\
         \x20 isolation  {isolation}\n\
         \x20 try        agent-backend task \"Describe this repository\" --follow{named}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notice_says_where_and_how() {
        let text = notice(&Notice {
            url: "http://127.0.0.1:3001",
            link: "http://x.localhost:3001/ui/login?code=c",
            directory: Path::new("/srv/state"),
            is_named: true,
            root: Some(Path::new("/srv/project")),
            has_agents: true,
            network: NetworkAccess::Shared,
            isolation: Ok(Some(Isolation::Bwrap)),
        });
        let expect = "\
agent-backend serves http://127.0.0.1:3001
  browser    http://x.localhost:3001/ui/login?code=c
  data       /srv/state
  workspace  /srv/project at /mcp and /ssh
  isolation  bwrap, network shared with this machine
  try        agent-backend task \"Describe this repository\" --follow --data-dir /srv/state
";
        assert_eq!(text, expect);
    }

    #[test]
    fn clients_are_given_an_address_that_they_can_reach() {
        for (listens, reached) in [
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("0.0.0.0:2", "127.0.0.1:2"),
            ("[::]:3", "[::1]:3"),
            ("192.0.2.1:4", "192.0.2.1:4"),
        ] {
            assert_eq!(reachable(listens.parse().unwrap()).to_string(), reached);
        }
    }
}
