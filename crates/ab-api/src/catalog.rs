//! What a server offers: agents, runtimes, executors.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::task::{RuntimeType, SnapshotProvider};

/// An entry of `GET /api/v1/agents`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentDescription {
    #[serde(rename = "type")]
    pub kind: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// Other names that tasks may use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// The valid values of `agent.version`.
    pub versions: Vec<String>,
    /// The URL of the JSON Schema of the agent's settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings_schema_ref: Option<String>,
}

/// An entry of `GET /api/v1/runtimes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeDescription {
    #[serde(rename = "type")]
    pub kind: RuntimeType,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sandbox_profiles: Vec<String>,
    /// The names of the templates that tasks without a repository can start from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub templates: Vec<String>,
}

/// An entry of `GET /api/v1/executors`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutorDescription {
    pub id: String,
    pub os: String,
    pub arch: String,
    pub snapshot_capabilities: Vec<SnapshotProvider>,
    pub health: ExecutorHealth,
    /// The network through which the executor is reached. An executor in the server's own process
    /// has no such network.
    pub overlay: OverlayNetwork,
    /// Who controls the executor: `server`.
    pub controller: String,
}

/// Whether an executor can take sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExecutorHealth {
    Ok,
    Degraded,
    Lost,
}

/// The overlay network of an executor.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OverlayNetwork {
    pub provider: Option<String>,
    pub address: Option<String>,
    pub magic_name: Option<String>,
    pub state: OverlayNetworkState,
}

/// Whether the overlay network of an executor works.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OverlayNetworkState {
    /// The executor uses no overlay network.
    #[default]
    None,
    Up,
    Down,
}
