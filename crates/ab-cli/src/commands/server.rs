//! `server`: serves only coding agents over HTTP, with the flags of `sandbox-agent server`.

use std::collections::BTreeMap;
use std::env;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ab_acp::agent_readiness::HostEnvironment;
use ab_acp::catalog::AgentCatalog;
use ab_acp::gateway::{
    AgentGateway, AgentGatewaySettings, AgentResolver, AgentSandboxSettings, InstallPolicy,
    ReplayLimits,
};
use ab_acp::install::AgentInstallDir;
use ab_core::effective_policy::{Isolation, NetworkAccess};
use ab_local::LocalWorkspace;
use ab_server::{
    AccessToken, AgentGatewayRoutes, AllowedWebOrigin, HttpAccessPolicy, HttpApp, HttpServer,
    ServedDirectory,
};
use clap::{Args, ValueEnum};

use super::daemon::{access, logs, open_files};
use super::exec::amount;
use super::serve::listen;
use super::{CliCommand, RunningCommand};
use crate::data_dir;
use crate::failure::Failure;
use crate::signals::Signals;
use crate::terminal::{Terminal, talk};
use crate::{token, toolchains};

const EXAMPLES: &str = "\
Examples:
  agent-backend server
  agent-backend server --token \"$TOKEN\" --root ./project
  agent-backend server --no-token --isolation auto
  curl http://127.0.0.1:2468/v1/health

Clients of sandbox-agent work without changes. On Ctrl-C or SIGTERM, the server ends all agents and
exits with 0. In the source repository, docs/gateway.md describes the routes.";

/// Serve coding agents over HTTP, compatible with sandbox-agent
///
/// POST /v1/acp/SERVER?agent=AGENT starts an agent that speaks the Agent Client Protocol and forwards
/// messages to it. GET streams what it sends, DELETE ends it. Files are at /v1/fs.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServerCommand {
    /// Address to listen on; an address other than loopback needs a token or --no-token
    #[arg(short = 'H', long, default_value = "127.0.0.1", value_name = "ADDRESS", value_parser = super::daemon::host)]
    host: IpAddr,

    /// Port to listen on: 1024 to 65535, or 0 for a free one
    #[arg(short, long, default_value = "2468", value_name = "PORT", value_parser = super::daemon::port)]
    port: u16,

    /// Token that callers must send; other users can see it while the server starts
    #[arg(short, long, value_name = "TOKEN")]
    token: Option<String>,

    /// File whose first line is the token; use '-' for standard input
    ///
    /// The token can also be in the environment variable AGENT_BACKEND_AUTH_TOKEN.
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,

    /// Require no token, on any address
    #[arg(short, long, conflicts_with_all = ["token", "token_file"])]
    no_token: bool,

    /// Directory that agents work in [default: the current directory]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Directory that /v1/fs serves [default: the --root directory]
    #[arg(long, value_name = "DIR")]
    fs_root: Option<PathBuf>,

    /// Largest upload to /v1/fs [default: no limit]
    #[arg(long, value_name = "SIZE", value_parser = amount::size)]
    max_upload: Option<u64>,

    /// Number of events of an agent that are kept for clients that reconnect
    #[arg(long, value_name = "N", default_value = "65536", value_parser = amount::number(1..=u32::MAX))]
    replay_events: u32,

    /// Bytes of events that are kept
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = amount::size)]
    replay_bytes: u64,

    /// Isolation of agents; with none they run as the user, as in sandbox-agent
    #[arg(long, value_enum, default_value = "none", value_name = "MODE")]
    isolation: AgentIsolation,

    /// Environment variable to pass on to agents, besides PATH, HOME and similar ones
    #[arg(long, value_name = "NAME")]
    pass_env: Vec<String>,

    /// Refuse messages to agents that are not installed, instead of installing them
    ///
    /// The environment variable SANDBOX_AGENT_REQUIRE_PREINSTALL=1 sets it too.
    #[arg(long)]
    require_preinstall: bool,

    /// Longest time that a request waits while its agent sends nothing [default: 120s]
    ///
    /// The environment variable SANDBOX_AGENT_ACP_REQUEST_TIMEOUT_MS sets it too, in milliseconds.
    #[arg(long, value_name = "TIME", value_parser = amount::time)]
    request_timeout: Option<Duration>,

    /// Longest time that a request waits [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = amount::time)]
    total_timeout: Option<Duration>,

    /// Host name under which callers may reach the port, besides localhost
    #[arg(long = "allowed-host", value_name = "NAME", value_delimiter = ',', value_parser = access::name)]
    allowed_hosts: Vec<String>,

    /// Origin whose web pages can send requests, such as https://app.example.com
    #[arg(short = 'O', long = "cors-allow-origin", value_name = "ORIGIN")]
    origins: Vec<AllowedWebOrigin>,

    /// Has no effect: allowed pages may use every method
    #[arg(short = 'M', long = "cors-allow-method", value_name = "METHOD")]
    methods: Vec<String>,

    /// Has no effect: allowed pages may send every header that a route reads
    #[arg(short = 'A', long = "cors-allow-header", value_name = "HEADER")]
    headers: Vec<String>,

    /// Has no effect: there are no cookies
    #[arg(short = 'C', long = "cors-allow-credentials")]
    credentials: bool,

    /// Has no effect: agent-backend has no telemetry
    #[arg(long)]
    no_telemetry: bool,

    /// Least severe level to log: error, warn, info, debug or trace
    #[arg(long, default_value = "warn", value_name = "LEVEL")]
    log_level: logs::Level,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AgentIsolation {
    None,
    Auto,
    Bwrap,
    Landlock,
}

