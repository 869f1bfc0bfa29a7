//! The sandbox of a gateway's agent. The agent works in the served directory if the settings name
//! one, and otherwise in its own directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ab_core::process::HostDirectoryAccess;
use ab_core::{Error, ErrorCode, ErrorKind, Isolation, NetworkAccess, Result};
use ab_host::directory::remove_directory;
use ab_host::{SandboxMount, Toolchain};
use ab_local::{LaunchedProgram, LocalWorkspace};

use super::source::AgentLaunchPlan;
use crate::launch;
use crate::login_files::copy_login_files_to_agent_home;

/// Settings that apply to every agent of a gateway.
#[derive(Clone, Debug)]
pub struct AgentSandboxSettings {
    /// The directory in which all agents work. If `None`, each server gets an empty directory in
    /// `servers_dir`.
    pub root: Option<PathBuf>,
    /// The directory in which the homes and working directories of servers are created. These
    /// directories are removed together with their server. If `None`, agents use the `HOME` of
    /// their environment, and `root` is required.
    pub servers_dir: Option<PathBuf>,
    /// Paths in the root that are hidden from agents.
    pub hidden_paths: Vec<String>,
    /// Paths in the root that agents can only read.
    pub read_only_paths: Vec<String>,
    /// Directories of this machine that are visible to agents.
    pub mounts: Vec<SandboxMount>,
    /// Variables of all agents.
    pub variables: BTreeMap<String, String>,
    pub isolation: Isolation,
    /// The weakest isolation that is accepted.
    pub minimum_isolation: Isolation,
    pub network: NetworkAccess,
    pub toolchains: Vec<Toolchain>,
    /// If set, no agent is started, and requests fail with this reason.
    pub disabled_reason: Option<String>,
}

/// The directories of one server. They are kept when the server's process ends, so that a restarted
/// agent finds its state.
#[derive(Debug, Default)]
pub(super) struct ServerDirs(Option<PathBuf>);

/// A running agent and its sandbox.
#[derive(Debug)]
pub(super) struct SandboxedAgent {
    pub(super) launched: LaunchedProgram,
    pub(super) workspace: LocalWorkspace,
}

impl AgentSandboxSettings {
    /// Removes the directories that an earlier gateway process left behind.
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be removed or created.
    pub async fn remove_dirs_of_earlier_agent_servers(&self) -> Result<()> {
        let Some(area) = &self.servers_dir else { return Ok(()) };
        remove_directory(area).await?;
        make(area).await
    }

    /// Chooses the directory for the home and the working directory of a new server. Fails if the
    /// settings refuse to start agents.
    pub(super) fn place(&self) -> Result<ServerDirs> {
        if let Some(why) = &self.disabled_reason {
            return Err(Error::new(
                ErrorCode::InvalidConfiguration,
                ErrorKind::Invalid,
                why.clone(),
            ));
        }
        let name = random_name()?;
        Ok(ServerDirs(self.servers_dir.as_ref().map(|area| area.join(name))))
    }

    /// Opens a sandbox and starts the agent in it.
    pub(super) async fn start(
        &self,
        agent: &AgentLaunchPlan,
        place: &ServerDirs,
    ) -> Result<SandboxedAgent> {
        let below = |name: &str| place.0.as_ref().map(|place| place.join(name));
        let work = below("work");
        let Some(root) = self.root.as_ref().or(work.as_ref()) else {
            let message = "the server has neither a root nor a data directory for agents";
            return Err(Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message));
        };
        if self.root.is_none() {
            make(root).await?;
        }
        let mut builder = LocalWorkspace::builder(root)
            .isolation(self.isolation)
            .minimum_isolation(self.minimum_isolation)
            .network(self.network)
            .mount_own_executable();
        if let Some(home) = below("home") {
            make(&home).await?;
            copy_login_files_to_agent_home(&home, &agent.login_files).await?;
            builder = builder.home_dir(home);
        }
        let own = agent
            .entry
            .toolchains
            .iter()
            .map(|directory| launch::toolchain_for_agent_path(directory));
        for toolchain in own.chain(self.toolchains.iter().cloned()) {
            builder = builder.add_toolchain(toolchain);
        }
        for mount in &self.mounts {
            builder = match mount.access {
                HostDirectoryAccess::ReadOnly => builder.mount_read_only_dir(&mount.source),
                HostDirectoryAccess::ReadWrite => builder.mount_read_write_dir(&mount.source),
            };
        }
        let workspace = builder.open().await?;
        match self.launch(&workspace, agent).await {
            Ok(launched) => Ok(SandboxedAgent { launched, workspace }),
            Err(error) => {
                // Ignore this error, because the error of the start is more useful.
                let _ = workspace.backend.destroy().await;
                Err(error)
            }
        }
    }

    async fn launch(
        &self,
        workspace: &LocalWorkspace,
        agent: &AgentLaunchPlan,
    ) -> Result<LaunchedProgram> {
        let mut launch = launch::request(&agent.entry, &agent.launch_options)?;
        for hidden in &self.hidden_paths {
            launch.restrictions.hidden.push(workspace.backend.parse_path(hidden)?);
        }
        for read_only in &self.read_only_paths {
            launch.restrictions.read_only.push(workspace.backend.parse_path(read_only)?);
        }
        launch.env.extend(self.variables.clone());
        workspace.launcher.start(launch).await
    }
}

impl ServerDirs {
    /// Removes the directories of the server, if it has any.
    pub(super) async fn remove(&self) {
        if let Some(place) = &self.0 {
            // Directories that cannot be removed now are removed at the next start of the gateway.
            let _ = remove_directory(place).await;
        }
    }
}

async fn make(directory: &Path) -> Result<()> {
    let mut options = tokio::fs::DirBuilder::new();
    options.recursive(true).mode(0o700);
    options.create(directory).await.map_err(|error| {
        let message = format!("cannot create the directory {}: {error}", directory.display());
        Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Io, message)
    })
}

fn random_name() -> Result<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| {
        let message = format!("cannot generate a directory name: {error}");
        Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Unavailable, message)
    })?;
    Ok(format!("{:016x}", u64::from_be_bytes(bytes)))
}
