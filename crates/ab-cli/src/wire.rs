//! Assembles the parts of `serve`: store, executor, control plane and router.

use std::path::Path;
use std::sync::Arc;

use ab_acp::agent_readiness::HostEnvironment;
use ab_acp::catalog::{
    AgentCatalogEntry, AgentSettingRule, AgentSettingType, OWN_EXECUTABLE_PLACEHOLDER,
};
use ab_acp::gateway::{
    AgentGateway, AgentGatewaySettings, AgentResolver, AgentSandboxSettings, InstallPolicy,
};
use ab_acp::install::AgentInstallDir;
use ab_api::{
    AgentDescription, AgentSetting, AgentSettingKind, NetworkMode, RuntimeDescription, RuntimeType,
};
use ab_control::{ControlPlane, ControlPlaneSettings, CrashTestHook, CrashTestPoint};
use ab_core::{Error, ErrorCode, ErrorKind, NetworkAccess};
use ab_executor::{ExecutorSettings, LocalExecutor, audit_queue};
use ab_host::LocalExecSettings;
use ab_local::LocalWorkspaceConfig;
use ab_remote::{HostKey, SshAccess, SshServerSettings};
use ab_server::{
    ControlPlaneRoutes, HttpAccessPolicy, HttpApp, SpacesRoutes, TaskChoices, TaskDefaults,
    settings_schema_path,
};
use ab_spaces::{SpaceCrashTestHook, Spaces, SpacesError, SpacesSettings};
use ab_store::{DataDir, Store, StoreError};
use rustix::process::{Signal, getpid, kill_process};

use crate::commands::daemon::ServedRoot;
use crate::config::Config;
use crate::failure::Failure;
use crate::traces::{self, TraceExporter};

/// The name of the directory of agent servers in the data directory.
const AGENT_SERVERS: &str = "agent-servers";
/// The name of the file with the SSH host key in the data directory. SSH clients of sessions
/// recognise the server by this key.
const SSH_HOST_KEY: &str = "ssh-host-key";
/// The name of the directory of spaces in the data directory.
const SPACES: &str = "spaces";

/// The message if the served root contains the data directory. In this case the gateway starts no
/// agent. The homes and programs of agents are in the data directory, so an agent that can write to
/// the root could replace them.
pub(crate) const NO_AGENTS_IN_ROOT: &str =
    "the served directory contains the data directory; choose a --data-dir outside of it";

/// The parts that `serve` runs.
pub(crate) struct Parts {
    pub(crate) app: HttpApp,
    /// The owner must shut this down after the port is closed.
    pub(crate) control: ControlPlane,
    /// The owner must shut this down after the port is closed.
    pub(crate) spaces: Spaces,
    /// The owner must close this after the control plane.
    pub(crate) traces: Option<TraceExporter>,
}

/// Locks the data directory and opens the store in it.
///
/// # Errors
///
/// [`ErrorKind::Unavailable`] if another process uses the data directory, or if the directory
/// cannot be used.
pub(crate) async fn store(directory: &Path) -> Result<Store, Failure> {
    let data_dir = DataDir::open(directory).map_err(failed)?;
    Store::open(data_dir).await.map_err(failed)
}

