//! The state machine that decides when a workspace connects, waits and gives up. It has no clock
//! and performs no I/O.
//!
//! The task that owns the link passes in each [`Input`] and performs the returned [`Effect`]s in
//! order. The link starts in the status [disconnected](ConnectionStatus::Disconnected).
//!
//! - Every attempt has a number, its generation. The connection that results from the attempt has
//!   the same generation. Inputs about an earlier generation are ignored. A loss is therefore
//!   handled only once, even if several layers report it.
//! - There is at most one attempt or one timer at any time, and never both.
//! - Calls that need a connection wait. They are all admitted, or all failed, at the same time.
//!   Calls that were sent are pending. They are rejected when the connection is lost.
//! - If the first attempt fails, it is not repeated. Attempts after a loss are repeated, with
//!   increasing pauses. No further attempt is made after a failure that only the user can fix, such
//!   as a wrong token.
//! - The status [destroyed](ConnectionStatus::Destroyed) is final.

#[cfg(test)]
mod tests;

use std::time::Duration;

use ab_core::ConnectionStatus;

use super::settings::ReconnectPolicy;

/// The number of an attempt and of the connection that results from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Generation(u64);

/// An event to which the link must react.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A call, or `connect`, needs a connection. It waits until an effect admits or fails it.
    Wanted,
    AttemptSucceeded(Generation),
    AttemptFailed {
        generation: Generation,
        retryable: bool,
    },
    /// The connection ended.
    Lost(Generation),
    TimerFired,
    Destroy,
}

/// An action that the task which owns the link must perform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Report the status to every subscriber.
    Report(ConnectionStatus),
    StartAttempt(Generation),
    /// Start the timer. [`Input::TimerFired`] reports its end.
    Schedule(Duration),
    CancelTimer,
    /// Cancel the running attempt and ignore its outcome.
    CancelAttempt,
    /// Fail every call that was sent and has no answer, and discard the state of the connection.
    RejectPending,
    /// Let the calls that wait for a connection continue.
    AdmitWaiting,
    /// Fail the calls that wait for a connection. Their error is the error that was reported last.
    FailWaiting,
    CloseConnection,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Disconnected,
    Connecting(Generation),
    Connected(Generation),
    /// A timer is running. When it fires, the attempt with the number `attempt` starts.
    Waiting {
        attempt: u32,
    },
    Retrying {
        generation: Generation,
        attempt: u32,
    },
    Destroyed,
}

#[derive(Debug)]
pub(crate) struct Link {
    state: State,
    reconnection: ReconnectPolicy,
    last: Generation,
}

impl Link {
    pub(crate) fn new(reconnection: ReconnectPolicy) -> Self {
        Self { state: State::Disconnected, reconnection, last: Generation(0) }
    }

    pub(crate) fn status(&self) -> ConnectionStatus {
        match self.state {
            State::Disconnected => ConnectionStatus::Disconnected,
            State::Connecting(_) => ConnectionStatus::Connecting,
            State::Connected(_) => ConnectionStatus::Connected,
            State::Waiting { .. } | State::Retrying { .. } => ConnectionStatus::Reconnecting,
            State::Destroyed => ConnectionStatus::Destroyed,
        }
    }

    /// Applies an input. Returns the effects that must be performed, in order.
    #[must_use = "what is not done does not happen"]
    pub(crate) fn apply(&mut self, input: Input) -> Vec<Effect> {
        match input {
            Input::Wanted => self.wanted(),
            Input::AttemptSucceeded(generation) => self.succeeded(generation),
            Input::AttemptFailed { generation, retryable } => self.failed(generation, retryable),
            Input::Lost(generation) => self.lost(generation),
            Input::TimerFired => self.fired(),
            Input::Destroy => self.destroy(),
        }
    }

