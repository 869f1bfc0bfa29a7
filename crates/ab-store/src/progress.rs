//! The stored part of a session's state, in addition to its status. The driver of the session,
//! which is the task that runs it, needs this state after a restart.

use ab_api::{SessionEndReason, SessionStatus};
use serde::{Deserialize, Serialize};

/// The part of a session's state that clients do not see. Stored in the same row as the session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoredSessionProgress {
    /// Number of attempts to run the session. Every effect carries this number, so that an executor
    /// can distinguish a repetition from a new attempt.
    pub generation: u32,
    /// Number of prompts that were sent to the agent or are in the queue.
    pub prompts: u32,
    /// Number of prompts that were sent to the agent.
    pub turn: u32,
    /// What the session does while it runs or is paused.
    pub stage: StoredSessionStage,
    /// Whether an agent process of the current server process is attached. Agents end when the
    /// server restarts.
    pub attached: bool,
    /// How the session will end, if it is ending.
    pub ending: Option<StoredSessionEnd>,
}

/// The step that a session has reached while it runs. A restarted server continues at this step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StoredSessionStage {
    /// The workspace is being made.
    #[default]
    Provision,
    /// The agent is being started.
    Launch,
    /// The agent waits for a prompt.
    Idle,
    /// A prompt was sent to the agent, or may have been sent.
    Turn,
    /// The result is being delivered.
    Deliver,
}

/// How a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoredSessionEnd {
    /// The final status.
    pub status: SessionStatus,
    pub reason: SessionEndReason,
}
