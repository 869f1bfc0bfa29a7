//! The only place that assembles a local workspace.
//!
//! [`open_local_workspace`] returns a [`LocalWorkspace`]: a guarded [`Backend`](ab_core::Backend) for
//! callers, and a [`SandboxProgramLauncher`] for the operator's own programs, such as a coding agent. Both use
//! the same driver, and therefore the same sandbox. No other crate opens a directory of the host as
//! a workspace.

mod builder;
mod launcher;
mod policy;
mod workspace;

pub use builder::LocalWorkspaceBuilder;
pub use launcher::{
    CapturedProcessOutput, LaunchedProgram, ProcessInputWriter, ProcessOutputReader,
    ProgramLaunchRequest, SandboxProgramLauncher,
};
pub use policy::CommandPolicySettings;
pub use workspace::{LocalWorkspace, LocalWorkspaceConfig, open_local_workspace};
