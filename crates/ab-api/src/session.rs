//! Sessions as clients see them.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::budget::{SessionBudget, SessionUsage};
use crate::event::Event;
use crate::id::SessionId;
use crate::task::{
    RepoSource, RequestedAgent, RequestedDelivery, RequestedRuntime, RequestedWorkspace,
    SnapshotProvider, Task,
};
use crate::time::Time;
use crate::upload::TaskAttachment;

/// The status of a session.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum SessionStatus {
    /// Waits for an executor.
    Queued,
    /// The workspace is being made, or the agent is being started.
    Provisioning,
    /// The agent works, waits for a person, or the result is being delivered.
    Running,
    /// The agent is being frozen.
    Pausing,
    /// The agent is frozen.
    Paused,
    /// The agent is being unfrozen.
    Resuming,
    /// The agent is being ended.
    Stopping,
    /// Ended by a stop.
    Stopped,
    /// Finished, with its result delivered.
    Completed,
    /// Ended by an error.
    Failed,
    /// Ended by a cancel, or before it started.
    Cancelled,
}

impl SessionStatus {
    /// Every status, in the order in which sessions can reach them.
    pub const ALL: [Self; 11] = [
        Self::Queued,
        Self::Provisioning,
        Self::Running,
        Self::Pausing,
        Self::Paused,
        Self::Resuming,
        Self::Stopping,
        Self::Stopped,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The name of the status in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Provisioning => "provisioning",
            Self::Running => "running",
            Self::Pausing => "pausing",
            Self::Paused => "paused",
            Self::Resuming => "resuming",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether a session with this status never changes again.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Stopped | Self::Completed | Self::Failed | Self::Cancelled)
    }
}

impl fmt::Display for SessionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for SessionStatus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|status| status.as_str() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str).join(", ");
            format!("must be one of: {known}")
        })
    }
}

/// What a running session is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum SessionActivity {
    /// The agent works on a prompt.
    Working,
    /// The agent waits for a decision on an approval.
    AwaitingApproval,
    /// The agent waits for a prompt.
    Idle,
    /// The result is being delivered.
    Delivering,
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum SessionEndReason {
    /// The agent finished its work.
    Done,
    /// A person stopped the session.
    Stopped,
    /// A person cancelled the session.
    Cancelled,
    /// The workspace could not be made.
    Provision,
    /// The agent did not start.
    Launch,
    /// The agent process ended, or its turn ended with an error.
    Agent,
    /// The result could not be delivered. The work is kept.
    Delivery,
    /// The server stopped while the agent was working, and the agent could not load its
    /// conversation again.
    Interrupted,
    /// The executor is no longer available.
    ExecutorLost,
}

/// A session: a task and its progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    pub id: SessionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<String>,
    pub status: SessionStatus,
    /// What the session is doing. Present while the session runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<SessionActivity>,
    /// Why the session ended. Present when the session has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<SessionEndReason>,
    /// The reason in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_detail: Option<String>,
    pub prompt: String,
    pub task: SessionTask,
    pub agent: SessionAgent,
    pub runtime: RequestedRuntime,
    pub workspace: SessionWorkspace,
    pub repo: RepoSource,
    pub delivery: RequestedDelivery,
    pub vcs: SessionVcs,
    pub labels: BTreeMap<String, String>,
    pub keep_open: bool,
    /// The number of approvals that wait for a decision.
    #[serde(default)]
    pub open_approvals: u32,
    /// The size of the changes so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<ChangeCounts>,
    /// The limits on all processes of the session together. Present once the agent has been
    /// started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<EnforcedLimits>,
    /// The session whose workspace this one continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<SessionId>,
    /// The sessions that work on the same task. Absent if the task made one session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_group: Option<TaskGroup>,
    /// What the session may use before a person is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<SessionBudget>,
    /// What the session had used when a person last allowed it to continue beyond its budget.
    #[serde(default, skip_serializing_if = "SessionUsage::is_empty")]
    pub budget_start: SessionUsage,
    /// What the session has used so far.
    #[serde(default, skip_serializing_if = "SessionUsage::is_empty")]
    pub usage: SessionUsage,
    pub created_at: Time,
    pub updated_at: Time,
    pub started_at: Option<Time>,
    pub ended_at: Option<Time>,
    /// The last three events of a session that has not ended.
    #[serde(default, rename = "recent_events")]
    pub recent_events: Vec<Event>,
    pub links: SessionLinks,
}

/// The position of a session among the sessions that its task made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskGroup {
    /// The id of the first session of the task. `GET /api/v1/sessions?taskId=` lists all of them.
    pub id: SessionId,
    /// The number of this session, counted from 1.
    pub number: u32,
    /// How many sessions the task made.
    pub size: u32,
}

/// The task of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionTask {
    pub prompt: String,
    /// Files that came with the prompt.
    pub attachments: Vec<TaskAttachment>,
    pub labels: BTreeMap<String, String>,
}

/// The agent of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionAgent {
    #[serde(rename = "type")]
    pub kind: String,
    pub version: String,
    /// The settings of the agent in the task.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    #[schema(value_type = Object)]
    pub settings: serde_json::Map<String, serde_json::Value>,
}

