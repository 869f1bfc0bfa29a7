//! Properties of the machine.

use ab_api::{EventKind, SessionEndReason, SessionStatus};
use ab_control::session_machine::{
    RunningSessionPhase, SessionAction, SessionInput, SessionPhase, SessionState,
    apply_session_input, example_session_states, next_session_action,
};
use proptest::prelude::*;

fn any_input() -> impl Strategy<Value = SessionInput> {
    prop_oneof![
        proptest::sample::select(SessionInput::ALL.to_vec()),
        proptest::sample::select(vec![
            SessionEndReason::Provision,
            SessionEndReason::Delivery,
            SessionEndReason::Agent
        ])
        .prop_map(SessionInput::Failed),
    ]
}

/// The input with which an executor answers an effect.
fn success(effect: SessionAction) -> SessionInput {
    match effect {
        SessionAction::AssignExecutor => SessionInput::ExecutorAssigned,
        SessionAction::Provision => SessionInput::Provisioned,
        SessionAction::Launch => SessionInput::Launched,
        SessionAction::Reload | SessionAction::Resume => SessionInput::Resumed,
        SessionAction::Prompt(_) => SessionInput::TurnStarted,
        SessionAction::Deliver => SessionInput::Delivered,
        SessionAction::Pause => SessionInput::Paused,
        SessionAction::Stop | SessionAction::Kill => SessionInput::Closed,
    }
}

/// Applies `inputs` and skips the illegal ones. Gives every state on the way.
fn walk(keep_open: bool, inputs: &[SessionInput]) -> Vec<SessionState> {
    let mut states = vec![SessionState::new(keep_open)];
    for &input in inputs {
        let last = states[states.len() - 1];
        if let Ok((next, _)) = apply_session_input(&last, input) {
            states.push(next);
        }
    }
    states
}

proptest! {
    #[test]
    fn terminal_states_absorb(keep_open: bool, inputs in prop::collection::vec(any_input(), 0..60)) {
        let states = walk(keep_open, &inputs);
        for pair in states.windows(2) {
            if pair[0].status().is_terminal() {
                prop_assert_eq!(pair[0], pair[1]);
            }
        }
    }

    #[test]
    fn stop_and_cancel_are_always_legal_and_harmless_twice(
        keep_open: bool,
        inputs in prop::collection::vec(any_input(), 0..40),
    ) {
        for state in walk(keep_open, &inputs) {
            for input in [SessionInput::Stop, SessionInput::Cancel] {
                let (once, _) = apply_session_input(&state, input).expect("always legal");
                let (twice, events) = apply_session_input(&once, input).expect("always legal");
                prop_assert_eq!(once, twice);
                prop_assert_eq!(events, vec![]);
                prop_assert!(once.status().is_terminal() || next_session_action(&once).is_some());
            }
        }
    }

    #[test]
    fn a_prompt_is_given_at_most_once(
        keep_open: bool,
        inputs in prop::collection::vec(any_input(), 0..60),
    ) {
        let mut given = 0;
        for pair in walk(keep_open, &inputs).windows(2) {
            let (before, after) = (pair[0], pair[1]);
            prop_assert!(after.turn == before.turn || after.turn == before.turn + 1);
            prop_assert!(after.turn <= after.prompts);
            prop_assert!(after.prompts + 1 >= before.prompts);
            if after.turn > before.turn {
                prop_assert_eq!(next_session_action(&before), Some(SessionAction::Prompt(after.turn)));
                given += 1;
                prop_assert_eq!(after.turn, given);
            }
        }
    }

    #[test]
    fn every_state_is_stored_whole(
        keep_open: bool,
        inputs in prop::collection::vec(any_input(), 0..60),
    ) {
        for state in walk(keep_open, &inputs) {
            let restored = SessionState::restore(state.status(), &state.progress(), keep_open);
            prop_assert_eq!(restored, Some(state));
        }
    }

    #[test]
    fn events_tell_every_change_of_status(
        keep_open: bool,
        inputs in prop::collection::vec(any_input(), 0..60),
    ) {
        let mut state = SessionState::new(keep_open);
        for input in inputs {
            let Ok((next, events)) = apply_session_input(&state, input) else { continue };
            let told: Vec<_> = events
                .iter()
                .map(|event| match event {
                    EventKind::Status { status, .. } => *status,
                    other => panic!("{other:?}"),
                })
                .collect();
            let is_same = next.status() == state.status() && next.activity() == state.activity();
            prop_assert_eq!(told, if is_same { vec![] } else { vec![next.status()] });
            state = next;
        }
    }

    #[test]
    fn the_way_to_the_end_is_short(keep_open: bool, inputs in prop::collection::vec(any_input(), 0..40)) {
        for state in walk(keep_open, &inputs) {
            // An executor that does everything it is asked for, and an agent that ends its turns.
            let mut now = apply_session_input(&state, SessionInput::Stop).expect("always legal").0;
            for _ in 0..3 {
                if let Some(effect) = next_session_action(&now) {
                    now = apply_session_input(&now, success(effect)).expect("what is wanted is legal").0;
                }
            }
            prop_assert!(now.status().is_terminal(), "{:?} to {:?}", state, now);
        }
    }

    #[test]
    fn a_restart_leaves_no_agent_and_repeats_no_turn(
        keep_open: bool,
        inputs in prop::collection::vec(any_input(), 0..60),
    ) {
        for state in walk(keep_open, &inputs) {
            let (after, _) = apply_session_input(&state, SessionInput::Restarted).expect("always legal");
            prop_assert_eq!(after.turn, state.turn);
            prop_assert!(!after.attached || after.ending().is_some() || after.phase == SessionPhase::Queued);
            prop_assert!(!matches!(after.phase, SessionPhase::Running(RunningSessionPhase::Idle | RunningSessionPhase::Turn)));
        }
    }
}

