//! `daemon`: serves one workspace to clients until the daemon is stopped.

pub(crate) mod access;
mod defaults;
mod footprint;
pub(crate) mod logs;
mod notice;
pub(super) mod open_files;
mod served_root;
pub(super) mod sockets;
mod ssh;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::Arc;

use ab_core::{Backend, BackendOptions, ConcurrentCommandLimit, MemoryDriverOptions, ScopeOptions};
use ab_host::{LocalExecSettings, MissingRootPolicy};
use ab_mcp::McpHttpSettings;
use ab_server::{DaemonRoutes, HttpApp, HttpServer, HttpServerLimits, TlsConfig};
use agent_backend::{CommandPolicySettings, LocalWorkspaceConfig, PolicyProfile};
use clap::{Args, ValueEnum};
use tokio::io::AsyncReadExt;

use super::exec::{EnvFlags, Limits, SandboxFlags, amount};
use super::policy::RuleFlags;
use super::{CliCommand, RunningCommand};
use crate::failure::Failure;
use crate::signals::Signals;
use crate::terminal::Terminal;
use crate::workspace::is_missing;
use access::Access;
use logs::LogFormat;
pub(crate) use served_root::ServedRoot;
use ssh::Ssh;

const EXAMPLE: &str = "\
Example:
  agent-backend daemon --root ./project     # serves http://127.0.0.1:3001/mcp";

const EXAMPLES: &str = "\
Examples:
  agent-backend daemon --root ./project
  agent-backend daemon --root /srv/project --host 0.0.0.0 --token-file token.txt
  agent-backend daemon --root ./project --local-only
  agent-backend daemon --root ./project --conventional-ssh --ssh-port 2222
  curl http://127.0.0.1:3001/health

MCP clients connect to http://HOST:PORT/mcp. Other agent-backend commands connect with --remote
ws://HOST:PORT/ssh. ssh and sftp connect through `agent-backend ssh-proxy`, or to the port of
--conventional-ssh.

Isolation, rules and limits apply to every command. Callers can make them stricter, but not weaker.
Without --memory and --processes, each command can use three quarters of the memory of this machine
and 1024 processes.

On Ctrl-C, the daemon answers the running requests and exits with 0. After an error it exits with 1.
Logs go to standard error.";

/// Serve a workspace to other programs and machines
///
/// Serves MCP over HTTP at /mcp, SSH over WebSocket at /ssh, and a health check at /health.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLE, after_long_help = EXAMPLES)]
pub(crate) struct Daemon {
    /// Directory to serve; created if it is missing
    #[arg(long = "root", visible_alias = "rootDir", alias = "root-dir", value_name = "DIR")]
    root_dir: PathBuf,

    /// Serve only this directory of the workspace
    #[arg(long = "scope", visible_alias = "scopePath", alias = "scope-path", value_name = "PATH")]
    scope_path: Option<String>,

    /// Keep files in the directory, or in memory until the daemon ends
    #[arg(long, value_enum, default_value = "local", value_name = "KIND")]
    backend: Kind,

    /// Serve only MCP over standard input and output, without a port and without rules
    #[arg(long, conflicts_with_all = [
        "profile", "rules", "host", "auth_token", "auth_token_file", "no_auth", "tls_cert",
        "conventional_ssh",
    ])]
    local_only: bool,

    /// End when standard input is closed, for programs that start a daemon and may be killed
    #[arg(long, hide = true, conflicts_with = "local_only")]
    end_with_input: bool,

    /// Format of log lines
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    log_format: LogFormat,

    /// Least severe level to log: error, warn, info, debug or trace
    #[arg(long, default_value = "info", value_name = "LEVEL")]
    log_level: logs::Level,

    #[command(flatten)]
    listening: Listening,

    #[command(flatten)]
    access: Access,

    #[command(flatten)]
    sandbox: SandboxFlags,

    #[command(flatten)]
    limits: Limits,

    #[command(flatten)]
    rules: RuleFlags,

    #[command(flatten)]
    commands: Commands,

    #[command(flatten)]
    ssh: Ssh,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Local,
    Memory,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Kind::Local => "local",
            Kind::Memory => "memory",
        }
    }
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Listening")]
struct Listening {
    /// Address to listen on
    ///
    /// With 0.0.0.0, it listens on all addresses of this machine, so that other machines can connect.
    #[arg(long, default_value = "127.0.0.1", value_name = "ADDRESS", value_parser = host)]
    host: IpAddr,

