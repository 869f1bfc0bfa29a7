//! The session state machine: no I/O, no clock, no async.
//!
//! [`apply`] takes an input and gives the next state with the events that describe the change, or says that the input
//! is illegal. [`wants`] gives the one thing that should be done now. Both depend on nothing but their arguments, so a
//! driver that lost everything but the stored state goes on by asking [`wants`] again.

mod state;
mod table;

use ab_api::{EndReason, EventKind, SessionStatus};
use ab_store::Ending;

pub use state::{Phase, RunningWork, SetupStep, State};
pub use table::{representative_states, transition_table};

/// Something that happened to a session, or that a person asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Input {
    /// An executor took the session.
    Placed,
    /// The workspace is ready.
    Provisioned,
    /// The agent takes prompts.
    Launched,
    /// The next prompt is about to be given to the agent.
    TurnStarted,
    /// The agent finished its turn.
    TurnEnded,
    /// The result was delivered.
    Delivered,
    /// The processes are frozen.
    Paused,
    /// The processes go on, or the agent was loaded again.
    Resumed,
    /// Every process of the session has ended.
    Closed,
    /// The session cannot go on.
    Failed(EndReason),
    /// The server started again. Processes of the agent did not survive.
    Restarted,
    /// A person gives another prompt.
    Prompt,
    /// A person, or the idle timeout, asks for the result of an idle session.
    Finish,
    Pause,
    Resume,
    Stop,
    Cancel,
}

impl Input {
    /// One input of each kind.
    pub const ALL: [Self; 17] = [
        Self::Placed,
        Self::Provisioned,
        Self::Launched,
        Self::TurnStarted,
        Self::TurnEnded,
        Self::Delivered,
        Self::Paused,
        Self::Resumed,
        Self::Closed,
        Self::Failed(EndReason::Agent),
        Self::Restarted,
        Self::Prompt,
        Self::Finish,
        Self::Pause,
        Self::Resume,
        Self::Stop,
        Self::Cancel,
    ];

    /// The name in the transition table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Placed => "placed",
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
            Self::Prompt => "prompt",
            Self::Finish => "finish",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Stop => "stop",
            Self::Cancel => "cancel",
        }
    }
}

/// What should be done for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Find room on an executor.
    Place,
    /// Make the workspace.
    Provision,
    /// Start the agent.
    Launch,
    /// Start the agent and load its conversation.
    Reload,
    /// Give the agent the prompt with this number.
    Prompt(u32),
    /// Deliver the result.
    Deliver,
    /// Freeze the processes.
    Pause,
    /// Let the processes go on.
    Resume,
    /// Give the agent time to wrap up, then end every process.
    Stop,
    /// End every process now.
    Kill,
}

/// An input that does not fit the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IllegalInput {
    pub status: SessionStatus,
    pub input: Input,
}

impl std::fmt::Display for IllegalInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} is not possible while the session is {}", self.input.name(), self.status)
    }
}

impl std::error::Error for IllegalInput {}

/// The state after `input`, and the events that describe the change.
///
/// # Errors
///
/// [`IllegalInput`] if the input does not fit the state. The state is then as before.
pub fn apply(state: &State, input: Input) -> Result<(State, Vec<EventKind>), IllegalInput> {
    let next = next(state, input).ok_or(IllegalInput { status: state.status(), input })?;
    let is_same = next.status() == state.status() && next.activity() == state.activity();
    let events = if is_same { Vec::new() } else { vec![next.status_event()] };
    Ok((next, events))
}

/// The one thing that should be done now; nothing if the session waits for a report or a person.
pub fn wants(state: &State) -> Option<Effect> {
    match state.phase {
        Phase::Queued => Some(Effect::Place),
        Phase::Provisioning(SetupStep::Workspace) => Some(Effect::Provision),
        Phase::Provisioning(SetupStep::Agent) => Some(Effect::Launch),
        Phase::Running(RunningWork::Idle) => {
            (state.turn < state.prompts).then_some(Effect::Prompt(state.turn + 1))
        }
        Phase::Running(RunningWork::Turn) | Phase::Paused(_) | Phase::Ended(_) => None,
        Phase::Running(RunningWork::Deliver) => Some(Effect::Deliver),
        Phase::Pausing(_) => Some(Effect::Pause),
        Phase::Resuming(_) if state.attached => Some(Effect::Resume),
        Phase::Resuming(_) => Some(Effect::Reload),
        Phase::Closing { ending, .. } if ending.status == SessionStatus::Stopped => {
            Some(Effect::Stop)
        }
        Phase::Closing { .. } => Some(Effect::Kill),
    }
}

fn next(state: &State, input: Input) -> Option<State> {
    match input {
        Input::Stop => Some(end_by_person(state, SessionStatus::Stopped)),
        Input::Cancel => Some(end_by_person(state, SessionStatus::Cancelled)),
        Input::Restarted => Some(restart(state)),
        Input::Failed(reason) => fail(state, reason),
        Input::Prompt => accept_prompt(state),
        Input::Placed
        | Input::Provisioned
        | Input::Launched
        | Input::TurnStarted
        | Input::TurnEnded
        | Input::Delivered
        | Input::Paused
        | Input::Resumed
        | Input::Closed
        | Input::Finish
        | Input::Pause
        | Input::Resume => advance(state, input),
    }
}

