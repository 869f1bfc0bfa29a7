//! The configuration of `serve`, in order of precedence: flags, environment variables, a file,
//! defaults.
//!
//! A key of the file has a flag and a variable of the same name: `log-level` is `--log-level` and
//! `AGENT_BACKEND_LOG_LEVEL`. Every value records its origin.

mod agents;
mod command_flags;
mod file;
mod limits;
mod retention;
mod setting;
mod show;
mod templates;

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ab_acp::catalog::AgentCatalog;
use ab_control::CrashTestPoint;
use ab_core::effective_policy::{Isolation, NetworkAccess};
use ab_executor::{DEFAULT_APPROVAL_WAIT_TIMEOUT, DEFAULT_SETUP_TIMEOUT};
use ab_host::Toolchain;
use ab_policy::PolicyRuleFile;
use ab_spaces::SpaceCrashTestPoint;
use clap::{Args, ValueEnum};

pub(crate) use self::command_flags::CommandConfig;
use self::command_flags::CommandFlags;
use self::file::ConfigFile;
use self::limits::LimitConfig;
use self::retention::RetentionConfig;
use self::setting::Sources;
pub(crate) use self::setting::{Origin, Setting};
use self::templates::Templates;
use crate::commands::daemon::{self, access, logs};
use crate::commands::exec::amount;
use crate::commands::policy;
use crate::data_dir;
use crate::failure::Failure;
use crate::{secrets, toolchains, traces};

/// The environment variable with the path of the configuration file. It is used if no flag names
/// the file.
pub(crate) const CONFIG_VARIABLE: &str = "AGENT_BACKEND_CONFIG";
const MOST_RUNNING: usize = 1024;

/// What may be typed after `serve`.
#[derive(Args, Debug, Default)]
pub(crate) struct ServeFlags {
    /// Configuration file, in TOML
    ///
    /// The default is ~/.config/agent-backend/config.toml, if it exists (below $XDG_CONFIG_HOME if that is set). The
    /// environment variable AGENT_BACKEND_CONFIG sets it too.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Directory for sessions, workspaces and the token
    ///
    /// The default is ~/.local/state/agent-backend (below $XDG_STATE_HOME if that is set).
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Address to listen on [default: 127.0.0.1]
    ///
    /// With 0.0.0.0, it listens on all addresses of this machine, so that other machines can connect.
    #[arg(long, value_name = "ADDRESS", value_parser = daemon::host)]
    host: Option<IpAddr>,

    /// Port to listen on: 1024 to 65535, or 0 for a free one [default: 3001]
    #[arg(long, value_name = "PORT", value_parser = daemon::port)]
    port: Option<u16>,

    /// Certificate in PEM, to encrypt connections
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// Private key of the certificate
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,

    /// File whose first line is the token that callers must send; use '-' for standard input
    ///
    /// The token can also be in the environment variable AGENT_BACKEND_AUTH_TOKEN. Without both, the server creates a
    /// token in the data directory.
    #[arg(long, visible_alias = "token-file", value_name = "FILE")]
    auth_token_file: Option<PathBuf>,

    /// Require no token; allowed only on loopback addresses
    ///
    /// Every user of this machine can then use the server, and sessions get no network.
    #[arg(long, conflicts_with = "auth_token_file")]
    no_auth: bool,

    /// Also serve this directory at /mcp and /ssh, as `agent-backend daemon` does
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// Host name under which callers may reach the port, besides localhost
    #[arg(long = "allowed-host", value_name = "NAME", value_delimiter = ',', value_parser = access::name)]
    allowed_hosts: Vec<String>,

    /// Format of log lines [default: text]
    #[arg(long, value_enum, value_name = "FORMAT")]
    log_format: Option<logs::LogFormat>,

    /// Least severe level to log: error, warn, info, debug or trace [default: warn]
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<logs::Level>,

    #[command(flatten)]
    sessions: SessionFlags,

    #[command(flatten)]
    commands: CommandFlags,

    /// For tests: the server kills itself there. docs/decisions/0028-crash-points.md explains it
    #[arg(long, value_name = "POINT", hide = true)]
    crash_at: Option<CrashTestPoint>,

