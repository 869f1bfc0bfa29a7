//! Approvals: stored questions to a person, and the decisions about them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fields::{self, Fields};
use crate::id::{ApprovalId, RunId, SessionId, SpaceId};
use crate::time::Time;
use crate::violation::FieldViolations;

/// Maximum length of the reason of a decision in bytes.
const MAX_REASON_BYTES: usize = 4 * 1024;

/// Maximum length of [`ApprovalSubject::detail`] in bytes. A longer detail is truncated, and the
/// approval can then only be denied.
pub const MAX_APPROVAL_DETAIL_BYTES: usize = 1024 * 1024;

const CHOICES: &[(&str, ApproveOrDeny)] =
    &[("approve", ApproveOrDeny::Approve), ("deny", ApproveOrDeny::Deny)];
const DECIDERS: &[(&str, DeciderKind)] =
    &[("person", DeciderKind::Person), ("rule", DeciderKind::Rule)];
const CHANNELS: &[(&str, DecisionChannel)] =
    &[("api", DecisionChannel::Api), ("cli", DecisionChannel::Cli)];

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
    /// The program that waits for the decision, if the approval does not belong to a session or
    /// space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<ApprovalRequester>,
    pub status: ApprovalStatus,
    #[serde(flatten)]
    pub subject: ApprovalSubject,
    pub created_at: Time,
    /// If the approval is still pending at this time, it expires, which counts as a refusal. A
    /// granted approval is valid until this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<ApprovalDecider>,
    /// The reason that the person gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the caller that asked used the decision. A granted approval can be used once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at: Option<Time>,
}

impl Approval {
    /// A pending approval without an owner. The caller then sets the session, space, run or
    /// requester.
    pub fn new_pending(subject: ApprovalSubject, created_at: Time) -> Self {
        Self {
            id: ApprovalId::generate(),
            session_id: None,
            space_id: None,
            run_id: None,
            requester: None,
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

    /// Sets the expiry time of the approval: `lifetime` after its creation.
    pub fn expiring_after(self, lifetime: Duration) -> Self {
        Self { expires_at: Some(self.created_at.saturating_add(lifetime)), ..self }
    }
}

/// What an approval is about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalSubject {
    /// One line for people, such as `Run npm install`.
    pub title: String,
    /// The kind of action, such as `execute` or `edit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The whole command, diff or arguments that the question is about. Credentials are replaced by
    /// `[credential]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Who wrote this description.
    #[serde(default)]
    pub described_by: SubjectDescriber,
    /// The caller whose request needs the approval, such as `space-agent:spc_…` or `api-key:deploy`.
    /// Absent for a permission request of a session's agent, and for a program, which `requester`
    /// names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_by: Option<String>,
    /// Whether a part of the detail is missing. Such an approval can only be denied.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
    /// The tool call that waits for the decision.
    #[serde(default, rename = "tool_execution_id", skip_serializing_if = "Option::is_none")]
    pub tool_execution_id: Option<String>,
    /// The digest of the request, in hexadecimal. The approval is valid for this request only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

impl ApprovalSubject {
    /// Sets the detail. A detail that is longer than [`MAX_APPROVAL_DETAIL_BYTES`] is truncated and
    /// marked as truncated.
    pub fn with_detail(mut self, mut detail: String) -> ApprovalSubject {
        if detail.len() > MAX_APPROVAL_DETAIL_BYTES {
            let mut end = MAX_APPROVAL_DETAIL_BYTES;
            while !detail.is_char_boundary(end) {
                end -= 1;
            }
            let missing = detail.len() - end;
            detail.truncate(end);
            detail.push_str(&format!("\n… ({missing} more bytes)"));
            self.is_cut = true;
        }
        self.detail = Some(detail);
        self
    }
}

/// A program that asks for approvals with `POST /v1/approvals`, such as a program that contains an
/// agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequester {
    /// The caller of the server, such as `api-key:deploy`. Only this caller can use the decision.
    pub principal: String,
    /// The name that the program gave itself, such as `agent:chat-1`.
    pub name: String,
}

/// Who wrote the description of what an approval is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SubjectDescriber {
    /// The server. It performs exactly what the description shows.
    #[default]
    Server,
    /// The agent. The decision answers its request. The server cannot ensure what the agent does
    /// afterwards.
    Agent,
    /// A program outside the server. The server cannot ensure what the program does afterwards.
    Program,
}

