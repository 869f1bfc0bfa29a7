//! A guard that does what a test told it: passes, waits, refuses or never answers, and writes down
//! what it saw.

use std::fmt;
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use ab_core::call::{CallEnd, CallId};
use ab_core::effective::EffectiveControl;
use ab_core::guard::{Admission, RefusedPath};
use ab_core::{Call, CallOutcome, Code, Error, Guard, Kind, Result, Verb};

/// What a gate says to every call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateAnswer {
    Pass,
    /// Passes after the caller was made to wait once.
    PassLater,
    Refuse,
    /// Refuses after the caller was made to wait once.
    RefuseLater,
    /// Never answers; the caller can only go away.
    Hang,
}

/// What happened at a gate, in the order in which it happened at all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The call came to the gate.
    Came {
        gate: usize,
        call: CallId,
    },
    /// The gate let it pass.
    Passed {
        gate: usize,
        call: CallId,
    },
    Refused {
        gate: usize,
        call: CallId,
    },
    /// The gate was told that an open file grows.
    Grew {
        gate: usize,
        call: CallId,
        size: u64,
    },
    Exited {
        gate: usize,
        call: CallId,
        end: Finish,
        bytes: u64,
        exit_code: Option<i32>,
    },
}

/// How a call ended, as a value that can be kept and compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    Done,
    Failed(Kind),
    Cancelled,
}

/// The book that several gates write in.
#[derive(Clone, Debug, Default)]
pub struct Log(Arc<Mutex<Vec<Step>>>);

impl Log {
    pub fn steps(&self) -> Vec<Step> {
        self.lock().clone()
    }

    /// The gates that let a call pass, in order.
    pub fn passed(&self) -> Vec<usize> {
        let passed = |step: &Step| match step {
            Step::Passed { gate, .. } => Some(*gate),
            _ => None,
        };
        self.lock().iter().filter_map(passed).collect()
    }

    /// The gates that were told of an end, in order, with that end.
    pub fn exited(&self) -> Vec<(usize, Finish)> {
        let exited = |step: &Step| match step {
            Step::Exited { gate, end, .. } => Some((*gate, *end)),
            _ => None,
        };
        self.lock().iter().filter_map(exited).collect()
    }

    fn write(&self, step: Step) {
        self.lock().push(step);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Step>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One scripted guard.
pub struct Gate {
    number: usize,
    answer: GateAnswer,
    /// The verbs it answers so; others pass. All of them when empty.
    only: Vec<Verb>,
    largest: u64,
    log: Log,
}

impl Gate {
    pub fn new(number: usize, answer: GateAnswer, log: &Log) -> Self {
        Self { number, answer, only: Vec::new(), largest: u64::MAX, log: log.clone() }
    }

    /// A gate that lets everything pass.
    pub fn open(number: usize, log: &Log) -> Self {
        Self::new(number, GateAnswer::Pass, log)
    }

    /// Keeps the answer for these verbs; any other call passes.
    pub fn for_verbs(mut self, verbs: &[Verb]) -> Self {
        self.only = verbs.to_vec();
        self
    }

    /// Open files may not grow beyond `largest` bytes.
    pub fn growing_to(mut self, largest: u64) -> Self {
        self.largest = largest;
        self
    }

    fn answer_to(&self, call: &Call<'_>) -> GateAnswer {
        if self.only.is_empty() || self.only.contains(&call.verb) {
            self.answer
        } else {
            GateAnswer::Pass
        }
    }

    fn decide(&self, call: &Call<'_>, answer: GateAnswer) -> Result<()> {
        let (gate, call_id) = (self.number, call.id);
        match answer {
            GateAnswer::Refuse | GateAnswer::RefuseLater => {
                self.log.write(Step::Refused { gate, call: call_id });
                Err(refusal(gate, call.verb))
            }
            GateAnswer::Pass | GateAnswer::PassLater | GateAnswer::Hang => {
                self.log.write(Step::Passed { gate, call: call_id });
                Ok(())
            }
        }
    }
}

fn refusal(gate: usize, verb: Verb) -> Error {
    Error::new(Code::DangerousOperation, Kind::Denied, format!("gate {gate} is shut"))
        .with_verb(verb)
}

impl Guard for Gate {
    fn enter<'a>(&'a self, call: &'a Call<'a>) -> Admission<'a> {
        self.log.write(Step::Came { gate: self.number, call: call.id });
        let answer = self.answer_to(call);
        match answer {
            GateAnswer::Pass | GateAnswer::Refuse => Admission::Ready(self.decide(call, answer)),
            GateAnswer::PassLater | GateAnswer::RefuseLater => {
                Admission::Waits(Box::pin(async move {
                    OneTurn::default().await;
                    self.decide(call, answer)
                }))
            }
            GateAnswer::Hang => Admission::Waits(Box::pin(pending())),
        }
    }

    fn check_growth(&self, call: &Call<'_>, size: u64) -> Result<()> {
        self.log.write(Step::Grew { gate: self.number, call: call.id, size });
        if size > self.largest {
            return Err(refusal(self.number, call.verb));
        }
        Ok(())
    }

    fn refused(&self, _: &RefusedPath<'_>) {}

    fn controls(&self) -> Option<EffectiveControl> {
        None
    }

    fn exit(&self, call: &Call<'_>, outcome: &CallOutcome<'_>) {
        let end = match outcome.end {
            CallEnd::Done => Finish::Done,
            CallEnd::Failed(error) => Finish::Failed(error.kind()),
            CallEnd::Cancelled => Finish::Cancelled,
        };
        self.log.write(Step::Exited {
            gate: self.number,
            call: call.id,
            end,
            bytes: outcome.bytes,
            exit_code: outcome.exit.and_then(|exit| exit.code),
        });
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("number", &self.number)
            .field("answer", &self.answer)
            .finish_non_exhaustive()
    }
}

/// Is ready the second time it is asked, whoever asks.
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
