//! The guard that applies a document to the files of a backend.

use std::sync::Arc;

use ab_core::guard::{GuardDecision, RefusedPath};
use ab_core::{
    Call, CallOutcome, EffectivePolicyControl, Error, ErrorCode, ErrorKind, Guard, Result, Verb,
};

use super::{PolicyDocument, PolicyDocumentFileAccess, PolicyDocumentMatch};

/// The prefix of temporary names that running writes use.
const TEMPORARY: &str = ".ab-tmp-";

/// Refuses file operations that a [`PolicyDocument`] does not allow. Commands are judged by
/// [`CommandGuard`](crate::CommandGuard).
#[derive(Clone, Debug)]
pub struct PolicyDocumentGuard {
    document: Arc<PolicyDocument>,
}

impl PolicyDocumentGuard {
    pub fn new(document: Arc<PolicyDocument>) -> Self {
        Self { document }
    }

    fn judged(&self, call: &Call<'_>) -> Option<PolicyDocumentMatch> {
        let access = access(call)?;
        for path in [call.path, call.to].into_iter().flatten() {
            let path = without_temporary_name(path.as_str());
            if let Some(hit) = self.document.judge_file(access, path, call.size) {
                return Some(hit);
            }
            let contains_blocked = match call.verb {
                Verb::Rename => self.document.may_unblock_by_move(path),
                Verb::Delete => call.recursive && self.document.may_block_descendants(path),
                _ => false,
            };
            if contains_blocked {
                return Some(PolicyDocumentMatch {
                    verdict: ab_core::Verdict::Deny,
                    rule: "filesystem.blockedPaths",
                    reason: format!("'{path}' may contain blocked paths"),
                    suggestion: "write and delete single files".to_owned(),
                });
            }
        }
        None
    }
}

/// If the last name of the path is the temporary name that a running write uses, returns the parent
/// directory instead. Callers cannot use temporary names, and the final name is judged when the
/// file is renamed.
pub(super) fn without_temporary_name(path: &str) -> &str {
    let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
    if name.starts_with(TEMPORARY) { parent } else { path }
}

/// How a call accesses files. `None` for commands and for calls about the whole workspace.
fn access(call: &Call<'_>) -> Option<PolicyDocumentFileAccess> {
    match call.verb {
        Verb::Stat | Verb::List | Verb::Search => Some(PolicyDocumentFileAccess::ReadMetadata),
        Verb::Read | Verb::ReadLink => Some(PolicyDocumentFileAccess::Read),
        Verb::Open if call.modifies_workspace => Some(PolicyDocumentFileAccess::Write),
        Verb::Open => Some(PolicyDocumentFileAccess::Read),
        Verb::Write
        | Verb::Touch
        | Verb::SetAttributes
        | Verb::Symlink
        | Verb::Mkdir
        | Verb::Delete
        | Verb::Rename => Some(PolicyDocumentFileAccess::Write),
        Verb::DiskSpace | Verb::Exec | Verb::Processes | Verb::Attach | Verb::Connect => None,
    }
}

fn refusal(hit: PolicyDocumentMatch, call: &Call<'_>) -> Error {
    let message = format!("refused: {} (rule {})", hit.reason, hit.rule);
    let code = call.verb.default_error_code();
    let code = if hit.rule == "filesystem.maxFileSize" { ErrorCode::TooLarge } else { code };
    let error = Error::new(code, ErrorKind::DeniedByPolicy, message).with_verb(call.verb);
    error.with_hint(hit.suggestion)
}

impl Guard for PolicyDocumentGuard {
    fn before_call<'a>(&'a self, call: &'a Call<'a>) -> GuardDecision<'a> {
        match self.judged(call) {
            None => GuardDecision::ALLOW,
            Some(hit) => GuardDecision::Ready(Err(refusal(hit, call))),
        }
    }

    fn check_file_size(&self, call: &Call<'_>, size: u64) -> Result<()> {
        match self.document.judge_size(size) {
            None => Ok(()),
            Some(hit) => Err(refusal(hit, call)),
        }
    }

    fn on_refused_path(&self, _: &RefusedPath<'_>) {}

    fn effective_policy_control(&self) -> Option<EffectivePolicyControl> {
        None
    }

    fn after_call(&self, _: &Call<'_>, _: &CallOutcome<'_>) {}
}
