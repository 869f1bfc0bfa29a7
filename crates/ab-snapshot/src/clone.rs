//! Makes a session's repository, which has its own working tree and borrows objects from the cache.
//!
//! The objects are borrowed through `objects/info/alternates`, and the sandbox shows the cache
//! read-only. Objects are never hard-linked, because an agent that changes a hard-linked file would
//! change the cache.

use std::path::Path;

use ab_core::{Error, ErrorCode, ErrorKind};

use crate::area;
use crate::branch::BranchName;
use crate::cache::Base;
use crate::changes::CommitId;
use crate::error::Result;
use crate::git::{Authority, Git};
use crate::source::RepoSource;

/// An exclude list for git. It names files that programs leave behind and that must not be
/// delivered.
const LITTER: &str = "# Written by agent-backend: files that are not part of a delivery.\n\
                      .ab-tmp-*\n.DS_Store\n__pycache__/\nnode_modules/\n/.cache/\n/.npm/\n";

/// The source and the branches of a session's repository.
#[derive(Clone, Debug)]
pub struct GitWorkspaceRequest {
    pub source: RepoSource,
    /// `repo.branch`: the branch to start from if the source has it, and otherwise the branch to
    /// create.
    pub branch: Option<BranchName>,
    /// The branch to create instead of `branch` if `branch` does not exist in the source.
    pub new_branch: Option<BranchName>,
    /// `delivery.targetBranch`: the branch to start from if `branch` does not exist in the source.
    pub target_branch: Option<BranchName>,
    /// `repo.commit`: the commit to start from, instead of the tip of the chosen branch.
    pub commit: Option<CommitId>,
    /// The branch to create if `branch` does not determine its name. The source must not have a
    /// branch of this name.
    pub work_branch: BranchName,
    /// The author of commits in the session's repository.
    pub author: GitAuthor,
}

impl GitWorkspaceRequest {
    /// Creates a request that starts from the default branch of the source.
    pub fn new(source: RepoSource, work_branch: BranchName) -> GitWorkspaceRequest {
        let author = GitAuthor::default();
        GitWorkspaceRequest {
            source,
            branch: None,
            new_branch: None,
            target_branch: None,
            commit: None,
            work_branch,
            author,
        }
    }
}

/// The name and the email address in commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitAuthor {
    name: String,
    email: String,
}

impl GitAuthor {
    /// Checks the name and the email address.
    ///
    /// # Errors
    /// Fails if the name or the address is empty, or contains `<`, `>` or a control character.
    pub fn new(name: &str, email: &str) -> Result<GitAuthor> {
        let bad = |text: &str| {
            text.trim().is_empty() || text.contains(|c: char| c.is_control() || "<>".contains(c))
        };
        if bad(name) || bad(email) {
            let message = format!("invalid author {name:?} {email:?}");
            return Err(
                Error::new(ErrorCode::InvalidConfiguration, ErrorKind::Invalid, message).into()
            );
        }
        Ok(GitAuthor { name: name.to_owned(), email: email.to_owned() })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn email(&self) -> &str {
        &self.email
    }
}

impl Default for GitAuthor {
    fn default() -> Self {
        Self { name: "agent-backend".to_owned(), email: "agent@localhost".to_owned() }
    }
}

/// Creates the repository and its working tree at `tree`, and the git configuration of the session
/// in `home`.
pub(crate) async fn make(
    git: &Git,
    base: &Base,
    author: &GitAuthor,
    tree: &Path,
    home: &Path,
) -> Result<()> {
    let format = format!("--object-format={}", base.commit.object_format());
    let head = format!("--initial-branch={}", base.work);
    git.init(tree, &[&format, &head]).await?;
    let dir = tree.join(".git");
    for directory in ["info", "objects/info"] {
        if !area::exists(&dir.join(directory)) {
            area::make_dir(&dir.join(directory))?;
        }
    }
    let objects = base.cache.join("objects");
    area::write(&dir.join("objects/info/alternates"), &format!("{}\n", objects.display()))?;
    area::write(&dir.join("info/exclude"), LITTER)?;
    let user = format!(
        "[user]\n\tname = {}\n\temail = {}\n",
        quoted(author.name()),
        quoted(author.email())
    );
    area::append(&dir.join("config"), &format!("[gc]\n\tauto = 0\n{user}"))?;
    // Inside a sandbox, the files may appear to belong to another user, and git would refuse them.
    let safe = format!("[safe]\n\tdirectory = {}\n", quoted(&tree.display().to_string()));
    area::write(&home.join(".gitconfig"), &format!("{safe}{user}"))?;
    let run = || git.at(tree, Authority::Clean).env("GIT_DIR", &dir).env("GIT_WORK_TREE", tree);
    let mut refs = format!("create {} {}\n", base.work.reference(), base.commit);
    if let Some(branch) = &base.branch {
        refs.push_str(&format!("create refs/remotes/origin/{branch} {}\n", base.commit));
    }
    run().args(["update-ref", "--stdin"]).input(refs).stdout().await?;
    run().args(["read-tree", "-m", "-u", base.commit.as_str()]).stdout().await?;
    Ok(())
}

/// Quotes a value for a git configuration file.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
