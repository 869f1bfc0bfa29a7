//! Questions about repositories and workspaces that change nothing: branches, and the space on the disk.

use std::time::Duration;

use ab_host::directory::{DirectoryUsage, directory_usage};

use crate::cache::{Source, parse_refs};
use crate::changes::CommitId;
use crate::error::Result;
use crate::source::RepoSource;
use crate::token::WorkspaceToken;
use crate::workspaces::SessionWorkspaceStore;

/// Time limit for listing branches: a person waits for them.
const BRANCHES_TIME: Duration = Duration::from_secs(20);
/// The most branches that are returned.
const MAX_BRANCHES: usize = 5000;

/// The branches of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepoBranchNames {
    /// The branch that HEAD names.
    pub default: Option<String>,
    /// Names and commits, by name.
    pub branches: Vec<(String, CommitId)>,
    /// Whether there are more.
    pub truncated: bool,
}

impl SessionWorkspaceStore {
    /// Asks a repository for its branches. Nothing is transferred, and nothing that the repository configures is run.
    ///
    /// # Errors
    ///
    /// The repository cannot be read, or does not answer within 20 seconds.
    pub async fn list_branches(&self, source: &RepoSource) -> Result<RepoBranchNames> {
        let open = Source::open(&self.git, source).await?;
        let names = ["HEAD".to_owned(), "refs/heads/*".to_owned()];
        let refs = parse_refs(&open.list(&names, BRANCHES_TIME).await?);
        let truncated = refs.branches.len() > MAX_BRANCHES;
        let branches = refs.branches.into_iter().take(MAX_BRANCHES).collect();
        Ok(RepoBranchNames { default: refs.default, branches, truncated })
    }

    /// What the workspace of `token` occupies on the disk. Objects that it borrows from the cache do not count.
    ///
    /// # Errors
    ///
    /// There is no such workspace.
    pub async fn disk_usage(&self, token: &WorkspaceToken) -> Result<DirectoryUsage> {
        Ok(directory_usage(&self.area.workspace(token)).await?)
    }
}