    fn wanted(&mut self) -> Vec<Effect> {
        match self.state {
            State::Disconnected => {
                let generation = self.next();
                self.state = State::Connecting(generation);
                vec![Effect::Report(ConnectionStatus::Connecting), Effect::StartAttempt(generation)]
            }
            // The call waits for the attempt that is running or scheduled.
            State::Connecting(_) | State::Waiting { .. } | State::Retrying { .. } => Vec::new(),
            State::Connected(_) => vec![Effect::AdmitWaiting],
            State::Destroyed => vec![Effect::FailWaiting],
        }
    }

    fn succeeded(&mut self, generation: Generation) -> Vec<Effect> {
        match self.attempt() {
            Some(current) if current == generation => {
                self.state = State::Connected(generation);
                vec![Effect::Report(ConnectionStatus::Connected), Effect::AdmitWaiting]
            }
            _ => Vec::new(),
        }
    }

    fn failed(&mut self, generation: Generation, retryable: bool) -> Vec<Effect> {
        match self.state {
            State::Connecting(current) if current == generation => self.give_up(),
            State::Retrying { generation: current, attempt } if current == generation => {
                if retryable {
                    self.again(attempt.saturating_add(1))
                } else {
                    self.give_up()
                }
            }
            _ => Vec::new(),
        }
    }

    fn lost(&mut self, generation: Generation) -> Vec<Effect> {
        match self.state {
            State::Connected(current) if current == generation => {
                let mut effects = vec![
                    Effect::RejectPending,
                    Effect::CloseConnection,
                    Effect::Report(ConnectionStatus::Disconnected),
                ];
                self.state = State::Disconnected;
                if self.reconnection.allows_attempt(0) {
                    effects.extend(self.again(0));
                    effects.push(Effect::Report(ConnectionStatus::Reconnecting));
                }
                effects
            }
            // The connection was lost before the success of its attempt was reported.
            State::Connecting(current) | State::Retrying { generation: current, .. }
                if current == generation =>
            {
                let mut effects = vec![Effect::CancelAttempt];
                effects.extend(self.failed(generation, true));
                effects
            }
            _ => Vec::new(),
        }
    }

    fn fired(&mut self) -> Vec<Effect> {
        match self.state {
            State::Waiting { attempt } => {
                let generation = self.next();
                self.state = State::Retrying { generation, attempt };
                vec![Effect::StartAttempt(generation)]
            }
            _ => Vec::new(),
        }
    }

    fn destroy(&mut self) -> Vec<Effect> {
        let mut effects = match self.state {
            State::Disconnected => Vec::new(),
            State::Connecting(_) | State::Retrying { .. } => vec![Effect::CancelAttempt],
            State::Connected(_) => vec![Effect::RejectPending, Effect::CloseConnection],
            State::Waiting { .. } => vec![Effect::CancelTimer],
            State::Destroyed => return Vec::new(),
        };
        self.state = State::Destroyed;
        effects.extend([Effect::Report(ConnectionStatus::Destroyed), Effect::FailWaiting]);
        effects
    }

    /// Schedules the attempt with the number `attempt`, or gives up if no more attempts are
    /// allowed.
    fn again(&mut self, attempt: u32) -> Vec<Effect> {
        if !self.reconnection.allows_attempt(attempt) {
            return self.give_up();
        }
        self.state = State::Waiting { attempt };
        vec![Effect::Schedule(self.reconnection.delay_before_attempt(attempt))]
    }

    fn give_up(&mut self) -> Vec<Effect> {
        self.state = State::Disconnected;
        vec![Effect::Report(ConnectionStatus::Disconnected), Effect::FailWaiting]
    }

    /// The generation of the attempt that is running.
    fn attempt(&self) -> Option<Generation> {
        match self.state {
            State::Connecting(generation) | State::Retrying { generation, .. } => Some(generation),
            State::Disconnected | State::Connected(_) => None,
            State::Waiting { .. } | State::Destroyed => None,
        }
    }

    fn next(&mut self) -> Generation {
        self.last = Generation(self.last.0 + 1);
        self.last
    }
}
