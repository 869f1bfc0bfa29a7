//! Verdicts of rules, and questions to a person if the verdict of a rule is that a person must
//! decide.
//!
//!
//! An [`ApprovalRequest`] is owned plain data, so that an [`Approver`] can store it and answer
//! later. Its [`CallDigest`] covers everything that determines what the call does. An answer to one
//! question is therefore never valid for another question that only looks similar.

mod describe;
mod digest;

use std::fmt;

use async_trait::async_trait;

use crate::call::{Call, CallId, Verb};
use crate::path::WsPath;
use crate::principal::Principal;
use crate::process::ExecRequest;

pub use digest::CallDigest;

/// The decision of a rule about a call. If several rules decide, the greatest verdict applies.
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

/// The id of an approval that is stored until a person decides. Created by the [`Approver`].
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
    /// The path of the call. For `exec`, the working directory.
    pub path: Option<WsPath>,
    /// The new path. Only for `rename`.
    pub to: Option<WsPath>,
    /// The whole request: command, environment, working directory and limits. Only for `exec`.
    pub request: Option<ExecRequest>,
    /// The number of bytes that the call writes.
    pub size: Option<u64>,
    pub modifies_workspace: bool,
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
            modifies_workspace: call.modifies_workspace,
            recursive: call.recursive,
        }
    }

    /// The command as one line. Only for `exec`.
    pub fn command(&self) -> Option<String> {
        self.request.as_ref().map(|request| request.command.to_shell_line())
    }
}

/// A question to a person: the caller, the call, and the rule that requires approval.
#[derive(Clone, Debug)]
pub struct ApprovalRequest {
    /// The id of the call that waits for the answer. A repeated call has a different id and the
    /// same digest.
    pub id: CallId,
    pub principal: Principal,
    pub rule: TriggeringRule,
    pub call: OwnedCall,
    /// The digest of the principal and the call. The same question has the same digest in every
    /// process.
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

/// The answer of a person to a question, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalAnswer {
    /// This principal approved the call. The approval is valid only for this call.
    Yes(Principal),
    /// The principal refused, for this reason. The reason may be empty.
    No(Principal, String),
    /// The question is stored under this id and is not decided yet. The call fails. The caller may
    /// repeat the call after the approval is decided.
    Pending(ApprovalId),
    /// No person can be asked.
    NoPersonAvailable,
}

/// Sends questions to a person.
#[async_trait]
pub trait Approver: fmt::Debug + Send + Sync {
    async fn ask(&self, asked: &ApprovalRequest) -> ApprovalAnswer;
}

/// An approver that approves nothing, because no person can be asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoApprover;

#[async_trait]
impl Approver for NoApprover {
    async fn ask(&self, _: &ApprovalRequest) -> ApprovalAnswer {
        ApprovalAnswer::NoPersonAvailable
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
