//! The task request, the task that a server accepts, and the response.

mod check;

pub(crate) use check::{NAME_RULE, check_url, is_name};

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::available::TaskCapabilities;
use crate::budget::SessionBudget;
use crate::fields::{self, Fields};
use crate::id::{SessionId, UploadId};
use crate::prompt::check_prompt;
use crate::session::{SessionLinks, SessionStatus};
use crate::upload::TaskAttachment;
use crate::violation::FieldViolations;

/// The body of `POST /api/v1/tasks` as a client writes it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskRequest {
    /// The tenant that owns the session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// The project that the session belongs to. Session lists can be filtered by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<String>,
    /// What the agent should do.
    pub prompt: String,
    /// The repository to work on.
    pub repo: RequestedRepo,
    /// How the agent runs. `local` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RequestedRuntime>,
    /// Where the workspace is made, and by which provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<RequestedWorkspace>,
    /// The agent that works on the task. Required unless `agents` is set.
    #[serde(default, skip_serializing_if = "RequestedAgent::is_default")]
    pub agent: RequestedAgent,
    /// Several agents that work on the same task, each in its own session. Replaces `agent`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<RequestedAgents>,
    /// What each session may use before a person is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<SessionBudget>,
    /// How the result is delivered. A branch by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<RequestedDelivery>,
    /// Labels of the session, chosen by the client.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Whether the session waits for further prompts after a turn instead of ending. The default is
    /// in the server's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_open: Option<bool>,
    /// Files for the agent that are placed outside of its workspace. Each must be a complete upload
    /// of the kind `file`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<TaskAttachment>,
    /// URLs to call at the end. Not available yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<Webhook>,
}

/// The repository of a [`TaskRequest`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestedRepo {
    /// Where the files come from. `git` by default.
    #[serde(default)]
    pub mode: RepoMode,
    /// The repository to clone: an https or ssh URL, or a path on the server's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The base branch if a branch with this name exists. Otherwise the name of the branch to
    /// create.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The commit to start from. By default the head of the base branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The name of the template. Used with the mode `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// A complete upload of the kind `tar`. Used with the mode `upload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload_id: Option<UploadId>,
}

/// A task that passed [`TaskRequest::parse`]: complete, with defaults filled in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    pub tenant_id: Option<String>,
    pub project_id: Option<String>,
    pub prompt: String,
    pub repo: RepoSource,
    pub runtime: RequestedRuntime,
    pub workspace: RequestedWorkspace,
    /// The agent of each session that the task makes. At least one.
    pub agents: Vec<RequestedAgent>,
    pub delivery: RequestedDelivery,
    pub labels: BTreeMap<String, String>,
    pub keep_open: bool,
    pub budget: Option<SessionBudget>,
    /// Files for the agent. Their names and sizes come from the uploads.
    pub attachments: Vec<TaskAttachment>,
}

/// The repository that a session works on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepoSource {
    pub mode: RepoMode,
    /// The URL or path to clone from.
    pub url: String,
    #[serde(default)]
    pub branch: Option<String>,
    #[serde(default)]
    pub commit: Option<String>,
    /// The template that the workspace is a copy of. If set, `url` is the directory of the
    /// template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// The archive that the workspace is made from. If set, `url` is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload_id: Option<UploadId>,
}

impl RepoSource {
    /// The source of the files, as text for people.
    pub fn display_text(&self) -> &str {
        match self.mode {
            RepoMode::Upload => "uploaded files",
            RepoMode::Git | RepoMode::None => &self.url,
        }
    }
}

/// Where the files of a workspace come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RepoMode {
    #[default]
    Git,
    /// An uploaded archive.
    Upload,
    /// No repository. The workspace is a copy of a template in the server's configuration.
    None,
}

/// How the agent runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestedRuntime {
    #[serde(default, rename = "type")]
    pub kind: RuntimeType,
    /// The devcontainer file in the repository. Not available yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devcontainer_path: Option<String>,
    /// The network of the agent. The default is in the server's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkMode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<RequestedLimits>,
}

