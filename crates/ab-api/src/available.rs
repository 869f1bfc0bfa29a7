//! What a server offers for tasks, and what this version does not support.

use std::collections::BTreeMap;

use crate::agent_setting::AgentSetting;
use crate::task::{NetworkMode, RuntimeType, SnapshotProvider};

/// A field of the task request, or a value of a field, that this version does not support yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnavailableTaskField {
    /// The path of the field.
    pub field: &'static str,
    /// The value that is unavailable. `None` if the whole field is unavailable.
    pub value: Option<&'static str>,
}

/// The fields of a task request that the specification defines and this version does not support. A
/// request with such a field is refused, because the result would differ from what the caller
/// requested.
pub const UNAVAILABLE_TASK_FIELDS: &[UnavailableTaskField] = &[
    UnavailableTaskField { field: "delivery.mode", value: Some("pr") },
    UnavailableTaskField { field: "runtime.devcontainerPath", value: None },
    UnavailableTaskField { field: "runtime.type", value: Some("devcontainer") },
    UnavailableTaskField { field: "webhooks", value: None },
];

/// What a server offers to the caller of one request. By default it offers only the `local`
/// runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskCapabilities {
    /// Agent types and the versions of each type.
    pub agents: BTreeMap<String, Vec<String>>,
    /// The settings of each agent type.
    pub agent_settings: BTreeMap<String, Vec<AgentSetting>>,
    /// Alternative names of agent types.
    pub agent_aliases: BTreeMap<String, String>,
    /// The ids of the executors.
    pub executors: Vec<String>,
    /// The workspace providers that at least one executor supports.
    pub snapshot_providers: Vec<SnapshotProvider>,
    /// The supported runtimes in addition to `local`.
    pub runtimes: Vec<RuntimeType>,
    /// Whether the executors enforce `runtime.resources`.
    pub enforces_resource_limits: bool,
    /// The directories of the server's machine from which tasks without a repository can start, by
    /// template name.
    pub templates: BTreeMap<String, String>,
    /// Whether the caller is on the server's machine, so that `repo.url` may name a local path.
    pub allows_local_repositories: bool,
    /// The network of a session whose task does not choose one.
    pub default_network: NetworkMode,
    /// Whether sessions on the shared network are refused. An agent on this network can connect to
    /// the server's port. A server that requires no token would treat this agent as a person.
    pub refuses_shared_network: bool,
    /// The default of the task field `keepOpen`.
    pub default_keep_open: bool,
}

/// The entry for `field`, if the whole field is unavailable or this `value` of it.
pub(crate) fn unavailable(
    field: &str,
    value: Option<&str>,
) -> Option<&'static UnavailableTaskField> {
    UNAVAILABLE_TASK_FIELDS
        .iter()
        .find(|it| it.field == field && (it.value.is_none() || it.value == value))
}
