//! Spaces and runs as the API shows them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::id::{ApprovalId, RunId, SpaceId, SpaceTokenId};
use crate::time::Time;

/// An isolated set of files with a policy, in which operations are performed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Space {
    pub id: SpaceId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub status: SpaceStatus,
    pub backend: SpaceBackend,
    /// The complete policy document that is in force.
    #[schema(value_type = Object)]
    pub policy: Value,
    /// Environment variables of every command.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
    pub created_at: Time,
    /// When the space expires and is removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
}

/// The status of a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SpaceStatus {
    Ready,
    /// A run is being performed.
    Running,
    /// A run waits for an approval.
    Paused,
    Destroyed,
}

impl SpaceStatus {
    /// The name of the status in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Destroyed => "destroyed",
        }
    }
}

/// Where the files of a space are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SpaceBackend {
    /// A directory in the data directory of the server.
    #[default]
    Directory,
    /// The memory of the server. Such a space cannot run commands, and it is lost when the server
    /// restarts.
    Memory,
}

/// A token with which an agent works in one space. Its secret is shown only when the token is created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpaceToken {
    pub id: SpaceTokenId,
    pub space_id: SpaceId,
    pub created_at: Time,
}

/// The answer to `POST /v1/spaces/{id}/tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpaceTokenCreatedResponse {
    #[serde(flatten)]
    pub token: SpaceToken,
    /// The secret, for `Authorization: Bearer SECRET`. The server keeps only its digest.
    pub secret: String,
}

/// A list of operations in a space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    pub id: RunId,
    pub space_id: SpaceId,
    pub status: RunStatus,
    /// The number of operations of the run.
    pub operation_count: u32,
    /// The approval that the run waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_approval: Option<PendingApproval>,
    pub created_by: String,
    pub created_at: Time,
    pub updated_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
}

/// The status of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// The run waits for another run of the space.
    Queued,
    Running,
    AwaitingApproval,
    Completed,
    Cancelled,
    Error,
}

impl RunStatus {
    /// The name of the status in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::AwaitingApproval => "awaiting_approval",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Error => "error",
        }
    }

    /// Whether the run has ended.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Queued | Self::Running | Self::AwaitingApproval => false,
            Self::Completed | Self::Cancelled | Self::Error => true,
        }
    }
}

/// The operation for which a run waits, and its approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingApproval {
    pub approval_id: ApprovalId,
    pub operation_id: String,
    pub operation_type: String,
    pub reason: String,
    /// The index of the operation in the run, counted from 0.
    pub number: u32,
    /// The digest of what the approval is about. The approval is valid for this digest only.
    pub digest: String,
}
