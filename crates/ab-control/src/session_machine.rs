//! The session state machine: no I/O, no clock, no async.
//!
//! [`apply_session_input`] takes an input and returns the next state with the events that describe the
//! change, or an error if the input is not valid. [`next_session_action`] returns the one action to perform
//! now. Both depend only on their arguments, so a driver that has only the stored state can
//! continue by calling [`next_session_action`] again.

mod state;
mod table;

use ab_api::{EventKind, SessionEndReason, SessionStatus};
use ab_store::StoredSessionEnd;

pub use state::{ProvisioningStep, RunningSessionPhase, SessionPhase, SessionState};
pub use table::{example_session_states, transition_table_markdown};

/// An input of the state machine: something that happened in a session, or a request from a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SessionInput {
    /// The session has a place on an executor.
    ExecutorAssigned,
    /// The workspace is ready.
    Provisioned,
    /// The agent accepts prompts.
    Launched,
    /// The next prompt is about to be sent to the agent.
    TurnStarted,
    /// The agent finished its turn.
    TurnEnded,
    /// The result was delivered.
    Delivered,
    /// The processes are frozen.
    Paused,
    /// The processes are running again, or the agent has loaded its conversation.
    Resumed,
    /// Every process of the session has ended.
    Closed,
    /// The session cannot continue.
    Failed(SessionEndReason),
    /// The server was restarted. The agent's processes have ended.
    Restarted,
    /// A person adds a prompt to the queue.
    QueuePrompt,
    /// A person adds a prompt that is sent before all others. The current turn is cancelled.
    QueuePromptFirst,
    /// A person withdraws a queued prompt.
    WithdrawPrompt,
    /// A person or the idle timeout requests the result of an idle session.
    Finish,
    Pause,
    Resume,
    Stop,
    Cancel,
}

impl SessionInput {
    /// One example of each kind of input, for tests and the transition table.
    pub const ALL: [Self; 19] = [
        Self::ExecutorAssigned,
        Self::Provisioned,
        Self::Launched,
        Self::TurnStarted,
        Self::TurnEnded,
        Self::Delivered,
        Self::Paused,
        Self::Resumed,
        Self::Closed,
        Self::Failed(SessionEndReason::Agent),
        Self::Restarted,
        Self::QueuePrompt,
        Self::QueuePromptFirst,
        Self::WithdrawPrompt,
        Self::Finish,
        Self::Pause,
        Self::Resume,
        Self::Stop,
        Self::Cancel,
    ];

    /// The name of the input in the transition table.
    pub fn name(self) -> &'static str {
        match self {
            Self::ExecutorAssigned => "placed",
            Self::Provisioned => "provisioned",
            Self::Launched => "launched",
            Self::TurnStarted => "turn started",
            Self::TurnEnded => "turn ended",
            Self::Delivered => "delivered",
            Self::Paused => "paused",
            Self::Resumed => "resumed",
            Self::Closed => "closed",
            Self::Failed(_) => "failed",
            Self::Restarted => "restarted",
            Self::QueuePrompt => "prompt",
            Self::QueuePromptFirst => "prompt now",
            Self::WithdrawPrompt => "withdraw",
            Self::Finish => "finish",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Stop => "stop",
            Self::Cancel => "cancel",
        }
    }
}

/// An action to perform for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SessionAction {
    /// Wait for a free place on an executor.
    AssignExecutor,
    /// Make the workspace.
    Provision,
    /// Start the agent.
    Launch,
    /// Start the agent and load its conversation.
    Reload,
    /// Send the agent the first prompt of the queue, for the turn with this number.
    Prompt(u32),
    /// Deliver the result.
    Deliver,
    /// Freeze the processes.
    Pause,
    /// Unfreeze the processes.
    Resume,
    /// Give the agent time to finish, then end every process.
    Stop,
    /// End every process now.
    Kill,
}

