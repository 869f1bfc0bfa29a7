//! Crash points of runs: places between two effects at which tests kill the server.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A point between an effect and its record in the store. At some points the effect has happened
/// and is not recorded. At other points the effect is recorded and has not happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpaceCrashTestPoint {
    /// The run is stored; nothing performs it yet.
    RunStored,
    /// The start of an operation is stored; the operation is not performed yet.
    OperationStarted,
    /// An operation was performed; its event is not stored yet.
    OperationPerformed,
    /// The question is stored, and the run is recorded as waiting; nothing waits for the decision
    /// yet.
    ApprovalStored,
    /// The decision is stored; the run does not have it yet.
    DecisionStored,
    /// Every operation was performed; the end is not stored yet.
    OperationsEnded,
}

impl SpaceCrashTestPoint {
    pub const ALL: [Self; 6] = [
        Self::RunStored,
        Self::OperationStarted,
        Self::OperationPerformed,
        Self::ApprovalStored,
        Self::DecisionStored,
        Self::OperationsEnded,
    ];

    /// The name of the crash point on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RunStored => "run-stored",
            Self::OperationStarted => "operation-started",
            Self::OperationPerformed => "operation-performed",
            Self::ApprovalStored => "run-parked",
            Self::DecisionStored => "run-decided",
            Self::OperationsEnded => "run-ending",
        }
    }
}

impl FromStr for SpaceCrashTestPoint {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|point| point.as_str() == text).ok_or(())
    }
}

/// Called at crash points. Does nothing by default.
#[derive(Clone, Default)]
pub struct SpaceCrashTestHook {
    reached: Option<Arc<dyn Fn(SpaceCrashTestPoint) + Send + Sync>>,
}

impl SpaceCrashTestHook {
    /// Calls `reached` at every crash point.
    pub fn new(reached: impl Fn(SpaceCrashTestPoint) + Send + Sync + 'static) -> Self {
        Self { reached: Some(Arc::new(reached)) }
    }

    pub(crate) fn reach(&self, point: SpaceCrashTestPoint) {
        if let Some(reached) = &self.reached {
            reached(point);
        }
    }
}

impl fmt::Debug for SpaceCrashTestHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpaceCrashTestHook").field("is_set", &self.reached.is_some()).finish()
    }
}
