//! The contract between the control plane, which decides what should run, and an executor, which runs it.

mod contract;
mod report;

pub use contract::{
    CleanupToken, Delivered, Executor, ExecutorError, Job, LaunchMode, Launched, Provisioned,
    SessionToken,
};
pub use report::{Question, QuestionId, Report, Reports, TurnOutcome};
