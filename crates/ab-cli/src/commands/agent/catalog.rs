//! `agent list`, `agent show` and `agent install`: the coding agents of this machine.

use std::env;
use std::time::Instant;

use ab_acp::agent_readiness::{HostEnvironment, ReadinessProblem, readiness_problems};
use ab_acp::catalog::AgentCatalogEntry;
use ab_acp::install::{AgentInstallDir, InstallError, InstallResult, InstallStep, Reinstall};
use ab_core::{Error, ErrorCode, ErrorKind};
use anstyle::{AnsiColor, Style};
use clap::Args;
use serde_json::{Value, json};

use crate::config::{CatalogFlags, Config};
use crate::failure::Failure;
use crate::terminal::{Format, Terminal};

const READY: Style = AnsiColor::Green.on_default();
const LACKING: Style = AnsiColor::Yellow.on_default();
const HEADING: Style = Style::new().bold();

/// List coding agents, and what is missing to use them
#[derive(Args, Debug)]
pub(crate) struct List {
    #[command(flatten)]
    flags: CatalogFlags,

    /// Print one JSON value
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show how an agent is started
#[derive(Args, Debug)]
pub(crate) struct Show {
    /// ID or alias of the agent
    #[arg(value_name = "AGENT")]
    agent: String,

    #[command(flatten)]
    flags: CatalogFlags,

    /// Print one JSON value
    #[arg(long)]
    pub(crate) json: bool,
}

/// Install agents from npm into the data directory
///
/// npm downloads the packages from the registry that it is configured to use on this machine. The
/// version and the checksum of every package are fixed, and no install script of a package is run. If
/// the installation fails, its files are removed. A running server uses the agent for its next task.
#[derive(Args, Debug)]
pub(crate) struct Install {
    /// IDs or aliases of the agents
    #[arg(value_name = "AGENT", required = true)]
    agents: Vec<String>,

    /// Install the agents again if they are installed
    #[arg(long)]
    again: bool,

    #[command(flatten)]
    flags: CatalogFlags,

    /// Print one JSON value
    #[arg(long)]
    pub(crate) json: bool,
}

/// The agents that this machine offers: the configuration that lists the agents, the directory with
/// installed agents, and the programs and credentials of this machine.
pub(crate) struct AgentsHere {
    config: Config,
    directory: AgentInstallDir,
    host: HostEnvironment,
    /// The flags that the user gave, for the commands in messages.
    flags: String,
}

impl AgentsHere {
    pub(crate) fn load(flags: &CatalogFlags) -> Result<AgentsHere, Failure> {
        let config = Config::load(&flags.serve())?;
        let directory = AgentInstallDir::new(config.data_dir.value.join("agents"));
        let mut host = HostEnvironment::new(env::vars_os());
        host.sandbox_path = Some(config.sessions.toolchains.value.program_dirs());
        Ok(AgentsHere { config, directory, host, flags: flags.repeated() })
    }

    fn entries(&self) -> &[AgentCatalogEntry] {
        self.config.catalog.entries()
    }

    fn find(&self, name: &str) -> Result<&AgentCatalogEntry, Failure> {
        self.config.catalog.find(name).ok_or_else(|| {
            let known: Vec<&str> = self.entries().iter().map(|entry| entry.id.as_str()).collect();
            Failure::usage(format!("unknown agent {name:?}"))
                .with_hint(format!("known agents: {}", known.join(", ")))
        })
    }

    fn missing(&self, entry: &AgentCatalogEntry) -> Vec<ReadinessProblem> {
        readiness_problems(entry, &self.directory, &self.host)
    }