/// The error for an input that is not valid in the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IllegalSessionInput {
    pub status: SessionStatus,
    pub input: SessionInput,
}

impl std::fmt::Display for IllegalSessionInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} is not possible while the session is {}", self.input.name(), self.status)
    }
}

impl std::error::Error for IllegalSessionInput {}

/// Returns the state after `input`, and the events that describe the change.
///
/// # Errors
///
/// [`IllegalSessionInput`] if the input is not valid in the state. The state is then unchanged.
pub fn apply_session_input(
    state: &SessionState,
    input: SessionInput,
) -> Result<(SessionState, Vec<EventKind>), IllegalSessionInput> {
    let next = next(state, input).ok_or(IllegalSessionInput { status: state.status(), input })?;
    let is_same = next.status() == state.status() && next.activity() == state.activity();
    let events = if is_same { Vec::new() } else { vec![next.status_event()] };
    Ok((next, events))
}

/// Returns the action to perform now. `None` if the session waits for a report or a person.
pub fn next_session_action(state: &SessionState) -> Option<SessionAction> {
    match state.phase {
        SessionPhase::Queued => Some(SessionAction::AssignExecutor),
        SessionPhase::Provisioning(ProvisioningStep::Workspace) => Some(SessionAction::Provision),
        SessionPhase::Provisioning(ProvisioningStep::Agent) => Some(SessionAction::Launch),
        SessionPhase::Running(RunningSessionPhase::Idle) => {
            (state.turn < state.prompts).then_some(SessionAction::Prompt(state.turn + 1))
        }
        SessionPhase::Running(RunningSessionPhase::Turn)
        | SessionPhase::Paused(_)
        | SessionPhase::Ended(_) => None,
        SessionPhase::Running(RunningSessionPhase::Deliver) => Some(SessionAction::Deliver),
        SessionPhase::Pausing(_) => Some(SessionAction::Pause),
        SessionPhase::Resuming(_) if state.attached => Some(SessionAction::Resume),
        SessionPhase::Resuming(_) => Some(SessionAction::Reload),
        SessionPhase::Closing { ending, .. } if ending.status == SessionStatus::Stopped => {
            Some(SessionAction::Stop)
        }
        SessionPhase::Closing { .. } => Some(SessionAction::Kill),
    }
}

fn next(state: &SessionState, input: SessionInput) -> Option<SessionState> {
    match input {
        SessionInput::Stop => Some(end_by_person(state, SessionStatus::Stopped)),
        SessionInput::Cancel => Some(end_by_person(state, SessionStatus::Cancelled)),
        SessionInput::Restarted => Some(restart(state)),
        SessionInput::Failed(reason) => fail(state, reason),
        SessionInput::QueuePrompt => accept_prompt(state),
        SessionInput::QueuePromptFirst => match state.phase {
            // A frozen agent cannot end its turn.
            SessionPhase::Pausing(_) | SessionPhase::Paused(_) | SessionPhase::Resuming(_) => None,
            _ => accept_prompt(state),
        },
        SessionInput::WithdrawPrompt => withdraw_prompt(state),
        SessionInput::ExecutorAssigned
        | SessionInput::Provisioned
        | SessionInput::Launched
        | SessionInput::TurnStarted
        | SessionInput::TurnEnded
        | SessionInput::Delivered
        | SessionInput::Paused
        | SessionInput::Resumed
        | SessionInput::Closed
        | SessionInput::Finish
        | SessionInput::Pause
        | SessionInput::Resume => advance(state, input),
    }
}

