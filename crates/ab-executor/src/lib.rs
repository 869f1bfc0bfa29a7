//! The contract between the control plane, which decides what should run, and an executor, which
//! runs it. [`LocalExecutor`] runs sessions in sandboxes on this machine.

mod contract;
mod endpoints;
mod local;
mod report;

pub use contract::{
    AgentLaunchMode, CleanupToken, DeliveryOutcome, Executor, ExecutorError, LaunchedAgentInfo,
    ProvisionedWorkspace, RepoBranchList, SessionAttempt, SessionToken, StoredRepoCache,
    StoredResources,
};
pub use endpoints::{RunningSessionWorkspace, RunningSessionWorkspaces};
pub use local::{
    AuditReceiver, AuditSender, DEFAULT_APPROVAL_WAIT_TIMEOUT, DEFAULT_SETUP_TIMEOUT,
    ExecutorSettings, LocalExecutor, SessionAuditEntry, audit_queue,
};
pub use report::{AgentQuestion, AgentQuestionId, AgentReport, AgentReportSender, TurnOutcome};
