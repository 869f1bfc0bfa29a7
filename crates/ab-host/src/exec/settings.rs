//! What can be set about commands, with its defaults.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use ab_core::command_screen::CommandLineCheck;
use ab_core::effective::{Isolation, NetworkAccess};
use ab_core::process::ExecLimits;

use super::mounts::SandboxMount;
use super::requirements::SandboxRequirement;
use crate::limits::cgroup::ControlGroup;
use crate::process::spool;
pub use crate::sandbox::bwrap::SANDBOX_WORKSPACE_PATH;

/// Where programs of the system are looked for, and what commands get as their path.
pub const SYSTEM_PROGRAM_DIRS: &[&str] =
    &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
/// Where what commands are lent for a while is put.
pub(crate) const TEMPORARY: &str = "/tmp";

/// Which shell reads command lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Shell {
    /// bash where there is one, else sh.
    #[default]
    Auto,
    Bash,
    Sh,
}

impl Shell {
    pub fn as_str(self) -> &'static str {
        match self {
            Shell::Auto => "auto",
            Shell::Bash => "bash",
            Shell::Sh => "sh",
        }
    }
}

/// How much output of a detached process is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputSpoolLimits {
    pub memory: usize,
    /// Zero for none.
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
    /// Directories and files that become visible, read-only, at their own paths.
    pub readable: Vec<PathBuf>,
    /// Directories of programs. They come before the system's on the path, in this order.
    pub bin: Vec<PathBuf>,
    /// Variables by which its programs find their files. Those that a caller gives win.
    pub environment: BTreeMap<String, String>,
}

impl Toolchain {
    /// One directory with everything in it; its `bin`, if there is one, is on the path.
    pub fn from_directory(directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        let bin = Some(directory.join("bin")).filter(|bin| bin.is_dir());
        let environment = BTreeMap::new();
        Self { readable: vec![directory], bin: bin.into_iter().collect(), environment }
    }
}

/// How the commands of a local workspace run.
#[derive(Clone, Debug)]
pub struct ExecSettings {
    pub isolation: Isolation,
    /// With less than this in force no command runs.
    pub isolation_floor: Isolation,
    pub network: NetworkAccess,
    pub shell: Shell,
    /// Bounds of every command; a command's own can only be tighter.
    pub limits: ExecLimits,
    /// The control group that every command enters: limits of all together, and a freezer.
    pub control_group: Option<ControlGroup>,
    pub spool: OutputSpoolLimits,
    /// Compilers and the like of the host that every command may use.
    pub toolchains: Vec<Toolchain>,
    /// The bwrap to use, unless it is the system's.
    pub bwrap: Option<PathBuf>,
    /// Where temporary files are made: spools, and the private `/tmp` and caches of a workspace or
    /// scope.
    pub temporary_dir: PathBuf,
    /// A private home: a directory of the host, outside the workspace, that commands can write. It is
    /// `HOME` of every command, and caches stay in it. Without one, `HOME` is the directory that a
    /// command starts in.
    pub home: Option<PathBuf>,
    /// Further directories and files of the host that every command sees.
    pub mounts: Vec<SandboxMount>,
    /// What may be missing although it was asked for by name. A command is refused when something
    /// else that was asked for cannot be enforced.
    pub accept_unenforced: BTreeSet<SandboxRequirement>,
    /// Limits among [`limits`](Self::limits) that nobody asked for, such as the defaults of a
    /// daemon: they may be missing too, unless a command asks for the same.
    pub optional_limits: BTreeSet<SandboxRequirement>,
    /// A directory in which caches of programs stay after the driver, one directory inside it for
    /// each workspace and scope. Without one they are made in `temporary` and go with the driver.
    pub cache_dir: Option<PathBuf>,
    /// Looks at the words of command lines, which is all that isolation `software` is. Without one
    /// that isolation does not work.
    pub screen: Option<CommandLineCheck>,
}

/// Directories of the system that a command may name where its words are looked at.
pub const READABLE_SYSTEM_DIRS: &[&str] = crate::sandbox::bwrap::SYSTEM;

impl ExecSettings {
    /// Whether every command has a limit for which a control group is made.
    pub(crate) fn always_groups(&self) -> bool {
        needs_group(&self.limits)
    }
}

/// Whether a limit is for all processes of a command together. Only such a limit makes a control
/// group: one for every command would cost each of them several directories.
pub(crate) fn needs_group(limits: &ExecLimits) -> bool {
    limits.memory.is_some() || limits.processes.is_some()
}

impl Default for ExecSettings {
    fn default() -> Self {
        Self {
            isolation: Isolation::Auto,
            isolation_floor: Isolation::None,
            network: NetworkAccess::Shared,
            shell: Shell::Auto,
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