/// Handles the inputs that are valid in one phase only.
fn advance(state: &SessionState, input: SessionInput) -> Option<SessionState> {
    let at = |phase| Some(SessionState { phase, ..*state });
    match (state.phase, input) {
        (SessionPhase::Queued, SessionInput::ExecutorAssigned) => Some(SessionState {
            generation: 1,
            ..state.at(SessionPhase::Provisioning(ProvisioningStep::Workspace))
        }),
        (SessionPhase::Provisioning(ProvisioningStep::Workspace), SessionInput::Provisioned) => {
            at(SessionPhase::Provisioning(ProvisioningStep::Agent))
        }
        (SessionPhase::Provisioning(ProvisioningStep::Agent), SessionInput::Launched) => {
            Some(SessionState {
                attached: true,
                ..state.at(SessionPhase::Running(RunningSessionPhase::Idle))
            })
        }
        (SessionPhase::Running(RunningSessionPhase::Idle), SessionInput::TurnStarted)
            if state.turn < state.prompts =>
        {
            Some(SessionState {
                turn: state.turn + 1,
                ..state.at(SessionPhase::Running(RunningSessionPhase::Turn))
            })
        }
        (SessionPhase::Running(RunningSessionPhase::Turn), SessionInput::TurnEnded) => {
            at(SessionPhase::Running(after_turn(state)))
        }
        // The agent finished its turn before it was frozen.
        (SessionPhase::Pausing(RunningSessionPhase::Turn), SessionInput::TurnEnded) => {
            at(SessionPhase::Pausing(after_turn(state)))
        }
        (SessionPhase::Paused(RunningSessionPhase::Turn), SessionInput::TurnEnded) => {
            at(SessionPhase::Paused(after_turn(state)))
        }
        (SessionPhase::Resuming(RunningSessionPhase::Turn), SessionInput::TurnEnded) => {
            at(SessionPhase::Resuming(after_turn(state)))
        }
        (SessionPhase::Running(RunningSessionPhase::Idle), SessionInput::Finish) => {
            at(SessionPhase::Running(RunningSessionPhase::Deliver))
        }
        (SessionPhase::Running(RunningSessionPhase::Deliver), SessionInput::Delivered) => {
            Some(close(
                state,
                StoredSessionEnd {
                    status: SessionStatus::Completed,
                    reason: SessionEndReason::Done,
                },
            ))
        }
        (
            SessionPhase::Running(work @ (RunningSessionPhase::Idle | RunningSessionPhase::Turn)),
            SessionInput::Pause,
        ) => at(SessionPhase::Pausing(work)),
        (SessionPhase::Pausing(_) | SessionPhase::Paused(_), SessionInput::Pause) => Some(*state),
        (SessionPhase::Pausing(work), SessionInput::Paused) => at(SessionPhase::Paused(work)),
        // The processes could not be frozen.
        (SessionPhase::Pausing(work), SessionInput::Resumed) => at(SessionPhase::Running(work)),
        (SessionPhase::Paused(work), SessionInput::Resume) => at(SessionPhase::Resuming(work)),
        (SessionPhase::Resuming(_), SessionInput::Resume) => Some(*state),
        (SessionPhase::Resuming(work), SessionInput::Resumed) => {
            Some(SessionState { attached: true, ..state.at(SessionPhase::Running(work)) })
        }
        (SessionPhase::Closing { ending, .. }, SessionInput::Closed) => {
            Some(SessionState { attached: false, ..state.at(SessionPhase::Ended(ending)) })
        }
        _ => None,
    }
}

/// The phase after a turn: another turn, waiting for a prompt, or delivering.
fn after_turn(state: &SessionState) -> RunningSessionPhase {
    if state.turn < state.prompts || state.keep_open {
        RunningSessionPhase::Idle
    } else {
        RunningSessionPhase::Deliver
    }
}

