//! Approvals: durable questions to a person, and the decisions on them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fields::{self, Fields};
use crate::id::{ApprovalId, RunId, SessionId, SpaceId};
use crate::time::Time;
use crate::violation::FieldViolations;

/// Maximum length of the reason of a decision.
const MAX_REASON_BYTES: usize = 4 * 1024;

const CHOICES: &[(&str, ApproveOrDeny)] =
    &[("approve", ApproveOrDeny::Approve), ("deny", ApproveOrDeny::Deny)];

/// A question that a person decides at most once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Approval {
    pub id: ApprovalId,
    /// The session that waits for the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The space that waits for the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space_id: Option<SpaceId>,
    /// The run that waits for the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    pub status: ApprovalStatus,
    #[serde(flatten)]
    pub subject: ApprovalSubject,
    pub created_at: Time,
    /// Undecided approvals expire at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<ApprovalDecider>,
    /// The reason that the person gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the approval was used. It can be used once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at: Option<Time>,
}

impl Approval {
    /// A pending approval without an owner: the caller sets the session, space or run.
    pub fn pending(subject: ApprovalSubject, created_at: Time) -> Self {
        Self {
            id: ApprovalId::generate(),
            session_id: None,
            space_id: None,
            run_id: None,
            status: ApprovalStatus::Pending,
            subject,
            created_at,
            expires_at: None,
            decided_at: None,
            decided_by: None,
            reason: None,
            used_at: None,
        }
    }
}

/// What an approval is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalSubject {
    /// One line for people, such as `Run npm install`.
    pub title: String,
    /// The kind of act, such as `execute` or `edit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The whole command, path or content to decide about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The tool call that waits for the decision.
    #[serde(default, rename = "tool_execution_id", skip_serializing_if = "Option::is_none")]
    pub tool_execution_id: Option<String>,
    /// The digest of the request, in hexadecimal. The approval is valid for this request only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// The status of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalStatus {
    Pending,
    Approved,
    Denied,
    /// It was not decided in time, or the session ended.
    Expired,
}

impl ApprovalStatus {
    /// Every status.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Approved, Self::Denied, Self::Expired];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Expired => "expired",
        }
    }
}

/// The body of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalDecision {
    pub decision: ApproveOrDeny,
    /// The reason, for the record and for the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Yes or no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ApproveOrDeny {
    Approve,
    Deny,
}

impl ApprovalDecision {
    /// Parses and checks the body.
    ///
    /// # Errors
    ///
    /// The body is not such an object, or a field is invalid.
    pub fn parse(body: &[u8]) -> Result<ApprovalDecision, FieldViolations> {
        let mut found = FieldViolations::default();
        let members = fields::parsed(body)?;
        let mut body = Fields::body(&members);
        let decision = body.required_choice("decision", CHOICES, &mut found);
        let reason = body.text("reason", &mut found).map(str::to_owned);
        if reason.as_ref().is_some_and(|reason| reason.len() > MAX_REASON_BYTES) {
            found.add_invalid("reason", format!("must have at most {MAX_REASON_BYTES} bytes"));
        }
        body.end(&mut found);
        match decision {
            Some(decision) => found.into_result(ApprovalDecision { decision, reason }),
            None => Err(found),
        }
    }
}

impl ApproveOrDeny {
    /// The status of an approval after this choice.
    pub fn resulting_status(self) -> ApprovalStatus {
        match self {
            Self::Approve => ApprovalStatus::Approved,
            Self::Deny => ApprovalStatus::Denied,
        }
    }
}

/// Who decided. The record must distinguish a rule from a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApprovalDecider {
    /// The kind of principal: `person`, `key`, `rule`.
    pub kind: String,
    pub name: String,
    /// The surface, such as `web`, `cli` or `api`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<String>,
}