/// The status of an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalStatus {
    Pending,
    Approved,
    Denied,
    /// The approval was not decided in time, or the session ended.
    Expired,
}

impl ApprovalStatus {
    /// Every status.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Approved, Self::Denied, Self::Expired];

    /// The name of the status in JSON.
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
    /// The reason, which is stored and sent to the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether a person decides or a rule such as `--approve always`. A person by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<DeciderKind>,
    /// The channel of the decision: `api` (the default) or `cli`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<DecisionChannel>,
}

/// Approve or deny.
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
    /// Fails if the body is not such an object or a field is invalid.
    pub fn parse(body: &[u8]) -> Result<ApprovalDecision, FieldViolations> {
        let mut found = FieldViolations::default();
        let members = fields::parsed(body)?;
        let mut body = Fields::body(&members);
        let decision = body.required_choice("decision", CHOICES, &mut found);
        let reason = body.text("reason", &mut found).map(str::to_owned);
        if reason.as_ref().is_some_and(|reason| reason.len() > MAX_REASON_BYTES) {
            found.add_invalid("reason", format!("must have at most {MAX_REASON_BYTES} bytes"));
        }
        let by = body.choice("by", DECIDERS, &mut found);
        let via = body.choice("via", CHANNELS, &mut found);
        body.end(&mut found);
        match decision {
            Some(decision) => found.into_result(ApprovalDecision { decision, reason, by, via }),
            None => Err(found),
        }
    }
}

impl From<ApproveOrDeny> for ApprovalDecision {
    /// A decision by a person without a reason.
    fn from(decision: ApproveOrDeny) -> ApprovalDecision {
        ApprovalDecision { decision, reason: None, by: None, via: None }
    }
}

impl ApproveOrDeny {
    /// The status of an approval after this decision.
    pub fn resulting_status(self) -> ApprovalStatus {
        match self {
            Self::Approve => ApprovalStatus::Approved,
            Self::Deny => ApprovalStatus::Denied,
        }
    }
}

/// Who decided. The record distinguishes a person, a rule and the end of the time to decide.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApprovalDecider {
    pub kind: DeciderKind,
    /// The account of the person, or the name of the rule.
    pub name: String,
    /// The channel through which the decision came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<DecisionChannel>,
}

impl ApprovalDecider {
    /// A decision by a rule of the server itself.
    pub fn for_server_rule(name: &str) -> ApprovalDecider {
        let (kind, via) = (DeciderKind::Rule, Some(DecisionChannel::Server));
        ApprovalDecider { kind, name: name.to_owned(), via }
    }

    /// The end of the time to decide.
    pub fn for_timeout() -> ApprovalDecider {
        let (kind, via) = (DeciderKind::Timeout, Some(DecisionChannel::Server));
        ApprovalDecider { kind, name: "expiry".to_owned(), via }
    }
}

/// The kind of decider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeciderKind {
    // The aliases are needed because the log contains events that earlier versions of the server
    // wrote. In these events the kind of the caller is stored here.
    #[serde(alias = "key", alias = "process")]
    Person,
    Rule,
    Timeout,
}

impl DeciderKind {
    /// The name of the kind in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Rule => "rule",
            Self::Timeout => "timeout",
        }
    }
}

/// The channel through which a decision came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DecisionChannel {
    /// A button on the web page.
    Web,
    /// A command, or the prompt of a command that follows a session.
    Cli,
    /// A request from another client.
    Api,
    /// The terminal of a program that asks the person directly.
    Terminal,
    /// The server itself, without a request.
    Server,
}

impl DecisionChannel {
    /// The name of the channel in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Web => "web",
            Self::Cli => "cli",
            Self::Api => "api",
            Self::Terminal => "terminal",
            Self::Server => "server",
        }
    }
}
