//! The events of a session's stream.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::approval::{ApprovalDecider, ApprovalStatus};
use crate::id::ApprovalId;
use crate::prompt::PromptStatus;
use crate::session::{SessionActivity, SessionEndReason, SessionStatus};
use crate::task::DeliveryMode;
use crate::time::Time;

/// Something that happened in a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    #[serde(flatten)]
    pub kind: EventKind,
    /// When it happened.
    pub ts: Time,
}

/// What happened. The member `type` names the variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum EventKind {
    /// The session's status or activity changed.
    Status {
        status: SessionStatus,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        activity: Option<SessionActivity>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<SessionEndReason>,
        /// The reason in words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    /// A prompt was sent to the agent.
    Prompt { number: u32, prompt: String },
    /// A prompt was queued, changed in the queue, withdrawn by a person, or interrupted. When a
    /// prompt is sent, the event is `prompt` instead.
    PromptReceipt { number: u32, status: PromptStatus },
    /// A line for people: from the agent, its tools, the server or the executor.
    Log {
        level: LogLevel,
        message: String,
        #[serde(default)]
        source: LogSource,
        /// The tool call that wrote the line.
        #[serde(default, rename = "tool_execution_id", skip_serializing_if = "Option::is_none")]
        tool_execution_id: Option<String>,
    },
    /// The agent's reasoning.
    Thought { thought: String },
    /// The agent's plan. It replaces the previous one.
    Plan { entries: Vec<PlanEntry> },
    /// A tool call. Several events with the same `tool_execution_id` describe one call. The latest
    /// event is valid.
    #[serde(rename_all = "snake_case")]
    Tool {
        tool_execution_id: String,
        tool_name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_input: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_output: Option<String>,
        tool_status: ToolExecutionStatus,
    },
    /// The agent changed a file.
    #[serde(rename_all = "snake_case")]
    FileEdit {
        file_path: String,
        lines_added: u64,
        lines_removed: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_execution_id: Option<String>,
    },
    /// The size of all changes so far.
    #[serde(rename_all = "snake_case")]
    DiffStat { files_changed: u64, lines_added: u64, lines_removed: u64 },
    /// The resources that the agent's model has used so far.
    Usage {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input_tokens: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output_tokens: Option<u64>,
        /// The number of tokens in the context window.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        context_tokens: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        context_limit: Option<u64>,
        /// The cost in millionths of a US dollar.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_micros: Option<u64>,
    },
    /// The agent asks for a person's decision.
    ApprovalRequested { approval_id: ApprovalId, title: String },
    /// An approval was decided, or expired.
    ApprovalDecided {
        approval_id: ApprovalId,
        status: ApprovalStatus,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decided_by: Option<ApprovalDecider>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A snapshot of the workspace was taken.
    Moment {
        snapshot_id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// The result was delivered, or there was nothing to deliver.
    Delivery {
        mode: DeliveryMode,
        #[serde(flatten)]
        result: DeliveryResult,
    },
    /// The machines that follow the leader.
    FollowersCatalog { hosts: Vec<FollowerHost> },
    /// The leader started to bring its followers to a snapshot.
    FenceStarted {
        snapshot_id: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        origin: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        transport: Option<String>,
    },
    /// Whether each follower reached the snapshot.
    FenceResult { snapshot_id: String, hosts: BTreeMap<String, FenceHostResult> },
    /// A command started on a follower.
    HostStarted { host: String },
    /// A command on a follower wrote a line.
    HostLog { host: String, stream: OutputStream, message: String },
    /// A command on a follower ended.
    HostExited { host: String, code: i32 },
    /// The followers on which the commands passed and failed.
    Summary { passed: Vec<String>, failed: Vec<String> },
    /// An annotation.
    Note { message: String },
}

/// The result of a delivery.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryResult {
    /// A URL that shows the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_commit: Option<String>,
    /// Whether the work changed anything. If it did not, nothing is delivered.
    #[serde(default)]
    pub changed: bool,
}

/// How serious a log line is.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    Debug,
    #[default]
    Info,
    Warn,
    Error,
}

