//! Approvals for callers that are not operations of a run, such as tools of the MCP endpoint.

use std::fmt;
use std::time::Duration;

use ab_api::{Approval, ApprovalSubject, DeciderKind, SpaceId, Time};
use ab_core::error::escape_unprintable;
use ab_core::{ApprovalAnswer, ApprovalId, ApprovalRequest, Approver, Principal, PrincipalKind};
use ab_store::{ApprovalOwner, Store, StoreError};
use async_trait::async_trait;

use crate::service::is_yes;

/// Maximum number of characters of a command in a title.
const MAX_TITLE: usize = 100;

/// Asks a person about calls of a space: stores each question as an approval, and uses its decision
/// once.
pub(crate) struct SpaceApprover {
    store: Store,
    space: SpaceId,
    timeout: Duration,
}

impl SpaceApprover {
    pub(crate) fn new(store: Store, space: SpaceId, timeout: Duration) -> Self {
        Self { store, space, timeout }
    }

    async fn answer(&self, asked: &ApprovalRequest) -> Result<ApprovalAnswer, StoreError> {
        let digest = asked.digest.to_string();
        let scope = ApprovalOwner::Space(self.space);
        if let Some(decided) = self.store.use_decision_for_digest(scope, digest.clone()).await? {
            return Ok(decision(decided));
        }
        let waiting = self.store.pending_approval_of_space(self.space, &digest).await?;
        let id = match waiting {
            Some(waiting) => waiting.id,
            None => {
                let now = Time::now();
                let approval = Approval {
                    space_id: Some(self.space),
                    expires_at: Some(now.saturating_add(self.timeout)),
                    ..Approval::new_pending(subject(asked, None), now)
                };
                let id = approval.id;
                self.store.add_approval(approval).await?;
                id
            }
        };
        Ok(ApprovalAnswer::Pending(ApprovalId::new(id.to_string())))
    }
}

#[async_trait]
impl Approver for SpaceApprover {
    async fn ask(&self, asked: &ApprovalRequest) -> ApprovalAnswer {
        match self.answer(asked).await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::warn!(%error, space = %self.space, "cannot store a question");
                ApprovalAnswer::NoPersonAvailable
            }
        }
    }
}

impl fmt::Debug for SpaceApprover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpaceApprover").field("space", &self.space).finish_non_exhaustive()
    }
}

/// Converts a stored decision to the answer that the policy expects.
fn decision(decided: Approval) -> ApprovalAnswer {
    let (kind, name) = match &decided.decided_by {
        Some(by) if by.kind == DeciderKind::Person => (PrincipalKind::Person, by.name.as_str()),
        Some(by) => (PrincipalKind::Process, by.name.as_str()),
        None => (PrincipalKind::Process, "server"),
    };
    let by = Principal::new(kind, name);
    if is_yes(decided.status) {
        ApprovalAnswer::Yes(by)
    } else {
        ApprovalAnswer::No(by, decided.reason.unwrap_or_default())
    }
}

/// What a person sees of the question: the whole command with its directory, variables and limits.
pub(crate) fn subject(asked: &ApprovalRequest, operation_id: Option<&str>) -> ApprovalSubject {
    let command = asked.call.command().unwrap_or_default();
    let line = escape_unprintable(&command);
    let mut title: String = line.chars().take(MAX_TITLE).collect();
    if title.len() < line.len() {
        title.push('…');
    }
    let subject = ApprovalSubject {
        title: format!("Run {title}"),
        action: Some("execute".to_owned()),
        asked_by: Some(asked.principal.to_string()),
        tool_execution_id: operation_id.map(str::to_owned),
        digest: Some(asked.digest.to_string()),
        ..ApprovalSubject::default()
    };
    subject.with_detail(asked.describe())
}