    /// The same for runs of spaces
    #[arg(long, value_name = "POINT", hide = true, value_parser = space_crash_point)]
    space_crash_at: Option<SpaceCrashTestPoint>,
}

/// Flags of `exec`, `mcp` and `daemon` that also apply to sessions.
#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Sessions")]
pub(crate) struct SessionFlags {
    /// Isolation of agents: auto, bwrap or landlock [default: auto]
    #[arg(long, value_name = "MODE", value_parser = session_isolation)]
    isolation: Option<Isolation>,

    /// Weakest isolation that is accepted: bwrap or landlock [default: landlock]
    #[arg(long, value_name = "MODE", value_parser = session_floor)]
    floor: Option<Isolation>,

    /// shared: agents use the network of this machine; none: no network [default: shared]
    #[arg(long, value_name = "NETWORK", value_parser = session_network)]
    network: Option<NetworkAccess>,

    /// Directory of a toolchain that agents can read; auto: toolchains that you installed [default: auto]
    #[arg(long, value_name = "DIR|auto|none")]
    toolchain: Vec<String>,

    /// File with more rules for commands of agents, in TOML or JSON
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
}

/// Where the agents are: the flags of commands that need no more of the configuration.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CatalogFlags {
    /// Configuration file of the server
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Data directory of the server
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

impl CatalogFlags {
    /// Converts these flags to flags of `serve`.
    pub(crate) fn serve(&self) -> ServeFlags {
        let (config, data_dir) = (self.config.clone(), self.data_dir.clone());
        ServeFlags { config, data_dir, ..ServeFlags::default() }
    }

    /// These flags as text, to be appended to a command in a message. A space precedes each flag.
    pub(crate) fn repeated(&self) -> String {
        let flags = [("--config", &self.config), ("--data-dir", &self.data_dir)];
        let given = flags.iter().filter_map(|(flag, path)| Some((flag, path.as_ref()?)));
        given.map(|(flag, path)| format!(" {flag} {}", path.display())).collect()
    }
}

/// All settings of `serve`, each with its origin.
#[derive(Debug)]
pub(crate) struct Config {
    /// The configuration file that was read, if there is one.
    pub(crate) file: Option<PathBuf>,
    pub(crate) data_dir: Setting<PathBuf>,
    pub(crate) host: Setting<IpAddr>,
    pub(crate) port: Setting<u16>,
    pub(crate) tls_cert: Setting<Option<PathBuf>>,
    pub(crate) tls_key: Setting<Option<PathBuf>>,
    pub(crate) auth_token_file: Setting<Option<PathBuf>>,
    pub(crate) no_auth: Setting<bool>,
    pub(crate) root: Setting<Option<PathBuf>>,
    /// Whether the server refuses a message to an agent that is not installed. If `false`, the
    /// server installs the agent.
    pub(crate) require_preinstall: Setting<bool>,
    pub(crate) allowed_hosts: Setting<Vec<String>>,
    pub(crate) log_format: Setting<logs::LogFormat>,
    pub(crate) log_level: Setting<logs::Level>,
    /// The URL of the collector that receives traces.
    pub(crate) otlp_endpoint: Setting<Option<String>>,
    pub(crate) sessions: SessionConfig,
    pub(crate) retention: RetentionConfig,
    pub(crate) commands: CommandConfig,
    pub(crate) limits: LimitConfig,
    /// The built-in agents and the agents in the file.
    pub(crate) catalog: AgentCatalog,
    /// The crash point for tests. It can be set only by a flag.
    pub(crate) crash_at: Option<CrashTestPoint>,
    pub(crate) space_crash_at: Option<SpaceCrashTestPoint>,
}

/// Settings that apply to every session.
#[derive(Debug)]
pub(crate) struct SessionConfig {
    pub(crate) isolation: Setting<Isolation>,
    pub(crate) minimum_isolation: Setting<Isolation>,
    pub(crate) network: Setting<NetworkAccess>,
    pub(crate) toolchains: Setting<ToolchainChoice>,
    pub(crate) keep: Setting<bool>,
    pub(crate) idle_timeout: Setting<Duration>,
    pub(crate) approval_timeout: Setting<Duration>,
    pub(crate) approval_wait: Setting<Duration>,
    pub(crate) stop_grace: Setting<Duration>,
    pub(crate) max_running: Setting<usize>,
    pub(crate) allow_disabled_runtime: Setting<bool>,
    pub(crate) rules: Setting<Rules>,
    pub(crate) setup: Setting<Vec<String>>,
    pub(crate) setup_timeout: Setting<Duration>,
    pub(crate) templates: Setting<Templates>,
}