/// Creates and connects the parts, and resumes the sessions of an earlier process. `url` is the
/// address at which agents reach the server.
///
/// # Errors
///
/// Fails if the store fails, or if the executor cannot be created because git is missing.
pub(crate) async fn assemble(
    store: Store,
    config: &Config,
    gate: HttpAccessPolicy,
    url: String,
) -> Result<Parts, Failure> {
    let own =
        std::env::current_exe().map_err(|error| Failure::input("find this program", error))?;
    let sessions = &config.sessions;
    let mut settings = ExecutorSettings::new(&config.data_dir.value, own);
    settings.environment = std::env::vars_os().collect();
    settings.catalog = config.catalog.clone();
    settings.isolation = sessions.isolation.value;
    settings.minimum_isolation = sessions.minimum_isolation.value;
    settings.toolchains = sessions.toolchains.value.toolchains.clone();
    settings.allow_disabled_runtime = sessions.allow_disabled_runtime.value;
    settings.extra_policy_rules = sessions.rules.value.file.clone();
    settings.approval_wait_timeout = sessions.approval_wait.value;
    settings.setup_commands = sessions.setup.value.clone();
    settings.setup_timeout = sessions.setup_timeout.value;
    settings.refuses_shared_network = config.no_auth.value;
    settings.server_url = Some(url);
    let (audit, entries) = audit_queue();
    settings.audit = Some(audit);
    let commands = &config.commands;
    settings.command_limits = commands.limits_of_session_command();
    settings.session_limits.memory = commands.memory.value.or(settings.session_limits.memory);
    settings.session_limits.processes =
        commands.processes.value.or(settings.session_limits.processes);
    settings.variables = commands.env.value.0.clone();
    settings.mounts = commands.bind.value.mounts.clone();
    let executor = LocalExecutor::new(settings).map_err(|error| {
        Failure::from(Error::new(
            ErrorCode::MissingUtilities,
            ErrorKind::Unavailable,
            error.to_string(),
        ))
    })?;
    let endpoints = executor.running_session_workspaces();
    let catalog = catalog(config, executor.can_enforce_limits().await);
    let crash_hook = config.crash_at.map(crash_hook).unwrap_or_default();
    let retention = config.retention.settings();
    let exporter = config.otlp_endpoint.value.as_deref().map(traces::endpoint).transpose();
    let exporter = exporter.map_err(Failure::usage)?.map(TraceExporter::start);
    let (exporter, sender) = exporter.unzip();
    let settings =
        ControlPlaneSettings { crash_hook, retention, traces: sender, ..sessions.control() };
    let spaces = spaces(store.clone(), config).await?;
    let control = ControlPlane::start(store, Arc::new(executor), settings).await;
    let control = control.map_err(failed)?;
    control.start_recording_audit(entries);
    let key = config.data_dir.value.join(SSH_HOST_KEY);
    let key = HostKey::load_or_create(&key)
        .map_err(|error| Failure::input(format!("use {}", key.display()), error))?;
    let surface = ControlPlaneRoutes::new(control.clone(), catalog)
        .with_session_workspaces(endpoints)
        .with_session_ssh(SshServerSettings::new(key, SshAccess::AnyUser));
    let surface = match config.limits.tasks_per_minute.value {
        Some(limit) => surface.with_tasks_per_minute(limit),
        None => surface,
    };
    let app = HttpApp::new(gate).with_control_plane_routes(surface);
    let app = app.with_spaces_routes(SpacesRoutes::new(spaces.clone()));
    Ok(Parts { app, control, spaces, traces: exporter })
}

/// Settings of the commands that `serve` starts outside of sessions. They have no limits.
pub(crate) fn exec_settings(config: &Config) -> LocalExecSettings {
    let sessions = &config.sessions;
    LocalExecSettings {
        isolation: sessions.isolation.value,
        minimum_isolation: sessions.minimum_isolation.value,
        network: network(config),
        toolchains: sessions.toolchains.value.toolchains.clone(),
        temporary_dir: crate::workspace::temporary_dir(),
        git_identity: crate::git_identity::find(),
        ..LocalExecSettings::default()
    }
}

/// The network of commands. If the server requires no token, commands have no network, because a
/// process with network access could approve its own requests.
fn network(config: &Config) -> NetworkAccess {
    if config.no_auth.value { NetworkAccess::None } else { config.sessions.network.value }
}

/// Starts the spaces in the data directory. Their commands have the same isolation as sessions.
async fn spaces(store: Store, config: &Config) -> Result<Spaces, Failure> {
    let mut template = LocalWorkspaceConfig::new(&config.data_dir.value);
    template.options.exec =
        LocalExecSettings { limits: config.commands.limits(), ..exec_settings(config) };
    template.policy.rules = config.sessions.rules.value.file.clone();
    let mut settings = SpacesSettings::new(config.data_dir.value.join(SPACES), template);
    if let Some(point) = config.space_crash_at {
        settings.crash_hook = SpaceCrashTestHook::new(move |reached| {
            if reached == point {
                // This call does not return, because the signal is delivered first.
                let _ = kill_process(getpid(), Signal::KILL);
            }
        });
    }
    Spaces::start(store, settings).await.map_err(|error| match error {
        SpacesError::Store(error) => failed(error),
        error => Failure::from(Error::new(
            ErrorCode::InvalidConfiguration,
            ErrorKind::Unavailable,
            format!("cannot take up the spaces: {error:?}"),
        )),
    })
}

/// The gateway's agents. They work in the served root, or each in its own directory.
///
/// # Errors
///
/// Fails if the directory of agent servers in the data directory cannot be used.
pub(crate) async fn gateway(
    config: &Config,
    served: Option<&ServedRoot>,
) -> Result<AgentGateway, Failure> {
    let own =
        std::env::current_exe().map_err(|error| Failure::input("find this program", error))?;
    let sessions = &config.sessions;
    let mut host = HostEnvironment::new(std::env::vars_os());
    host.sandbox_path = Some(sessions.toolchains.value.program_dirs());
    let agents = AgentResolver {
        host,
        catalog: config.catalog.clone(),
        own_executable: Some(own),
        install_dir: Some(AgentInstallDir::new(config.data_dir.value.join("agents"))),
        install_policy: if config.require_preinstall.value {
            InstallPolicy::Preinstalled
        } else {
            InstallPolicy::OnDemand
        },
        ..AgentResolver::default()
    };
    let commands = &config.commands;
    let hidden = served.and_then(ServedRoot::hidden).map(str::to_owned).into_iter();
    let sandbox_settings = AgentSandboxSettings {
        root: served.map(|served| served.path().to_owned()),
        servers_dir: Some(config.data_dir.value.join(AGENT_SERVERS)),
        hidden_paths: hidden.chain(commands.hide.value.iter().cloned()).collect(),
        read_only_paths: commands.read_only.value.clone(),
        mounts: commands.bind.value.mounts.clone(),
        variables: commands.env.value.0.clone(),
        isolation: sessions.isolation.value,
        minimum_isolation: sessions.minimum_isolation.value,
        network: network(config),
        toolchains: sessions.toolchains.value.toolchains.clone(),
        disabled_reason: served.and_then(ServedRoot::hidden).map(|_| NO_AGENTS_IN_ROOT.to_owned()),
    };
    sandbox_settings.remove_dirs_of_earlier_agent_servers().await?;
    Ok(AgentGateway::new(AgentGatewaySettings::new(agents, sandbox_settings)))
}

