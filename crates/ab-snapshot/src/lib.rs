//! Workspaces of sessions: isolated copies of a repository or a directory, and the way back of what
//! was changed in them.
//!
//! ```text
//! token = CleanupToken::new(Provider::Git)   the caller stores it first
//! Workspaces::prepare(token, source)         → Workspace { tree, home, outbox, read_only, base }
//! ... the agent works in a sandbox ...
//! Workspaces::collect(workspace, inside)     → Changes { stat, diff, patch }; git runs inside
//! Workspaces::deliver(changes, to, branch)   → a new branch in a local or remote repository
//! Workspaces::cleanup(token)                 idempotent, in any state, from any process
//! ```
//!
//! Git on a tree that an agent can write is the agent's code. Such git runs inside the session's
//! sandbox, by a [`SandboxRunner`]; only a bundle comes out. Git in our own process works on
//! repositories of ours and on the operator's, with a clean configuration and without hooks.

mod area;
mod branch;
mod cache;
mod changes;
mod clone;
mod collect;
mod copy;
mod deliver;
mod error;
mod git;
mod patch;
mod source;
mod status;
mod token;
mod workspaces;

pub use branch::BranchName;
pub use changes::{ChangedLineCounts, CommitId, FileChange, SessionChanges};
pub use clone::{GitAuthor, GitWorkspaceRequest};
pub use collect::{CollectChangesOutcome, SandboxCommand, SandboxOutput, SandboxRunner};
pub use deliver::DeliveredBranch;
pub use error::{Result, SnapshotError, TaskField};
pub use git::GIT_NETWORK_ENV_VARIABLES;
pub use source::RepoSource;
pub use token::{WorkspaceProvider, WorkspaceToken};
pub use workspaces::{SnapshotSettings, Workspace, WorkspaceNote, WorkspaceRequest, Workspaces};
