//! Makes the commit that the copy of a directory is later compared with.
//!
//! The commit is made right after the copy, before the agent can write to the files. It is stored
//! in a bare repository of ours beside the tree. The tree itself does not become a repository.

use std::path::Path;

use ab_core::ErrorKind;

use crate::changes::CommitId;
use crate::error::{GitTaskField, Result, SnapshotError};
use crate::git::{Authority, Git, TRANSFER_TIME, failure};

/// Maximum size, in bytes, of the list of all files.
const MAX_LISTED: usize = 256 * 1024 * 1024;
/// The mode of an index entry that stands for a separate repository.
const GITLINK: &str = "160000";

/// Commits every file of `tree` that no `.gitignore` in it excludes. The commit goes into the new
/// bare repository `repository`.
///
/// # Errors
/// Fails if a directory below the top of the tree is a repository. Git does not look into a nested
/// repository, so its changes would be lost.
pub(crate) async fn commit(git: &Git, tree: &Path, repository: &Path) -> Result<CommitId> {
    git.init(repository, &["--bare", "--object-format=sha1"]).await?;
    let on_tree = || {
        let run = git.at(tree, Authority::Clean).env("GIT_DIR", repository);
        run.env("GIT_WORK_TREE", tree).timeout(TRANSFER_TIME)
    };
    let add = on_tree().args(["-c", "core.bigFileThreshold=16m", "add", "--all"]);
    let added = add.run().await?;
    if added.code != Some(0) {
        return Err(failure("add", &added));
    }
    let list = on_tree().args(["ls-files", "--stage", "-z"]);
    let listed = list.max_output(MAX_LISTED).run().await?;
    if listed.code != Some(0) {
        return Err(failure("ls-files", &listed));
    }
    let listed = String::from_utf8_lossy(&listed.stdout);
    let nested = listed.split('\0').find(|entry| entry.starts_with(GITLINK));
    if let Some((_, path)) = nested.and_then(|entry| entry.split_once('\t')) {
        let message = format!("the directory contains a git repository: {path}");
        return Err(SnapshotError::field(GitTaskField::RepoUrl, ErrorKind::Unsupported, message)
            .with_hint("name that repository, or a directory without one"));
    }
    let written = on_tree().args(["write-tree"]).stdout().await?;
    let mut run = on_tree();
    for role in ["AUTHOR", "COMMITTER"] {
        run = run.env(&format!("GIT_{role}_NAME"), "agent-backend");
        run = run.env(&format!("GIT_{role}_EMAIL"), "agent@localhost");
    }
    let made = run.args(["commit-tree", "-m", "The directory", written.trim()]).stdout().await?;
    let commit = CommitId::read(made.trim()).ok_or_else(|| {
        SnapshotError::failed(ErrorKind::Io, "git did not print the commit of the directory")
    })?;
    // The reference keeps git from removing the objects.
    on_tree().args(["update-ref", "refs/heads/base", commit.as_str()]).stdout().await?;
    Ok(commit)
}