impl From<AgentIsolation> for Isolation {
    fn from(choice: AgentIsolation) -> Isolation {
        match choice {
            AgentIsolation::None => Isolation::None,
            AgentIsolation::Auto => Isolation::Auto,
            AgentIsolation::Bwrap => Isolation::Bwrap,
            AgentIsolation::Landlock => Isolation::Landlock,
        }
    }
}

/// Environment variables that agents without isolation inherit from this process: paths of programs
/// and files, and the language and encoding of text.
const INHERITED: [&str; 9] =
    ["HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER"];
/// The name of the directory in the data directory that contains one directory per server process.
const AREAS: &str = "server-agents";
const PREINSTALL_VARIABLE: &str = "SANDBOX_AGENT_REQUIRE_PREINSTALL";
const TIMEOUT_VARIABLE: &str = "SANDBOX_AGENT_ACP_REQUEST_TIMEOUT_MS";

impl CliCommand for ServerCommand {
    fn handles_signals(&self) -> bool {
        true
    }

    fn run(self: Box<Self>, _: &mut Terminal) -> RunningCommand<'_> {
        Box::pin(run(*self))
    }
}

async fn run(server: ServerCommand) -> Result<(), Failure> {
    let gate = server.gate()?;
    let settings = server.settings()?;
    logs::start(logs::LogFormat::Text, &server.log_level);
    let mut signals = Signals::watch();
    open_files::raise();
    let listener = listen(server.host, server.port).await?;
    let root = settings.sandbox.root.clone().unwrap_or_default();
    let servers_dir = settings.sandbox.servers_dir.clone();
    let files = server.files(&root)?;
    let backend = files.backend().clone();
    let isolation = resolved_isolation(&settings.sandbox, &root).await?;
    let surface = AgentGatewayRoutes::new(AgentGateway::new(settings)).with_files(files);
    let opened =
        HttpServer::new(HttpApp::new(gate).with_agent_gateway_routes(surface)).start(listener);
    let opened = opened.map_err(|error| Failure::input("open the port", error))?;
    talk(&format!(
        "agent-backend serves agents at http://{}\n  root       {}\n  isolation  {}\n",
        opened.address(),
        root.display(),
        isolation.as_str(),
    ));
    signals.first().await;
    let ended = async {
        opened.shutdown().await;
        if let Some(servers_dir) = servers_dir {
            // If the removal fails, the next server removes the directory.
            let _ = std::fs::remove_dir_all(servers_dir);
        }
        backend.destroy().await.map_err(Failure::from)
    };
    tokio::select! {
        ended = ended => ended,
        // A second signal exits at once.
        exit = signals.next() => Err(Failure::Told(exit)),
    }
}

impl ServerCommand {
    fn gate(&self) -> Result<HttpAccessPolicy, Failure> {
        let token = match (&self.token, &self.token_file) {
            (Some(token), _) => Some(token::checked(token)?),
            (None, Some(path)) => Some(token::in_file(path)?),
            (None, None) if self.no_token => None,
            (None, None) => token::in_environment()?,
        };
        if token.is_none() && !self.no_token && !self.host.is_loopback() {
            let message = format!("other machines can reach {}, but there is no token", self.host);
            return Err(Failure::usage(message)
                .with_hint("pass --token-file FILE, or --no-token to accept every caller"));
        }
        Ok(HttpAccessPolicy {
            token: token.as_deref().map(AccessToken::new),
            allowed_hosts: self.allowed_hosts.clone(),
            allowed_origins: self.origins.clone(),
            ..HttpAccessPolicy::default()
        })
    }

