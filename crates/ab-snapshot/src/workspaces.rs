//! The store of all workspaces in a data directory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ab_core::ErrorKind;
use ab_host::directory::{
    DirectoryCopyLimits, copy_directory, copy_file, remove_directory, unpack_tar,
};
use ab_host::host_program::HostProgram;

use crate::area::{self, Area, RECORD};
use crate::branch::BranchName;
use crate::cache;
use crate::changes::CommitId;
use crate::clone::{self, GitWorkspaceRequest};
use crate::copy;
use crate::error::{GitTaskField, Result, SnapshotError};
use crate::git::Git;
use crate::source::RepoSource;
use crate::status;
use crate::token::{WorkspaceCopyMethod, WorkspaceToken};

/// Settings of [`SessionWorkspaceStore`].
#[derive(Clone, Debug)]
pub struct SnapshotSettings {
    /// The data directory, which nothing but this crate may use.
    pub data_dir: PathBuf,
    /// The directories in which the git program is looked up.
    pub program_search_path: Vec<PathBuf>,
    /// The operator's values of [`GIT_NETWORK_ENV_VARIABLES`](crate::GIT_NETWORK_ENV_VARIABLES).
    /// Only git commands that contact other hosts get them.
    pub git_environment: Vec<(OsString, OsString)>,
}

/// Makes, finds and removes workspaces. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct SessionWorkspaceStore {
    pub(crate) area: Area,
    pub(crate) git: Git,
}

/// Where the files of a new workspace come from.
#[derive(Clone, Debug)]
pub enum WorkspaceRequest {
    Git(GitWorkspaceRequest),
    /// A copy of a directory of this host.
    Copy {
        from: PathBuf,
        bounds: DirectoryCopyLimits,
    },
    /// The files of a tar archive.
    Archive {
        file: PathBuf,
        bounds: DirectoryCopyLimits,
    },
}

/// A file for the agent that is not part of the workspace's tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceAttachment {
    /// The directory that contains the file to copy. The name of the file follows.
    pub source_dir: PathBuf,
    pub source_name: String,
    /// The name that the copy gets in [`PreparedWorkspace::attachments_dir`].
    pub target_name: String,
    /// Maximum size of the file in bytes. A larger file is an error.
    pub max_bytes: u64,
}

impl WorkspaceRequest {
    /// Returns how this workspace is made, which is also part of its token.
    pub fn copy_method(&self) -> WorkspaceCopyMethod {
        match self {
            WorkspaceRequest::Git(_) => WorkspaceCopyMethod::Git,
            WorkspaceRequest::Copy { .. } | WorkspaceRequest::Archive { .. } => {
                WorkspaceCopyMethod::Copy
            }
        }
    }
}

/// The directories and the base of one session's workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedWorkspace {
    pub token: WorkspaceToken,
    /// The directory with the files that the agent works on. In the sandbox, it is the workspace
    /// root and has the same path.
    pub tree: PathBuf,
    /// The session's private home directory, read-write in the sandbox. It lies outside of `tree`.
    pub home: PathBuf,
    /// The directory for the bundle of [`collect_changes`](SessionWorkspaceStore::collect_changes), read-write
    /// in the sandbox.
    pub bundle_dir: PathBuf,
    /// The directory with the attachments, read-only in the sandbox. `None` if there are no
    /// attachments. It lies outside of `tree`.
    pub attachments_dir: Option<PathBuf>,
    /// Further directories that must be visible in the sandbox, read-only, at their own paths.
    pub read_only_dirs: Vec<PathBuf>,
    /// The commit that the tree started from. For a copied directory, the commit is in one of our
    /// own repositories.
    pub base_commit: Option<CommitId>,
    /// The branch that `base_commit` was taken from.
    pub base_branch: Option<BranchName>,
    /// The branch that is checked out and that a delivery creates. `None` for a copied directory.
    pub branch: Option<BranchName>,
    /// Notes that a person should see. They are also set for a workspace that was made earlier.
    pub notes: Vec<PreparedWorkspaceNote>,
}

/// Something about a new workspace that a person should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreparedWorkspaceNote {
    /// Objects were transferred from the source into the cache.
    Fetched,
    /// The source's working tree has uncommitted changes, which are not part of the workspace.
    Uncommitted { changed: u64, untracked: u64 },
    /// The changes in the source's working tree could not be counted.
    UncommittedUnknown { reason: String },
    /// Devices, sockets and FIFOs are not part of the copy.
    SpecialFilesSkipped { count: u64 },
}

impl PreparedWorkspaceNote {
    /// Returns the note as one line of the record.
    fn written(&self) -> String {
        match self {
            Self::Fetched => "fetched".to_owned(),
            Self::Uncommitted { changed, untracked } => {
                format!("uncommitted {changed} {untracked}")
            }
            Self::UncommittedUnknown { reason } => {
                format!("uncommitted-unknown {}", reason.replace(['\n', '\r'], " "))
            }
            Self::SpecialFilesSkipped { count } => format!("special-files-skipped {count}"),
        }
    }