fn space_crash_point(text: &str) -> Result<SpaceCrashTestPoint, String> {
    text.parse().map_err(|()| {
        let known = SpaceCrashTestPoint::ALL.map(SpaceCrashTestPoint::as_str).join(", ");
        format!("must be one of {known}")
    })
}

/// The value of `sessions.toolchains`, and the toolchains on this machine to which it refers.
#[derive(Debug, Default)]
pub(crate) struct ToolchainChoice {
    words: Vec<String>,
    pub(crate) toolchains: Vec<Toolchain>,
}

/// Rules that judge the commands of agents, in addition to the built-in ones.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    path: Option<PathBuf>,
    pub(crate) file: PolicyRuleFile,
}

impl Config {
    /// Reads the environment and the file, and checks every value.
    ///
    /// # Errors
    ///
    /// A usage error. The message names the key or variable, and for a value in the file its path
    /// and line.
    pub(crate) fn load(flags: &ServeFlags) -> Result<Config, Failure> {
        let file = ConfigFile::find(flags.config.as_deref())?;
        let file = file.map(|path| ConfigFile::read(&path)).transpose()?;
        let sources = Sources { file: file.as_ref() };
        let data_dir = resolve_data_dir(&sources, flags.data_dir.as_deref())?;
        let path = |name, flag: &Option<PathBuf>| {
            sources.pick(name, flag.clone().map(Some), || None, |words| words.path().map(Some))
        };
        let hosts = Some(flags.allowed_hosts.clone()).filter(|hosts| !hosts.is_empty());
        let config = Config {
            host: sources.pick(
                "host",
                flags.host,
                || Ipv4Addr::LOCALHOST.into(),
                |words| daemon::host(words.one()?),
            )?,
            port: sources.pick("port", flags.port, || 3001, |words| daemon::port(words.one()?))?,
            tls_cert: path("tls-cert", &flags.tls_cert)?,
            tls_key: path("tls-key", &flags.tls_key)?,
            auth_token_file: path("auth-token-file", &flags.auth_token_file)?,
            // The file has no such key, because this setting must be visible where the server is
            // started.
            no_auth: Setting {
                value: flags.no_auth,
                origin: if flags.no_auth { Origin::Flag } else { Origin::Default },
            },
            root: path("root", &flags.root)?,
            require_preinstall: sources.pick(
                "require-preinstall",
                None,
                || false,
                |words| words.flag(),
            )?,
            allowed_hosts: sources.pick("allowed-hosts", hosts, Vec::new, |words| {
                words.list().map(access::name).collect()
            })?,
            log_format: sources.pick(
                "log-format",
                flags.log_format,
                || logs::LogFormat::Text,
                |words| logs::LogFormat::from_str(words.one()?, false),
            )?,
            log_level: sources.pick(
                "log-level",
                flags.log_level.clone(),
                logs::Level::warn,
                |words| words.parsed(),
            )?,
            otlp_endpoint: sources.pick(
                "otlp-endpoint",
                None,
                || None,
                |words| {
                    let url = words.one()?;
                    traces::endpoint(url)?;
                    Ok(Some(url.to_owned()))
                },
            )?,
            sessions: SessionConfig::load(&sources, &flags.sessions)?,
            retention: RetentionConfig::load(&sources)?,
            commands: CommandConfig::load(&sources, &flags.commands, &data_dir.value)?,
            limits: LimitConfig::load(&sources)?,
            catalog: agents::catalog(file.as_ref(), &data_dir.value)?,
            crash_at: flags.crash_at,
            space_crash_at: flags.space_crash_at,
            data_dir,
            file: file.map(|file| file.path),
        };
        config.check()?;
        Ok(config)
    }

