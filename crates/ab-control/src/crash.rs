//! Crash points: places between two effects at which a test lets the server die.
//!
//! [`CrashPoint::ALL`] is the list that tests iterate. The control plane only says which point it reaches; the
//! composition root decides what happens there, and does nothing by default.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A place where something has happened and is not recorded, or is recorded and has not happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CrashPoint {
    /// The session is stored, and no driver runs.
    Created,
    /// The cleanup token is stored, and nothing is made.
    CleanupStored,
    /// The workspace is made, which is not recorded.
    WorkspaceMade,
    /// The token of the agent is stored, and the agent is not started.
    TokenStored,
    /// The agent takes prompts, which is not recorded.
    Launched,
    /// The prompt is recorded as given, and the agent does not have it.
    PromptRecorded,
    /// The agent has the prompt.
    PromptGiven,
    /// The question of the agent is stored, and nothing waits for the decision.
    ApprovalStored,
    /// The decision is stored, and the agent does not know it.
    DecisionStored,
    /// The agent knows the decision.
    AnswerGiven,
    /// The end of the turn is recorded, and nothing is delivered.
    DeliveryBegun,
    /// The branch is written, which is not recorded.
    Delivered,
    /// The end is recorded, and the agent's processes run.
    ClosingBegun,
    /// The processes have ended, and the diff is not stored.
    ProcessesEnded,
    /// The diff is stored, and the session has not ended.
    DiffStored,
    /// The final status is stored, and the workspace is there.
    Ended,
    /// The workspace is removed, and the cleanup token is stored.
    CleanedUp,
    /// A restarted server recorded that it takes the session up, and no driver runs.
    TakenUp,
    /// A restarted server started the agent with its old conversation, which is not recorded.
    Reloaded,
}

impl CrashPoint {
    pub const ALL: [Self; 19] = [
        Self::Created,
        Self::CleanupStored,
        Self::WorkspaceMade,
        Self::TokenStored,
        Self::Launched,
        Self::PromptRecorded,
        Self::PromptGiven,
        Self::ApprovalStored,
        Self::DecisionStored,
        Self::AnswerGiven,
        Self::DeliveryBegun,
        Self::Delivered,
        Self::ClosingBegun,
        Self::ProcessesEnded,
        Self::DiffStored,
        Self::Ended,
        Self::CleanedUp,
        Self::TakenUp,
        Self::Reloaded,
    ];

    /// The name that the command line takes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::CleanupStored => "cleanup-stored",
            Self::WorkspaceMade => "workspace-made",
            Self::TokenStored => "token-stored",
            Self::Launched => "launched",
            Self::PromptRecorded => "prompt-recorded",
            Self::PromptGiven => "prompt-given",
            Self::ApprovalStored => "approval-stored",
            Self::DecisionStored => "decision-stored",
            Self::AnswerGiven => "answer-given",
            Self::DeliveryBegun => "delivery-begun",
            Self::Delivered => "delivered",
            Self::ClosingBegun => "closing-begun",
            Self::ProcessesEnded => "processes-ended",
            Self::DiffStored => "diff-stored",
            Self::Ended => "ended",
            Self::CleanedUp => "cleaned-up",
            Self::TakenUp => "taken-up",
            Self::Reloaded => "reloaded",
        }
    }
}

impl fmt::Display for CrashPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for CrashPoint {
    type Err = UnknownCrashPoint;

    fn from_str(text: &str) -> Result<Self, UnknownCrashPoint> {
        let found = Self::ALL.into_iter().find(|point| point.as_str() == text);
        found.ok_or_else(|| UnknownCrashPoint { text: text.to_owned() })
    }
}

/// A text that names no crash point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownCrashPoint {
    text: String,
}

impl fmt::Display for UnknownCrashPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = CrashPoint::ALL.map(CrashPoint::as_str).join(", ");
        write!(f, "unknown crash point {:?}: must be one of {known}", self.text)
    }
}

impl std::error::Error for UnknownCrashPoint {}

/// What happens at crash points: nothing by default.
#[derive(Clone, Default)]
pub struct CrashHook {
    reached: Option<Arc<dyn Fn(CrashPoint) + Send + Sync>>,
}

impl CrashHook {
    /// Calls `reached` at every crash point. The call blocks the driver of the session.
    pub fn new(reached: impl Fn(CrashPoint) + Send + Sync + 'static) -> Self {
        Self { reached: Some(Arc::new(reached)) }
    }

    pub(crate) fn reach(&self, point: CrashPoint) {
        if let Some(reached) = &self.reached {
            reached(point);
        }
    }
}

impl fmt::Debug for CrashHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrashHook").field("is_set", &self.reached.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_found_by_its_name() {
        for point in CrashPoint::ALL {
            assert_eq!(point.as_str().parse(), Ok(point));
        }
        let error = "nowhere".parse::<CrashPoint>().expect_err("no such point").to_string();
        assert!(error.contains("\"nowhere\"") && error.contains("reloaded"), "{error}");
    }
}