/// Ends a live session at the request of a person. Repeating the request has no effect. A cancel
/// overrides a stop and a failure, because only a cancel removes the workspace.
fn end_by_person(state: &SessionState, status: SessionStatus) -> SessionState {
    let reason = match status {
        SessionStatus::Stopped => SessionEndReason::Stopped,
        _ => SessionEndReason::Cancelled,
    };
    let ending = StoredSessionEnd { status, reason };
    let closing = SessionPhase::Closing { shown_status: SessionStatus::Stopping, ending };
    match state.phase {
        SessionPhase::Ended(_) => *state,
        // Nothing was started for the session, so there is nothing to end.
        SessionPhase::Queued => state.at(SessionPhase::Ended(StoredSessionEnd {
            status: SessionStatus::Cancelled,
            reason: SessionEndReason::Cancelled,
        })),
        SessionPhase::Closing { ending: before, .. }
            if status == SessionStatus::Stopped || !keeps_workspace(before.status) =>
        {
            *state
        }
        _ => state.at(closing),
    }
}

/// Whether the workspace of a session that ends with this status is kept.
fn keeps_workspace(status: SessionStatus) -> bool {
    matches!(status, SessionStatus::Stopped | SessionStatus::Failed)
}

fn fail(state: &SessionState, reason: SessionEndReason) -> Option<SessionState> {
    match state.phase {
        SessionPhase::Ended(_) => None,
        // Nothing was started for the session, so there is nothing to end.
        SessionPhase::Queued => {
            Some(state.at(SessionPhase::Ended(StoredSessionEnd {
                status: SessionStatus::Failed,
                reason,
            })))
        }
        // The session is already ending for an earlier reason.
        SessionPhase::Closing { .. } => Some(*state),
        _ => Some(close(state, StoredSessionEnd { status: SessionStatus::Failed, reason })),
    }
}

/// Starts to end the remaining processes. Until they have ended, clients see the old status.
fn close(state: &SessionState, ending: StoredSessionEnd) -> SessionState {
    state.at(SessionPhase::Closing { shown_status: state.status(), ending })
}

/// Queues a prompt. Sessions that are delivering or ending accept no prompt.
fn accept_prompt(state: &SessionState) -> Option<SessionState> {
    match state.phase {
        SessionPhase::Running(RunningSessionPhase::Deliver)
        | SessionPhase::Closing { .. }
        | SessionPhase::Ended(_) => None,
        _ => Some(SessionState { prompts: state.prompts.checked_add(1)?, ..*state }),
    }
}

/// Removes a prompt from the queue. The queue must not be empty, and the session must not be
/// ending.
fn withdraw_prompt(state: &SessionState) -> Option<SessionState> {
    match state.phase {
        SessionPhase::Running(RunningSessionPhase::Deliver)
        | SessionPhase::Closing { .. }
        | SessionPhase::Ended(_) => None,
        _ if state.turn < state.prompts => {
            Some(SessionState { prompts: state.prompts - 1, ..*state })
        }
        _ => None,
    }
}

/// The state after the agent's processes were lost. A prompt that the agent may have received is
/// not sent again. Instead, the agent loads its conversation, and the session waits for the next
/// prompt.
fn restart(state: &SessionState) -> SessionState {
    let lost =
        SessionState { attached: false, generation: state.generation.saturating_add(1), ..*state };
    let without_turn = |work| match work {
        RunningSessionPhase::Idle | RunningSessionPhase::Turn => RunningSessionPhase::Idle,
        RunningSessionPhase::Deliver => RunningSessionPhase::Deliver,
    };
    match state.phase {
        SessionPhase::Queued | SessionPhase::Ended(_) => *state,
        // The agent has not received a prompt yet.
        SessionPhase::Running(RunningSessionPhase::Idle) if state.turn == 0 => {
            lost.at(SessionPhase::Provisioning(ProvisioningStep::Agent))
        }
        SessionPhase::Provisioning(_)
        | SessionPhase::Running(RunningSessionPhase::Deliver)
        | SessionPhase::Closing { .. } => lost,
        SessionPhase::Running(work) | SessionPhase::Resuming(work) => {
            lost.at(SessionPhase::Resuming(without_turn(work)))
        }
        SessionPhase::Pausing(work) | SessionPhase::Paused(work) => {
            lost.at(SessionPhase::Paused(without_turn(work)))
        }
    }
}
