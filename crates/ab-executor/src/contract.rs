//! The trait that executors implement.

use std::fmt;
use std::time::Duration;

use ab_api::{
    Approval, ApprovalId, ChangeCounts, DeliveryResult, EnforcedLimits, ExecutorDescription,
    FieldViolations, Session, SessionEndReason, SessionId, SnapshotProvider, Time,
    WorkspaceStorage,
};
use ab_core::Isolation;
use async_trait::async_trait;

use crate::report::{AgentQuestionId, AgentReportSender};

/// Runs sessions on one machine.
///
/// Every method can be called again with the same job after a crash or a lost connection: repeating
/// an effect of one `(session, generation)` gives the same result and makes nothing twice. Futures
/// may be dropped at any time; [`terminate_session`](Executor::terminate_session) and
/// [`clean_up_session`](Executor::clean_up_session) then remove what they had started.
#[async_trait]
pub trait Executor: fmt::Debug + Send + Sync {
    /// The description of the executor for clients.
    fn describe_executor(&self) -> ExecutorDescription;

    /// Checks what a new session names on the executor's machine, and chooses how its workspace is
    /// made. Sources on other machines are not contacted.
    ///
    /// # Errors
    ///
    /// The problems of the task, field by field. No session is created for it.
    async fn choose_snapshot_provider(
        &self,
        session: &Session,
    ) -> Result<SnapshotProvider, FieldViolations>;

    /// Names everything that [`provision_workspace`](Executor::provision_workspace) of this job may create. It is the
    /// same for all attempts of a session. The caller stores it first.
    fn cleanup_token(&self, job: &SessionAttempt) -> CleanupToken;

    /// Makes the workspace, or finds the one that this session already has.
    async fn provision_workspace(
        &self,
        job: &SessionAttempt,
    ) -> Result<ProvisionedWorkspace, ExecutorError>;

    /// Starts the agent in the session's workspace and opens its conversation. The agent's reports
    /// then go to `reports` until the agent has ended.
    async fn launch_agent(
        &self,
        job: &SessionAttempt,
        mode: AgentLaunchMode,
        reports: AgentReportSender,
    ) -> Result<LaunchedAgentInfo, ExecutorError>;

    /// Gives the agent the prompt of a turn. Turns are numbered from 1. Returns when the agent has received it; the
    /// end of the turn is reported.
    async fn send_prompt(
        &self,
        job: &SessionAttempt,
        turn: u32,
        prompt: &str,
    ) -> Result<(), ExecutorError>;

    /// Asks the agent to end this turn now. The end is reported as for every turn. Does nothing if the turn has ended.
    async fn cancel_turn(&self, job: &SessionAttempt, turn: u32) -> Result<(), ExecutorError>;

    /// Names the approval that a question is stored as, for callers that do not wait for the decision. Questions that are
    /// no longer open are ignored.
    async fn set_approval_id_of_question(
        &self,
        job: &SessionAttempt,
        question: &AgentQuestionId,
        approval: ApprovalId,
    );

    /// Answers a question by an approval that is no longer pending. Questions that are no longer open are ignored.
    async fn answer_question(
        &self,
        job: &SessionAttempt,
        question: &AgentQuestionId,
        approval: &Approval,
    ) -> Result<(), ExecutorError>;

    /// Freezes every process of the session. If this fails they continue to run.
    async fn pause_session(&self, job: &SessionAttempt) -> Result<(), ExecutorError>;

    /// Unfreezes the processes.
    async fn resume_session(&self, job: &SessionAttempt) -> Result<(), ExecutorError>;

    /// Delivers the result as the task requests. A delivery can be repeated.
    async fn deliver_result(&self, job: &SessionAttempt) -> Result<DeliveryOutcome, ExecutorError>;

    /// The change so far as a unified diff.
    async fn session_diff(&self, job: &SessionAttempt) -> Result<String, ExecutorError>;

    /// Asks a repository for its branches. Nothing is transferred.
    async fn list_repo_branches(&self, url: &str) -> Result<RepoBranchList, ExecutorError>;

    /// What the workspace that the token names occupies on the disk.
    async fn workspace_storage(
        &self,
        token: &CleanupToken,
    ) -> Result<WorkspaceStorage, ExecutorError>;

