//! The trait that executors implement.

use std::fmt;
use std::time::Duration;

use ab_api::{
    Approval, ChangeCounts, DeliveryResult, EnforcedLimits, ExecutorDescription, FieldViolations,
    Session, SessionEndReason, SessionId, SnapshotProvider,
};
use async_trait::async_trait;

use crate::report::{AgentQuestionId, AgentReportSender};

/// Runs sessions on one machine.
///
/// Every method can be called again with the same job after a crash or a lost connection: a repeated effect of one
/// `(session, generation)` gives the same result and makes nothing twice. Futures may be dropped at any time;
/// [`terminate`](Executor::terminate) and [`cleanup`](Executor::cleanup) then remove what was begun.
#[async_trait]
pub trait Executor: fmt::Debug + Send + Sync {
    /// What clients see of the executor.
    fn describe(&self) -> ExecutorDescription;

    /// Looks at what a new session names on the executor's machine, and chooses how its workspace is made. A source
    /// on another machine is not asked.
    ///
    /// # Errors
    ///
    /// What is wrong with the task, field by field. No session is made for it.
    async fn choose_snapshot_provider(
        &self,
        session: &Session,
    ) -> Result<SnapshotProvider, FieldViolations>;

    /// Names everything that [`provision`](Executor::provision) of this job may make. The same session always has
    /// the same token. The caller stores it first.
    fn cleanup_token(&self, job: &SessionAttempt) -> CleanupToken;

    /// Makes the workspace, or finds the one that this session already has.
    async fn provision(&self, job: &SessionAttempt) -> Result<ProvisionedWorkspace, ExecutorError>;

    /// Starts the agent in the session's workspace and opens its conversation. From then on the agent's reports go
    /// to `reports`, until the agent has ended.
    async fn launch(
        &self,
        job: &SessionAttempt,
        mode: LaunchMode,
        reports: AgentReportSender,
    ) -> Result<LaunchedAgentInfo, ExecutorError>;

    /// Gives the agent a prompt. Returns when the agent has it; the turn's end is reported.
    async fn prompt(
        &self,
        job: &SessionAttempt,
        number: u32,
        prompt: &str,
    ) -> Result<(), ExecutorError>;

    /// Answers a question by an approval that is no longer pending. Questions that are no longer open are ignored.
    async fn answer_question(
        &self,
        job: &SessionAttempt,
        question: &AgentQuestionId,
        approval: &Approval,
    ) -> Result<(), ExecutorError>;

    /// Freezes every process of the session. After an error they go on.
    async fn pause(&self, job: &SessionAttempt) -> Result<(), ExecutorError>;

    /// Lets the frozen processes go on.
    async fn resume(&self, job: &SessionAttempt) -> Result<(), ExecutorError>;

    /// Hands the result over as the task asks, also when it was handed over before.
    async fn deliver(&self, job: &SessionAttempt) -> Result<DeliveryOutcome, ExecutorError>;

    /// The change so far as a unified diff.
    async fn diff(&self, job: &SessionAttempt) -> Result<String, ExecutorError>;

    /// Asks the agent to end its turn and waits at most `grace`, then ends every process of the session, of any
    /// generation. Succeeds if there is none.
    async fn terminate(&self, session: SessionId, grace: Duration) -> Result<(), ExecutorError>;

    /// Removes everything that the token names. Succeeds if there is nothing. Works in another process than the one
    /// that made it.
    async fn cleanup(&self, token: &CleanupToken) -> Result<(), ExecutorError>;
}

/// A session to run, and which attempt this is.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionAttempt {
    pub session: Session,
    /// Grows with every attempt to run the session. Effects of an older attempt are refused or ignored.
    pub generation: u32,
}

/// What names the resources of a session. Opaque to everyone but its executor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CleanupToken(pub String);

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

/// Whether the agent starts afresh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaunchMode {
    /// A new conversation.
    New { token: SessionToken },
    /// The conversation that the agent stored before. Fails if the agent cannot load it.
    Reload { token: SessionToken },
}

/// The secret by which a session's agent reaches its own endpoint.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionToken(String);

impl SessionToken {
    /// A token with this text.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// The secret itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SessionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionToken(…)")
    }
}

/// An agent that takes prompts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LaunchedAgentInfo {
    /// The name and version that the agent gave itself.
    pub agent: Option<String>,
    /// What is enforced on all processes of the session together.
    pub limits: EnforcedLimits,
    /// Things that the user should know, such as limits that cannot be enforced.
    pub notes: Vec<String>,
}

/// A result that was handed over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliveryOutcome {
    pub result: DeliveryResult,
    pub changes: ChangeCounts,
    /// What the session's user should know about the result, a sentence each.
    pub notes: Vec<String>,
}

/// Why an executor did not do what it was asked to.
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
