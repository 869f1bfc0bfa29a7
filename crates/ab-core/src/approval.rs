//! Verdicts, and the question to a person where a rule does not decide alone.
//!
//! An [`ApprovalRequest`] is owned plain data, so that an [`Approver`] can store it and answer
//! later. Its [`CallDigest`] covers everything that decides what the call does: an answer to one
//! question never counts for another one that only looks alike.

mod describe;
mod digest;

use std::fmt;

use async_trait::async_trait;

use crate::call::{Call, CallId, Verb};
use crate::path::WsPath;
use crate::principal::Principal;
use crate::process::ExecRequest;

pub use digest::CallDigest;

/// What a rule decides about a call. Of several verdicts the greatest applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    #[default]
    Allow,
    /// A person must approve the call first.
    Ask,
    Deny,
}

impl Verdict {
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Allow => "allow",
            Verdict::Ask => "ask",
            Verdict::Deny => "deny",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Identifies an approval that is stored until a person decides. Created by the [`Approver`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ApprovalId(String);

impl ApprovalId {
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The rule that requires approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggeringRule {
    pub rule: String,
    pub reason: String,
    /// What the caller could do instead.
    pub suggestion: Option<String>,
}

/// A call as it is shown to the person who decides. Owned, unlike [`Call`].
#[derive(Clone, Debug)]
pub struct OwnedCall {
    pub verb: Verb,
    /// The path of the call; the working directory of a command.
    pub path: Option<WsPath>,
    /// The new path, for `rename`.
    pub to: Option<WsPath>,
    /// The whole request, for `exec`: command, environment, working directory and limits.
    pub request: Option<ExecRequest>,
    /// Bytes that the call writes.
    pub size: Option<u64>,
    pub modifies: bool,
    pub recursive: bool,
}

impl OwnedCall {
    pub(crate) fn from_call(call: &Call<'_>) -> Self {
        Self {
            verb: call.verb,
            path: call.path.cloned(),
            to: call.to.cloned(),
            request: call.request.cloned(),
            size: call.size,
            modifies: call.modifies,
            recursive: call.recursive,
        }
    }

    /// The command as one line, for `exec`.
    pub fn command(&self) -> Option<String> {
        self.request.as_ref().map(|request| request.command.to_shell_line())
    }
}

/// A question to a person: who wants to do what, and which rule asks.
#[derive(Clone, Debug)]
pub struct ApprovalRequest {
    /// The call that waits for the answer. A repeated call has another id and the same digest.
    pub id: CallId,
    pub principal: Principal,
    pub rule: TriggeringRule,
    pub call: OwnedCall,
    /// Covers the principal and the call. The same question has the same digest in every process.
    pub digest: CallDigest,
}

impl ApprovalRequest {
    pub fn new(call: &Call<'_>, rule: TriggeringRule) -> Self {
        let principal = call.actor.principal().clone();
        let asked = OwnedCall::from_call(call);
        let digest = CallDigest::compute(&principal, &asked);
        Self { id: call.id, principal, rule, call: asked, digest }
    }
}

/// The answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalAnswer {
    /// The principal approved this one call.
    Yes(Principal),
    /// The principal refused, for this reason. The reason may be empty.
    No(Principal, String),
    /// The question is stored under this id and not decided yet. The call fails; the caller may
    /// repeat it when the approval is decided.
    Later(ApprovalId),
    /// No person can be asked.
    Nobody,
}

/// Passes questions to a person.
#[async_trait]
pub trait Approver: fmt::Debug + Send + Sync {
    async fn ask(&self, asked: &ApprovalRequest) -> ApprovalAnswer;
}

/// Approves nothing, because no person can be asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoApprover;

#[async_trait]
impl Approver for NoApprover {
    async fn ask(&self, _: &ApprovalRequest) -> ApprovalAnswer {
        ApprovalAnswer::Nobody
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_combine_by_the_greatest() {
        assert!(Verdict::Allow < Verdict::Ask && Verdict::Ask < Verdict::Deny);
        let combined = [Verdict::Ask, Verdict::Allow].into_iter().max();
        assert_eq!(combined.map(Verdict::as_str), Some("ask"));
        assert_eq!(Verdict::default(), Verdict::Allow);
    }
}
