//! The transition table of `docs/sessions.md`, generated from the state machine.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use ab_api::{SessionEndReason, SessionStatus};
use ab_store::StoredSessionEnd;

use super::{
    ProvisioningStep, RunningSessionPhase, SessionInput, SessionPhase, SessionState,
    apply_session_input,
};

/// The statuses from which a session can fail after something was started for it.
const FAILS_FROM: [SessionStatus; 5] = [
    SessionStatus::Provisioning,
    SessionStatus::Running,
    SessionStatus::Pausing,
    SessionStatus::Paused,
    SessionStatus::Resuming,
];

/// Example states that together cover every transition between statuses.
pub fn example_session_states() -> Vec<SessionState> {
    let works =
        [RunningSessionPhase::Idle, RunningSessionPhase::Turn, RunningSessionPhase::Deliver];
    let endings = [
        StoredSessionEnd { status: SessionStatus::Stopped, reason: SessionEndReason::Stopped },
        StoredSessionEnd { status: SessionStatus::Completed, reason: SessionEndReason::Done },
        StoredSessionEnd { status: SessionStatus::Failed, reason: SessionEndReason::Agent },
        StoredSessionEnd { status: SessionStatus::Cancelled, reason: SessionEndReason::Cancelled },
    ];
    let mut phases = vec![
        SessionPhase::Queued,
        SessionPhase::Provisioning(ProvisioningStep::Workspace),
        SessionPhase::Provisioning(ProvisioningStep::Agent),
    ];
    phases.extend(works.map(SessionPhase::Running));
    for work in [RunningSessionPhase::Idle, RunningSessionPhase::Turn] {
        phases.extend([
            SessionPhase::Pausing(work),
            SessionPhase::Paused(work),
            SessionPhase::Resuming(work),
        ]);
    }
    for ending in endings {
        let shown: &[SessionStatus] = match ending.status {
            SessionStatus::Stopped | SessionStatus::Cancelled => &[SessionStatus::Stopping],
            SessionStatus::Completed => &[SessionStatus::Running],
            _ => &FAILS_FROM,
        };
        phases.extend(
            shown.iter().map(|&shown| SessionPhase::Closing { shown_status: shown, ending }),
        );
        phases.push(SessionPhase::Ended(ending));
    }
    let mut states = Vec::new();
    for phase in phases {
        for (prompts, turn) in [(1, 0), (1, 1), (2, 1)] {
            for (attached, keep_open) in [(true, false), (false, true)] {
                let generation = 1;
                states.push(SessionState { phase, generation, prompts, turn, attached, keep_open });
            }
        }
    }
    states
}

/// The table in Markdown: each status, the inputs that it accepts, and the resulting status. Inputs
/// that do not change the status are omitted.
pub fn transition_table_markdown() -> String {
    let mut moves = BTreeMap::<(SessionStatus, SessionStatus), BTreeSet<usize>>::new();
    for state in example_session_states() {
        for (index, input) in SessionInput::ALL.into_iter().enumerate() {
            if let Ok((next, _)) = apply_session_input(&state, input)
                && next.status() != state.status()
            {
                moves.entry((state.status(), next.status())).or_default().insert(index);
            }
        }
    }
    let mut text = String::from("| from | input | to |\n| --- | --- | --- |\n");
    for ((from, to), inputs) in moves {
        let names: Vec<&str> =
            inputs.iter().map(|&index| SessionInput::ALL[index].name()).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {from} | {} | {to} |", names.join(", "));
    }
    text
}