/// The source of a log line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogSource {
    /// The server or the executor.
    #[default]
    Session,
    /// A message of the agent.
    Agent,
    /// The standard error of the agent's process.
    Stderr,
    /// The output of a tool.
    Tool,
}

/// The status of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ToolExecutionStatus {
    Pending,
    Running,
    Success,
    Error,
    Cancelled,
}

/// One step of an agent's plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PlanEntry {
    pub content: String,
    pub status: PlanEntryStatus,
}

/// The status of a step of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PlanEntryStatus {
    Pending,
    InProgress,
    Completed,
}

/// A machine that follows the leader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FollowerHost {
    pub name: String,
    pub os: String,
    #[serde(default)]
    pub tags: Vec<String>,
}

/// Whether a follower reached a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FenceHostResult {
    pub state: FenceState,
    pub took_ms: u64,
}

/// How a follower's files compare with the leader's snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FenceState {
    Consistent,
    Timeout,
    Error,
}

/// An output of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OutputStream {
    Stdout,
    Stderr,
}

impl Event {
    /// An event with the current time.
    pub fn at_current_time(kind: EventKind) -> Self {
        Self { kind, ts: Time::now() }
    }
}

impl EventKind {
    /// The value of the member `type` in JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Status { .. } => "status",
            Self::Prompt { .. } => "prompt",
            Self::PromptReceipt { .. } => "promptReceipt",
            Self::Log { .. } => "log",
            Self::Thought { .. } => "thought",
            Self::Plan { .. } => "plan",
            Self::Tool { .. } => "tool",
            Self::FileEdit { .. } => "fileEdit",
            Self::DiffStat { .. } => "diffStat",
            Self::Usage { .. } => "usage",
            Self::ApprovalRequested { .. } => "approvalRequested",
            Self::ApprovalDecided { .. } => "approvalDecided",
            Self::Moment { .. } => "moment",
            Self::Delivery { .. } => "delivery",
            Self::FollowersCatalog { .. } => "followersCatalog",
            Self::FenceStarted { .. } => "fenceStarted",
            Self::FenceResult { .. } => "fenceResult",
            Self::HostStarted { .. } => "hostStarted",
            Self::HostLog { .. } => "hostLog",
            Self::HostExited { .. } => "hostExited",
            Self::Summary { .. } => "summary",
            Self::Note { .. } => "note",
        }
    }
}

/// Members of a tool's input that describe the call best, the most useful first.
const TELLING_MEMBERS: [&str; 6] = ["command", "path", "file_path", "pattern", "query", "url"];

/// A short description of a tool call, to show next to the tool's name. The description is the
/// first of these that the input has: a member such as the command or the path, its only text
/// member, or the whole input. `None` if the description would add nothing to the name.
pub fn describe_tool_input<'a>(tool_name: &str, tool_input: &'a str) -> Option<Cow<'a, str>> {
    let members: Map<String, Value> = serde_json::from_str(tool_input).unwrap_or_default();
    let telling = TELLING_MEMBERS.iter().find_map(|name| members.get(*name)?.as_str());
    let only = members.values().next().filter(|_| members.len() == 1).and_then(Value::as_str);
    let subject = match telling.or(only) {
        Some(text) => Cow::Owned(text.to_owned()),
        None => Cow::Borrowed(tool_input),
    };
    let adds_nothing = matches!(&*subject, "" | "{}") || tool_name.ends_with(&*subject);
    (!adds_nothing).then_some(subject)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_calls_are_told_by_what_they_are_about() {
        let check = |name: &str, input: &str, expected: Option<&str>| {
            assert_eq!(describe_tool_input(name, input).as_deref(), expected, "{name} {input}");
        };
        check("exec", r#"{"cwd":"x","command":"ls"}"#, Some("ls"));
        check("read", r#"{"path":"a/b"}"#, Some("a/b"));
        check("fetch", r#"{"target":"a"}"#, Some("a"));
        check("wait", r#"{"count":1}"#, Some(r#"{"count":1}"#));
        check("shell", "ls -l", Some("ls -l"));
        check("shell · ls -l", r#"{"command":"ls -l"}"#, None);
        check("status", "{}", None);
        check("status", "", None);
    }
}
