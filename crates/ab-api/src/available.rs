//! What a server offers for tasks, and what this version does not support.

use std::collections::BTreeMap;

use crate::agent_setting::AgentSetting;
use crate::task::{NetworkMode, RuntimeType, SnapshotProvider};

/// A field, or a value of a field, of the task request that only a later version supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnavailableTaskField {
    /// The path of the field.
    pub field: &'static str,
    /// The value that is unavailable; `None` when the whole field is.
    pub value: Option<&'static str>,
}

/// Everything in a task request that the specification has and this version does not support. A
/// request that uses one of these is refused: ignoring it would give the caller a different result
/// than requested.
pub const UNAVAILABLE_TASK_FIELDS: &[UnavailableTaskField] = &[
    UnavailableTaskField { field: "delivery.mode", value: Some("pr") },
    UnavailableTaskField { field: "runtime.devcontainerPath", value: None },
    UnavailableTaskField { field: "runtime.type", value: Some("devcontainer") },
    UnavailableTaskField { field: "webhooks", value: None },
];

/// What a server offers to the caller of one request. By default only the `local` runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskCapabilities {
    /// Agent types and the versions of each.
    pub agents: BTreeMap<String, Vec<String>>,
    /// The settings of each agent type.
    pub settings: BTreeMap<String, Vec<AgentSetting>>,
    /// Other names of agent types.
    pub aliases: BTreeMap<String, String>,
    /// The ids of the executors.
    pub executors: Vec<String>,
    /// The workspace providers that at least one executor has.
    pub providers: Vec<SnapshotProvider>,
    /// Runtimes beside `local`.
    pub runtimes: Vec<RuntimeType>,
    /// Whether the executors enforce `runtime.resources`.
    pub resource_limits: bool,
    /// Directories of the server's machine that tasks without a repository start from, by their names.
    pub templates: BTreeMap<String, String>,
    /// Whether the caller is on the server's machine, so that `repo.url` may name a local path.
    pub local_repositories: bool,
    /// The network of a session whose task names none.
    pub network: NetworkMode,
    /// Whether sessions on the shared network are refused. An agent there can connect to the
    /// server's port, and a server without a token would take the agent for a person.
    pub refuses_shared_network: bool,
    /// The default of `keepOpen`.
    pub keep_open: bool,
}

/// The entry for `field`, if the whole field or this `value` of it is unavailable.
pub(crate) fn unavailable(
    field: &str,
    value: Option<&str>,
) -> Option<&'static UnavailableTaskField> {
    UNAVAILABLE_TASK_FIELDS
        .iter()
        .find(|it| it.field == field && (it.value.is_none() || it.value == value))
}
