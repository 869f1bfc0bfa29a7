//! Tests of the state machine of the link: a table of input sequences, then random inputs on a
//! simulated clock.

use std::time::Duration;

use ab_core::ConnectionStatus;
use proptest::prelude::*;

use super::{Effect, Generation, Input, Link};
use crate::client::settings::ReconnectPolicy;

use ConnectionStatus::{Connected, Connecting, Destroyed, Disconnected, Reconnecting};
use Effect::{
    AdmitWaiting, CancelAttempt, CancelTimer, CloseConnection, FailWaiting, RejectPending, Report,
    Schedule, StartAttempt,
};
use Input::{AttemptSucceeded, Destroy, Lost, TimerFired, Wanted};

fn of(number: u64) -> Generation {
    Generation(number)
}

fn failed(generation: u64) -> Input {
    Input::AttemptFailed { generation: of(generation), retryable: true }
}

fn refused(generation: u64) -> Input {
    Input::AttemptFailed { generation: of(generation), retryable: false }
}

fn seconds(seconds: u64) -> Effect {
    Schedule(Duration::from_secs(seconds))
}

/// Applies the inputs in order, and checks the effects of each.
fn check(reconnection: ReconnectPolicy, story: &[(Input, &[Effect])]) -> Link {
    let mut link = Link::new(reconnection);
    assert_eq!(link.status(), Disconnected);
    for (number, (input, expect)) in story.iter().enumerate() {
        assert_eq!(link.apply(*input), *expect, "step {number}: {input:?}");
    }
    link
}

const CONNECT: [(Input, &[Effect]); 2] = [
    (Wanted, &[Report(Connecting), StartAttempt(Generation(1))]),
    (AttemptSucceeded(Generation(1)), &[Report(Connected), AdmitWaiting]),
];

/// The loss of a connection, and the effects that it must have.
const LOSE: (Input, &[Effect]) = (
    Lost(Generation(1)),
    &[
        RejectPending,
        CloseConnection,
        Report(Disconnected),
        Schedule(Duration::from_secs(1)),
        Report(Reconnecting),
    ],
);

#[test]
fn a_link_is_made_when_it_is_wanted() {
    let link = check(
        ReconnectPolicy::default(),
        &[CONNECT[0], (Wanted, &[]), CONNECT[1], (Wanted, &[AdmitWaiting])],
    );
    assert_eq!(link.status(), Connected);
}

#[test]
fn a_first_attempt_that_fails_is_not_repeated() {
    for failure in [failed(1), refused(1), Lost(of(1))] {
        let mut effects = vec![Report(Disconnected), FailWaiting];
        if matches!(failure, Lost(_)) {
            effects.insert(0, CancelAttempt);
        }
        check(
            ReconnectPolicy::default(),
            &[
                CONNECT[0],
                (failure, &effects),
                (failed(1), &[]),
                (AttemptSucceeded(of(1)), &[]),
                (TimerFired, &[]),
                (Wanted, &[Report(Connecting), StartAttempt(of(2))]),
            ],
        );
    }
}

#[test]
fn one_loss_counts_once_and_success_starts_the_count_again() {
    check(
        ReconnectPolicy::default(),
        &[
            CONNECT[0],
            CONNECT[1],
            LOSE,
            (Lost(of(1)), &[]),
            (Wanted, &[]),
            (TimerFired, &[StartAttempt(of(2))]),
            (Lost(of(1)), &[]),
            (Wanted, &[]),
            (failed(2), &[seconds(2)]),
            (failed(2), &[]),
            (TimerFired, &[StartAttempt(of(3))]),
            (AttemptSucceeded(of(3)), &[Report(Connected), AdmitWaiting]),
            (Lost(of(2)), &[]),
            (Lost(of(3)), LOSE.1),
        ],
    );
}

#[test]
fn waits_grow_and_end() {
    check(
        ReconnectPolicy::default(),
        &[
            CONNECT[0],
            CONNECT[1],
            LOSE,
            (TimerFired, &[StartAttempt(of(2))]),
            (failed(2), &[seconds(2)]),
            (TimerFired, &[StartAttempt(of(3))]),
            (failed(3), &[seconds(4)]),
            (TimerFired, &[StartAttempt(of(4))]),
            (Lost(of(4)), &[CancelAttempt, seconds(8)]),
            (TimerFired, &[StartAttempt(of(5))]),
            (failed(5), &[seconds(16)]),
            (TimerFired, &[StartAttempt(of(6))]),
            (failed(6), &[Report(Disconnected), FailWaiting]),
            (TimerFired, &[]),
            // The next call that needs a connection starts an attempt.
            (Wanted, &[Report(Connecting), StartAttempt(of(7))]),
            (AttemptSucceeded(of(7)), &[Report(Connected), AdmitWaiting]),
            (Lost(of(7)), LOSE.1),
        ],
    );
}

