//! The state of a session beyond its status, which its driver needs after a restart.

use ab_api::{SessionEndReason, SessionStatus};
use serde::{Deserialize, Serialize};

/// The part of a session's state that clients do not see. Stored in the same row as the session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoredSessionProgress {
    /// Number of attempts to run the session. Effects carry it, so that an executor can distinguish
    /// a repetition from a new attempt.
    pub generation: u32,
    /// Number of prompts that were given to the agent or are in the queue.
    pub prompts: u32,
    /// Number of prompts that were given to the agent.
    pub turn: u32,
    /// What the session does while it runs or is paused.
    pub stage: StoredSessionStage,
    /// Whether the agent's process was started by this server process. A restart of the server ends
    /// agents.
    pub attached: bool,
    /// How the session is about to end.
    pub ending: Option<StoredSessionEnding>,
}

/// What a session does while it runs.
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
    /// The agent has a prompt, or may have received it.
    Turn,
    /// The result is being delivered.
    Deliver,
}

/// How a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoredSessionEnding {
    /// The final status.
    pub status: SessionStatus,
    pub reason: SessionEndReason,
}
