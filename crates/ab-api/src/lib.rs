//! Wire types of the control plane: tasks, sessions, events, approvals, and the catalog of a
//! server.
//!
//! The types define the form of the JSON. [`TaskRequest::parse`] defines which requests are valid.
//! Field names follow the REST specification: camelCase, except the snake_case names that the
//! specification itself uses (`recent_events`, `tool_name`, `file_path`, …).

mod agent_config;
mod agent_setting;
mod api_key;
mod approval;
mod approval_question;
mod audit;
mod available;
mod budget;
mod catalog;
mod cleanup;
mod draft;
mod event;
mod fields;
mod id;
mod ide;
mod inventory;
mod page;
mod prompt;
mod session;
mod space;
mod task;
mod time;
mod upload;
mod violation;

pub use agent_config::{
    CommandWords, MAX_CONFIG_FILE_BYTES, MCP_CONFIG_FILE, McpServerConfig, OAuth, OAuthClient,
    RemoteTransport, SKILLS_CONFIG_FILE, SkillSource, SkillsConfig,
};
pub use agent_setting::{AgentSetting, AgentSettingKind, agent_settings_schema};
pub use api_key::{ApiKey, ApiKeyCreatedResponse, ApiKeyRequest, RESERVED_API_KEY_NAME};
pub use approval::{
    Approval, ApprovalDecider, ApprovalDecision, ApprovalRequester, ApprovalStatus,
    ApprovalSubject, ApproveOrDeny, DeciderKind, DecisionChannel, MAX_APPROVAL_DETAIL_BYTES,
    SubjectDescriber,
};
pub use approval_question::{ApprovalQuestion, ApprovalUse};
pub use audit::{AuditEntry, AuditSource};
pub use available::{TaskCapabilities, UNAVAILABLE_TASK_FIELDS, UnavailableTaskField};
pub use budget::{SessionBudget, SessionUsage};
pub use catalog::{
    AgentDescription, ExecutorDescription, ExecutorHealth, OverlayNetwork, OverlayNetworkState,
    RuntimeDescription,
};
pub use cleanup::{CleanupReport, RemovalReason, RemovedCache, RemovedWorkspace, StorageUse};
pub use draft::{Draft, DraftContent, DraftCreatedResponse};
pub use event::{
    DeliveryResult, Event, EventKind, FenceHostResult, FenceState, FollowerHost, LogLevel,
    LogSource, OutputStream, PlanEntry, PlanEntryStatus, ToolExecutionStatus, describe_tool_input,
};
pub use id::{
    ApiKeyId, ApprovalId, DraftId, Id, IdError, IdKind, RunId, SessionId, SpaceId, SpaceTokenId,
    UploadId,
};
pub use ide::{Ide, LocalWorkspaceAccess, OpenIdeRequest, OpenIdeResponse, SshWorkspaceAccess};
pub use inventory::{
    ProjectSummary, RepoBranch, RepoImportRequest, RepoRefs, RepoSummary, WorkspaceDetail,
    WorkspaceState, WorkspaceStorage, WorkspaceSummary, WorkspaceTask, check_repo_url,
};
pub use page::{Page, PageRequest};
pub use prompt::{PromptEdit, PromptRequest, PromptStatus, SessionPrompt};
pub use session::{
    ChangeCounts, EnforcedLimits, Fleet, FleetMember, Session, SessionActivity, SessionAgent,
    SessionEndReason, SessionInfo, SessionLinks, SessionStatus, SessionTask, SessionUrls,
    SessionVcs, SessionWorkspace, TaskGroup,
};
pub use space::{
    PendingApproval, Run, RunStatus, Space, SpaceBackend, SpaceStatus, SpaceToken,
    SpaceTokenCreatedResponse,
};
pub use task::{
    ContinueRequest, DeliveryMode, LoginLink, NetworkMode, RepoMode, RepoSource, RequestedAgent,
    RequestedAgents, RequestedDelivery, RequestedLimits, RequestedRepo, RequestedRuntime,
    RequestedWorkspace, RuntimeType, SnapshotProvider, Task, TaskCreatedResponse, TaskRequest,
    Webhook,
};
pub use time::{Time, TimeError};
pub use upload::{TaskAttachment, Upload, UploadKind, UploadRequest, UploadStatus};
pub use violation::{FieldViolation, FieldViolationKind, FieldViolations};
