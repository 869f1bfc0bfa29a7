//! What can be set about commands, with its defaults.

use std::path::PathBuf;

use ab_core::confines::Screen;
use ab_core::effective::{Isolation, Network};
use ab_core::process::ExecLimits;

use crate::process::spool;
pub use crate::sandbox::bwrap::SANDBOX_ROOT;

/// Where programs of the system are looked for, and what commands get as their path.
pub(crate) const SYSTEM_PATH: &[&str] =
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
pub struct Spooling {
    pub memory: usize,
    /// Zero for none.
    pub disk: u64,
}

impl Default for Spooling {
    fn default() -> Self {
        Self { memory: spool::MEMORY, disk: spool::DISK }
    }
}

/// How the commands of a local workspace run.
#[derive(Clone, Debug)]
pub struct ExecSettings {
    pub isolation: Isolation,
    /// With less than this in force no command runs.
    pub floor: Isolation,
    pub network: Network,
    pub shell: Shell,
    /// Bounds of every command; a command's own can only be tighter.
    pub limits: ExecLimits,
    pub spooling: Spooling,
    /// Directories of the host that every command may read, such as those of compilers; their `bin`
    /// comes first on the path.
    pub toolchains: Vec<PathBuf>,
    /// The bwrap to use, unless it is the system's.
    pub bwrap: Option<PathBuf>,
    /// Where temporary files are made: spools, and the `TMPDIR` of commands under Landlock.
    pub temporary: PathBuf,
    /// Looks at the words of command lines, which is all that isolation `software` is. Without one
    /// that isolation does not work.
    pub screen: Option<Screen>,
}

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
            floor: Isolation::None,
            network: Network::Shared,
            shell: Shell::Auto,
            limits: ExecLimits::default(),
            spooling: Spooling::default(),
            toolchains: Vec::new(),
            bwrap: None,
            temporary: PathBuf::from(TEMPORARY),
            screen: None,
        }
    }
}