    /// Parses a line of the record. Returns `None` for a line that another version wrote.
    fn read(line: &str) -> Option<PreparedWorkspaceNote> {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let mut numbers = rest.split(' ').map_while(|number| number.parse().ok());
        match kind {
            "fetched" => Some(Self::Fetched),
            "uncommitted" => {
                Some(Self::Uncommitted { changed: numbers.next()?, untracked: numbers.next()? })
            }
            "uncommitted-unknown" => Some(Self::UncommittedUnknown { reason: rest.to_owned() }),
            "special-files-skipped" => Some(Self::SpecialFilesSkipped { count: numbers.next()? }),
            _ => None,
        }
    }
}

impl SessionWorkspaceStore {
    /// Creates the directories below `settings.data_dir` and looks up the git program.
    pub fn open(settings: SnapshotSettings) -> Result<SessionWorkspaceStore> {
        let tool = HostProgram::find("git", &settings.program_search_path)?;
        let area = Area::open(&settings.data_dir)?;
        let (home, config) = (area.git_home(), area.git_config());
        let git = Git { tool, home, config, operator: settings.git_environment };
        Ok(SessionWorkspaceStore { area, git })
    }

    /// Makes the workspace of `token` without attachments. The caller must have stored the token.
    /// See [`prepare_workspace_with_attachments`](SessionWorkspaceStore::prepare_workspace_with_attachments).
    ///
    /// # Errors
    /// Fails in the same cases as [`prepare_workspace_with_attachments`](SessionWorkspaceStore::prepare_workspace_with_attachments).
    pub async fn prepare_workspace(
        &self,
        token: &WorkspaceToken,
        request: &WorkspaceRequest,
    ) -> Result<PreparedWorkspace> {
        self.prepare_workspace_with_attachments(token, request, &[]).await
    }

    /// Makes the workspace of `token` and copies the attachments. The caller must have stored the
    /// token. A workspace that is already complete is returned unchanged. If an incomplete
    /// workspace exists, its files are removed first.
    ///
    /// # Errors
    /// Fails if the source cannot be used. The error names the task's field. After a failure the
    /// incomplete workspace is removed, because it may have filled the disk.
    pub async fn prepare_workspace_with_attachments(
        &self,
        token: &WorkspaceToken,
        request: &WorkspaceRequest,
        attachments: &[WorkspaceAttachment],
    ) -> Result<PreparedWorkspace> {
        if token.copy_method() != request.copy_method() {
            let message = format!("the cleanup token {token} is for another provider");
            return Err(SnapshotError::failed(ErrorKind::Invalid, message));
        }
        if let Some(workspace) = self.find_workspace(token)? {
            return Ok(workspace);
        }
        self.remove_workspace(token).await?;
        match self.make(token, request, attachments).await {
            Ok(workspace) => Ok(workspace),
            Err(error) => {
                // If this fails, the caller can still remove the rest by the token.
                let _ = self.remove_workspace(token).await;
                Err(error)
            }
        }
    }

    async fn make(
        &self,
        token: &WorkspaceToken,
        request: &WorkspaceRequest,
        attachments: &[WorkspaceAttachment],
    ) -> Result<PreparedWorkspace> {
        let root = self.area.workspace(token);
        area::make_dir(&root)?;
        let mut workspace = self.empty(token);
        area::make_dir(&workspace.home)?;
        area::make_dir(&workspace.bundle_dir)?;
        match request {
            WorkspaceRequest::Git(request) => self.clone_into(&mut workspace, request).await?,
            WorkspaceRequest::Copy { from, bounds } => {
                self.copy_into(&mut workspace, from, *bounds).await?;
            }
            WorkspaceRequest::Archive { file, bounds } => {
                let of_upload = |error: SnapshotError| error.about(GitTaskField::RepoUpload);
                self.unpack_into(&mut workspace, file, *bounds).await.map_err(of_upload)?;
            }
        }
        self.attach(&mut workspace, attachments).await?;
        self.area.write_record(token, &record(&workspace))?;
        Ok(workspace)
    }

    /// Returns the workspace of `token` if it is complete and has not been removed.
    pub fn find_workspace(&self, token: &WorkspaceToken) -> Result<Option<PreparedWorkspace>> {
        let Some(text) = self.area.record(token)? else { return Ok(None) };
        let mut workspace = self.empty(token);
        for line in text.lines() {
            let Some((key, value)) = line.split_once(' ') else { continue };
            let branch = || BranchName::parse(value, GitTaskField::RepoBranch).map(Some);
            match key {
                "base" => workspace.base_commit = CommitId::read(value),
                "base-branch" => workspace.base_branch = branch()?,
                "branch" => workspace.branch = branch()?,
                READ_ONLY => workspace.read_only_dirs.push(PathBuf::from(value)),
                ATTACHMENTS => workspace.attachments_dir = Some(PathBuf::from(value)),
                "note" => workspace.notes.extend(PreparedWorkspaceNote::read(value)),
                _ => {}
            }
        }
        Ok(Some(workspace))
    }

