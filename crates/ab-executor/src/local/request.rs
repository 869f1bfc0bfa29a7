//! Converts a session to a request for ab-snapshot: token, workspace and names.

use std::path::Path;
use std::time::SystemTime;

use ab_api::{DeliveryMode, FieldViolations, RepoMode, Session, SessionId, SnapshotProvider, Time};
use ab_host::directory::DirectoryCopyLimits;
use ab_snapshot::{
    BranchName, CommitId, GitTaskField, GitWorkspaceRequest, PreparedWorkspaceNote, RepoSource,
    Result, SessionWorkspaceStore, SnapshotError, WorkspaceRequest, WorkspaceToken,
};
use sha2::{Digest, Sha256};

/// Number of bytes of the session's digest that its token contains.
const TOKEN_BYTES: usize = 16;
/// Maximum number of characters that the prompt contributes to a branch name.
const SLUG: usize = 40;
/// Maximum number of characters of the first line of a commit message.
const SUBJECT: usize = 72;

/// The supported providers. The first is the default.
pub(super) const PROVIDERS: [SnapshotProvider; 2] = [SnapshotProvider::Git, SnapshotProvider::Copy];

/// Chooses how the workspace of a new session is made, and checks whether it can be made in this
/// way.
///
/// # Errors
///
/// Returns the problems of the task.
pub(super) async fn accept(
    session: &Session,
    workspaces: &SessionWorkspaceStore,
    uploads: &Path,
) -> std::result::Result<SnapshotProvider, FieldViolations> {
    let mut found = FieldViolations::default();
    if session.repo.mode == RepoMode::Upload {
        check_patch(session, "the files of an upload have no branches", &mut found);
        return found.into_result(SnapshotProvider::Copy);
    }
    let source = match source(session) {
        Ok(source) => source,
        Err(error) => {
            refuse(&error, &mut found);
            return Err(found);
        }
    };
    let asked = session.workspace.choice.snapshot_preference.iter();
    let asked = { asked }.find(|provider| PROVIDERS.contains(provider)).copied();
    let is_plain = session.repo.mode == RepoMode::Git
        && asked.is_none_or(|asked| asked == SnapshotProvider::Copy)
        && workspaces.is_directory_without_git(&source).await;
    let provider = match asked {
        // Any other source is always copied, even if it contains a git repository.
        _ if session.repo.mode != RepoMode::Git => SnapshotProvider::Copy,
        Some(provider) => provider,
        None if is_plain => SnapshotProvider::Copy,
        None => SnapshotProvider::Git,
    };
    if provider == SnapshotProvider::Copy {
        let because = if is_plain {
            format!("{} is not in a git repository, so it has no branches", session.repo.url)
        } else {
            "the workspace is a copy of a directory, which has no branches".to_owned()
        };
        check_copy(session, &source, &because, &mut found);
    }
    if provider == SnapshotProvider::Git || source.local_path().is_some() {
        let checked = match workspace(session, provider, uploads) {
            Ok(request) => workspaces.check_request(&request).await,
            Err(error) => Err(error),
        };
        if let Err(error) = checked {
            refuse(&error, &mut found);
        }
    }
    found.into_result(provider)
}

/// The commit of a local repository that the workspace of a new session would start from now.
///
/// # Errors
///
/// Returns the problems of the task.
pub(super) async fn base_commit(
    session: &Session,
    workspaces: &SessionWorkspaceStore,
    uploads: &Path,
) -> std::result::Result<Option<String>, FieldViolations> {
    let found = match workspace(session, provider(session), uploads) {
        Ok(request) => workspaces.find_base_commit(&request).await,
        Err(error) => Err(error),
    };
    match found {
        Ok(commit) => Ok(commit.map(|commit| commit.to_string())),
        Err(error) => {
            let mut violations = FieldViolations::default();
            refuse(&error, &mut violations);
            violations.into_result(None)
        }
    }
}

/// Checks the task for use with a copy, which has no commits and no branches.
fn check_copy(session: &Session, source: &RepoSource, because: &str, found: &mut FieldViolations) {
    if source.local_path().is_none() {
        let why = "\"copy\" needs a directory of the server's machine in repo.url";
        found.add_unavailable("workspace.snapshotPreference", why);
        return;
    }
    check_patch(session, because, found);
}

/// Checks that the task asks for a patch, and for nothing that needs a repository.
fn check_patch(session: &Session, because: &str, found: &mut FieldViolations) {
    if session.delivery.mode != DeliveryMode::Patch {
        found.add_unavailable("delivery.mode", format!("must be \"patch\": {because}"));
    }
    for (field, value) in [
        ("repo.branch", &session.repo.branch),
        ("repo.commit", &session.repo.commit),
        ("delivery.targetBranch", &session.delivery.target_branch),
    ] {
        if value.is_some() {
            found.add_unavailable(field, format!("needs a git repository: {because}"));
        }
    }
}

/// Adds the error to the violations if it concerns a field of the task. Ignores other errors,
/// because making the workspace will report them.
fn refuse(error: &SnapshotError, found: &mut FieldViolations) {
    if let Some(field) = error.field {
        let hint = error.error.hint().map(|hint| format!(" ({hint})")).unwrap_or_default();
        found.add_unavailable(
            field.as_str(),
            format!("cannot be used: {}{hint}", error.error.message()),
        );
    }
}

/// How the session's workspace is made. Sessions from earlier versions have no provider and use a
/// git clone.
pub(super) fn provider(session: &Session) -> SnapshotProvider {
    session.workspace.snapshot_provider.unwrap_or(SnapshotProvider::Git)
}

