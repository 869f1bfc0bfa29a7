//! Workspaces of sessions: isolated copies of a repository or a directory, and the delivery of the
//! changes made in them.
//!
//! ```text
//! token = WorkspaceToken::new(provider)   the caller stores it first
//! store.prepare_workspace(token, request)  → PreparedWorkspace { tree, home, bundle_dir, read_only_dirs: read_only, base_commit: base }
//! ... the agent works in a sandbox ...
//! store.collect_changes(workspace, runner) → SessionChanges { files, diff, patch }; git runs inside
//! store.deliver_branch(changes, to, branch) → a new branch in a local or remote repository
//! store.remove_workspace(token)            idempotent, in any state, from any process
//! ```
//!
//! In a tree that an agent can write, git may run code of the agent. Therefore git on such a tree
//! runs inside the session's sandbox, through a [`SandboxedGitRunner`]. Only a bundle leaves the
//! sandbox. Git outside of the sandbox works on repositories of ours and of the operator, with a
//! clean configuration and without hooks.

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
mod inspect;
mod patch;
mod repo_files;
mod source;
mod status;
mod storage;
mod token;
mod tree;
mod workspaces;

pub use branch::BranchName;
pub use changes::{ChangedLineCounts, CommitId, FileChange, SessionChanges};
pub use clone::{GitAuthor, GitWorkspaceRequest};
pub use collect::{
    CollectChangesOutcome, SandboxedGitCommand, SandboxedGitOutput, SandboxedGitRunner,
};
pub use deliver::DeliveredBranch;
pub use error::{GitTaskField, Result, SnapshotError};
pub use git::GIT_NETWORK_ENV_VARIABLES;
pub use inspect::RepoBranchNames;
pub use repo_files::{RepoFile, RepoFiles, RepoFilesRequest};
pub use source::RepoSource;
pub use storage::{StoredCache, caches_used_by_workspaces, replace_path_prefix_in_records};
pub use token::{WorkspaceCopyMethod, WorkspaceToken};
pub use tree::{copy_directory_tree, remove_directory_tree};
pub use workspaces::{
    PreparedWorkspace, PreparedWorkspaceNote, SessionWorkspaceStore, SnapshotSettings,
    WorkspaceAttachment, WorkspaceRequest,
};
