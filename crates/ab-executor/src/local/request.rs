//! From a session to what ab-snapshot is asked for: token, workspace, names.

use ab_api::{Session, SessionId};
use ab_snapshot::{
    BranchName, CleanupToken, CommitId, GitRequest, Provider, RepoSource, Result, TaskField,
    WorkspaceNote, WorkspaceRequest,
};
use sha2::{Digest, Sha256};

/// Bytes of a session's digest in its token.
const TOKEN_BYTES: usize = 16;
/// Characters of the prompt in the name of a branch.
const SLUG: usize = 40;
/// Characters of the first line of a commit message.
const SUBJECT: usize = 72;

/// The text of the session's cleanup token: always the same.
pub(super) fn token_text(session: SessionId) -> String {
    let digest = Sha256::digest(session.to_string().as_bytes());
    let hex: String = digest.iter().take(TOKEN_BYTES).map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{hex}", Provider::Git)
}

/// The token of the session's workspace, which an earlier session may have made.
pub(super) fn token(session: &Session) -> Result<CleanupToken> {
    CleanupToken::parse(&token_text(maker(session)))
}

/// The session that makes, or made, the workspace.
pub(super) fn maker(session: &Session) -> SessionId {
    session.workspace.made_by.unwrap_or(session.id)
}

/// Where the session's repository is.
pub(super) fn source(session: &Session) -> Result<RepoSource> {
    RepoSource::parse(&session.repo.url)
}

/// The workspace that the session's task asks for.
pub(super) fn workspace(session: &Session) -> Result<WorkspaceRequest> {
    let branch =
        |name: Option<&String>, field| name.map(|name| BranchName::parse(name, field)).transpose();
    let work = BranchName::parse(&work_branch(session), TaskField::RepoBranch)?;
    let mut request = GitRequest::new(source(session)?, work);
    request.branch = branch(session.repo.branch.as_ref(), TaskField::RepoBranch)?;
    request.target = branch(session.delivery.target_branch.as_ref(), TaskField::TargetBranch)?;
    request.commit = session.repo.commit.as_deref().map(CommitId::parse).transpose()?;
    Ok(WorkspaceRequest::Git(request))
}

/// What a person should know about a new workspace.
pub(super) fn note(note: &WorkspaceNote) -> Option<String> {
    match note {
        WorkspaceNote::Fetched => None,
        WorkspaceNote::Uncommitted { changed, untracked } => Some(format!(
            "Uncommitted changes of the source are left out: {changed} changed, {untracked} untracked files."
        )),
        WorkspaceNote::UncommittedUnknown { reason } => {
            Some(format!("The uncommitted changes of the source could not be counted: {reason}"))
        }
        WorkspaceNote::SpecialFilesSkipped { count } => {
            Some(format!("Devices, sockets and FIFOs are left out: {count}."))
        }
    }
}

/// The message of the commit with what the agent left uncommitted.
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

/// `ah/` with words of the prompt, and an end that no other session has.
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
        assert_eq!(token_text(one), token_text(one));
        CleanupToken::parse(&token_text(one)).expect("a token");
        assert_ne!(token_text(one), token_text(other));
    }
}