#[test]
fn what_is_wanted_is_legal() {
    for state in example_session_states() {
        if let Some(effect) = next_session_action(&state) {
            apply_session_input(&state, success(effect)).expect("the success of a wanted effect");
            if !matches!(state.phase, SessionPhase::Closing { .. }) {
                apply_session_input(&state, SessionInput::Failed(SessionEndReason::Agent))
                    .expect("its failure");
            }
        }
    }
}

#[test]
fn a_plain_session_runs_to_completion() {
    let mut state = SessionState::new(false);
    let mut statuses = vec![state.status()];
    for _ in 0..20 {
        let input = match next_session_action(&state) {
            Some(effect) => success(effect),
            None if state.phase == SessionPhase::Running(RunningSessionPhase::Turn) => {
                SessionInput::TurnEnded
            }
            None => break,
        };
        state = apply_session_input(&state, input).expect("legal").0;
        statuses.push(state.status());
    }
    statuses.dedup();
    let expect = [
        SessionStatus::Queued,
        SessionStatus::Provisioning,
        SessionStatus::Running,
        SessionStatus::Completed,
    ];
    assert_eq!(statuses, expect);
}

#[test]
fn ended_sessions_take_no_prompt() {
    for state in example_session_states() {
        let is_over = state.status().is_terminal();
        let outcome = apply_session_input(&state, SessionInput::QueuePrompt);
        assert!(!is_over || outcome.is_err(), "{state:?}");
    }
}

/// A session whose agent works.
fn running() -> SessionState {
    SessionState {
        phase: SessionPhase::Running(RunningSessionPhase::Turn),
        ..SessionState::new(false)
    }
}

#[test]
fn a_cancel_is_not_lost_on_a_session_that_is_failing() {
    let failed = SessionInput::Failed(SessionEndReason::Agent);
    let failing = apply_session_input(&running(), failed).expect("legal").0;
    let cancelled = apply_session_input(&failing, SessionInput::Cancel).expect("legal").0;
    let ended = apply_session_input(&cancelled, SessionInput::Closed).expect("legal").0;
    assert_eq!(ended.status(), SessionStatus::Cancelled);
}

#[test]
fn a_cancel_overtakes_a_stop() {
    let running = running();
    let stopping = apply_session_input(&running, SessionInput::Stop).expect("legal").0;
    assert_eq!(next_session_action(&stopping), Some(SessionAction::Stop));
    let cancelled = apply_session_input(&stopping, SessionInput::Cancel).expect("legal").0;
    assert_eq!(next_session_action(&cancelled), Some(SessionAction::Kill));
    let ended = apply_session_input(&cancelled, SessionInput::Closed).expect("legal").0;
    assert_eq!(ended.status(), SessionStatus::Cancelled);
}
