//! The state of a session, and how it is stored.

use ab_api::{EventKind, SessionActivity, SessionStatus};
use ab_store::{StoredSessionEnd, StoredSessionProgress, StoredSessionStage};

/// The part of a session that determines what it can do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionState {
    pub phase: SessionPhase,
    /// Number of attempts to run the session.
    pub generation: u32,
    /// Number of prompts that were sent to the agent or are in the queue.
    pub prompts: u32,
    /// Number of prompts that were sent to the agent.
    pub turn: u32,
    /// Whether an agent that this server process started is running and accepts prompts.
    pub attached: bool,
    /// Whether the session waits for prompts after a turn instead of ending.
    pub keep_open: bool,
}

/// The phase of a session. More detailed than the status that clients see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SessionPhase {
    Queued,
    Provisioning(ProvisioningStep),
    Running(RunningSessionPhase),
    Pausing(RunningSessionPhase),
    Paused(RunningSessionPhase),
    Resuming(RunningSessionPhase),
    /// The last processes are being ended. `shown_status` is `stopping` if a person ended the
    /// session. Otherwise it is the status that the session had before.
    Closing {
        shown_status: SessionStatus,
        ending: StoredSessionEnd,
    },
    Ended(StoredSessionEnd),
}

/// What a session in the phase `Provisioning` is preparing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProvisioningStep {
    Workspace,
    Agent,
}

/// What a running session does, or what a paused session did before the pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunningSessionPhase {
    /// The agent waits for a prompt.
    Idle,
    /// A prompt was sent to the agent, or may have been sent.
    Turn,
    /// The result is being delivered.
    Deliver,
}

impl SessionState {
    /// The state of a new session with its first prompt.
    pub fn new(keep_open: bool) -> Self {
        Self {
            phase: SessionPhase::Queued,
            generation: 0,
            prompts: 1,
            turn: 0,
            attached: false,
            keep_open,
        }
    }

    /// The status that clients see.
    pub fn status(&self) -> SessionStatus {
        match self.phase {
            SessionPhase::Queued => SessionStatus::Queued,
            SessionPhase::Provisioning(_) => SessionStatus::Provisioning,
            SessionPhase::Running(_) => SessionStatus::Running,
            SessionPhase::Pausing(_) => SessionStatus::Pausing,
            SessionPhase::Paused(_) => SessionStatus::Paused,
            SessionPhase::Resuming(_) => SessionStatus::Resuming,
            SessionPhase::Closing { shown_status: shown, .. } => shown,
            SessionPhase::Ended(ending) => ending.status,
        }
    }

    /// The activity of a running session, in the form that clients see.
    pub fn activity(&self) -> Option<SessionActivity> {
        match self.phase {
            SessionPhase::Running(RunningSessionPhase::Idle) if self.turn < self.prompts => {
                Some(SessionActivity::Working)
            }
            SessionPhase::Running(RunningSessionPhase::Idle) => Some(SessionActivity::Idle),
            SessionPhase::Running(RunningSessionPhase::Turn) => Some(SessionActivity::Working),
            SessionPhase::Running(RunningSessionPhase::Deliver) => {
                Some(SessionActivity::Delivering)
            }
            SessionPhase::Closing { shown_status: SessionStatus::Running, .. } => {
                Some(SessionActivity::Delivering)
            }
            _ => None,
        }
    }

    /// How the session ended. `None` if it has not ended.
    pub fn ending(&self) -> Option<StoredSessionEnd> {
        match self.phase {
            SessionPhase::Ended(ending) => Some(ending),
            _ => None,
        }
    }

    /// Returns the part of the state that is stored beside the status, see `StoredSessionProgress`.
    pub fn progress(&self) -> StoredSessionProgress {
        let (stage, ending) = match self.phase {
            SessionPhase::Queued | SessionPhase::Provisioning(ProvisioningStep::Workspace) => {
                (StoredSessionStage::Provision, None)
            }
            SessionPhase::Provisioning(ProvisioningStep::Agent) => {
                (StoredSessionStage::Launch, None)
            }
            SessionPhase::Running(work)
            | SessionPhase::Pausing(work)
            | SessionPhase::Paused(work)
            | SessionPhase::Resuming(work) => (stage(work), None),
            SessionPhase::Closing { ending, .. } | SessionPhase::Ended(ending) => {
                (StoredSessionStage::Provision, Some(ending))
            }
        };
        let Self { generation, prompts, turn, attached, .. } = *self;
        StoredSessionProgress { generation, prompts, turn, stage, attached, ending }
    }

    /// Rebuilds the state from a stored status and progress. `None` if they contradict each other.
    pub fn restore(
        status: SessionStatus,
        progress: &StoredSessionProgress,
        keep_open: bool,
    ) -> Option<Self> {
        let work = match progress.stage {
            StoredSessionStage::Provision | StoredSessionStage::Launch => None,
            StoredSessionStage::Idle => Some(RunningSessionPhase::Idle),
            StoredSessionStage::Turn => Some(RunningSessionPhase::Turn),
            StoredSessionStage::Deliver => Some(RunningSessionPhase::Deliver),
        };
        let phase = match (status, progress.ending) {
            (status, Some(ending)) if status.is_terminal() => SessionPhase::Ended(ending),
            (shown, Some(ending)) => SessionPhase::Closing { shown_status: shown, ending },
            (SessionStatus::Queued, None) => SessionPhase::Queued,
            (SessionStatus::Provisioning, None) if progress.stage == StoredSessionStage::Launch => {
                SessionPhase::Provisioning(ProvisioningStep::Agent)
            }
            (SessionStatus::Provisioning, None) => {
                SessionPhase::Provisioning(ProvisioningStep::Workspace)
            }
            (SessionStatus::Running, None) => SessionPhase::Running(work?),
            (SessionStatus::Pausing, None) => SessionPhase::Pausing(work?),
            (SessionStatus::Paused, None) => SessionPhase::Paused(work?),
            (SessionStatus::Resuming, None) => SessionPhase::Resuming(work?),
            _ => return None,
        };
        let StoredSessionProgress { generation, prompts, turn, attached, .. } = *progress;
        Some(Self { phase, generation, prompts, turn, attached, keep_open })
    }

    pub(super) fn at(&self, phase: SessionPhase) -> Self {
        Self { phase, ..*self }
    }

    /// The event that reports the status to clients.
    pub(super) fn status_event(&self) -> EventKind {
        EventKind::Status {
            status: self.status(),
            activity: self.activity(),
            reason: self.ending().map(|ending| ending.reason),
            message: None,
        }
    }
}

fn stage(work: RunningSessionPhase) -> StoredSessionStage {
    match work {
        RunningSessionPhase::Idle => StoredSessionStage::Idle,
        RunningSessionPhase::Turn => StoredSessionStage::Turn,
        RunningSessionPhase::Deliver => StoredSessionStage::Deliver,
    }
}
