//! The state of a session, and how it is stored.

use ab_api::{Activity, EventKind, SessionStatus};
use ab_store::{Ending, Progress, Stage};

/// Everything that decides what a session may do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    pub phase: Phase,
    /// Counts the attempts to run the session.
    pub generation: u32,
    /// How many prompts were accepted.
    pub prompts: u32,
    /// The number of the last prompt that was given to the agent.
    pub turn: u32,
    /// Whether an agent of this server's process runs.
    pub attached: bool,
    /// Whether the session waits for prompts after a turn instead of ending.
    pub keep_open: bool,
}

/// Where a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    Queued,
    Provisioning(SetupStep),
    Running(RunningWork),
    Pausing(RunningWork),
    Paused(RunningWork),
    Resuming(RunningWork),
    /// The last processes are being ended. `shown` is `stopping` if a person ended the session, and else the
    /// status that it had.
    Closing {
        shown: SessionStatus,
        ending: Ending,
    },
    Ended(Ending),
}

/// A step of provisioning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SetupStep {
    Workspace,
    Agent,
}

/// What a running session does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunningWork {
    /// The agent waits for a prompt.
    Idle,
    /// The agent has a prompt, or may have it.
    Turn,
    /// The result is being delivered.
    Deliver,
}

impl State {
    /// The state of a new session with its first prompt.
    pub fn new(keep_open: bool) -> Self {
        Self {
            phase: Phase::Queued,
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
            Phase::Queued => SessionStatus::Queued,
            Phase::Provisioning(_) => SessionStatus::Provisioning,
            Phase::Running(_) => SessionStatus::Running,
            Phase::Pausing(_) => SessionStatus::Pausing,
            Phase::Paused(_) => SessionStatus::Paused,
            Phase::Resuming(_) => SessionStatus::Resuming,
            Phase::Closing { shown, .. } => shown,
            Phase::Ended(ending) => ending.status,
        }
    }

    /// What a running session does, as clients see it.
    pub fn activity(&self) -> Option<Activity> {
        match self.phase {
            Phase::Running(RunningWork::Idle) if self.turn < self.prompts => {
                Some(Activity::Working)
            }
            Phase::Running(RunningWork::Idle) => Some(Activity::Idle),
            Phase::Running(RunningWork::Turn) => Some(Activity::Working),
            Phase::Running(RunningWork::Deliver) => Some(Activity::Delivering),
            Phase::Closing { shown: SessionStatus::Running, .. } => Some(Activity::Delivering),
            _ => None,
        }
    }

    /// How the session ended.
    pub fn ended(&self) -> Option<Ending> {
        match self.phase {
            Phase::Ended(ending) => Some(ending),
            _ => None,
        }
    }

    /// The part of the state that is stored beside the status.
    pub fn progress(&self) -> Progress {
        let (stage, ending) = match self.phase {
            Phase::Queued | Phase::Provisioning(SetupStep::Workspace) => (Stage::Provision, None),
            Phase::Provisioning(SetupStep::Agent) => (Stage::Launch, None),
            Phase::Running(work)
            | Phase::Pausing(work)
            | Phase::Paused(work)
            | Phase::Resuming(work) => (stage(work), None),
            Phase::Closing { ending, .. } | Phase::Ended(ending) => {
                (Stage::Provision, Some(ending))
            }
        };
        let Self { generation, prompts, turn, attached, .. } = *self;
        Progress { generation, prompts, turn, stage, attached, ending }
    }

    /// The state that was stored as a status and its progress; `None` if they contradict each other.
    pub fn restore(status: SessionStatus, progress: &Progress, keep_open: bool) -> Option<Self> {
        let work = match progress.stage {
            Stage::Provision | Stage::Launch => None,
            Stage::Idle => Some(RunningWork::Idle),
            Stage::Turn => Some(RunningWork::Turn),
            Stage::Deliver => Some(RunningWork::Deliver),
        };
        let phase = match (status, progress.ending) {
            (status, Some(ending)) if status.is_terminal() => Phase::Ended(ending),
            (shown, Some(ending)) => Phase::Closing { shown, ending },
            (SessionStatus::Queued, None) => Phase::Queued,
            (SessionStatus::Provisioning, None) if progress.stage == Stage::Launch => {
                Phase::Provisioning(SetupStep::Agent)
            }
            (SessionStatus::Provisioning, None) => Phase::Provisioning(SetupStep::Workspace),
            (SessionStatus::Running, None) => Phase::Running(work?),
            (SessionStatus::Pausing, None) => Phase::Pausing(work?),
            (SessionStatus::Paused, None) => Phase::Paused(work?),
            (SessionStatus::Resuming, None) => Phase::Resuming(work?),
            _ => return None,
        };
        let Progress { generation, prompts, turn, attached, .. } = *progress;
        Some(Self { phase, generation, prompts, turn, attached, keep_open })
    }

    pub(super) fn at(&self, phase: Phase) -> Self {
        Self { phase, ..*self }
    }

    /// The event that tells clients the status.
    pub(super) fn status_event(&self) -> EventKind {
        EventKind::Status {
            status: self.status(),
            activity: self.activity(),
            reason: self.ended().map(|ending| ending.reason),
            message: None,
        }
    }
}

fn stage(work: RunningWork) -> Stage {
    match work {
        RunningWork::Idle => Stage::Idle,
        RunningWork::Turn => Stage::Turn,
        RunningWork::Deliver => Stage::Deliver,
    }
}
