//! `serve`: tasks for agents, over HTTP, until it is interrupted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use ab_core::effective::Isolation;
use ab_server::{Gate, Port, Tls, Token};
use clap::Args;

use super::daemon::{logs, open_files, sockets};
use crate::data_dir::{self, AddressFile};
use crate::failure::Failure;
use crate::signals::Signals;
use crate::terminal::talk;
use crate::token;
use crate::wire::{self, Parts};

const EXAMPLES: &str = "\
Examples:
  agent-backend serve
  agent-backend serve --port 0 --data-dir ./state
  agent-backend serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem --allowed-host box.example
  agent-backend task 'Describe the build' --follow

Sessions, their events and the token are in the data directory, which one server uses at a time.
Clients on this machine find the server there. An interrupt ends the server; sessions that are at
work go on when it starts again.";

/// Take tasks for agents and run them in sandboxes
///
/// HTTP API at /api/v1, a page at /ui. Every caller needs the token in the data directory, or the
/// one-time link that is printed at the start.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Serve {
    /// Where everything is kept [default: agent-backend in the XDG state directory]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// The address to listen on
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS")]
    host: IpAddr,

    /// The port, 1024 to 65535; 0 takes any that is free
    #[arg(long, default_value = "3002", value_name = "PORT", value_parser = super::daemon::port)]
    port: u16,

    /// The certificate, in PEM: then connections are encrypted
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The key of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// A file that holds the token, on its first line; - is standard input. Without it, a token is
    /// made in the data directory [env: AGENT_BACKEND_AUTH_TOKEN holds one]
    #[arg(long, value_name = "FILE")]
    auth_token_file: Option<PathBuf>,

    /// A name under which the port is reached, beside localhost and addresses
    #[arg(long = "allowed-host", value_name = "NAME", value_delimiter = ',', value_parser = super::daemon::access::name)]
    allowed_hosts: Vec<String>,

    /// How log lines are written
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    log_format: logs::LogFormat,

    /// What is logged: error, warn, info, debug or trace
    #[arg(long, default_value = "warn", value_name = "LEVEL")]
    log_level: logs::Level,
}

pub(crate) async fn run(serve: Serve) -> Result<(), Failure> {
    let directory = data_dir::path(serve.data_dir.as_deref())?;
    let tls = serve.tls()?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    logs::start(serve.log_format, &serve.log_level);
    let mut signals = Signals::watch();
    open_files::raise();
    let (host, port) = (serve.host, serve.port);
    // The data directory is locked before anything in it is read or made.
    let store = wire::store(&directory).await?;
    let token = serve.token(&directory)?;
    let listener = sockets::listen(host, port).await.map_err(|error| {
        let is_taken = error.kind() == std::io::ErrorKind::AddrInUse;
        let failure = Failure::input(format!("listen on {host}, port {port}"), error);
        if is_taken {
            return failure.with_hint("another program has this port: choose one with --port");
        }
        failure
    })?;
    let gate = Gate {
        token: Some(Token::new(&token)),
        hosts: serve.allowed_hosts.clone(),
        origins: Vec::new(),
    };
    let Parts { app, control } = wire::assemble(store, &directory, gate).await?;
    let opened = Port::new(app.clone()).with_tls(tls).open(listener);
    let opened = opened.map_err(|error| Failure::input("open the port", error))?;
    let address = opened.address();
    let link = app.login_link(scheme, address.port());
    let link = link.map_err(|error| Failure::input("make the link to the page", error))?;
    let url = format!("{scheme}://{}", reachable(address));
    let address_file = AddressFile::write(&directory, &url)?;
    let isolation = isolation(&directory).await;
    talk(&notice(&Notice { url: &url, link: &link, directory: &directory, isolation }));
    signals.first().await;
    tracing::info!("closing");
    drop(address_file);
    let ended = async {
        opened.close().await;
        control.shutdown().await;
    };
    tokio::select! {
        () = ended => Ok(()),
        // A second signal ends the process at once.
        exit = signals.next() => Err(Failure::Told(exit)),
    }
}

impl Serve {
    fn token(&self, directory: &Path) -> Result<String, Failure> {
        if let Some(path) = &self.auth_token_file {
            return token::in_file(path);
        }
        match token::in_environment()? {
            Some(token) => Ok(token),
            None => data_dir::made_token(directory),
        }
    }

    fn tls(&self) -> Result<Option<Tls>, Failure> {
        let (Some(certificates), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(None);
        };
        let loaded = Tls::load(certificates, key);
        loaded.map(Some).map_err(|failure| Failure::usage(format!("TLS: {failure}")))
    }
}

/// The address at which clients on this machine reach a socket that listens on `address`.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, address.port())
}

/// How commands on this machine are isolated; `None` where that cannot be found out.
async fn isolation(directory: &Path) -> Option<Isolation> {
    let backend = agent_backend::local(directory).ok()?;
    let policy = backend.effective_policy().await.ok();
    backend.destroy().await.ok()?;
    policy?.isolation
}

/// What the start prints.
struct Notice<'a> {
    url: &'a str,
    link: &'a str,
    directory: &'a Path,
    isolation: Option<Isolation>,
}

fn notice(notice: &Notice<'_>) -> String {
    let Notice { url, link, directory, isolation } = notice;
    let directory = directory.display();
    let isolation = match isolation {
        Some(isolation) => format!("{}, network shared with this machine", isolation.as_str()),
        None => "unknown; see agent-backend doctor".to_owned(),
    };
    format!(
        "agent-backend serves {url}\n\
         \x20 browser    {link}\n\
         \x20 data       {directory}\n\
         \x20 isolation  {isolation}\n\
         \x20 try        agent-backend task \"Describe this repository\" --follow\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notice_says_where_and_how() {
        let text = notice(&Notice {
            url: "http://127.0.0.1:3002",
            link: "http://x.localhost:3002/ui/login?code=c",
            directory: Path::new("/srv/state"),
            isolation: Some(Isolation::Bwrap),
        });
        let expect = "\
agent-backend serves http://127.0.0.1:3002
  browser    http://x.localhost:3002/ui/login?code=c
  data       /srv/state
  isolation  bwrap, network shared with this machine
  try        agent-backend task \"Describe this repository\" --follow
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