#[test]
fn what_a_person_has_to_change_is_not_tried_again() {
    check(
        ReconnectPolicy { max_retries: 0, ..ReconnectPolicy::default() },
        &[
            CONNECT[0],
            CONNECT[1],
            LOSE,
            (TimerFired, &[StartAttempt(of(2))]),
            (refused(2), &[Report(Disconnected), FailWaiting]),
            (TimerFired, &[]),
        ],
    );
}

#[test]
fn reconnection_can_be_off() {
    let off = ReconnectPolicy { enabled: false, ..ReconnectPolicy::default() };
    let effects = [RejectPending, CloseConnection, Report(Disconnected)];
    check(off, &[CONNECT[0], CONNECT[1], (Lost(of(1)), &effects), (TimerFired, &[])]);
}

#[test]
fn destroyed_from_anywhere_once() {
    let end = [Report(Destroyed), FailWaiting];
    let after = |first: &[Effect]| [first, &end].concat();
    let timer = (TimerFired, &[StartAttempt(Generation(2))][..]);
    for (before, effects) in [
        (vec![], after(&[])),
        (vec![CONNECT[0]], after(&[CancelAttempt])),
        (CONNECT.to_vec(), after(&[RejectPending, CloseConnection])),
        (vec![CONNECT[0], CONNECT[1], LOSE], after(&[CancelTimer])),
        (vec![CONNECT[0], CONNECT[1], LOSE, timer], after(&[CancelAttempt])),
    ] {
        let mut story = before;
        story.push((Destroy, &effects));
        story.extend([(Destroy, &[][..]), (TimerFired, &[]), (Lost(of(1)), &[])]);
        story.extend([(AttemptSucceeded(of(2)), &[][..]), (failed(1), &[])]);
        story.push((Wanted, &[FailWaiting]));
        assert_eq!(check(ReconnectPolicy::default(), &story).status(), Destroyed);
    }
}

/// A possible next input. If it cannot occur in the current state, it is skipped.
#[derive(Clone, Copy, Debug)]
enum Step {
    Wanted,
    Succeed,
    Fail {
        retryable: bool,
    },
    Lose,
    /// An input about an attempt or connection that is outdated or never existed.
    Stale {
        which: u8,
        what: u8,
    },
    Pass(Duration),
    Destroy,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Wanted),
        6 => Just(Step::Succeed),
        6 => prop::bool::weighted(0.9).prop_map(|retryable| Step::Fail { retryable }),
        4 => Just(Step::Lose),
        2 => (0..20_u8, 0..3_u8).prop_map(|(which, what)| Step::Stale { which, what }),
        8 => (0..40_000_u64).prop_map(|millis| Step::Pass(Duration::from_millis(millis))),
        1 => Just(Step::Destroy),
    ]
}

fn reconnection() -> impl Strategy<Value = ReconnectPolicy> {
    let multiplier = prop_oneof![Just(1.0), Just(1.5), Just(2.0), Just(10.0)];
    (prop::bool::weighted(0.9), 0..4_u32, 0..3000_u64, 3000..9000_u64, multiplier).prop_map(
        |(enabled, max_retries, initial, max, multiplier)| ReconnectPolicy {
            enabled,
            max_retries,
            initial_delay: Duration::from_millis(initial),
            max_delay: Duration::from_millis(max),
            multiplier,
        },
    )
}

/// Performs the effects of the state machine, and checks that each effect is allowed.
#[derive(Debug)]
struct World {
    link: Link,
    reconnection: ReconnectPolicy,
    status: ConnectionStatus,
    now: Duration,
    attempt: Option<Generation>,
    connection: Option<Generation>,
    timer: Option<Duration>,
    waiting: usize,
    /// The number of attempts since the last success, counted independently of the state machine.
    retries: u32,
    /// Whether the last failure can be fixed only by the user.
    hopeless: bool,
}

