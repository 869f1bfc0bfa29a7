//! Reports from an executor to the control plane while an agent works.

use ab_api::{ApprovalSubject, EventKind};
use tokio::sync::mpsc;

/// Something that happened to a launched agent. Reports arrive in order.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentReport {
    /// An event to show, such as text, a tool call or an edit. Pieces of text are joined before
    /// they are reported.
    Event(EventKind),
    /// The agent, or a command that it started, waits for the decision of a person.
    Question(AgentQuestion),
    /// The agent finished its turn.
    TurnEnded(TurnOutcome),
    /// The agent's process ended without a request of the server. This is the last report.
    Exited { detail: String },
}

/// A question of an agent, or of the command policy about a command of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentQuestion {
    /// The id of the question in calls of
    /// [`Executor::answer_question`](crate::Executor::answer_question).
    pub id: AgentQuestionId,
    pub subject: ApprovalSubject,
}

/// The id of a question of a launched agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AgentQuestionId(pub String);

/// How a turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnOutcome {
    /// The agent finished its work.
    Done,
    /// The turn was cancelled by [`Executor::cancel_turn`](crate::Executor::cancel_turn).
    Cancelled,
    /// The agent refused the prompt, ran out of tokens, or failed.
    Failed { detail: String },
}

/// Sends the reports of one launched agent. The queue is bounded. If the control plane is slow, the
/// agent has to wait.
pub type AgentReportSender = mpsc::Sender<AgentReport>;
