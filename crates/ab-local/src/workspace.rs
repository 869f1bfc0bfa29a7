//! Opens a directory of the host as a workspace with its driver, guards and limits.

use std::path::PathBuf;
use std::sync::Arc;

use ab_core::{Backend, BackendOptions, Driver, Result};
use ab_host::{LocalDriver, LocalDriverOptions};
use ab_policy::{HomeDirectoryMeaning, PolicyProfile};

use crate::launcher::SandboxProgramLauncher;
use crate::policy::CommandPolicySettings;

/// The configuration of a local workspace.
#[derive(Clone, Debug)]
pub struct LocalWorkspaceConfig {
    pub root: PathBuf,
    pub options: LocalDriverOptions,
    /// The actor, the journal and other guards of the backend.
    pub backend_options: BackendOptions,
    /// How commands are judged before they run.
    pub policy: CommandPolicySettings,
}

impl LocalWorkspaceConfig {
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            options: LocalDriverOptions::default(),
            backend_options: BackendOptions::default(),
            policy: CommandPolicySettings::default(),
        }
    }

    /// Sets whether dangerous commands are refused. The default is `true`.
    pub fn prevent_dangerous_commands(mut self, prevent: bool) -> Self {
        self.policy.profile = if prevent { PolicyProfile::Guarded } else { PolicyProfile::Off };
        self
    }
}

/// A local workspace: the backend for its callers, and the launcher for its operator.
#[derive(Debug)]
pub struct LocalWorkspace {
    /// Every call on the backend passes the guards. Destroying the backend also ends the programs
    /// of the launcher.
    pub backend: Backend,
    pub launcher: SandboxProgramLauncher,
}

/// Opens a directory of the host as a workspace.
///
/// # Errors
/// Fails if the directory cannot be opened or the rules of the command policy are invalid.
pub fn open_local_workspace(config: LocalWorkspaceConfig) -> Result<LocalWorkspace> {
    let LocalWorkspaceConfig { root, mut options, backend_options: mut assembly, policy } = config;
    options.exec.command_line_check.get_or_insert(ab_policy::check_command_paths);
    let home = match options.exec.home {
        Some(_) => HomeDirectoryMeaning::OutsideWorkspace,
        None => HomeDirectoryMeaning::StartDirectory,
    };
    let local = Arc::new(LocalDriver::open(&root, options)?);
    let driver: Arc<dyn Driver> = local.clone();
    assembly.guards.policy.extend(policy.guards(&driver, home)?);
    let backend = Backend::with_options(driver, assembly);
    Ok(LocalWorkspace { backend, launcher: SandboxProgramLauncher::new(local) })
}