    fn settings(&self) -> Result<AgentGatewaySettings, Failure> {
        let root = self.root.clone().unwrap_or_else(|| PathBuf::from("."));
        let root = opened(&root, "--root")?;
        let own = env::current_exe().map_err(|error| Failure::input("find this program", error))?;
        let isolation = Isolation::from(self.isolation);
        let programs = programs_of_peer();
        let agents = AgentResolver {
            host: HostEnvironment::new(env::vars_os()),
            env: self.environment(&own)?,
            catalog: AgentCatalog::default(),
            own_executable: Some(own),
            launcher_toolchains: programs.iter().cloned().collect(),
            launchers_dir: programs.map(|programs| programs.join("agent_processes")),
            install_dir: installed(),
            install_policy: self.install_policy()?,
        };
        let sandbox_settings = AgentSandboxSettings {
            servers_dir: match isolation {
                // Without isolation, agents use the user's home directory.
                Isolation::None => None,
                _ => own_area(&root)?,
            },
            root: Some(root),
            hidden_paths: Vec::new(),
            read_only_paths: Vec::new(),
            mounts: Vec::new(),
            variables: BTreeMap::new(),
            isolation,
            minimum_isolation: match isolation {
                Isolation::None => Isolation::None,
                _ => Isolation::Landlock,
            },
            network: NetworkAccess::Shared,
            toolchains: toolchains::chosen(&[]).map_err(Failure::usage)?,
            disabled_reason: None,
        };
        let mut settings = AgentGatewaySettings::new(agents, sandbox_settings);
        if let Some(timeout) =
            self.request_timeout.map_or_else(timeout_of_environment, |time| Ok(Some(time)))?
        {
            settings.request_timeout = timeout;
        }
        settings.total_timeout = self.total_timeout;
        settings.replay = ReplayLimits {
            events: usize::try_from(self.replay_events).unwrap_or(usize::MAX),
            bytes: usize::try_from(self.replay_bytes).unwrap_or(usize::MAX),
        };
        Ok(settings)
    }

    fn install_policy(&self) -> Result<InstallPolicy, Failure> {
        let text = env::var(PREINSTALL_VARIABLE).unwrap_or_default();
        let is_required = match text.as_str() {
            "1" | "true" => true,
            "" | "0" | "false" => false,
            _ => {
                let message = format!("invalid {PREINSTALL_VARIABLE} {text:?}: must be 1 or 0");
                return Err(Failure::usage(message));
            }
        };
        Ok(if self.require_preinstall || is_required {
            InstallPolicy::Preinstalled
        } else {
            InstallPolicy::OnDemand
        })
    }

    /// The files that are served at `/v1/fs`.
    fn files(&self, root: &Path) -> Result<ServedDirectory, Failure> {
        let root = match &self.fs_root {
            Some(root) => opened(root, "--fs-root")?,
            None => root.to_owned(),
        };
        let backend = agent_backend::local(&root)?;
        let files = ServedDirectory::new(backend, &root.to_string_lossy());
        Ok(files.with_max_upload_bytes(self.max_upload))
    }

    /// The environment variables that agents receive from this process.
    fn environment(&self, own: &Path) -> Result<BTreeMap<String, String>, Failure> {
        let mut passed = BTreeMap::new();
        passed.insert("SANDBOX_AGENT_BIN".to_owned(), own.to_string_lossy().into_owned());
        // Do not pass these variables into a sandbox, because the home directory and most
        // directories of `PATH` do not exist there.
        if self.isolation == AgentIsolation::None {
            let variables = INHERITED.iter().filter_map(|name| Some((*name, env::var(name).ok()?)));
            passed.extend(variables.map(|(name, value)| (name.to_owned(), value)));
        }
        for name in &self.pass_env {
            if name.starts_with(ab_core::environment::RESERVED_ENV_PREFIX) {
                let message = format!("--pass-env: {name} is a variable of the server itself");
                return Err(Failure::usage(message));
            }
            let value = env::var(name).map_err(|error| {
                let why = match error {
                    env::VarError::NotPresent => "the environment variable is not set",
                    env::VarError::NotUnicode(_) => "its value is not valid UTF-8",
                };
                Failure::usage(format!("cannot use --pass-env {name}: {why}"))
            })?;
            passed.insert(name.clone(), value);
        }
        Ok(passed)
    }
}

/// Resolves the directory in a flag to an absolute path without links.
fn opened(directory: &Path, flag: &str) -> Result<PathBuf, Failure> {
    let found = directory.canonicalize().and_then(|path| {
        path.read_dir()?;
        Ok(path)
    });
    found.map_err(|error| {
        Failure::input(format!("open the directory {}", directory.display()), error)
            .with_hint(format!("name an existing directory with {flag}"))
    })
}

