//! Approvals: durable questions to a person, and the decisions on them.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::fields::{self, Fields};
use crate::id::{ApprovalId, RunId, SessionId, SpaceId};
use crate::time::Time;
use crate::violation::FieldViolations;

/// Maximum length of the reason of a decision.
const MAX_REASON_BYTES: usize = 4 * 1024;

/// The most bytes of [`ApprovalSubject::detail`]. A longer one is cut, and its approval can only be denied.
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
    /// The program that waits for the decision, if the approval is of no session or space.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requester: Option<ApprovalRequester>,
    pub status: ApprovalStatus,
    #[serde(flatten)]
    pub subject: ApprovalSubject,
    pub created_at: Time,
    /// An approval that is pending at this time expires, which counts as a no. A yes is valid until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<ApprovalDecider>,
    /// The reason that the person gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the caller that asked got the answer. A yes counts once, and is used up by this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at: Option<Time>,
}

impl Approval {
    /// A pending approval without an owner: the caller sets the session, space, run or requester.
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

    /// The same, which expires when it was pending for `lifetime`.
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
    /// The kind of act, such as `execute` or `edit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The whole command, diff or arguments that are asked about. Credentials are replaced by `[credential]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Who says what is asked about.
    #[serde(default)]
    pub described_by: SubjectDescriber,
    /// Whether a part of the detail is missing. Such an approval can be denied and not approved.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut: bool,
    /// The tool call that waits.
    #[serde(default, rename = "tool_execution_id", skip_serializing_if = "Option::is_none")]
    pub tool_execution_id: Option<String>,
    /// The digest of the request, in hexadecimal. The approval is valid for this request only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

impl ApprovalSubject {
    /// Sets the detail. One above [`MAX_APPROVAL_DETAIL_BYTES`] is cut and marked as cut.
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

/// A program that asks for approvals with `POST /v1/approvals`, such as one that contains an agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalRequester {
    /// The caller of the server, such as `api-key:deploy`. Only this caller can use the answer.
    pub principal: String,
    /// What the program calls itself, such as `agent:chat-1`.
    pub name: String,
}

/// Who describes what an approval is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SubjectDescriber {
    /// The server performs what it shows, and nothing else.
    #[default]
    Server,
    /// The agent. The answer is for its request; what the agent then does is up to the agent.
    Agent,
    /// A program outside the server. What it then does is up to the program.
    Program,
}

/// Where an approval is.
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
    /// Whether a person decides, which is the default, or a rule such as `--approve always`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<DeciderKind>,
    /// By which way: `api`, which is the default, or `cli`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<DecisionChannel>,
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
    /// A decision of a person without a reason.
    fn from(decision: ApproveOrDeny) -> ApprovalDecision {
        ApprovalDecision { decision, reason: None, by: None, via: None }
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

/// Who decided. A person, a rule and the passing of time are told apart in the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApprovalDecider {
    pub kind: DeciderKind,
    /// The account of the person, or the name of the rule.
    pub name: String,
    /// By which way the decision came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<DecisionChannel>,
}

impl ApprovalDecider {
    /// A rule of the server itself.
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

/// What kind of decider decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeciderKind {
    // The log keeps events of servers that wrote the kind of the caller.
    #[serde(alias = "key", alias = "process")]
    Person,
    Rule,
    Timeout,
}

impl DeciderKind {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Person => "person",
            Self::Rule => "rule",
            Self::Timeout => "timeout",
        }
    }
}

/// The way that a decision took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DecisionChannel {
    /// A button of the page.
    Web,
    /// A command, or a prompt of one that follows a session.
    Cli,
    /// A request of another client.
    Api,
    /// The terminal of a program that asks by itself.
    Terminal,
    /// The server, without a request.
    Server,
}

impl DecisionChannel {
    /// The name on the wire.
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