    /// Port to listen on: 1024 to 65535, or 0 for a free one
    #[arg(long, default_value = "3001", value_name = "PORT", value_parser = port)]
    port: u16,

    /// Certificate in PEM, to encrypt connections
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Private key of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Limit the number of connections; more have to wait
    #[arg(long, default_value = "4096", value_name = "N", value_parser = amount::number(1..=65536))]
    max_connections: u32,

    /// Limit the number of connections of one address; more are refused
    #[arg(long, default_value = "512", value_name = "N", value_parser = amount::number(1..=65536))]
    max_connections_per_address: u32,

    /// Limit the size of a request
    #[arg(long, default_value = "64M", value_name = "SIZE", value_parser = body)]
    max_body: usize,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Commands")]
struct Commands {
    #[command(flatten)]
    env: EnvFlags,

    /// Limit the number of commands that run at a time
    #[arg(long, value_name = "N", default_value_t = defaults::MAX_COMMANDS)]
    max_commands: u32,
}

/// Parses an IP address or `localhost`, which means 127.0.0.1.
pub(crate) fn host(text: &str) -> Result<IpAddr, String> {
    match text {
        "localhost" => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        _ => text.parse().map_err(|_| "must be an IP address or localhost".to_owned()),
    }
}

pub(crate) fn port(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(port @ (0 | 1024..)) => Ok(port),
        Ok(_) | Err(_) => {
            Err("must be a number from 1024 to 65535, or 0 for a free port".to_owned())
        }
    }
}

fn body(text: &str) -> Result<usize, String> {
    // No message fits in a smaller body. Larger bodies are refused because several bodies of the
    // maximum size may be in memory at once.
    const BOUNDS: std::ops::RangeInclusive<u64> = 1 << 10..=1 << 30;
    match amount::size(text)? {
        size if BOUNDS.contains(&size) => usize::try_from(size).map_err(|error| error.to_string()),
        _ => Err("must be between 1K and 1G".to_owned()),
    }
}

impl CliCommand for Daemon {
    fn handles_signals(&self) -> bool {
        true
    }

    fn run(self: Box<Self>, _: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self))
    }
}

async fn run(daemon: Daemon) -> Result<(), Failure> {
    // Clients that start the daemon expect the exit code 1 for every failure.
    serve(daemon).await.map_err(Failure::into_plain)
}

async fn serve(daemon: Daemon) -> Result<(), Failure> {
    if daemon.local_only {
        let settings = daemon.sandbox.settings()?;
        let settings = LocalExecSettings { limits: daemon.limits.of_workspace(), ..settings };
        let off = CommandPolicySettings { profile: PolicyProfile::Off, ..Default::default() };
        let Opened { root, handle } = daemon.open(settings, off).await?;
        return super::mcp::over_stdio(root, handle).await;
    }
    let token = daemon.access.token()?;
    let gate = daemon.access.gate(daemon.listening.host, token.as_deref())?;
    let guarded = token.is_some();
    let tls = daemon.listening.tls()?;
    logs::start(daemon.log_format, &daemon.log_level);
    let mut signals = Signals::watch();
    open_files::raise();
    let asked = daemon.limits.of_workspace();
    let settings = LocalExecSettings {
        limits: defaults::completed(asked),
        optional_limits: defaults::unasked(asked),
        output_spool: daemon.limits.spooling(),
        ..daemon.sandbox.settings()?
    };
    let rules = daemon.rules.unattended()?;
    let is_created = daemon.backend == Kind::Local && is_missing(&daemon.root_dir);
    let Opened { root, handle: backend } = daemon.open(settings, rules).await?;
    let root_dir = daemon.root_dir.to_string_lossy().into_owned();
    let max_body = daemon.listening.max_body;
    let http = McpHttpSettings { max_body_bytes: max_body, ..McpHttpSettings::default() };
    let mut served = DaemonRoutes::new(backend.clone(), root_dir, &http);
    if daemon.scope_path.is_some() {
        served = served.reject_requested_scopes();
    }
    let (host, port) = (daemon.listening.host, daemon.listening.port);
    let listener = super::serve::listen(host, port).await?;
    let encrypted = tls.is_some();
    let ssh_servers = daemon.ssh.open(&backend, host, token.as_deref()).await?;
    drop(token);
    if let Some(ssh) = &ssh_servers.socket {
        served = served.with_ssh(ssh.clone());
    }
    let _lanes = ssh_servers.lanes();
    let mut known = notice::Known::of(&ssh_servers, encrypted);
    known.guarded = guarded;
    known.is_created = is_created;
    served = served.report_separate_ssh_port(known.ssh.is_some());
    let bounds = daemon.listening.bounds();
    let opened = HttpServer::new(HttpApp::new(gate).with_daemon_routes(served))
        .with_tls(tls)
        .with_limits(bounds)
        .start(listener);
    let mut opened = opened.map_err(|error| Failure::input("open the port", error))?;
    let ssh_servers = ssh_servers.serve();
    let told = notice::tell(&daemon, &mut opened, &known).await;
    if told.is_ok() {
        footprint::give_back();
        tokio::select! {
            () = signals.first() => {}
            () = end_of_input(), if daemon.end_with_input => {}
        }
        tracing::info!("closing");
    }
    let ended = async {
        opened.shutdown().await;
        ssh_servers.close().await;
        root.destroy().await
    };
    tokio::select! {
        closed = ended => told.and(closed.map_err(Failure::from)),
        // A second signal exits at once.
        exit = signals.next() => Err(Failure::Told(exit)),
    }
}

