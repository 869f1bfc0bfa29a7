//! The audit of a session: which caller did what.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::time::Time;

/// An entry of `GET /api/v1/sessions/{id}/audit`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    pub at: Time,
    pub source: AuditSource,
    /// Who acted, such as `key:ci` or `agent:SESSION`.
    pub actor: String,
    /// What was done, such as `create`, `prompt`, `stop` or `approve`. For calls on the session's
    /// endpoint, the kind of call, such as `write`.
    pub action: String,
    /// Whether the action succeeded. Refused and failed actions are recorded too.
    pub success: bool,
    /// What the action was about: a path, a command, the number of a prompt, or an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Why the action failed, or a short note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Where an action was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuditSource {
    /// A request to the server's API.
    Request,
    /// A call on the session's MCP endpoint, as the workspace performed it.
    Endpoint,
    /// An action of the server itself.
    Server,
}

impl AuditSource {
    /// The name of the source in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Endpoint => "endpoint",
            Self::Server => "server",
        }
    }
}
