//! Who did what to a session.

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
    /// What was done: `create`, `prompt`, `stop`, `approve`; for calls on the endpoint the kind of call, such as `write`.
    pub action: String,
    /// Whether it was done. A refused or failed act is recorded too.
    pub success: bool,
    /// What it was done to: a path, a command, a prompt's number, an approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// Why it failed, or a short note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Where an act was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuditSource {
    /// A request to the server.
    Request,
    /// A call on the session's endpoint, as the workspace performed it.
    Endpoint,
    /// The server itself.
    Server,
}

impl AuditSource {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Endpoint => "endpoint",
            Self::Server => "server",
        }
    }
}