    fn value(&self, entry: &AgentCatalogEntry) -> Value {
        let installed = self.directory.find_installed(entry);
        let missing = self.missing(entry);
        json!({
            "id": entry.id,
            "aliases": entry.aliases,
            "title": entry.title(),
            "ready": missing.is_empty(),
            "missing": missing.iter().map(|it| it.message(&self.flags)).collect::<Vec<_>>(),
            "package": entry.package.as_ref().map(|package| json!({
                "name": package.name, "version": package.version, "megabytes": package.megabytes,
            })),
            "installed": installed.map(|installed| json!({
                "path": installed.path, "version": installed.version, "node": installed.node,
            })),
            "argv": entry.argv,
            "variables": entry.env.keys().collect::<Vec<_>>(),
            "inherit": entry.inherit,
            "settings": entry.settings.iter().map(|(name, rule)| (name.clone(), json!({
                "variable": rule.variable, "description": rule.description,
            }))).collect::<serde_json::Map<_, _>>(),
            "credentials": entry.credentials,
            "loginFiles": entry.login_files,
            "authMethod": entry.auth_method,
            "node": entry.node,
            "get": entry.get,
            "ownSandbox": entry.own_sandbox,
            "tested": entry.tested,
        })
    }
}

/// Every agent with a list of what it lacks. Used by `doctor`.
pub(crate) fn readiness() -> Result<Vec<(String, Vec<String>)>, Failure> {
    let agents = AgentsHere::load(&CatalogFlags::default())?;
    let row = |entry: &AgentCatalogEntry| {
        let missing = agents.missing(entry).iter().map(ToString::to_string).collect();
        (entry.id.clone(), missing)
    };
    Ok(agents.entries().iter().map(row).collect())
}

pub(crate) fn list(command: &List, terminal: &mut Terminal) -> Result<(), Failure> {
    let agents = AgentsHere::load(&command.flags)?;
    if terminal.format() == Format::Json {
        let all: Vec<Value> = agents.entries().iter().map(|entry| agents.value(entry)).collect();
        return terminal.value(&json!({ "agents": all }));
    }
    let width = agents.entries().iter().map(|entry| entry.id.len()).max().unwrap_or(0);
    if terminal.is_watched() {
        let heading = format!("{:<5}  {:<width$}  {}", "READY", "AGENT", "WHAT IT NEEDS");
        let heading = terminal.painted(HEADING, &heading);
        terminal.line(&heading)?;
    }
    for entry in agents.entries() {
        let missing = agents.missing(entry);
        let (word, style) = if missing.is_empty() { ("yes", READY) } else { ("no", LACKING) };
        let word = terminal.painted(style, &format!("{word:<5}"));
        let first = missing.first().map(|missing| missing.short_remedy(&agents.flags));
        let detail = first.unwrap_or_else(|| entry.title().to_owned());
        let detail = terminal.shown(&detail).into_owned();
        terminal.line(&format!("{word}  {:<width$}  {detail}", entry.id))?;
    }
    Ok(())
}

pub(crate) fn show(command: &Show, terminal: &mut Terminal) -> Result<(), Failure> {
    let agents = AgentsHere::load(&command.flags)?;
    let entry = agents.find(&command.agent)?;
    if terminal.format() == Format::Json {
        return terminal.value(&agents.value(entry));
    }
    let package = entry.package.as_ref();
    let rows = [
        ("agent", entry.title().to_owned()),
        ("names", [vec![entry.id.clone()], entry.aliases.clone()].concat().join(", ")),
        ("package", package.map(|it| format!("{} {}", it.name, it.version)).unwrap_or_default()),
        ("install", entry.get.clone().unwrap_or_default()),
        ("command", entry.argv.join(" ")),
        ("node", entry.node.map(|lowest| format!("{lowest} or newer")).unwrap_or_default()),
        ("credentials", entry.credentials.join(", ")),
        ("login files", entry.login_files.join(", ")),
        ("inherits", entry.inherit.join(", ")),
        ("own sandbox", entry.own_sandbox.clone().unwrap_or_default()),
        ("tested", if entry.tested { "yes" } else { "no" }.to_owned()),
    ];
    for (name, text) in rows.iter().filter(|(_, text)| !text.is_empty()) {
        let text = terminal.shown(text).into_owned();
        terminal.line(&format!("{name:<11}  {text}"))?;
    }
    for (name, rule) in &entry.settings {
        let text = match rule.description.as_str() {
            "" => format!("{name}: sets {}", rule.variable),
            description => format!("{name}: {description}"),
        };
        let text = terminal.shown(&text).into_owned();
        terminal.line(&format!("{:<11}  {text}", "setting"))?;
    }
    let missing = agents.missing(entry);
    for missing in &missing {
        let text = terminal.shown(&missing.message(&agents.flags)).into_owned();
        terminal.line(&format!("{:<11}  {text}", "missing"))?;
    }
    if missing.is_empty() {
        terminal.line(&format!("{:<11}  yes", "ready"))?;
    }
    Ok(())
}

pub(crate) async fn install(command: Install, terminal: &mut Terminal) -> Result<(), Failure> {
    let agents = AgentsHere::load(&command.flags)?;
    let again = if command.again { Reinstall::Yes } else { Reinstall::No };
    let wanted: Vec<&AgentCatalogEntry> =
        command.agents.iter().map(|name| agents.find(name)).collect::<Result<_, _>>()?;
    let mut values = Vec::new();
    for entry in wanted {
        let begun = Instant::now();
        let mut tell = |step: InstallStep| terminal.note(&step_text(&step));
        let installed = agents.directory.install(entry, &agents.host, again, &mut tell).await;
        let InstallResult { agent: installed, already_installed: was_there } =
            installed.map_err(|error| failed(&entry.id, &error))?;
        if terminal.format() == Format::Json {
            values.push(json!({
                "id": entry.id,
                "version": installed.version,
                "path": installed.path,
                "alreadyInstalled": was_there,
            }));
            continue;
        }
        let how = if was_there {
            "is already installed".to_owned()
        } else {
            format!("installed in {} s", begun.elapsed().as_secs())
        };
        terminal.line(&format!("{} {} {how}", entry.id, installed.version))?;
        for missing in agents.missing(entry) {
            terminal.note(&missing.to_string());
        }
    }
    if terminal.format() == Format::Json {
        terminal.value(&json!({ "installed": values }))?;
    }
    Ok(())
}

fn step_text(step: &InstallStep) -> String {
    match step {
        InstallStep::WaitingForOtherInstall => "waiting for another installation".to_owned(),
        InstallStep::Fetching { package, version, megabytes } => {
            format!("fetching {package} {version} with npm, about {megabytes} MB")
        }
    }
}

fn failed(id: &str, error: &InstallError) -> Failure {
    let kind = match error {
        InstallError::NoPackage { .. } | InstallError::UnsupportedPlatform { .. } => {
            ErrorKind::Unsupported
        }
        InstallError::IntegrityMismatch { .. }
        | InstallError::NoNpm
        | InstallError::RegistryUnreachable { .. }
        | InstallError::RegistryRefused { .. }
        | InstallError::DiskFull { .. }
        | InstallError::NpmFailed { .. }
        | InstallError::Incomplete { .. }
        | InstallError::Io { .. } => ErrorKind::Unavailable,
    };
    let message = format!("cannot install agent {id:?}: {error}");
    Failure::from(Error::new(ErrorCode::MissingUtilities, kind, message))
}
