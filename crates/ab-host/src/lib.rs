//! The only crate that opens workspace files and starts commands.
//!
//! [`LocalDriver`] is the driver for a directory of this host. Every file is opened relative to a
//! handle on this directory, see `jail`. Nothing in this crate reads the environment of the
//! process.

mod blocking;
pub mod child_program;
pub mod directory;
mod exec;
mod failure;
pub mod host_features;
pub mod host_program;
mod jail;
mod limits;
mod local;
mod process;
mod sandbox;
mod stripes;

pub use exec::{
    CommandShell, GitIdentity, LocalExecSettings, MountedSockets, OutputSpoolLimits,
    READABLE_SYSTEM_DIRS, SANDBOX_WORKSPACE_PATH, SYSTEM_PROGRAM_DIRS, SandboxMount,
    SandboxRequirement, Toolchain, check_path_restrictions_enforceable,
};
pub use limits::cgroup::{ControlGroup, ControlGroupLimits};
pub use local::{LocalDriver, LocalDriverOptions, MissingRootPolicy, PathResolutionMode};