/// The inputs that belong to one phase each.
fn advance(state: &State, input: Input) -> Option<State> {
    let at = |phase| Some(State { phase, ..*state });
    match (state.phase, input) {
        (Phase::Queued, Input::Placed) => {
            Some(State { generation: 1, ..state.at(Phase::Provisioning(SetupStep::Workspace)) })
        }
        (Phase::Provisioning(SetupStep::Workspace), Input::Provisioned) => {
            at(Phase::Provisioning(SetupStep::Agent))
        }
        (Phase::Provisioning(SetupStep::Agent), Input::Launched) => {
            Some(State { attached: true, ..state.at(Phase::Running(RunningWork::Idle)) })
        }
        (Phase::Running(RunningWork::Idle), Input::TurnStarted) if state.turn < state.prompts => {
            Some(State { turn: state.turn + 1, ..state.at(Phase::Running(RunningWork::Turn)) })
        }
        (Phase::Running(RunningWork::Turn), Input::TurnEnded) => {
            at(Phase::Running(after_turn(state)))
        }
        // The agent finished its turn before it was frozen.
        (Phase::Pausing(RunningWork::Turn), Input::TurnEnded) => {
            at(Phase::Pausing(after_turn(state)))
        }
        (Phase::Paused(RunningWork::Turn), Input::TurnEnded) => {
            at(Phase::Paused(after_turn(state)))
        }
        (Phase::Resuming(RunningWork::Turn), Input::TurnEnded) => {
            at(Phase::Resuming(after_turn(state)))
        }
        (Phase::Running(RunningWork::Idle), Input::Finish) => {
            at(Phase::Running(RunningWork::Deliver))
        }
        (Phase::Running(RunningWork::Deliver), Input::Delivered) => {
            Some(close(state, Ending { status: SessionStatus::Completed, reason: EndReason::Done }))
        }
        (Phase::Running(work @ (RunningWork::Idle | RunningWork::Turn)), Input::Pause) => {
            at(Phase::Pausing(work))
        }
        (Phase::Pausing(_) | Phase::Paused(_), Input::Pause) => Some(*state),
        (Phase::Pausing(work), Input::Paused) => at(Phase::Paused(work)),
        // They could not be frozen.
        (Phase::Pausing(work), Input::Resumed) => at(Phase::Running(work)),
        (Phase::Paused(work), Input::Resume) => at(Phase::Resuming(work)),
        (Phase::Resuming(_), Input::Resume) => Some(*state),
        (Phase::Resuming(work), Input::Resumed) => {
            Some(State { attached: true, ..state.at(Phase::Running(work)) })
        }
        (Phase::Closing { ending, .. }, Input::Closed) => {
            Some(State { attached: false, ..state.at(Phase::Ended(ending)) })
        }
        _ => None,
    }
}

/// What a session does after a turn: the next prompt, waiting, or delivering.
fn after_turn(state: &State) -> RunningWork {
    if state.turn < state.prompts || state.keep_open {
        RunningWork::Idle
    } else {
        RunningWork::Deliver
    }
}

/// Ends a live session because a person wants it. Repeating it is harmless, and a cancel overtakes a stop.
fn end_by_person(state: &State, status: SessionStatus) -> State {
    let reason = match status {
        SessionStatus::Stopped => EndReason::Stopped,
        _ => EndReason::Cancelled,
    };
    let ending = Ending { status, reason };
    let closing = Phase::Closing { shown: SessionStatus::Stopping, ending };
    match state.phase {
        Phase::Ended(_) => *state,
        // Nothing was started: nothing has to be ended.
        Phase::Queued => state.at(Phase::Ended(Ending {
            status: SessionStatus::Cancelled,
            reason: EndReason::Cancelled,
        })),
        Phase::Closing { ending: before, .. }
            if status == SessionStatus::Stopped || before.status != SessionStatus::Stopped =>
        {
            *state
        }
        _ => state.at(closing),
    }
}

fn fail(state: &State, reason: EndReason) -> Option<State> {
    match state.phase {
        Phase::Ended(_) => None,
        // Nothing was started: nothing has to be ended.
        Phase::Queued => {
            Some(state.at(Phase::Ended(Ending { status: SessionStatus::Failed, reason })))
        }
        // The session already ends, and for an earlier reason.
        Phase::Closing { .. } => Some(*state),
        _ => Some(close(state, Ending { status: SessionStatus::Failed, reason })),
    }
}

/// Ends what is left of the processes while the session still shows its old status.
fn close(state: &State, ending: Ending) -> State {
    state.at(Phase::Closing { shown: state.status(), ending })
}

/// Queues a prompt. Sessions that deliver or end take none.
fn accept_prompt(state: &State) -> Option<State> {
    match state.phase {
        Phase::Running(RunningWork::Deliver) | Phase::Closing { .. } | Phase::Ended(_) => None,
        _ => Some(State { prompts: state.prompts.checked_add(1)?, ..*state }),
    }
}

/// The agent's processes are gone. A prompt that may have been given to the agent is not given again: the
/// conversation is loaded, and the session waits for the next prompt.
fn restart(state: &State) -> State {
    let lost = State { attached: false, generation: state.generation.saturating_add(1), ..*state };
    let without_turn = |work| match work {
        RunningWork::Idle | RunningWork::Turn => RunningWork::Idle,
        RunningWork::Deliver => RunningWork::Deliver,
    };
    match state.phase {
        Phase::Queued | Phase::Ended(_) => *state,
        // Nothing was said to the agent yet.
        Phase::Running(RunningWork::Idle) if state.turn == 0 => {
            lost.at(Phase::Provisioning(SetupStep::Agent))
        }
        Phase::Provisioning(_) | Phase::Running(RunningWork::Deliver) | Phase::Closing { .. } => {
            lost
        }
        Phase::Running(work) | Phase::Resuming(work) => {
            lost.at(Phase::Resuming(without_turn(work)))
        }
        Phase::Pausing(work) | Phase::Paused(work) => lost.at(Phase::Paused(without_turn(work))),
    }
}