/// The workspace of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionWorkspace {
    /// The provider that makes the workspace, or that has made it.
    pub snapshot_provider: Option<SnapshotProvider>,
    /// The directory on the executor's machine.
    pub mount_path: Option<String>,
    /// The id of the executor.
    pub host: Option<String>,
    /// The session that made the workspace, if this session took it over from another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made_by: Option<SessionId>,
    /// The workspace options that the task requested.
    #[serde(flatten)]
    pub choice: RequestedWorkspace,
}

/// The repository of a session and how its result is delivered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionVcs {
    pub repo: RepoSource,
    pub delivery: RequestedDelivery,
    /// The commit that the work started from.
    pub base_commit: Option<String>,
    /// The branch that the delivery made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_branch: Option<String>,
    /// The commit at the tip of the delivered branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_commit: Option<String>,
}

/// The size of a change.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeCounts {
    pub files_changed: u64,
    pub lines_added: u64,
    pub lines_removed: u64,
}

/// Limits that the kernel of the executor's machine enforces on a session. If a limit is absent, it
/// is not enforced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct EnforcedLimits {
    /// Number of processors. May be a fraction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<f64>,
    /// Memory in MiB, including swap.
    #[serde(default, rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
    /// Maximum number of processes and threads at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
}

/// The URLs of a session's resources, as paths on this server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionLinks {
    #[serde(rename = "self")]
    pub this: String,
    /// The SSE stream of the session's events.
    pub events: String,
    pub logs: String,
    /// The request that opens an IDE on the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ide: Option<String>,
    /// The command that follows the session in a terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tui: Option<String>,
}

/// The answer to `GET /api/v1/sessions/{id}/info`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionInfo {
    pub id: SessionId,
    pub status: SessionStatus,
    pub fleet: Fleet,
    pub endpoints: SessionUrls,
}

/// The machines of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Fleet {
    pub leader: Option<String>,
    pub followers: Vec<FleetMember>,
}

/// One follower of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FleetMember {
    pub name: String,
    pub os: String,
    pub health: String,
}

/// The URLs of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionUrls {
    pub events: String,
}

impl SessionLinks {
    /// The links of the session `id`.
    pub fn for_session(id: SessionId) -> Self {
        let this = format!("/api/v1/sessions/{id}");
        Self {
            events: format!("{this}/events"),
            logs: format!("{this}/logs"),
            ide: Some(format!("{this}/open/ide")),
            tui: Some(format!("agent-backend session events {id} --follow")),
            this,
        }
    }
}

impl Session {
    /// Creates a queued session that continues in the workspace of this session, which has ended.
    /// If `prompt` is `None`, the new session gets the task's prompt again.
    pub fn new_continuation(&self, id: SessionId, prompt: Option<String>, now: Time) -> Self {
        let before = self.clone();
        let prompt = prompt.unwrap_or(before.prompt);
        Self {
            id,
            status: SessionStatus::Queued,
            activity: None,
            end_reason: None,
            end_detail: None,
            task: SessionTask { prompt: prompt.clone(), ..before.task },
            prompt,
            workspace: SessionWorkspace {
                choice: before.workspace.choice,
                made_by: Some(before.workspace.made_by.unwrap_or(self.id)),
                snapshot_provider: before.workspace.snapshot_provider,
                ..SessionWorkspace::default()
            },
            vcs: SessionVcs {
                base_commit: None,
                delivered_branch: None,
                delivered_commit: None,
                ..before.vcs
            },
            open_approvals: 0,
            changes: None,
            continues: Some(self.id),
            task_group: None,
            budget_start: SessionUsage::default(),
            usage: SessionUsage::default(),
            created_at: now,
            updated_at: now,
            started_at: None,
            ended_at: None,
            recent_events: Vec::new(),
            links: SessionLinks::for_session(id),
            ..before
        }
    }

    /// Creates a queued session for `task` with the first of its agents.
    pub fn new_queued(id: SessionId, task: Task, now: Time) -> Self {
        let agent = task.agents.into_iter().next().unwrap_or_default();
        let RequestedAgent { kind, version, settings } = agent;
        let version = version.unwrap_or_else(|| "latest".to_owned());
        Self {
            id,
            tenant_id: task.tenant_id,
            project_id: task.project_id,
            status: SessionStatus::Queued,
            activity: None,
            end_reason: None,
            end_detail: None,
            prompt: task.prompt.clone(),
            task: SessionTask {
                prompt: task.prompt,
                attachments: task.attachments,
                labels: task.labels.clone(),
            },
            agent: SessionAgent { kind, version, settings },
            runtime: task.runtime,
            workspace: SessionWorkspace { choice: task.workspace, ..SessionWorkspace::default() },
            repo: task.repo.clone(),
            delivery: task.delivery.clone(),
            vcs: SessionVcs {
                repo: task.repo,
                delivery: task.delivery,
                base_commit: None,
                delivered_branch: None,
                delivered_commit: None,
            },
            labels: task.labels,
            keep_open: task.keep_open,
            open_approvals: 0,
            changes: None,
            limits: None,
            continues: None,
            task_group: None,
            budget: task.budget,
            budget_start: SessionUsage::default(),
            usage: SessionUsage::default(),
            created_at: now,
            updated_at: now,
            started_at: None,
            ended_at: None,
            recent_events: Vec::new(),
            links: SessionLinks::for_session(id),
        }
    }
}