    /// Checks combinations of values.
    fn check(&self) -> Result<(), Failure> {
        if self.no_auth.value {
            self.check_no_auth()?;
        }
        for (name, paths) in
            [("hide", &self.commands.hide), ("read-only", &self.commands.read_only)]
        {
            if !paths.value.is_empty() && self.root.value.is_none() {
                let message = format!("{name} is set ({}), but root is not", paths.origin);
                return Err(Failure::usage(message).with_hint("name the directory with --root"));
            }
        }
        let (given, missing) = match (&self.tls_cert.value, &self.tls_key.value) {
            (Some(_), None) => (&self.tls_cert.origin, "tls-key"),
            (None, Some(_)) => (&self.tls_key.origin, "tls-cert"),
            (Some(_), Some(_)) | (None, None) => return Ok(()),
        };
        let other = if missing == "tls-key" { "tls-cert" } else { "tls-key" };
        Err(Failure::usage(format!("{other} is set ({given}), but {missing} is not"))
            .with_hint("set both tls-cert and tls-key, or neither"))
    }
}

impl Config {
    /// Checks the settings of a server that requires no token. It must listen on a loopback
    /// address, and no token may be given.
    fn check_no_auth(&self) -> Result<(), Failure> {
        let host = self.host.value;
        if !host.is_loopback() {
            let message =
                format!("--no-auth needs a loopback address, but other machines can reach {host}");
            return Err(
                Failure::usage(message).with_hint("remove --no-auth, or listen on 127.0.0.1")
            );
        }
        let token = match &self.auth_token_file {
            Setting { value: Some(_), origin } => Some(origin.to_string()),
            Setting { value: None, .. } => {
                secrets::token().map(|_| format!("env {}", secrets::TOKEN_VARIABLE))
            }
        };
        match token {
            Some(origin) => {
                Err(Failure::usage(format!("--no-auth conflicts with a token ({origin})"))
                    .with_hint("remove --no-auth or the token"))
            }
            None => Ok(()),
        }
    }
}

impl SessionConfig {
    fn load(sources: &Sources<'_>, flags: &SessionFlags) -> Result<SessionConfig, Failure> {
        let usage = |flag: &str, why: String| Failure::usage(format!("invalid {flag}: {why}"));
        let toolchains = match flags.toolchain.as_slice() {
            [] => None,
            words => Some(ToolchainChoice::of(words).map_err(|why| usage("--toolchain", why))?),
        };
        let rules = flags.rules.clone().map(Rules::read).transpose();
        let rules = rules.map_err(|why| usage("--rules", why))?;
        let time = |name, default: u64| {
            let default = || Duration::from_secs(default);
            sources.pick(name, None, default, |words| amount::time(words.one()?))
        };
        let defaults = ab_control::ControlPlaneSettings::default();
        Ok(SessionConfig {
            isolation: sources.pick(
                "sessions.isolation",
                flags.isolation,
                || Isolation::Auto,
                |words| session_isolation(words.one()?),
            )?,
            minimum_isolation: sources.pick(
                "sessions.isolation-floor",
                flags.floor,
                || Isolation::Landlock,
                |words| session_floor(words.one()?),
            )?,
            network: sources.pick(
                "sessions.network",
                flags.network,
                || NetworkAccess::Shared,
                |words| session_network(words.one()?),
            )?,
            toolchains: sources.pick(
                "sessions.toolchains",
                toolchains,
                || ToolchainChoice::of(&["auto".to_owned()]).unwrap_or_default(),
                |words| ToolchainChoice::of(&words.paths_or_words()),
            )?,
            keep: sources.pick("sessions.keep", None, || false, |words| words.flag())?,
            idle_timeout: time("sessions.idle-timeout", defaults.idle_timeout.as_secs())?,
            approval_timeout: time(
                "sessions.approval-timeout",
                defaults.approval_timeout.as_secs(),
            )?,
            approval_wait: time("sessions.approval-wait", DEFAULT_APPROVAL_WAIT_TIMEOUT.as_secs())?,
            stop_grace: time("sessions.stop-grace", defaults.stop_grace.as_secs())?,
            max_running: sources.pick(
                "sessions.max-running",
                None,
                || defaults.max_running,
                |words| match words.one()?.parse() {
                    Ok(number @ 1..=MOST_RUNNING) => Ok(number),
                    Ok(_) | Err(_) => Err(format!("must be a number from 1 to {MOST_RUNNING}")),
                },
            )?,
            allow_disabled_runtime: sources.pick(
                "sessions.allow-disabled-runtime",
                None,
                || false,
                |words| words.flag(),
            )?,
            rules: sources.pick("sessions.rules", rules, Rules::default, |words| {
                Rules::read(words.path()?)
            })?,
            setup: sources.pick("sessions.setup", None, Vec::new, |words| {
                let commands: Vec<String> = words.list().map(str::to_owned).collect();
                if commands.iter().any(|command| command.trim().is_empty()) {
                    return Err("a command is empty".to_owned());
                }
                Ok(commands)
            })?,
            setup_timeout: time("sessions.setup-timeout", DEFAULT_SETUP_TIMEOUT.as_secs())?,
            templates: sources.pick("sessions.templates", None, Templates::default, |words| {
                Templates::read(words)
            })?,
        })
    }