/// The network of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkMode {
    /// The network of the executor's machine.
    #[default]
    Shared,
    /// No network at all.
    None,
}

/// The kind of isolation around an agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeType {
    /// A sandbox on the executor's machine.
    #[default]
    Local,
    /// No sandbox: the agent acts as the user who runs the server. The operator must allow it in
    /// the configuration.
    Disabled,
    /// A container. Not available yet.
    Devcontainer,
}

/// Limits of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestedLimits {
    /// Number of processors. May be a fraction.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "crate::fields::serialize_finite"
    )]
    pub cpu: Option<f64>,
    #[serde(default, rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u64>,
}

/// Where the workspace is made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestedWorkspace {
    /// Providers in order of preference. The first one that the executor supports is used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub snapshot_preference: Vec<SnapshotProvider>,
    /// The executor to use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_host_id: Option<String>,
}

/// A way to make an isolated copy of a repository.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum SnapshotProvider {
    Zfs,
    Btrfs,
    Overlay,
    Git,
    Copy,
}

/// The agent that works on a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestedAgent {
    /// An agent type of `GET /api/v1/agents`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The version of the agent. `latest` (the default) is the version in the server's catalog.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Settings of the agent. Their schema is in `settingsSchemaRef` of `GET /api/v1/agents`.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    #[schema(value_type = Object)]
    pub settings: serde_json::Map<String, serde_json::Value>,
}

impl RequestedAgent {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// One of several agents of a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestedAgents {
    #[serde(flatten)]
    pub agent: RequestedAgent,
    /// The number of sessions with this agent: 1 to 16, 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
}

/// How the result is delivered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestedDelivery {
    #[serde(default)]
    pub mode: DeliveryMode,
    /// The branch that the result is meant for. A new branch starts from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_branch: Option<String>,
}

/// The form of a result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryMode {
    /// A new branch in the repository of the task.
    #[default]
    Branch,
    /// A patch that the client downloads.
    Patch,
    /// A pull request. Not available yet.
    Pr,
}

/// A URL that is called on an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Webhook {
    /// The name of the event, such as `session.completed`.
    pub event: String,
    pub url: String,
}

/// The body of `POST /api/v1/sessions/{id}/continue`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ContinueRequest {
    /// What the agent should do now. By default the prompt of the earlier session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
}

impl ContinueRequest {
    /// Parses and checks the body. An empty body uses the defaults.
    ///
    /// # Errors
    ///
    /// Fails if the body is not such an object, or the prompt is empty or too long.
    pub fn parse(body: &[u8]) -> Result<ContinueRequest, FieldViolations> {
        if body.trim_ascii().is_empty() {
            return Ok(ContinueRequest::default());
        }
        let mut found = FieldViolations::default();
        let members = fields::parsed(body)?;
        let mut body = Fields::body(&members);
        let prompt = body.text("prompt", &mut found);
        body.end(&mut found);
        if let Some(prompt) = prompt {
            check_prompt(prompt, &mut found);
        }
        let prompt = prompt.map(str::to_owned);
        found.into_result(ContinueRequest { prompt })
    }
}

/// A one-time link that logs a browser in: `POST /api/v1/login-links`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoginLink {
    /// The only host name for which the link works. It resolves to the browser's own machine.
    pub host: String,
    /// The path of the link, which contains the ticket.
    pub path: String,
}

/// The answer to `POST /api/v1/tasks`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TaskCreatedResponse {
    pub id: SessionId,
    /// All sessions that the task made.
    #[serde(default)]
    pub session_ids: Vec<SessionId>,
    pub status: SessionStatus,
    pub links: SessionLinks,
}

impl TaskRequest {
    /// Parses and checks the body of a task request.
    ///
    /// # Errors
    ///
    /// Returns every problem of the body: values of the wrong type, unknown and missing fields,
    /// values out of range, and features that this server does not offer. If the body is not a JSON
    /// object, this is the only problem.
    pub fn parse(body: &[u8], capabilities: &TaskCapabilities) -> Result<Task, FieldViolations> {
        check::task(body, capabilities)
    }
}
