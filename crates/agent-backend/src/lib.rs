//! A place for AI agents to work: one handle over local, remote, in-memory and scoped workspaces.
//!
//! ```
//! use agent_backend::{Edit, EditOptions, ErrorKind, ScopeOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> agent_backend::Result<()> {
//! # let directory = tempfile::tempdir().unwrap();
//! # let directory = directory.path();
//! let backend = agent_backend::local(directory)?; // or memory(), or remote(url)
//!
//! backend.write("src/app.py", "print('hello')\n").await?;
//! let edit = Edit::new("hello", "goodbye");
//! let edited = backend.edit("src/app.py", &[edit], EditOptions::default()).await?;
//! println!("{}", edited.diff);
//!
//! // A tenant gets a subdirectory and can name nothing outside it.
//! let tenant = backend.scope("tenants/ada", ScopeOptions::default())?;
//! tenant.write("notes.txt", "mine").await?;
//! let refused = tenant.read("../../src/app.py").await.unwrap_err();
//! assert_eq!(refused.kind(), ErrorKind::PathEscape);
//!
//! assert_eq!(backend.readdir(".").await?, ["src", "tenants"]);
//! backend.destroy().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Everything is async and needs a tokio runtime. Paths are text, relative to the workspace. An
//! absolute path under the root means the same file; any other absolute path is relative to the
//! root. Errors have an [`ErrorKind`] to branch on and an [`ErrorCode`] to publish.
//!
//! The behaviour of every call is documented on [`ab_core::Driver`], and the same test suite runs
//! on every kind of backend.

pub mod agent;
mod exchange;
pub mod http_post;
pub mod journal;
pub mod mcp;
pub mod policy;
pub mod pool;
pub mod remote;
pub mod serve_client;

use std::path::Path;
use std::sync::Arc;

use ab_core::process::ExecLimits;

pub use ab_core::{
    Actor, ApprovalAnswer, ApprovalId, ApprovalRequest, Approver, Backend, BackendInfo,
    BackendKind, BackendOptions, Call, CallDigest, CallOutcome, Capabilities, CapturedOutput,
    Closeable, CloseableId, CommandLineCheck, CommandLineCheckContext, ConnectionStatus,
    ConnectionStatusChange, DirEntry, Driver, Edit, EditOptions, EditReport, EffectivePolicy,
    EffectivePolicyControl, Error, ErrorCause, ErrorCode, ErrorKind, ExecOptions, ExecOutput, File,
    FileContent, FileKind, FileVersion, Guard, Guards, Isolation, LineRange, LineWindow, Listing,
    MemoryDriver, MemoryDriverOptions, NarrowOptions, NetworkAccess, OwnedCall, PathParser,
    PolicyControlKind, PolicyControlStrength, Principal, PrincipalKind, Result, RetryAdvice, Role,
    ScopeOptions, Stat, StatusSubscription, TenantId, TriggeringRule, Verb, WorkspaceLocator,
    WorkspaceOpener, WriteContent, WsPath, backend, call, driver, edit, effective_policy, error,
    guard, metadata, options, path, process, search, status,
};
pub use ab_host::{
    CommandShell, GitIdentity, LocalDriverOptions, LocalExecSettings, MissingRootPolicy,
    OutputSpoolLimits, PathResolutionMode, SANDBOX_WORKSPACE_PATH, SandboxRequirement, Toolchain,
};
pub use ab_local::{CommandPolicySettings, LocalWorkspaceConfig};
pub use policy::{CommandPolicy, PolicyProfile, PolicyRuleFile};
pub use pool::{BackendLease, BackendPool, BackendPoolOptions};
pub use remote::{RemoteConfig, RemoteDriver, remote, remote_with};
pub use serve_client::{ServeClient, ServeClientSettings};

/// Opens a workspace in an existing directory.
pub fn local(root: impl AsRef<Path>) -> Result<Backend> {
    local_with(LocalWorkspaceConfig::new(root.as_ref()))
}

/// Opens a workspace in a directory, with all settings.
pub fn local_with(mut config: LocalWorkspaceConfig) -> Result<Backend> {
    config.backend_options.locator = recipe(&config.root, &config.options);
    Ok(ab_local::open_local_workspace(config)?.backend)
}

/// The options with which the agent-backend program can open the same workspace. `None` if its
/// flags cannot express these options.
fn recipe(root: &Path, options: &LocalDriverOptions) -> Option<WorkspaceLocator> {
    let exec = &options.exec;
    let plain = exec.minimum_isolation == Isolation::None
        && exec.toolchains.is_empty()
        && exec.cache_dir.is_none()
        && exec.home.is_none()
        && exec.mounts.is_empty()
        && exec.allowed_unenforced.is_empty()
        && exec.bwrap.is_none()
        && exec.limits == ExecLimits::default()
        && options.root_aliases.is_empty();
    let root = std::path::absolute(root).ok()?;
    let root = root.to_str().filter(|_| plain)?;
    let shell = match exec.shell {
        CommandShell::Auto => "auto",
        CommandShell::Bash => "bash",
        CommandShell::Sh => "sh",
    };
    let arguments = [
        ["daemon", "--local-only"],
        ["--rootDir", root],
        ["--isolation", exec.isolation.as_str()],
        ["--network", exec.network.as_str()],
        ["--shell", shell],
        ["--toolchain", "none"],
    ];
    Some(WorkspaceLocator::opened_by_program(
        arguments.concat().into_iter().map(str::to_owned).collect(),
    ))
}

/// Creates an empty workspace in memory.
pub fn memory() -> Backend {
    Backend::new(MemoryDriver::new())
}

/// Creates a workspace in memory, with all settings.
pub fn memory_with(
    options: MemoryDriverOptions,
    backend_options: BackendOptions,
) -> Result<Backend> {
    Ok(Backend::with_options(Arc::new(MemoryDriver::with_options(options)?), backend_options))
}

/// Compiles the code in `docs/agent-library.md` as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/agent-library.md")]
struct AgentLibraryPage;