/// The isolation of agents on this machine.
///
/// # Errors
///
/// Fails if the requested isolation is not available.
async fn resolved_isolation(
    sandbox: &AgentSandboxSettings,
    root: &Path,
) -> Result<Isolation, Failure> {
    if sandbox.isolation == Isolation::None {
        return Ok(Isolation::None);
    }
    let workspace = LocalWorkspace::builder(root)
        .isolation(sandbox.isolation)
        .minimum_isolation(sandbox.minimum_isolation)
        .open()
        .await?;
    let policy = workspace.backend.effective_policy().await;
    workspace.backend.destroy().await?;
    Ok(policy?.isolation.unwrap_or(sandbox.isolation))
}

fn timeout_of_environment() -> Result<Option<Duration>, Failure> {
    let Some(text) = env::var(TIMEOUT_VARIABLE).ok().filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    match text.parse() {
        Ok(milliseconds @ 1..) => Ok(Some(Duration::from_millis(milliseconds))),
        Ok(0) | Err(_) => Err(Failure::usage(format!(
            "invalid {TIMEOUT_VARIABLE} {text:?}: must be a number of milliseconds"
        ))),
    }
}

/// A directory for the homes of sandboxed agents, below the default data directory. Removes the
/// directories that killed servers left there. Returns `None` if the directory is inside the root,
/// because agents could then replace their homes.
fn own_area(root: &Path) -> Result<Option<PathBuf>, Failure> {
    let Ok(all) = data_dir::default().map(|directory| directory.join(AREAS)) else {
        return Ok(None);
    };
    if all.starts_with(root) {
        return Ok(None);
    }
    for entry in std::fs::read_dir(&all).into_iter().flatten().flatten() {
        let is_left = |pid: u32| !Path::new("/proc").join(pid.to_string()).exists();
        if entry.file_name().to_str().and_then(|name| name.parse().ok()).is_some_and(is_left) {
            let removed = std::fs::remove_dir_all(entry.path());
            removed.map_err(|error| Failure::input("remove homes of earlier agents", error))?;
        }
    }
    Ok(Some(all.join(std::process::id().to_string())))
}

/// The directory of the agents that `agent install` installed in the default data directory.
fn installed() -> Option<AgentInstallDir> {
    data_dir::default().ok().map(|directory| AgentInstallDir::new(directory.join("agents")))
}

/// The directory in which sandbox-agent installs programs of agents. Its subdirectory
/// `agent_processes` contains their launchers.
fn programs_of_peer() -> Option<PathBuf> {
    let variable = |name: &str| {
        let value = env::var_os(name).map(PathBuf::from);
        value.filter(|path| path.is_absolute())
    };
    let data = variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")));
    data.map(|data| data.join("sandbox-agent/bin"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        server: ServerCommand,
    }

    fn parsed(arguments: &[&str]) -> ServerCommand {
        let all = ["server"].iter().chain(arguments);
        CommandLine::try_parse_from(all).unwrap_or_else(|error| panic!("{error}")).server
    }

    #[test]
    fn defaults_are_those_of_sandbox_agent() {
        let server = parsed(&[]);
        assert_eq!((server.host.to_string().as_str(), server.port), ("127.0.0.1", 2468));
        assert_eq!(server.isolation, AgentIsolation::None);
        assert_eq!(
            (server.max_upload, server.request_timeout, server.total_timeout),
            (None, None, None)
        );
        assert!(!server.require_preinstall && server.pass_env.is_empty());
    }

    #[test]
    fn flags_of_sandbox_agent_are_taken() {
        let server = parsed(&[
            "-H",
            "0.0.0.0",
            "-p",
            "3000",
            "-t",
            "secret",
            "-O",
            "https://app.example.com",
            "-M",
            "GET",
            "-A",
            "x-mine",
            "-C",
            "--no-telemetry",
        ]);
        assert_eq!((server.host.to_string().as_str(), server.port), ("0.0.0.0", 3000));
        assert_eq!((server.token.as_deref(), server.origins.len()), (Some("secret"), 1));
        let by_name = parsed(&["-H", "localhost"]).host;
        assert!(by_name.is_loopback() && by_name.is_ipv4(), "{by_name}");
        let long =
            parsed(&["--host", "::1", "--port", "4000", "--no-token", "--cors-allow-credentials"]);
        assert_eq!((long.host.to_string().as_str(), long.port, long.no_token), ("::1", 4000, true));
    }
}
