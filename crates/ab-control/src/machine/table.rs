//! The transition table of `docs/sessions.md`, made from the machine itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use ab_api::{EndReason, SessionStatus};
use ab_store::Ending;

use super::{Input, Phase, RunningWork, SetupStep, State, apply};

/// The statuses that a session can fail from after something was started for it.
const FAILS_FROM: [SessionStatus; 5] = [
    SessionStatus::Provisioning,
    SessionStatus::Running,
    SessionStatus::Pausing,
    SessionStatus::Paused,
    SessionStatus::Resuming,
];

/// States that together show every transition between statuses.
pub fn representative_states() -> Vec<State> {
    let works = [RunningWork::Idle, RunningWork::Turn, RunningWork::Deliver];
    let endings = [
        Ending { status: SessionStatus::Stopped, reason: EndReason::Stopped },
        Ending { status: SessionStatus::Completed, reason: EndReason::Done },
        Ending { status: SessionStatus::Failed, reason: EndReason::Agent },
        Ending { status: SessionStatus::Cancelled, reason: EndReason::Cancelled },
    ];
    let mut phases = vec![
        Phase::Queued,
        Phase::Provisioning(SetupStep::Workspace),
        Phase::Provisioning(SetupStep::Agent),
    ];
    phases.extend(works.map(Phase::Running));
    for work in [RunningWork::Idle, RunningWork::Turn] {
        phases.extend([Phase::Pausing(work), Phase::Paused(work), Phase::Resuming(work)]);
    }
    for ending in endings {
        let shown: &[SessionStatus] = match ending.status {
            SessionStatus::Stopped | SessionStatus::Cancelled => &[SessionStatus::Stopping],
            SessionStatus::Completed => &[SessionStatus::Running],
            _ => &FAILS_FROM,
        };
        phases.extend(shown.iter().map(|&shown| Phase::Closing { shown, ending }));
        phases.push(Phase::Ended(ending));
    }
    let mut states = Vec::new();
    for phase in phases {
        for (prompts, turn) in [(1, 0), (1, 1), (2, 1)] {
            for (attached, keep_open) in [(true, false), (false, true)] {
                let generation = 1;
                states.push(State { phase, generation, prompts, turn, attached, keep_open });
            }
        }
    }
    states
}

/// The table in Markdown: each status, the inputs that it accepts, and where they lead. Inputs that keep the status
/// are left out.
pub fn transition_table() -> String {
    let mut moves = BTreeMap::<(SessionStatus, SessionStatus), BTreeSet<usize>>::new();
    for state in representative_states() {
        for (index, input) in Input::ALL.into_iter().enumerate() {
            if let Ok((next, _)) = apply(&state, input)
                && next.status() != state.status()
            {
                moves.entry((state.status(), next.status())).or_default().insert(index);
            }
        }
    }
    let mut text = String::from("| from | input | to |\n| --- | --- | --- |\n");
    for ((from, to), inputs) in moves {
        let names: Vec<&str> = inputs.iter().map(|&index| Input::ALL[index].name()).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {from} | {} | {to} |", names.join(", "));
    }
    text
}
