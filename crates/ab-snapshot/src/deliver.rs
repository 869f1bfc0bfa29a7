//! Delivers a session's commits as a new branch, to a local repository or to another host.

use std::path::Path;

use ab_core::ErrorKind;

use crate::branch::BranchName;
use crate::cache::{FETCH, with_ssh};
use crate::changes::{CommitId, SessionChanges};
use crate::collect::IMPORTED;
use crate::error::{Result, SnapshotError};
use crate::git::{Authority, TRANSFER_TIME, complaint};
use crate::source::RepoSource;
use crate::token::WorkspaceToken;
use crate::workspaces::SessionWorkspaceStore;

/// A branch that a delivery created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveredBranch {
    pub branch: BranchName,
    pub commit: CommitId,
    /// Whether the branch already pointed to this commit, because an earlier delivery was
    /// interrupted after it had created the branch.
    pub was_already_delivered: bool,
}

impl SessionWorkspaceStore {
    /// Creates the branch in the repository `to`. A branch that exists with another commit is never
    /// changed.
    ///
    /// In a local repository, git writes only objects and the reference, and the hooks of the
    /// repository are disabled. The working tree and the index stay unchanged. If the repository is
    /// on another host, git pushes the branch with the operator's credentials.
    ///
    /// # Errors
    /// Fails with `AlreadyExists` if the branch exists with another commit. Also fails if the
    /// repository cannot be written.
    pub async fn deliver_branch(
        &self,
        token: &WorkspaceToken,
        changes: &SessionChanges,
        to: &RepoSource,
        branch: &BranchName,
    ) -> Result<DeliveredBranch> {
        let already_there = match to {
            RepoSource::Local(path) => self.fetch_into(token, changes, path, branch).await?,
            RepoSource::Remote(_) => self.push(changes, to, branch).await?,
        };
        Ok(DeliveredBranch {
            branch: branch.clone(),
            commit: changes.head.clone(),
            was_already_delivered: already_there,
        })
    }

    async fn fetch_into(
        &self,
        token: &WorkspaceToken,
        changes: &SessionChanges,
        to: &Path,
        branch: &BranchName,
    ) -> Result<bool> {
        let theirs = || self.git.at(to, Authority::Clean);
        let (reference, head) = (branch.reference(), changes.head.as_str());
        let temporary = format!("refs/agent-backend/{token}");
        let show = ["rev-parse", "--verify", "--quiet"];
        let existing = theirs().args(show).args([reference.as_str()]).run().await?;
        if existing.code == Some(0) {
            // Remove the temporary reference that an interrupted delivery may have left.
            theirs().args(["update-ref", "-d", temporary.as_str()]).stdout().await?;
            let commit = String::from_utf8_lossy(&existing.stdout).trim().to_owned();
            return already_there(branch, &changes.head, &commit);
        }
        let fetch = theirs().timeout(TRANSFER_TIME).args(FETCH).args(["--"]);
        let fetch = fetch.args([changes.repository.as_os_str()]);
        let output = fetch.args([format!("+{IMPORTED}:{temporary}")]).run().await?;
        if output.code != Some(0) {
            return Err(refused(branch, &output.stderr));
        }
        // This fails if another process has just created the branch.
        let create = ["update-ref", &reference, head, &changes.head.zero()];
        let created = theirs().args(create).run().await?;
        theirs().args(["update-ref", "-d", temporary.as_str()]).stdout().await?;
        match created.code {
            Some(0) => Ok(false),
            _ => Err(refused(branch, &created.stderr)),
        }
    }

    async fn push(
        &self,
        changes: &SessionChanges,
        to: &RepoSource,
        branch: &BranchName,
    ) -> Result<bool> {
        let ssh = self.git.ssh_command().await?;
        let reference = branch.reference();
        let ours = || {
            let run = self.git.on(&changes.repository, Authority::Operator).timeout(TRANSFER_TIME);
            with_ssh(run, ssh.as_ref())
        };
        let list = ours().args(["ls-remote", "--quiet", "--"]).args([to.argument()]);
        let listed = list.args([reference.as_str()]).run().await?;
        if listed.code != Some(0) {
            return Err(refused(branch, &listed.stderr));
        }
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let mut lines = listed.lines().filter_map(|line| line.split_once('\t'));
        if let Some((commit, _)) = lines.find(|(_, name)| *name == reference) {
            return already_there(branch, &changes.head, commit);
        }
        // The lease without a value requires that the branch does not exist.
        let lease = format!("--force-with-lease={reference}:");
        let push = ours().args(["push", "--quiet", "--no-verify", "--no-signed", lease.as_str()]);
        let push = push.args(["--"]).args([to.argument()]);
        let output = push.args([format!("{IMPORTED}:{reference}")]).run().await?;
        match output.code {
            Some(0) => Ok(false),
            _ => Err(refused(branch, &output.stderr)),
        }
    }
}

fn already_there(branch: &BranchName, head: &CommitId, found: &str) -> Result<bool> {
    if found == head.as_str() {
        return Ok(true);
    }
    let message = format!("the branch {branch} exists already, with another commit");
    Err(SnapshotError::failed(ErrorKind::AlreadyExists, message).with_hint("choose another branch"))
}

fn refused(branch: &BranchName, stderr: &str) -> SnapshotError {
    let message = format!("cannot make the branch {branch}: {}", complaint(stderr));
    SnapshotError::failed(ErrorKind::CommandFailed, message)
}
