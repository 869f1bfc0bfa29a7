//! Installs agents for the gateway, either on request or before the first message to an agent.

use std::path::PathBuf;

use super::failure::AgentGatewayError;
use super::source::{AgentResolver, InstallPolicy};
use super::{AgentGateway, AgentLaunchPlan, AgentLookupResult};
use crate::catalog::{AgentCatalogEntry, OWN_EXECUTABLE_PLACEHOLDER};
use crate::install::{InstallStep, Reinstall};

/// The program of an agent. This is the result of a request to install the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentProgram {
    pub path: PathBuf,
    pub origin: AgentProgramOrigin,
    /// The version, if it is known.
    pub version: Option<String>,
    /// Whether the agent was already installed, so that nothing was done.
    pub already_installed: bool,
}

/// Where the program of an agent comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentProgramOrigin {
    /// Installed from the npm registry.
    Registry,
    /// Installed by the operator.
    Host,
    /// Part of this program.
    BuiltIn,
}

impl AgentGateway {
    /// Installs the agent with this name, unless its program already exists. Installations run one
    /// at a time. If two requests for the same agent arrive at the same time, only one of them
    /// installs the agent, and both get its result. Dropping the future ends the installation.
    ///
    /// # Errors
    ///
    /// [`AgentGatewayError::UnknownAgent`] if there is no such agent,
    /// [`AgentGatewayError::NotInstalled`] if it has no package, and
    /// [`AgentGatewayError::InstallFailed`] if npm fails.
    pub async fn install_agent(
        &self,
        name: &str,
        reinstall: Reinstall,
    ) -> Result<AgentProgram, AgentGatewayError> {
        let agents = &self.inner.settings.agents;
        tokio::select! {
            installed = agents.artifact(name, reinstall) => installed,
            () = self.inner.closing.cancelled() => Err(AgentGatewayError::Closed),
        }
    }
}

impl AgentResolver {
    async fn artifact(
        &self,
        name: &str,
        again: Reinstall,
    ) -> Result<AgentProgram, AgentGatewayError> {
        let of_host = |path| AgentProgram {
            path,
            origin: AgentProgramOrigin::Host,
            version: None,
            already_installed: true,
        };
        if let Some(launcher) = self.launcher(name) {
            return Ok(of_host(launcher));
        }
        let Some(entry) = self.catalog.find(name) else {
            return Err(AgentGatewayError::UnknownAgent { agent: name.to_owned() });
        };
        if entry.package.is_some() {
            let was_there = self.install(entry, again).await?;
            let version = entry.package.as_ref().map(|package| package.version.clone());
            let path = self.program_path(entry).unwrap_or_default();
            return Ok(AgentProgram {
                path,
                origin: AgentProgramOrigin::Registry,
                version,
                already_installed: was_there,
            });
        }
        if !self.is_installed(entry) {
            let program = entry.argv.first().map(String::as_str).unwrap_or_default();
            let needs = entry.get.as_ref().map(|get| format!("; to install it: {get}"));
            let why = format!(
                "agent-backend cannot install it, and its program {program:?} was not found{}",
                needs.unwrap_or_default()
            );
            return Err(AgentGatewayError::InstallFailed {
                agent: name.to_owned(),
                why,
                said: None,
            });
        }
        let mut artifact = of_host(self.program_path(entry).unwrap_or_default());
        if entry.argv.first().is_some_and(|program| program == OWN_EXECUTABLE_PLACEHOLDER) {
            artifact.origin = AgentProgramOrigin::BuiltIn;
            artifact.version = Some(env!("CARGO_PKG_VERSION").to_owned());
        }
        Ok(artifact)
    }

    /// Returns how to launch the agent. Installs the agent first if necessary and allowed.
    pub(super) async fn ready(
        &self,
        name: &str,
    ) -> Result<Box<AgentLaunchPlan>, AgentGatewayError> {
        let agent = || name.to_owned();
        let entry = match self.find_agent(name).await {
            AgentLookupResult::Installable(entry) => entry,
            other => return ready(other, name),
        };
        if self.install_policy == InstallPolicy::Preinstalled || self.install_dir.is_none() {
            let why = format!("run `agent-backend agent install {}`", entry.id);
            return Err(AgentGatewayError::NotInstalled { agent: agent(), why });
        }
        self.install(&entry, Reinstall::No).await?;
        ready(self.find_agent(name).await, name)
    }

    /// Installs the package of an entry. Returns whether it was already installed.
    async fn install(
        &self,
        entry: &AgentCatalogEntry,
        again: Reinstall,
    ) -> Result<bool, AgentGatewayError> {
        let agent = &entry.id;
        let Some(directory) = &self.install_dir else {
            let why = "this server has no directory for agents".to_owned();
            return Err(AgentGatewayError::InstallFailed { agent: agent.clone(), why, said: None });
        };
        let mut tell = |step: InstallStep| match step {
            InstallStep::WaitingForOtherInstall => {
                tracing::info!(agent, "waiting for another installation")
            }
            InstallStep::Fetching { package, version, megabytes } => {
                tracing::info!(agent, package, version, megabytes, "installing an agent");
            }
        };
        match directory.install(entry, &self.host, again, &mut tell).await {
            Ok(installation) => Ok(installation.already_installed),
            Err(error) => {
                tracing::warn!(agent, %error, "cannot install an agent");
                let said = error.npm_output().map(str::to_owned);
                let (agent, why) = (agent.clone(), error.to_string());
                Err(AgentGatewayError::InstallFailed { agent, why, said })
            }
        }
    }
}

fn ready(
    resolution: AgentLookupResult,
    name: &str,
) -> Result<Box<AgentLaunchPlan>, AgentGatewayError> {
    let agent = name.to_owned();
    match resolution {
        AgentLookupResult::Ready(resolved) => Ok(resolved),
        AgentLookupResult::NotInstalled { why } => {
            Err(AgentGatewayError::NotInstalled { agent, why })
        }
        AgentLookupResult::Unusable { why } => Err(AgentGatewayError::NotStarted { agent, why }),
        AgentLookupResult::Installable(_) => {
            let why = "its package was removed while it was installed".to_owned();
            Err(AgentGatewayError::NotInstalled { agent, why })
        }
        AgentLookupResult::Unknown => Err(AgentGatewayError::UnknownAgent { agent }),
    }
}
