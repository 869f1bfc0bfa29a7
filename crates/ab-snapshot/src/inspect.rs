//! Queries about repositories and workspaces that change nothing: the branches of a repository, and
//! the disk space of a workspace.

use std::time::Duration;

use ab_host::directory::{DirectoryUsage, directory_usage};

use crate::cache::{Source, parse_refs};
use crate::changes::CommitId;
use crate::error::Result;
use crate::source::RepoSource;
use crate::token::WorkspaceToken;
use crate::workspaces::SessionWorkspaceStore;

/// Time limit for listing branches. It is short because a person waits for the list.
const BRANCHES_TIME: Duration = Duration::from_secs(20);
/// Maximum number of branches that are returned.
const MAX_BRANCHES: usize = 5000;

/// The branches of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoBranchNames {
    /// The name of the branch that HEAD points to.
    pub default: Option<String>,
    /// The names and commits of the branches, sorted by name.
    pub branches: Vec<(String, CommitId)>,
    /// Whether the repository has more branches than these.
    pub truncated: bool,
}

impl SessionWorkspaceStore {
    /// Lists the branches of a repository. Transfers no objects, and runs nothing that the
    /// repository configures.
    ///
    /// # Errors
    ///
    /// Fails if the repository cannot be read, or does not answer within 20 seconds.
    pub async fn list_branches(&self, source: &RepoSource) -> Result<RepoBranchNames> {
        let open = Source::open(&self.git, source).await?;
        let names = ["HEAD".to_owned(), "refs/heads/*".to_owned()];
        let refs = parse_refs(&open.list(&names, BRANCHES_TIME).await?);
        let truncated = refs.branches.len() > MAX_BRANCHES;
        let branches = refs.branches.into_iter().take(MAX_BRANCHES).collect();
        Ok(RepoBranchNames { default: refs.default, branches, truncated })
    }

    /// Returns the disk space that the workspace of `token` uses. Objects that it borrows from the
    /// cache do not count.
    ///
    /// # Errors
    ///
    /// Fails if there is no such workspace.
    pub async fn disk_usage(&self, token: &WorkspaceToken) -> Result<DirectoryUsage> {
        Ok(directory_usage(&self.area.workspace(token)).await?)
    }
}