    /// What the executor keeps on the disk, without the sizes of workspaces.
    async fn stored(&self) -> Result<StoredResources, ExecutorError>;

    /// Removes a cache of [`stored`](Executor::stored). Returns `false` if a workspace needs it.
    async fn remove_cache(&self, name: &str) -> Result<bool, ExecutorError>;

    /// The bytes that new workspaces can still occupy; `None` if that is unknown.
    fn free_space(&self) -> Option<u64>;

    /// Asks the agent to end its turn and waits at most `grace`, then ends every process of the session, of any
    /// generation. Succeeds if there is none.
    async fn terminate_session(
        &self,
        session: SessionId,
        grace: Duration,
    ) -> Result<(), ExecutorError>;

    /// Removes everything that the token names. Succeeds if there is nothing. Also works for
    /// resources that another process created.
    async fn clean_up_session(&self, token: &CleanupToken) -> Result<(), ExecutorError>;
}

/// A session to run, and the number of the attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionAttempt {
    pub session: Session,
    /// Increases with every attempt to run the session. Effects of an older attempt are refused or
    /// ignored.
    pub generation: u32,
}

/// Names the resources of a session. Only its executor can interpret it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CleanupToken(pub String);

/// What an executor keeps on the disk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredResources {
    /// Everything that was made for sessions and not removed, complete or not.
    pub workspaces: Vec<CleanupToken>,
    pub caches: Vec<StoredRepoCache>,
}

/// A cached repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRepoCache {
    pub name: String,
    pub last_used: Time,
    /// Whether a workspace needs it.
    pub is_borrowed: bool,
    pub bytes: u64,
}

/// The branches of a repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepoBranchList {
    /// The branch that HEAD names.
    pub default: Option<String>,
    /// Names and commits, by name.
    pub branches: Vec<(String, String)>,
    /// Whether there are more.
    pub truncated: bool,
}

/// A workspace that is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvisionedWorkspace {
    pub provider: SnapshotProvider,
    /// The directory on the executor's machine.
    pub mount_path: String,
    /// The commit that the work starts from.
    pub base_commit: Option<String>,
    /// Things that the user should know, such as uncommitted changes that were left out.
    pub notes: Vec<String>,
}

/// Whether the agent starts a new conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentLaunchMode {
    /// A new conversation.
    New { token: SessionToken },
    /// The stored conversation of the agent. Fails if the agent cannot load it.
    Reload { token: SessionToken },
}

/// The secret with which a session's agent authenticates at its own endpoint.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionToken(String);

impl SessionToken {
    /// A token with this text.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The secret itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SessionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionToken(…)")
    }
}

/// An agent that accepts prompts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LaunchedAgentInfo {
    /// The name and version that the agent gave itself.
    pub agent: Option<String>,
    /// The isolation that is in force; `None` if it is not known.
    pub isolation: Option<Isolation>,
    /// The limits that are enforced on all processes of the session together.
    pub limits: EnforcedLimits,
    /// Things that the user should know, such as limits that cannot be enforced.
    pub notes: Vec<String>,
}

impl LaunchedAgentInfo {
    /// The line of the session's stream that says what was started, and with which isolation. `None` if neither is
    /// known.
    pub fn start_note(&self) -> Option<String> {
        let agent = self.agent.as_deref();
        match self.isolation {
            Some(Isolation::None) => {
                Some(format!("Started {}, without isolation.", agent.unwrap_or("the agent")))
            }
            Some(isolation) => {
                Some(format!("Started {}, isolated by {isolation}.", agent.unwrap_or("the agent")))
            }
            None => agent.map(|agent| format!("Started {agent}.")),
        }
    }
}

/// A delivered result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliveryOutcome {
    pub result: DeliveryResult,
    pub changes: ChangeCounts,
    /// Notes about the result for the session's user, one sentence each.
    pub notes: Vec<String>,
}

/// Why an executor did not perform a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorError {
    /// Why the session ends, if this error ends it.
    pub reason: SessionEndReason,
    /// The cause in words, for the session's user.
    pub detail: String,
}

impl fmt::Display for ExecutorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for ExecutorError {}