/// The text of the session's cleanup token. It never changes.
pub(super) fn token_text(session: SessionId, provider: SnapshotProvider) -> String {
    let provider = match provider {
        SnapshotProvider::Copy => ab_snapshot::WorkspaceCopyMethod::Copy,
        SnapshotProvider::Git
        | SnapshotProvider::Zfs
        | SnapshotProvider::Btrfs
        | SnapshotProvider::Overlay => ab_snapshot::WorkspaceCopyMethod::Git,
    };
    let digest = Sha256::digest(session.to_string().as_bytes());
    let hex: String = digest.iter().take(TOKEN_BYTES).map(|byte| format!("{byte:02x}")).collect();
    format!("{provider}-{hex}")
}

/// The token of the session's workspace, which an earlier session may have made.
pub(super) fn token(session: &Session) -> Result<WorkspaceToken> {
    WorkspaceToken::parse(&token_text(maker(session), provider(session)))
}

/// The session that makes the workspace, or the earlier session that made it.
pub(super) fn maker(session: &Session) -> SessionId {
    session.workspace.made_by.unwrap_or(session.id)
}

/// The source of the session's repository.
pub(super) fn source(session: &Session) -> Result<RepoSource> {
    RepoSource::parse(&session.repo.url)
}

/// Describes the workspace that the session's task asks for.
pub(super) fn workspace(
    session: &Session,
    provider: SnapshotProvider,
    uploads: &Path,
) -> Result<WorkspaceRequest> {
    if let Some(id) = session.repo.upload_id {
        let file = uploads.join(id.to_string());
        return Ok(WorkspaceRequest::Archive { file, bounds: DirectoryCopyLimits::default() });
    }
    if provider == SnapshotProvider::Copy
        && let Some(path) = source(session)?.local_path()
    {
        let from = path.to_owned();
        return Ok(WorkspaceRequest::Copy { from, bounds: DirectoryCopyLimits::default() });
    }
    let branch =
        |name: Option<&String>, field| name.map(|name| BranchName::parse(name, field)).transpose();
    let work = BranchName::parse(&work_branch(session), GitTaskField::RepoBranch)?;
    let mut request = GitWorkspaceRequest::new(source(session)?, work);
    request.branch = branch(session.repo.branch.as_ref(), GitTaskField::RepoBranch)?;
    // Several sessions of one task must not use the same branch, so each appends its number.
    let number = session.task_group.map_or(1, |group| group.number);
    let numbered = session.repo.branch.as_ref().map(|name| format!("{name}-{number}"));
    request.new_branch =
        branch(numbered.as_ref().filter(|_| number > 1), GitTaskField::RepoBranch)?;
    request.target_branch =
        branch(session.delivery.target_branch.as_ref(), GitTaskField::TargetBranch)?;
    // The commit of a local repository is chosen when the session is created.
    let commit = session.repo.commit.as_deref().or(session.vcs.base_commit.as_deref());
    request.commit = commit.map(CommitId::parse).transpose()?;
    Ok(WorkspaceRequest::Git(request))
}

/// Converts a note about a new workspace to a text for the user.
pub(super) fn note(note: &PreparedWorkspaceNote) -> Option<String> {
    match note {
        PreparedWorkspaceNote::Fetched => None,
        PreparedWorkspaceNote::Uncommitted { changed, untracked } => Some(format!(
            "Uncommitted changes of the source are left out: {changed} changed, {untracked} untracked files."
        )),
        PreparedWorkspaceNote::UncommittedUnknown { reason } => {
            Some(format!("The uncommitted changes of the source could not be counted: {reason}"))
        }
        PreparedWorkspaceNote::SpecialFilesSkipped { count } => {
            Some(format!("Devices, sockets and FIFOs are left out: {count}."))
        }
    }
}

/// Converts a time of the file system.
pub(super) fn time(at: SystemTime) -> Time {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// The message of the commit that contains the agent's uncommitted changes.
pub(super) fn commit_message(prompt: &str) -> String {
    let prompt = prompt.trim();
    let first = prompt.lines().next().unwrap_or("Agent work").trim_end();
    let mut subject: String = first.chars().take(SUBJECT).collect();
    if subject.len() == first.len() && (prompt == first || prompt.is_empty()) {
        return subject;
    }
    if subject.len() < first.len() {
        subject.pop();
        subject.push('…');
    }
    format!("{subject}\n\n{prompt}")
}

/// The branch name: `ah/`, then words of the prompt, then a suffix that is unique to the session.
fn work_branch(session: &Session) -> String {
    let id = session.id.to_string().to_ascii_lowercase();
    let unique = &id[id.len().saturating_sub(6)..];
    let words = session.prompt.split(|c: char| !c.is_ascii_alphanumeric());
    let mut slug = String::new();
    for word in words.filter(|word| !word.is_empty()) {
        if slug.len() + word.len() >= SLUG {
            break;
        }
        slug.push_str(&word.to_ascii_lowercase());
        slug.push('-');
    }
    format!("ah/{slug}{unique}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commit_messages_have_a_short_first_line() {
        assert_eq!(commit_message("Fix it"), "Fix it");
        assert_eq!(commit_message("\nFix it\nnow\n"), "Fix it\n\nFix it\nnow");
        let long = commit_message(&"x".repeat(100));
        assert_eq!(long.lines().next().map(|line| line.chars().count()), Some(SUBJECT));
        assert_eq!(commit_message(" "), "Agent work");
    }

    #[test]
    fn tokens_are_those_of_the_session() {
        let (one, other) = (SessionId::generate(), SessionId::generate());
        for provider in PROVIDERS {
            assert_eq!(token_text(one, provider), token_text(one, provider));
            WorkspaceToken::parse(&token_text(one, provider)).expect("a token");
            assert_ne!(token_text(one, provider), token_text(other, provider));
        }
    }
}
