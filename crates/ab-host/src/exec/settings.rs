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

/// The directories in which programs of the system are found. Commands get them as their `PATH`.
pub const SYSTEM_PROGRAM_DIRS: &[&str] =
    &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// The default directory for temporary files.
pub(crate) const TEMPORARY: &str = "/tmp";

/// Which shell reads command lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CommandShell {
    /// bash where there is one, else sh.
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

/// How much output of a detached process is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputSpoolLimits {
    pub memory: usize,
    /// Zero keeps nothing on disk.
    pub disk: u64,
}

impl Default for OutputSpoolLimits {
    fn default() -> Self {
        Self { memory: spool::MEMORY, disk: spool::DISK }
    }
}

/// Programs of the host outside the system's directories. Commands may read and run them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Toolchain {
    /// Directories and files that become visible, read-only, at their own paths. Those in the
    /// workspace do not: commands could replace them.
    pub readable: Vec<PathBuf>,
    /// Directories of programs. They come before the system's on `PATH`, in this order.
    pub bin: Vec<PathBuf>,
    /// Variables through which its programs find their files. A caller's variables take precedence.
    pub environment: BTreeMap<String, String>,
}

impl Toolchain {
    /// A toolchain in one directory. Its `bin`, if there is one, is on `PATH`.
    pub fn from_directory(directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        let bin = Some(directory.join("bin")).filter(|bin| bin.is_dir());
        let environment = BTreeMap::new();
        Self { readable: vec![directory], bin: bin.into_iter().collect(), environment }
    }
}

/// How the commands of a local workspace run.
#[derive(Clone, Debug)]
pub struct LocalExecSettings {
    pub isolation: Isolation,
    /// The weakest isolation with which commands may run.
    pub minimum_isolation: Isolation,
    pub network: NetworkAccess,
    pub shell: CommandShell,
    /// Limits of every command. A command's own limits can only be tighter.
    pub limits: ExecLimits,
    /// The control group that every command enters. It limits all commands together and can freeze
    /// them.
    pub control_group: Option<ControlGroup>,
    pub spool: OutputSpoolLimits,
    /// Compilers and similar programs of the host that every command may use.
    pub toolchains: Vec<Toolchain>,
    /// The bwrap to use. `None` for the system's.
    pub bwrap: Option<PathBuf>,
    /// Where temporary files are made: spools, and the private `/tmp` and caches of a workspace or
    /// scope.
    pub temporary_dir: PathBuf,
    /// A private home: a directory of the host, outside the workspace, that commands can write. It
    /// is `HOME` of every command and also holds the caches. Without one, `HOME` is the directory
    /// that a command starts in.
    pub home: Option<PathBuf>,
    /// Further directories and files of the host that every command sees.
    pub mounts: Vec<SandboxMount>,
    /// Requirements that may be missing although they were asked for by name. If any other
    /// requirement cannot be enforced, the command is refused.
    pub accept_unenforced: BTreeSet<SandboxRequirement>,
    /// Limits among [`limits`](Self::limits) that are only defaults, such as those of a daemon.
    /// They may be missing too, unless a command asks for the same limit.
    pub optional_limits: BTreeSet<SandboxRequirement>,
    /// A directory for caches of programs that outlive the driver, with one subdirectory for each
    /// workspace and scope. Without one, the caches are made in
    /// [`temporary_dir`](Self::temporary_dir) and removed with the driver.
    pub cache_dir: Option<PathBuf>,
    /// The check of command lines, which is all that isolation `software` does. Without one, that
    /// isolation is not available.
    pub screen: Option<CommandLineCheck>,
}

/// Directories of the system that a command may name when its command line is checked.
pub const READABLE_SYSTEM_DIRS: &[&str] = crate::sandbox::bwrap::SYSTEM;

impl LocalExecSettings {
    /// Whether every command has a limit for which a control group is made.
    pub(crate) fn always_groups(&self) -> bool {
        needs_group(&self.limits)
    }
}

/// Whether a limit applies to all processes of a command together. Only such a limit makes a
/// control group, because a group for every command would cost each of them several directories.
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
            spool: OutputSpoolLimits::default(),
            toolchains: Vec::new(),
            bwrap: None,
            temporary_dir: PathBuf::from(TEMPORARY),
            home: None,
            mounts: Vec::new(),
            accept_unenforced: BTreeSet::new(),
            optional_limits: BTreeSet::new(),
            cache_dir: None,
            screen: None,
        }
    }
}
