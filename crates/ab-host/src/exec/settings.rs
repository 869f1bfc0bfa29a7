//! The settings for commands, and their defaults.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use ab_core::command_line_check::CommandLineCheck;
use ab_core::effective_policy::{Isolation, NetworkAccess};
use ab_core::process::ExecLimits;

use super::mounts::SandboxMount;
use super::requirements::SandboxRequirement;
use crate::limits::cgroup::ControlGroup;
use crate::process::spool;
pub use crate::sandbox::bwrap::SANDBOX_WORKSPACE_PATH;

/// The directories that contain the system's programs. They are the `PATH` of commands.
pub const SYSTEM_PROGRAM_DIRS: &[&str] =
    &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// The default directory for temporary files.
pub(crate) const TEMPORARY: &str = "/tmp";

/// The shell that interprets command lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CommandShell {
    /// bash if the host has it, otherwise sh.
    #[default]
    Auto,
    Bash,
    Sh,
}

impl CommandShell {
    pub fn as_str(self) -> &'static str {
        match self {
            CommandShell::Auto => "auto",
            CommandShell::Bash => "bash",
            CommandShell::Sh => "sh",
        }
    }
}

/// How many bytes of the output of a detached process are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputSpoolLimits {
    pub memory_bytes: usize,
    /// Maximum number of bytes on disk. With zero, nothing is kept on disk.
    pub disk_bytes: u64,
}

impl Default for OutputSpoolLimits {
    fn default() -> Self {
        Self { memory_bytes: spool::MEMORY, disk_bytes: spool::DISK }
    }
}

/// Programs of the host outside of the system's directories. Commands may read and run them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toolchain {
    /// Directories and files that become visible, read-only, at their own paths. Paths in the
    /// workspace do not become visible, because commands could replace them.
    pub readable_paths: Vec<PathBuf>,
    /// Directories that contain programs. On `PATH` they come before the system's directories, in
    /// this order.
    pub program_dirs: Vec<PathBuf>,
    /// Environment variables through which the programs find their files. A caller's variables take
    /// precedence.
    pub environment: BTreeMap<String, String>,
}

impl Toolchain {
    /// Creates a toolchain from one directory. If the directory has a subdirectory `bin`, this
    /// subdirectory is put on `PATH`.
    pub fn from_directory(directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        let bin = Some(directory.join("bin")).filter(|bin| bin.is_dir());
        let environment = BTreeMap::new();
        Self {
            readable_paths: vec![directory],
            program_dirs: bin.into_iter().collect(),
            environment,
        }
    }
}

/// The name and the email address that git uses for commits if the repository configures none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GitIdentity {
    pub name: Option<String>,
    pub email: Option<String>,
}

/// How the commands of a local workspace run.
#[derive(Clone, Debug)]
pub struct LocalExecSettings {
    pub isolation: Isolation,
    /// The weakest isolation with which commands are allowed to run.
    pub minimum_isolation: Isolation,
    pub network: NetworkAccess,
    pub shell: CommandShell,
    /// Limits that apply to every command. A command's own limits can only be stricter.
    pub limits: ExecLimits,
    /// The control group that all commands enter. It limits all of them together, and can freeze
    /// them.
    pub control_group: Option<ControlGroup>,
    pub output_spool: OutputSpoolLimits,
    /// Compilers and similar programs of the host that every command may use.
    pub toolchains: Vec<Toolchain>,
    /// The bwrap program to use. `None` means the system's bwrap.
    pub bwrap: Option<PathBuf>,
    /// The directory for temporary files: output spools, and the private `/tmp` and caches of a
    /// workspace or scope.
    pub temporary_dir: PathBuf,
    /// A private home. It is a directory of the host outside of the workspace that commands can
    /// write to. It is `HOME` of every command and also contains the caches. If this is `None`,
    /// `HOME` is the directory that a command starts in.
    pub home: Option<PathBuf>,
    /// Further directories and files of the host that every command sees.
    pub mounts: Vec<SandboxMount>,
    /// Requirements that may stay unenforced although a caller requested them by name. If any other
    /// requirement cannot be enforced, the command is refused.
    pub allowed_unenforced: BTreeSet<SandboxRequirement>,
    /// The limits in [`limits`](Self::limits) that are only defaults, such as the limits of a
    /// daemon. They may also stay unenforced, except for a command that requests the same limit.
    pub optional_limits: BTreeSet<SandboxRequirement>,
    /// A directory for program caches that outlive the driver. It has one subdirectory for each
    /// workspace and scope. If this is `None`, the caches are made in
    /// [`temporary_dir`](Self::temporary_dir) and removed together with the driver.
    pub cache_dir: Option<PathBuf>,
    /// The identity in git's global configuration of commands. That configuration is a file beside
    /// the caches, so it has no effect if [`home`](Self::home) is set.
    pub git_identity: GitIdentity,
    /// The check of command lines. It is the only protection that the isolation `software`
    /// provides. If this is `None`, the isolation `software` is not available.
    pub command_line_check: Option<CommandLineCheck>,
}

/// The system directories that a checked command line may name.
pub const READABLE_SYSTEM_DIRS: &[&str] = crate::sandbox::bwrap::SYSTEM;

impl LocalExecSettings {
    /// Returns whether every command has a limit that needs a control group.
    pub(crate) fn always_groups(&self) -> bool {
        needs_group(&self.limits)
    }
}

/// Returns whether a limit applies to all processes of a command together. Only these limits need a
/// control group. Other commands get no group, because each group costs several directories.
pub(crate) fn needs_group(limits: &ExecLimits) -> bool {
    limits.memory.is_some() || limits.processes.is_some()
}

impl Default for LocalExecSettings {
    fn default() -> Self {
        Self {
            isolation: Isolation::Auto,
            minimum_isolation: Isolation::None,
            network: NetworkAccess::Shared,
            shell: CommandShell::Auto,
            limits: ExecLimits::default(),
            control_group: None,
            output_spool: OutputSpoolLimits::default(),
            toolchains: Vec::new(),
            bwrap: None,
            temporary_dir: PathBuf::from(TEMPORARY),
            home: None,
            mounts: Vec::new(),
            allowed_unenforced: BTreeSet::new(),
            optional_limits: BTreeSet::new(),
            cache_dir: None,
            git_identity: GitIdentity::default(),
            command_line_check: None,
        }
    }
}
