//! Builds a workspace for an agent's session: its private home, the parts of the host that are
//! visible in it, and the weakest isolation that it accepts.

use std::path::{Path, PathBuf};

use ab_core::error::{Error, ErrorCode, ErrorKind, Result};
use ab_core::process::ExecLimits;
use ab_core::{BackendOptions, Isolation, NetworkAccess};
use ab_host::{ControlGroup, SandboxMount, Toolchain};
use ab_policy::PolicyRuleFile;

use crate::policy::CommandPolicySettings;
use crate::workspace::{LocalWorkspace, LocalWorkspaceConfig, open_local_workspace};

/// Collects the configuration of a session's workspace. The weakest accepted isolation is Landlock
/// by default.
///
/// ```no_run
/// # async fn session() -> ab_core::Result<()> {
/// let workspace = ab_local::LocalWorkspace::builder("/srv/session/work")
///     .home_dir("/srv/session/home")
///     .mount_read_only_dir("/srv/cache/repository.git")
///     .mount_own_executable()
///     .open()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct LocalWorkspaceBuilder {
    config: LocalWorkspaceConfig,
    own_executable: bool,
}

impl LocalWorkspace {
    /// Starts a builder for a workspace in an existing directory.
    pub fn builder(root: impl Into<PathBuf>) -> LocalWorkspaceBuilder {
        let mut config = LocalWorkspaceConfig::new(root);
        config.options.exec.minimum_isolation = Isolation::Landlock;
        LocalWorkspaceBuilder { config, own_executable: false }
    }
}

impl LocalWorkspaceBuilder {
    /// Sets the directory that is `HOME` of every command and launched program. This directory is
    /// outside the workspace and is not removed with the workspace, so that an agent finds its
    /// state again.
    pub fn home_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.config.options.exec.home = Some(directory.into());
        self
    }

    /// Adds a directory that commands can read and write, at the same path as on the host.
    pub fn mount_read_write_dir(self, directory: impl Into<PathBuf>) -> Self {
        self.mount(SandboxMount::read_write(directory))
    }

    /// Adds a directory that commands can read, at the same path as on the host.
    pub fn mount_read_only_dir(self, directory: impl Into<PathBuf>) -> Self {
        self.mount(SandboxMount::read_only(directory))
    }

    /// Adds a directory with a local socket for commands, at the same path as on the host. Commands
    /// cannot change the directory.
    pub fn mount_socket_dir(self, directory: impl Into<PathBuf>) -> Self {
        self.mount(SandboxMount::socket_dir(directory))
    }

    /// Adds a file of the host that commands can read at the path `inside`. If `inside` differs
    /// from `host`, this requires bwrap.
    pub fn mount_read_only_file(
        self,
        host: impl Into<PathBuf>,
        inside: impl Into<PathBuf>,
    ) -> Self {
        let (source, at) = (host.into(), inside.into());
        self.mount(SandboxMount { target: at, ..SandboxMount::read_only(source) })
    }

    /// Makes the program that runs this code visible in the sandbox, read-only and at the same path
    /// as on the host.
    pub fn mount_own_executable(mut self) -> Self {
        self.own_executable = true;
        self
    }

    /// Adds programs of the host that commands can run, such as an agent's package.
    pub fn add_toolchain(mut self, toolchain: Toolchain) -> Self {
        self.config.options.exec.toolchains.push(toolchain);
        self
    }

    pub fn network(mut self, network: NetworkAccess) -> Self {
        self.config.options.exec.network = network;
        self
    }

    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.config.options.exec.isolation = isolation;
        self
    }

    /// Sets the weakest isolation with which the workspace may be opened.
    pub fn minimum_isolation(mut self, isolation: Isolation) -> Self {
        self.config.options.exec.minimum_isolation = isolation;
        self
    }

    /// Sets the limits of every command. They do not apply to launched programs, because the limits
    /// of a launched program are part of its launch request.
    pub fn default_command_limits(mut self, limits: ExecLimits) -> Self {
        self.config.options.exec.limits = limits;
        self
    }

    /// Sets the control group that every command and launched program runs in.
    pub fn control_group(mut self, group: ControlGroup) -> Self {
        self.config.options.exec.control_group = Some(group);
        self
    }

    /// Sets rules for commands in addition to the built-in ones.
    pub fn extra_policy_rules(mut self, rules: PolicyRuleFile) -> Self {
        self.config.policy.rules = rules;
        self
    }

    /// Sets how commands are judged: profile, rules and approver. Replaces
    /// [`extra_policy_rules`](Self::extra_policy_rules).
    pub fn command_policy(mut self, policy: CommandPolicySettings) -> Self {
        self.config.policy = policy;
        self
    }

    /// Sets the actor, the journal and other guards of the backend.
    pub fn backend_options(mut self, options: BackendOptions) -> Self {
        self.config.backend_options = options;
        self
    }

    /// Sets the directory in which the workspace creates temporary files.
    pub fn temporary_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.config.options.exec.temporary_dir = directory.into();
        self
    }

    /// Opens the workspace, and tests its sandbox before any command runs in it.
    ///
    /// # Errors
    /// `Invalid` if a directory or file cannot be mounted for commands. `Unavailable` if the
    /// sandbox would be weaker than the minimum isolation.
    pub async fn open(mut self) -> Result<LocalWorkspace> {
        if self.own_executable {
            let path = std::env::current_exe().map_err(|error| {
                let message = format!("cannot find the path of this program: {error}");
                Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message)
                    .with_source(error)
            })?;
            if !is_in_system(&path) {
                self = self.mount(SandboxMount::read_only(path));
            }
        }
        let workspace = open_local_workspace(self.config)?;
        workspace.backend.effective_policy().await?;
        Ok(workspace)
    }

    fn mount(mut self, mount: SandboxMount) -> Self {
        self.config.options.exec.mounts.push(mount);
        self
    }
}

/// Whether the path is in a system directory, which every command can read.
fn is_in_system(path: &Path) -> bool {
    ab_host::READABLE_SYSTEM_DIRS.iter().any(|directory| path.starts_with(directory))
}