    /// The settings of the control plane.
    pub(crate) fn control(&self) -> ab_control::ControlPlaneSettings {
        ab_control::ControlPlaneSettings {
            max_running: self.max_running.value,
            stop_grace: self.stop_grace.value,
            idle_timeout: self.idle_timeout.value,
            approval_timeout: self.approval_timeout.value,
            ..ab_control::ControlPlaneSettings::default()
        }
    }
}

impl Rules {
    /// Reads rules and checks that they work together with the built-in rules.
    fn read(path: PathBuf) -> Result<Rules, String> {
        let file = policy::read_rules(&path)?;
        Ok(Rules { path: Some(path), file })
    }
}

impl ToolchainChoice {
    fn of(words: &[String]) -> Result<ToolchainChoice, String> {
        let given: Vec<_> = words.iter().map(Into::into).collect();
        let toolchains = toolchains::chosen(&given)?;
        Ok(ToolchainChoice { words: words.to_vec(), toolchains })
    }

    /// The directories of programs that are visible in sandboxes, in addition to the system's.
    pub(crate) fn program_dirs(&self) -> Vec<PathBuf> {
        self.toolchains.iter().flat_map(|toolchain| toolchain.program_dirs.clone()).collect()
    }
}

fn session_isolation(text: &str) -> Result<Isolation, String> {
    isolation(text, &[Isolation::Auto, Isolation::Bwrap, Isolation::Landlock])
}

fn session_floor(text: &str) -> Result<Isolation, String> {
    isolation(text, &[Isolation::Bwrap, Isolation::Landlock])
}

fn session_network(text: &str) -> Result<NetworkAccess, String> {
    match text {
        "shared" => Ok(NetworkAccess::Shared),
        "none" => Ok(NetworkAccess::None),
        _ => Err("must be shared or none".to_owned()),
    }
}

/// Parses the isolation of sessions. Isolation weaker than Landlock is refused, because an agent
/// could then read the server's token.
fn isolation(text: &str, known: &[Isolation]) -> Result<Isolation, String> {
    known.iter().copied().find(|isolation| isolation.as_str() == text).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|isolation| isolation.as_str()).collect();
        format!(
            "must be {}: with less than landlock an agent can read the server's token",
            names.join(" or ")
        )
    })
}

/// The data directory of the server on this machine. Used by the server and by its clients.
///
/// # Errors
///
/// A usage error if the configuration file cannot be read or no directory can be found.
pub(crate) fn data_dir(named: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(named) = named {
        return data_dir::absolute(named);
    }
    let file = ConfigFile::find(None)?.map(|path| ConfigFile::read(&path)).transpose()?;
    Ok(resolve_data_dir(&Sources { file: file.as_ref() }, None)?.value)
}

fn resolve_data_dir(
    sources: &Sources<'_>,
    flag: Option<&Path>,
) -> Result<Setting<PathBuf>, Failure> {
    let flag = flag.map(data_dir::absolute).transpose()?;
    let given =
        sources.pick("data-dir", flag.map(Some), || None, |words| words.path().map(Some))?;
    let value = match given.value {
        Some(path) => data_dir::absolute(&path)?,
        None => data_dir::default()?,
    };
    Ok(Setting { value, origin: given.origin })
}