    /// Removes everything that was made for `token`, even if another process made it or it is
    /// incomplete. The session's processes must have ended before.
    pub async fn remove_workspace(&self, token: &WorkspaceToken) -> Result<()> {
        let root = self.area.workspace(token);
        // Remove the record first, so that a partly removed workspace is no longer found.
        Ok(remove_directory(&root.join(RECORD)).await.and(remove_directory(&root).await)?)
    }

    /// Returns the tokens of all existing workspaces, complete or not.
    pub fn list_tokens(&self) -> Result<Vec<WorkspaceToken>> {
        self.area.tokens()
    }

    fn empty(&self, token: &WorkspaceToken) -> PreparedWorkspace {
        let root = self.area.workspace(token);
        PreparedWorkspace {
            token: token.clone(),
            tree: root.join("tree"),
            home: root.join("home"),
            bundle_dir: root.join("outbox"),
            attachments_dir: None,
            read_only_dirs: Vec::new(),
            base_commit: None,
            base_branch: None,
            branch: None,
            notes: Vec::new(),
        }
    }

    async fn clone_into(
        &self,
        workspace: &mut PreparedWorkspace,
        request: &GitWorkspaceRequest,
    ) -> Result<()> {
        if let Some(path) = request.source.local_path() {
            self.refuse_own(path, GitTaskField::RepoUrl)?;
        }
        let base = cache::provide(&self.area, &self.git, request).await?;
        let (tree, home) = (&workspace.tree, &workspace.home);
        clone::make(&self.git, &base, &request.author, tree, home).await?;
        if base.fetched {
            workspace.notes.push(PreparedWorkspaceNote::Fetched);
        }
        if let Some(source) = request.source.local_path() {
            let probe = self.area.workspace(&workspace.token).join("probe");
            workspace.notes.extend(match status::count(&self.git, source, &probe).await {
                Ok(status::Uncommitted { changed: 0, untracked: 0 }) => None,
                Ok(status::Uncommitted { changed, untracked }) => {
                    Some(PreparedWorkspaceNote::Uncommitted { changed, untracked })
                }
                Err(error) => {
                    Some(PreparedWorkspaceNote::UncommittedUnknown { reason: error.to_string() })
                }
            });
            remove_directory(&probe).await?;
        }
        workspace.read_only_dirs = vec![base.cache.join("objects")];
        workspace.base_commit = Some(base.commit);
        workspace.base_branch = base.branch;
        workspace.branch = Some(base.work);
        Ok(())
    }

    async fn copy_into(
        &self,
        workspace: &mut PreparedWorkspace,
        from: &Path,
        bounds: DirectoryCopyLimits,
    ) -> Result<()> {
        self.refuse_own(from, GitTaskField::RepoUrl)?;
        let report = copy_directory(from, &workspace.tree, bounds).await?;
        if report.skipped_special_files > 0 {
            workspace.notes.push(PreparedWorkspaceNote::SpecialFilesSkipped {
                count: report.skipped_special_files,
            });
        }
        self.commit_base(workspace).await
    }

    async fn unpack_into(
        &self,
        workspace: &mut PreparedWorkspace,
        file: &Path,
        bounds: DirectoryCopyLimits,
    ) -> Result<()> {
        unpack_tar(file, &workspace.tree, bounds).await?;
        self.commit_base(workspace).await
    }

    /// Commits the files that the tree starts from, for later comparison.
    async fn commit_base(&self, workspace: &mut PreparedWorkspace) -> Result<()> {
        let repository = self.area.workspace(&workspace.token).join("base.git");
        workspace.base_commit = Some(copy::commit(&self.git, &workspace.tree, &repository).await?);
        workspace.read_only_dirs = vec![repository.join("objects")];
        Ok(())
    }

    /// Copies the attachments into the workspace.
    async fn attach(
        &self,
        workspace: &mut PreparedWorkspace,
        attachments: &[WorkspaceAttachment],
    ) -> Result<()> {
        if attachments.is_empty() {
            return Ok(());
        }
        let made = self.area.workspace(&workspace.token).join("attachments");
        area::make_dir(&made)?;
        for WorkspaceAttachment {
            source_dir: directory,
            source_name: file,
            target_name: name,
            max_bytes,
        } in attachments
        {
            let to = made.join(name);
            let copied = copy_file(directory, file, &to, *max_bytes).await;
            copied.map_err(|error| SnapshotError::from(error).about(GitTaskField::Attachments))?;
        }
        workspace.attachments_dir = Some(made);
        Ok(())
    }

