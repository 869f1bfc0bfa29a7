//! A scripted guard: passes, delays, refuses or never answers, and records the calls.

use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use ab_core::call::{CallId, CallResult};
use ab_core::effective_policy::EffectivePolicyControl;
use ab_core::guard::{GuardDecision, RefusedPath};
use ab_core::{Call, CallOutcome, Error, ErrorCode, ErrorKind, Guard, Result, Verb};

/// What a guard does with every call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptedGuardBehavior {
    Pass,
    /// Passes after one pending poll.
    PassLater,
    Refuse,
    /// Refuses after one pending poll.
    RefuseLater,
    /// Never answers; the caller can only drop its future.
    Hang,
}

/// An event at a guard. The log has the events of all guards in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuardEvent {
    /// A call arrived.
    Entered {
        gate: usize,
        call: CallId,
    },
    /// The guard let the call pass.
    Passed {
        gate: usize,
        call: CallId,
    },
    Refused {
        gate: usize,
        call: CallId,
    },
    /// The guard was told that an open file grows.
    FileGrew {
        gate: usize,
        call: CallId,
        size: u64,
    },
    Exited {
        gate: usize,
        call: CallId,
        end: RecordedCallOutcome,
        bytes: u64,
        exit_code: Option<i32>,
    },
}

/// How a call ended, as a value that can be stored and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedCallOutcome {
    Done,
    Failed(ErrorKind),
    Cancelled,
}

/// A log that several guards share.
#[derive(Clone, Debug, Default)]
pub struct GuardLog(Arc<Mutex<Vec<GuardEvent>>>);

impl GuardLog {
    pub fn events(&self) -> Vec<GuardEvent> {
        self.lock().clone()
    }

    /// The guards that let a call pass, in order.
    pub fn admitting_guard_numbers(&self) -> Vec<usize> {
        let passed = |step: &GuardEvent| match step {
            GuardEvent::Passed { gate, .. } => Some(*gate),
            _ => None,
        };
        self.lock().iter().filter_map(passed).collect()
    }

    /// The guards whose `after_call` was called, in order, with the outcome.
    pub fn call_outcomes(&self) -> Vec<(usize, RecordedCallOutcome)> {
        let exited = |step: &GuardEvent| match step {
            GuardEvent::Exited { gate, end, .. } => Some((*gate, *end)),
            _ => None,
        };
        self.lock().iter().filter_map(exited).collect()
    }

    fn write(&self, step: GuardEvent) {
        self.lock().push(step);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<GuardEvent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One scripted guard.
pub struct ScriptedGuard {
    number: usize,
    answer: ScriptedGuardBehavior,
    /// The verbs that it treats so; other calls pass. Empty means all verbs.
    only: Vec<Verb>,
    largest: u64,
    log: GuardLog,
}

impl ScriptedGuard {
    pub fn new(number: usize, answer: ScriptedGuardBehavior, log: &GuardLog) -> Self {
        Self { number, answer, only: Vec::new(), largest: u64::MAX, log: log.clone() }
    }

    /// A guard that lets everything pass.
    pub fn allow_all(number: usize, log: &GuardLog) -> Self {
        Self::new(number, ScriptedGuardBehavior::Pass, log)
    }

    /// Applies the behavior only to these verbs; other calls pass.
    pub fn only_for_verbs(mut self, verbs: &[Verb]) -> Self {
        self.only = verbs.to_vec();
        self
    }

    /// Refuses that open files grow beyond `largest` bytes.
    pub fn with_max_file_bytes(mut self, largest: u64) -> Self {
        self.largest = largest;
        self
    }

    fn answer_to(&self, call: &Call<'_>) -> ScriptedGuardBehavior {
        if self.only.is_empty() || self.only.contains(&call.verb) {
            self.answer
        } else {
            ScriptedGuardBehavior::Pass
        }
    }

    fn decide(&self, call: &Call<'_>, answer: ScriptedGuardBehavior) -> Result<()> {
        let (gate, call_id) = (self.number, call.id);
        match answer {
            ScriptedGuardBehavior::Refuse | ScriptedGuardBehavior::RefuseLater => {
                self.log.write(GuardEvent::Refused { gate, call: call_id });
                Err(refusal(gate, call.verb))
            }
            ScriptedGuardBehavior::Pass
            | ScriptedGuardBehavior::PassLater
            | ScriptedGuardBehavior::Hang => {
                self.log.write(GuardEvent::Passed { gate, call: call_id });
                Ok(())
            }
        }
    }
}

fn refusal(gate: usize, verb: Verb) -> Error {
    Error::new(
        ErrorCode::DangerousOperation,
        ErrorKind::DeniedByPolicy,
        format!("gate {gate} is shut"),
    )
    .with_verb(verb)
}

impl Guard for ScriptedGuard {
    fn before_call<'a>(&'a self, call: &'a Call<'a>) -> GuardDecision<'a> {
        self.log.write(GuardEvent::Entered { gate: self.number, call: call.id });
        let answer = self.answer_to(call);
        match answer {
            ScriptedGuardBehavior::Pass | ScriptedGuardBehavior::Refuse => {
                GuardDecision::Ready(self.decide(call, answer))
            }
            ScriptedGuardBehavior::PassLater | ScriptedGuardBehavior::RefuseLater => {
                GuardDecision::Pending(Box::pin(async move {
                    OneTurn::default().await;
                    self.decide(call, answer)
                }))
            }
            ScriptedGuardBehavior::Hang => GuardDecision::Pending(Box::pin(pending())),
        }
    }

    fn check_file_size(&self, call: &Call<'_>, size: u64) -> Result<()> {
        self.log.write(GuardEvent::FileGrew { gate: self.number, call: call.id, size });
        if size > self.largest {
            return Err(refusal(self.number, call.verb));
        }
        Ok(())
    }

    fn on_refused_path(&self, _: &RefusedPath<'_>) {}

    fn effective_policy_control(&self) -> Option<EffectivePolicyControl> {
        None
    }

    fn after_call(&self, call: &Call<'_>, outcome: &CallOutcome<'_>) {
        let end = match outcome.result {
            CallResult::Succeeded => RecordedCallOutcome::Done,
            CallResult::Failed(error) => RecordedCallOutcome::Failed(error.kind()),
            CallResult::Cancelled => RecordedCallOutcome::Cancelled,
        };
        self.log.write(GuardEvent::Exited {
            gate: self.number,
            call: call.id,
            end,
            bytes: outcome.bytes,
            exit_code: outcome.exit.and_then(|exit| exit.code),
        });
    }
}

impl fmt::Debug for ScriptedGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedGuard")
            .field("number", &self.number)
            .field("answer", &self.answer)
            .finish_non_exhaustive()
    }
}

/// A future that is ready on its second poll.
#[derive(Debug, Default)]
struct OneTurn {
    asked: bool,
}

impl Future for OneTurn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.asked {
            return Poll::Ready(());
        }
        self.asked = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
