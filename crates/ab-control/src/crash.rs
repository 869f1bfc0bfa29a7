//! Crash points: points between two effects at which tests kill the server.
//!
//! Tests iterate over [`CrashTestPoint::ALL`]. The control plane only reports which point it
//! reaches. The program that starts the control plane decides what happens at the point. By default
//! nothing happens.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A point between an effect and its record in the store. At some points the effect has happened
/// and is not recorded. At other points the effect is recorded and has not happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CrashTestPoint {
    /// The session is stored; no driver runs yet.
    Created,
    /// The cleanup token is stored; nothing is made yet.
    CleanupStored,
    /// The workspace is made; this is not recorded yet.
    WorkspaceMade,
    /// The agent's token is stored; the agent is not started yet.
    TokenStored,
    /// The agent accepts prompts; this is not recorded yet.
    Launched,
    /// The store records that the prompt was sent, but the agent does not have it yet.
    PromptRecorded,
    /// The agent has the prompt.
    PromptDelivered,
    /// The agent's question is stored; nothing waits for the decision yet.
    ApprovalStored,
    /// The decision is stored; the agent does not have it yet.
    DecisionStored,
    /// The store records that the decision was used, but the agent does not have it yet.
    DecisionUsed,
    /// The agent has the decision.
    DecisionDelivered,
    /// The end of the turn is recorded; nothing is delivered yet.
    DeliveryBegun,
    /// The branch is written; this is not recorded yet.
    Delivered,
    /// The start of the closing is recorded. The agent's processes still run.
    ClosingBegun,
    /// The processes have ended; the diff is not stored yet.
    ProcessesEnded,
    /// The diff is stored; the session has not ended yet.
    DiffStored,
    /// The final status is stored; the workspace still exists.
    Ended,
    /// The workspace is removed; the cleanup token is still stored.
    CleanedUp,
    /// A restarted server recorded that it resumes the session. No driver runs yet.
    SessionResumed,
    /// A restarted server started the agent with its old conversation; this is not recorded yet.
    Reloaded,
    /// A further prompt is stored. Its caller has no answer yet.
    PromptQueued,
    /// The store contains the prompt that tells a restarted agent about a decision. The agent does
    /// not have the prompt yet.
    DecisionTold,
}

impl CrashTestPoint {
    pub const ALL: [Self; 22] = [
        Self::Created,
        Self::CleanupStored,
        Self::WorkspaceMade,
        Self::TokenStored,
        Self::Launched,
        Self::PromptRecorded,
        Self::PromptDelivered,
        Self::ApprovalStored,
        Self::DecisionStored,
        Self::DecisionUsed,
        Self::DecisionDelivered,
        Self::DeliveryBegun,
        Self::Delivered,
        Self::ClosingBegun,
        Self::ProcessesEnded,
        Self::DiffStored,
        Self::Ended,
        Self::CleanedUp,
        Self::SessionResumed,
        Self::Reloaded,
        Self::DecisionTold,
        Self::PromptQueued,
    ];

    /// The name of the crash point on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::CleanupStored => "cleanup-stored",
            Self::WorkspaceMade => "workspace-made",
            Self::TokenStored => "token-stored",
            Self::Launched => "launched",
            Self::PromptRecorded => "prompt-recorded",
            Self::PromptDelivered => "prompt-given",
            Self::ApprovalStored => "approval-stored",
            Self::DecisionStored => "decision-stored",
            Self::DecisionUsed => "answer-taken",
            Self::DecisionDelivered => "answer-given",
            Self::DeliveryBegun => "delivery-begun",
            Self::Delivered => "delivered",
            Self::ClosingBegun => "closing-begun",
            Self::ProcessesEnded => "processes-ended",
            Self::DiffStored => "diff-stored",
            Self::Ended => "ended",
            Self::CleanedUp => "cleaned-up",
            Self::SessionResumed => "taken-up",
            Self::Reloaded => "reloaded",
            Self::DecisionTold => "decision-told",
            Self::PromptQueued => "prompt-queued",
        }
    }
}

impl fmt::Display for CrashTestPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for CrashTestPoint {
    type Err = UnknownCrashTestPoint;

    fn from_str(text: &str) -> Result<Self, UnknownCrashTestPoint> {
        let found = Self::ALL.into_iter().find(|point| point.as_str() == text);
        found.ok_or_else(|| UnknownCrashTestPoint { text: text.to_owned() })
    }
}

/// A text that is not the name of a crash point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownCrashTestPoint {
    text: String,
}

impl fmt::Display for UnknownCrashTestPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = CrashTestPoint::ALL.map(CrashTestPoint::as_str).join(", ");
        write!(f, "unknown crash point {:?}: must be one of {known}", self.text)
    }
}

impl std::error::Error for UnknownCrashTestPoint {}

/// Called at crash points. Does nothing by default.
#[derive(Clone, Default)]
pub struct CrashTestHook {
    reached: Option<Arc<dyn Fn(CrashTestPoint) + Send + Sync>>,
}

impl CrashTestHook {
    /// Calls `reached` at every crash point. The call blocks the driver of the session.
    pub fn new(reached: impl Fn(CrashTestPoint) + Send + Sync + 'static) -> Self {
        Self { reached: Some(Arc::new(reached)) }
    }

    pub(crate) fn reach(&self, point: CrashTestPoint) {
        if let Some(reached) = &self.reached {
            reached(point);
        }
    }
}

impl fmt::Debug for CrashTestHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CrashTestHook").field("is_set", &self.reached.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_found_by_its_name() {
        for point in CrashTestPoint::ALL {
            assert_eq!(point.as_str().parse(), Ok(point));
        }
        let error = "nowhere".parse::<CrashTestPoint>().expect_err("no such point").to_string();
        assert!(error.contains("\"nowhere\"") && error.contains("reloaded"), "{error}");
    }
}
