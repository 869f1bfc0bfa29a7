//! Spaces and runs as the API tells about them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::id::{ApprovalId, RunId, SpaceId};
use crate::time::Time;

/// A place with files and a policy.
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
    /// The whole policy document that holds.
    #[schema(value_type = Object)]
    pub policy: Value,
    /// Variables of every command.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    #[schema(value_type = Object)]
    pub metadata: Map<String, Value>,
    pub created_at: Time,
    /// The space is removed at this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
}

/// Where a space is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SpaceStatus {
    Ready,
    /// A run is at work.
    Running,
    /// A run waits for an approval.
    Paused,
    Destroyed,
}

impl SpaceStatus {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Destroyed => "destroyed",
        }
    }
}

/// What holds the files of a space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum SpaceBackend {
    /// A directory in the data directory of the server.
    #[default]
    Directory,
    /// The memory of the server. It has no commands and is lost with a restart.
    Memory,
}

/// A list of operations in a space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    pub id: RunId,
    pub space_id: SpaceId,
    pub status: RunStatus,
    /// How many operations it has.
    pub operation_count: u32,
    /// The approval that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_approval: Option<PendingApproval>,
    pub created_by: String,
    pub created_at: Time,
    pub updated_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
}

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Another run of the space is at work.
    Queued,
    Running,
    AwaitingApproval,
    Completed,
    Cancelled,
    Error,
}

impl RunStatus {
    /// The name on the wire.
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

/// The operation that a run waits with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingApproval {
    pub approval_id: ApprovalId,
    pub operation_id: String,
    pub operation_type: String,
    pub reason: String,
    /// The place of the operation in the run, from 0.
    pub number: u32,
    /// What was asked. A yes counts for this and nothing else.
    pub digest: String,
}
