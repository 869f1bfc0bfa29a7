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
/// Every method can be called again with the same job after a crash or a lost connection. Repeating
/// a call for the same `(session, generation)` gives the same result and creates nothing twice. The
/// caller may drop futures at any time. [`terminate_session`](Executor::terminate_session) and
/// [`clean_up_session`](Executor::clean_up_session) then remove what the dropped calls had started.
#[async_trait]
pub trait Executor: fmt::Debug + Send + Sync {
    /// Describes the executor for clients.
    fn describe_executor(&self) -> ExecutorDescription;

    /// Checks whether the paths and names in a new session's task exist on the executor's machine,
    /// and chooses how the workspace of the session is made. Does not contact sources on other
    /// machines.
    ///
    /// # Errors
    ///
    /// Returns the problems of the task, field by field. The caller must then not create the
    /// session.
    async fn choose_snapshot_provider(
        &self,
        session: &Session,
    ) -> Result<SnapshotProvider, FieldViolations>;

    /// Returns the commit that the workspace of a new session would start from now, if its
    /// repository is on the executor's machine. The caller stores it in the session, so that the
    /// workspace starts from it even if the repository changes before.
    ///
    /// # Errors
    ///
    /// The same as for [`choose_snapshot_provider`](Executor::choose_snapshot_provider).
    async fn find_base_commit(&self, session: &Session) -> Result<Option<String>, FieldViolations>;

    /// Returns a token that names everything that
    /// [`provision_workspace`](Executor::provision_workspace) may create for this job. The token is
    /// the same for all attempts of a session. The caller stores it before it provisions the
    /// workspace.
    fn cleanup_token(&self, job: &SessionAttempt) -> CleanupToken;

    /// Makes the workspace of the session. If the session already has a workspace, returns it.
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

    /// Sends the agent the prompt of a turn. Turns are numbered from 1. Returns when the agent has
    /// received the prompt. The end of the turn is sent as a report.
    async fn send_prompt(
        &self,
        job: &SessionAttempt,
        turn: u32,
        prompt: &str,
    ) -> Result<(), ExecutorError>;

    /// Asks the agent to end this turn now. The end of a cancelled turn is reported in the same way
    /// as the end of any other turn. Does nothing if the turn has ended.
    async fn cancel_turn(&self, job: &SessionAttempt, turn: u32) -> Result<(), ExecutorError>;

    /// Tells the executor the id of the approval that stores a question. Callers that do not wait
    /// for the decision can then learn the id. Ignores questions that are no longer open.
    async fn set_approval_id_of_question(
        &self,
        job: &SessionAttempt,
        question: &AgentQuestionId,
        approval: ApprovalId,
    );

    /// Answers a question with the decision of its approval. The approval must no longer be
    /// pending. Ignores questions that are no longer open.
    async fn answer_question(
        &self,
        job: &SessionAttempt,
        question: &AgentQuestionId,
        approval: &Approval,
    ) -> Result<(), ExecutorError>;

    /// Freezes every process of the session. If this fails they continue to run.
    async fn pause_session(&self, job: &SessionAttempt) -> Result<(), ExecutorError>;

    /// Unfreezes every process of the session.
    async fn resume_session(&self, job: &SessionAttempt) -> Result<(), ExecutorError>;

    /// Delivers the result in the way that the task requests. A delivery can be repeated.
    async fn deliver_result(&self, job: &SessionAttempt) -> Result<DeliveryOutcome, ExecutorError>;

    /// Returns the changes so far as a unified diff.
    async fn session_diff(&self, job: &SessionAttempt) -> Result<String, ExecutorError>;

    /// Lists the branches of a repository without fetching any of them.
    async fn list_repo_branches(&self, url: &str) -> Result<RepoBranchList, ExecutorError>;

    /// Returns how much disk space the workspace of this token occupies.
    async fn workspace_storage(
        &self,
        token: &CleanupToken,
    ) -> Result<WorkspaceStorage, ExecutorError>;

    /// Lists what the executor keeps on the disk, without the sizes of workspaces.
    async fn list_stored_resources(&self) -> Result<StoredResources, ExecutorError>;

    /// Removes one of the caches that [`stored`](Executor::list_stored_resources) lists. Returns `false` if a
    /// workspace needs the cache.
    async fn remove_cache(&self, name: &str) -> Result<bool, ExecutorError>;

    /// Returns the number of bytes that new workspaces can still occupy. `None` if the number is
    /// unknown.
    fn free_space(&self) -> Option<u64>;

    /// Asks the agent to end its turn and waits at most `grace`. Then ends every process of the
    /// session, of any generation. Succeeds if there is no process.
    async fn terminate_session(
        &self,
        session: SessionId,
        grace: Duration,
    ) -> Result<(), ExecutorError>;

    /// Removes everything that the token names. Succeeds if there is nothing to remove. Also
    /// removes resources that another process created.
    async fn clean_up_session(&self, token: &CleanupToken) -> Result<(), ExecutorError>;
}

/// A session to run, and the number of this attempt to run it.
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
    /// The workspaces that were made for sessions and not removed, complete or not.
    pub workspaces: Vec<CleanupToken>,
    pub caches: Vec<StoredRepoCache>,
}

/// A repository that is cached on the executor's disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRepoCache {
    pub name: String,
    pub last_used: Time,
    /// Whether a workspace needs the cached repository.
    pub is_used_by_workspace: bool,
    pub bytes: u64,
}

/// The branches of a repository.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepoBranchList {
    /// The branch that `HEAD` refers to.
    pub default: Option<String>,
    /// The name and commit of each branch, sorted by name.
    pub branches: Vec<(String, String)>,
    /// Whether the repository has more branches than are listed.
    pub truncated: bool,
}

/// A workspace that is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvisionedWorkspace {
    pub provider: SnapshotProvider,
    /// The path of the workspace on the executor's machine.
    pub mount_path: String,
    /// The commit that the work starts from.
    pub base_commit: Option<String>,
    /// Things that the user should know, such as uncommitted changes that were left out.
    pub notes: Vec<String>,
}

/// Whether the agent starts a new conversation or continues the stored one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentLaunchMode {
    /// Start a new conversation.
    New { token: SessionToken },
    /// Load the agent's stored conversation. Fails if the agent cannot load it.
    Reload { token: SessionToken },
}

/// The secret with which a session's agent authenticates at the session's MCP endpoint.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionToken(String);

impl SessionToken {
    /// Makes a token from its text.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the text of the token.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SessionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionToken(…)")
    }
}

/// Facts about a launched agent that accepts prompts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LaunchedAgentInfo {
    /// The name and version that the agent reported.
    pub agent: Option<String>,
    /// The isolation of the agent. `None` if it is not known.
    pub isolation: Option<Isolation>,
    /// The limits that are enforced on all processes of the session together.
    pub limits: EnforcedLimits,
    /// Things that the user should know, such as limits that cannot be enforced.
    pub notes: Vec<String>,
}

impl LaunchedAgentInfo {
    /// The line for the session's stream that names the agent and its isolation. `None` if neither
    /// is known.
    pub fn describe_start(&self) -> Option<String> {
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