    /// Returns whether the source is a directory of this host that no git repository contains. Such
    /// a source can only be copied.
    pub async fn is_directory_without_git(&self, source: &RepoSource) -> bool {
        let Some(path) = source.local_path() else { return false };
        area::is_dir(path) && !cache::is_in_repository(&self.git, path).await
    }

    /// Checks whether [`prepare_workspace`](SessionWorkspaceStore::prepare_workspace) would have
    /// what it needs, as far as this host can tell. Does not contact a remote source.
    ///
    /// # Errors
    /// Fails in the same cases as [`prepare_workspace`](SessionWorkspaceStore::prepare_workspace).
    /// The error names the task's field.
    pub async fn check_request(&self, request: &WorkspaceRequest) -> Result<()> {
        match request {
            WorkspaceRequest::Git(request) => {
                let Some(path) = request.source.local_path() else { return Ok(()) };
                self.refuse_own(path, GitTaskField::RepoUrl)?;
                cache::check(&self.git, request).await.map(drop)
            }
            WorkspaceRequest::Copy { from, .. } => {
                self.refuse_own(from, GitTaskField::RepoUrl)?;
                if area::is_dir(from) {
                    return Ok(());
                }
                let message = format!("{} is not a directory", from.display());
                Err(SnapshotError::field(GitTaskField::RepoUrl, ErrorKind::NotADirectory, message))
            }
            // The archive was already checked when it was received.
            WorkspaceRequest::Archive { .. } => Ok(()),
        }
    }

    /// Returns the commit that a workspace of a local repository would start from now. `None` for
    /// any other source.
    ///
    /// # Errors
    /// Fails in the same cases as [`check_request`](SessionWorkspaceStore::check_request).
    pub async fn find_base_commit(&self, request: &WorkspaceRequest) -> Result<Option<CommitId>> {
        match request {
            WorkspaceRequest::Git(request) if request.source.local_path().is_some() => {
                cache::check(&self.git, request).await.map(Some)
            }
            WorkspaceRequest::Git(_)
            | WorkspaceRequest::Copy { .. }
            | WorkspaceRequest::Archive { .. } => Ok(None),
        }
    }

    /// Fails if the source contains our data directory or lies in it, because that directory
    /// contains other sessions.
    pub(crate) fn refuse_own(&self, path: &Path, field: GitTaskField) -> Result<()> {
        let real = area::canonical(path).map_err(|error| {
            let message = format!("cannot open {}: {error}", path.display());
            SnapshotError::field(field, ErrorKind::NotFound, message)
        })?;
        if self.area.root().starts_with(&real) || real.starts_with(self.area.root()) {
            let message = format!(
                "{} contains the data directory of the server, or is inside it",
                path.display()
            );
            return Err(SnapshotError::field(field, ErrorKind::DeniedByPolicy, message));
        }
        Ok(())
    }
}

/// The key of the entries of [`PreparedWorkspace::read_only_dirs`] in the record.
pub(crate) const READ_ONLY: &str = "read-only";
/// The key of the entry of [`PreparedWorkspace::attachments_dir`] in the record.
pub(crate) const ATTACHMENTS: &str = "attachments";

fn record(workspace: &PreparedWorkspace) -> String {
    let mut lines = Vec::new();
    lines.extend(workspace.base_commit.iter().map(|it| format!("base {it}")));
    lines.extend(workspace.base_branch.iter().map(|it| format!("base-branch {it}")));
    lines.extend(workspace.branch.iter().map(|it| format!("branch {it}")));
    lines.extend(workspace.read_only_dirs.iter().map(|it| format!("{READ_ONLY} {}", it.display())));
    let attachments = workspace.attachments_dir.iter();
    lines.extend(attachments.map(|it| format!("{ATTACHMENTS} {}", it.display())));
    lines.extend(workspace.notes.iter().map(|it| format!("note {}", it.written())));
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_survive_in_the_record() {
        for note in [
            PreparedWorkspaceNote::Fetched,
            PreparedWorkspaceNote::Uncommitted { changed: 3, untracked: 0 },
            PreparedWorkspaceNote::UncommittedUnknown { reason: "git failed: no index".to_owned() },
            PreparedWorkspaceNote::SpecialFilesSkipped { count: 7 },
        ] {
            assert_eq!(PreparedWorkspaceNote::read(&note.written()), Some(note));
        }
        let lines = PreparedWorkspaceNote::UncommittedUnknown { reason: "one\nbase x".to_owned() };
        assert_eq!(lines.written(), "uncommitted-unknown one base x");
        assert_eq!(PreparedWorkspaceNote::read("unknown 1"), None);
        assert_eq!(PreparedWorkspaceNote::read("uncommitted 1"), None);
    }
}