impl World {
    fn new(reconnection: ReconnectPolicy) -> Self {
        Self {
            link: Link::new(reconnection),
            reconnection,
            status: Disconnected,
            now: Duration::ZERO,
            attempt: None,
            connection: None,
            timer: None,
            waiting: 0,
            retries: 0,
            hopeless: false,
        }
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Wanted => {
                self.waiting += 1;
                if self.status == Disconnected {
                    (self.retries, self.hopeless) = (0, false);
                }
                self.tell(Wanted);
            }
            Step::Succeed => {
                if let Some(generation) = self.attempt.take() {
                    self.connection = Some(generation);
                    self.retries = 0;
                    self.tell(AttemptSucceeded(generation));
                    // A repeated input has no effect.
                    self.silent(AttemptSucceeded(generation));
                }
            }
            Step::Fail { retryable } => {
                if let Some(generation) = self.attempt.take() {
                    self.hopeless = !retryable;
                    self.tell(Input::AttemptFailed { generation, retryable });
                    self.silent(Input::AttemptFailed { generation, retryable });
                }
            }
            Step::Lose => {
                if let Some(generation) = self.connection {
                    self.tell(Lost(generation));
                    assert_eq!(self.connection, None);
                    // A second layer reports the same loss. It has no effect.
                    self.silent(Lost(generation));
                }
            }
            Step::Stale { which, what } => {
                let generation = Generation(u64::from(which));
                let current = [self.attempt, self.connection];
                if current.contains(&Some(generation)) {
                    return;
                }
                self.silent(match what {
                    0 => AttemptSucceeded(generation),
                    1 => Input::AttemptFailed { generation, retryable: true },
                    _ => Lost(generation),
                });
            }
            Step::Pass(time) => {
                let until = self.now + time;
                match self.timer.filter(|due| *due <= until) {
                    Some(due) => {
                        self.now = due;
                        self.timer = None;
                        self.tell(TimerFired);
                        self.silent(TimerFired);
                    }
                    None => self.now = until,
                }
            }
            Step::Destroy => {
                self.tell(Destroy);
                assert_eq!(self.status, Destroyed);
                assert_eq!((self.attempt, self.connection), (None, None));
                assert_eq!((self.timer, self.waiting), (None, 0));
                self.silent(Destroy);
            }
        }
        assert_eq!(self.link.status(), self.status);
        self.at_rest();
    }

    fn silent(&mut self, input: Input) {
        assert_eq!(self.link.apply(input), []);
    }

    fn tell(&mut self, input: Input) {
        let before = self.status;
        for effect in self.link.apply(input) {
            if before == Destroyed {
                assert_eq!((input, effect), (Wanted, FailWaiting));
            }
            self.obey(effect);
        }
    }

    fn obey(&mut self, effect: Effect) {
        match effect {
            Report(status) => {
                let legal = match (self.status, status) {
                    (Destroyed, _) | (_, Connecting) if self.status != Disconnected => false,
                    (from, to) if from == to => false,
                    (Disconnected, Connected) | (Connecting | Connected, Reconnecting) => false,
                    _ => true,
                };
                assert!(legal, "{} to {status}", self.status);
                self.status = status;
            }
            StartAttempt(generation) => {
                assert_eq!((self.attempt, self.connection, self.timer), (None, None, None));
                assert!(!self.hopeless);
                self.attempt = Some(generation);
            }
            Schedule(delay) => {
                assert_eq!((self.attempt, self.connection, self.timer), (None, None, None));
                assert!(!self.hopeless && self.reconnection.enabled);
                let ReconnectPolicy {
                    initial_delay: initial,
                    max_delay: max,
                    multiplier,
                    max_retries,
                    ..
                } = self.reconnection;
                assert!(max_retries == 0 || self.retries < max_retries);
                let mut expect = initial.as_secs_f64();
                for _ in 0..self.retries.min(64) {
                    expect = (expect * multiplier).min(1e6);
                }
                let expect = expect.min(max.as_secs_f64());
                assert!((delay.as_secs_f64() - expect).abs() < 1e-6, "{delay:?}, not {expect}");
                self.retries += 1;
                self.timer = Some(self.now + delay);
            }
            CancelTimer => assert!(self.timer.take().is_some()),
            CancelAttempt => assert!(self.attempt.take().is_some()),
            RejectPending => assert!(self.connection.is_some()),
            CloseConnection => assert!(self.connection.take().is_some()),
            AdmitWaiting => {
                assert_eq!(self.status, Connected);
                self.waiting = 0;
            }
            FailWaiting => {
                assert!(matches!(self.status, Disconnected | Destroyed));
                self.waiting = 0;
            }
        }
    }

    /// Checks conditions that must be met between two inputs.
    fn at_rest(&self) {
        let (attempt, timer) = (self.attempt.is_some(), self.timer.is_some());
        let expect = match self.status {
            Disconnected | Destroyed | Connected => (false, false),
            Connecting => (true, false),
            Reconnecting => (!timer, !attempt),
        };
        assert_eq!((attempt, timer), expect, "{self:?}");
        assert_eq!(self.connection.is_some(), self.status == Connected);
        let nobody_comes = matches!(self.status, Disconnected | Destroyed | Connected);
        assert!(!nobody_comes || self.waiting == 0, "{self:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn every_sequence_keeps_the_rules(
        reconnection in reconnection(),
        steps in prop::collection::vec(step(), 0..120),
    ) {
        let mut world = World::new(reconnection);
        for step in steps {
            world.take(step);
        }
    }
}