/// Waits until standard input is closed. The bytes are discarded.
async fn end_of_input() {
    let (mut input, _) = crate::stdio::streams();
    let mut ignored = [0; 1024];
    while matches!(input.read(&mut ignored).await, Ok(1..)) {}
}

/// A workspace, and the handle that callers use, which may be limited to a scope of it.
struct Opened {
    root: Backend,
    handle: Backend,
}

impl Daemon {
    async fn open(
        &self,
        settings: LocalExecSettings,
        rules: CommandPolicySettings,
    ) -> Result<Opened, Failure> {
        let root = match self.backend {
            Kind::Local => self.local(settings, rules)?,
            Kind::Memory => {
                let root = self.root_dir.to_string_lossy().into_owned();
                let root = if root.starts_with('/') { root } else { format!("/{root}") };
                let options = MemoryDriverOptions { root, ..MemoryDriverOptions::default() };
                agent_backend::memory_with(options, BackendOptions::default())?
            }
        };
        let scope = self.scope_path.as_deref();
        if scope.is_some_and(|scope| scope.split('/').any(|segment| segment == "..")) {
            return Err(Failure::usage(format!(
                "invalid --scope '{}': must not contain '..'",
                scope.unwrap_or_default()
            )));
        }
        let env = self.commands.env.variables()?;
        let mut handle = root.clone();
        if scope.is_some() || !env.is_empty() {
            let options = ScopeOptions { env, ..ScopeOptions::default() };
            handle = handle.scope(scope.unwrap_or("."), options)?;
        }
        // The restrictions also apply to every scope of the workspace that a caller selects.
        let (restrictions, notes) = self.sandbox.restrictions(&handle).await?;
        for note in notes {
            tracing::warn!("{note}");
        }
        if !restrictions.is_empty() {
            handle = handle.restrict(restrictions)?;
        }
        Ok(Opened { root, handle })
    }

    fn local(
        &self,
        settings: LocalExecSettings,
        rules: CommandPolicySettings,
    ) -> Result<Backend, Failure> {
        let mut config = LocalWorkspaceConfig::new(&self.root_dir);
        config.options.missing_root = MissingRootPolicy::Create;
        config.options.exec = settings;
        config.policy = rules;
        let most = usize::try_from(self.commands.max_commands).unwrap_or(usize::MAX);
        config.backend_options.guards.limits.push(Arc::new(ConcurrentCommandLimit::new(most)));
        Ok(agent_backend::local_with(config)?)
    }
}

impl Listening {
    fn bounds(&self) -> HttpServerLimits {
        let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        HttpServerLimits {
            max_connections: number(self.max_connections),
            max_connections_per_address: number(self.max_connections_per_address),
            ..HttpServerLimits::default()
        }
    }

    fn tls(&self) -> Result<Option<TlsConfig>, Failure> {
        let (Some(certificates), Some(key)) = (&self.tls_cert, &self.tls_key) else {
            return Ok(None);
        };
        let loaded = TlsConfig::load(certificates, key);
        loaded.map(Some).map_err(|failure| {
            Failure::usage(format!("cannot use the TLS certificate or key: {failure}"))
        })
    }
}