/// A hook that kills this process at `point` like `kill -9`: nothing is closed, flushed or printed.
fn crash_hook(point: CrashTestPoint) -> CrashTestHook {
    CrashTestHook::new(move |reached| {
        if reached == point {
            // This call does not return, because the signal is delivered first.
            let _ = kill_process(getpid(), Signal::KILL);
        }
    })
}

/// The agents, runtimes and defaults of tasks. `resource_limits` is whether the executor enforces
/// limits.
fn catalog(config: &Config, resource_limits: bool) -> TaskChoices {
    let mut catalog =
        TaskChoices { enforces_resource_limits: resource_limits, ..TaskChoices::default() };
    let sessions = &config.sessions;
    catalog.defaults = TaskDefaults {
        network: match sessions.network.value {
            // If no token is required, sessions may not share the host's network. The default is
            // then a session without network.
            NetworkAccess::Shared if !config.no_auth.value => NetworkMode::Shared,
            NetworkAccess::Shared | NetworkAccess::None => NetworkMode::None,
        },
        refuses_shared_network: config.no_auth.value,
        keep_open: sessions.keep.value,
    };
    let templates = sessions.templates.value.directories.iter();
    catalog.templates =
        templates.map(|(name, path)| (name.clone(), path.to_string_lossy().into_owned())).collect();
    if let Some(local) = catalog.runtimes.first_mut() {
        local.templates = catalog.templates.keys().cloned().collect();
    }
    if sessions.allow_disabled_runtime.value {
        catalog.runtimes.push(RuntimeDescription {
            kind: RuntimeType::Disabled,
            images: Vec::new(),
            paths: Vec::new(),
            sandbox_profiles: Vec::new(),
            templates: Vec::new(),
        });
    }
    for entry in config.catalog.entries() {
        catalog.agents.push(AgentDescription {
            kind: entry.id.clone(),
            title: entry.title().to_owned(),
            aliases: entry.aliases.clone(),
            versions: versions(entry),
            settings_schema_ref: Some(settings_schema_path(&entry.id)),
        });
        let settings = entry.settings.iter();
        let settings = settings.map(|(name, rule)| setting(name, rule)).collect();
        catalog.agent_settings.insert(entry.id.clone(), settings);
        for alias in &entry.aliases {
            catalog.agent_aliases.insert(alias.clone(), entry.id.clone());
        }
    }
    catalog
}

fn setting(name: &str, rule: &AgentSettingRule) -> AgentSetting {
    let kind = match rule.kind {
        AgentSettingType::Text if rule.values.is_empty() => {
            AgentSettingKind::Text { max_bytes: rule.max_bytes }
        }
        AgentSettingType::Text => AgentSettingKind::Choice { values: rule.values.clone() },
        AgentSettingType::Flag => AgentSettingKind::Flag,
        AgentSettingType::Number => AgentSettingKind::Number { min: rule.min, max: rule.max },
    };
    AgentSetting { name: name.to_owned(), description: rule.description.clone(), kind }
}

/// The versions of an agent that a task may request. The version of a configured program is not
/// known.
fn versions(entry: &AgentCatalogEntry) -> Vec<String> {
    let latest = "latest".to_owned();
    match entry.argv.first() {
        Some(program) if program == OWN_EXECUTABLE_PLACEHOLDER => {
            vec![latest, env!("CARGO_PKG_VERSION").to_owned()]
        }
        Some(_) | None => vec![latest],
    }
}

fn failed(error: StoreError) -> Failure {
    let hint = match &error {
        StoreError::Locked { .. } => {
            Some("use or stop that server, or name another directory with --data-dir".to_owned())
        }
        StoreError::DataDirNotPrivate { path } => Some(format!(
            "name an empty directory with --data-dir, or make this one private: chmod 700 {}",
            path.display()
        )),
        _ => None,
    };
    let failure = Failure::from(Error::new(
        ErrorCode::InvalidConfiguration,
        ErrorKind::Unavailable,
        error.to_string(),
    ));
    match hint {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}
