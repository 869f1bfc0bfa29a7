//! The state of one call: its deadline, and whether it has changed anything.
//!
//! The deadline is set when the call is made. It covers waiting for a permit, for the connection
//! and for the answer. If an answer has several parts, each part that arrives
//! [moves](CallContext::moved) the deadline. A transfer is therefore not interrupted while it makes
//! progress. A call that waits behind transfers waits as long as one of the transfers makes
//! progress.
//!
//! If a call consists of several requests, it [records](CallContext::record_change) each request
//! that changes something and may have reached the server. If a call with a recorded request loses
//! its connection or times out, its effect is unknown. A call without a recorded request had no
//! effect.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ab_core::{Error, ErrorKind, LostCallEffect, Result};
use tokio::time::{Instant, timeout_at};

/// The last time at which any call of a backend received a part of its answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastProgress(Arc<Mutex<Option<Instant>>>);

impl LastProgress {
    fn last(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, now: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }
}

/// The deadline of one call.
#[derive(Debug)]
pub(crate) struct Deadline {
    whole: Duration,
    end: Mutex<Instant>,
    last_progress: LastProgress,
}

impl Deadline {
    /// Creates the deadline of a call that is made now. The call may take the time `whole`, or
    /// longer while parts of its answer arrive.
    pub(crate) fn new(whole: Duration, last_progress: &LastProgress) -> Self {
        let end = Mutex::new(later(Instant::now(), whole));
        Self { whole, end, last_progress: last_progress.clone() }
    }

    fn end(&self) -> Instant {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the deadline to the time `whole` after `moment`, if the new deadline is later than the
    /// current one.
    fn after(&self, moment: Instant) {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        *end = (*end).max(later(moment, self.whole));
    }
}

/// `moment` plus `time`. `time` is limited to 30 years, so that the addition cannot overflow.
pub(crate) fn later(moment: Instant, time: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    moment + time.min(FAR)
}

/// Whether a call may have changed anything so far.
#[derive(Debug, Default)]
pub(crate) struct Changes(AtomicBool);

/// The call for which a request is sent. It is passed to every function that waits for the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallContext<'a> {
    deadline: Option<&'a Deadline>,
    changes: Option<&'a Changes>,
    recording: Recording,
}

/// Whether requests that change something are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recording {
    On,
    Off,
}

impl CallContext<'static> {
    /// The context of requests that do not belong to a call. Each of these requests may take as
    /// long as a whole call.
    pub(crate) const NONE: Self = Self { deadline: None, changes: None, recording: Recording::On };
}

impl<'a> CallContext<'a> {
    pub(crate) fn new(deadline: &'a Deadline) -> Self {
        Self { deadline: Some(deadline), ..CallContext::NONE }
    }

    /// The context of the same call, which records requests that change something in `changes`.
    pub(crate) fn with_changes(self, changes: &'a Changes) -> Self {
        Self { changes: Some(changes), ..self }
    }

    /// The context of the same call, which does not record requests. It is used for requests whose
    /// changes are not visible in the workspace.
    pub(crate) fn without_recording(self) -> Self {
        Self { recording: Recording::Off, ..self }
    }

    /// Waits for `part`, which is one step of the call. In a call, waits until the deadline of the
    /// call. Outside of a call, waits at most `time_limit`. Returns `None` after a timeout.
    pub(crate) async fn within<T>(
        self,
        time_limit: Duration,
        part: impl Future<Output = T>,
    ) -> Option<T> {
        let mut part = pin!(part);
        let alone = later(Instant::now(), time_limit);
        loop {
            let end = || self.deadline.map_or(alone, Deadline::end);
            let until = end();
            if let Ok(done) = timeout_at(until, &mut part).await {
                return Some(done);
            }
            if end() <= until {
                return None;
            }
        }
    }

    /// Returns the deadline of the call. It is used for a step that runs in another task. Outside
    /// of a call, returns the time `time_limit` from now.
    pub(crate) fn until(self, time_limit: Duration) -> Instant {
        self.deadline.map_or_else(|| later(Instant::now(), time_limit), Deadline::end)
    }

    /// Waits for a permit for the call. Unlike [`within`](Self::within), waits longer while other
    /// calls make progress.
    pub(crate) async fn turn<T>(
        self,
        time_limit: Duration,
        part: impl Future<Output = T>,
    ) -> Option<T> {
        let mut part = pin!(part);
        loop {
            if let Some(done) = self.within(time_limit, &mut part).await {
                return Some(done);
            }
            let deadline = self.deadline?;
            if let Some(last) = deadline.last_progress.last() {
                deadline.after(last);
            }
            if deadline.end() <= Instant::now() {
                return None;
            }
        }
    }

    /// Records that a part of the answer arrived, and moves the deadline.
    pub(crate) fn moved(self) {
        if let Some(deadline) = self.deadline {
            let now = Instant::now();
            deadline.after(now);
            deadline.last_progress.note(now);
        }
    }

    /// Records that a request which changes something may have reached the server.
    pub(crate) fn record_change(self) {
        if let (Some(changes), Recording::On) = (self.changes, self.recording) {
            changes.0.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the call may have changed anything.
    pub(crate) fn has_changed(self) -> bool {
        self.changes.is_some_and(|changes| changes.0.load(Ordering::Relaxed))
    }

    /// Adds what is known about the effect to the error of a call that lost its connection or timed
    /// out. Other errors are not changed.
    pub(crate) fn judged<T>(self, result: Result<T>) -> Result<T> {
        result.map_err(|error: Error| match error.kind() {
            ErrorKind::Disconnected | ErrorKind::Timeout => {
                let effect = if self.has_changed() {
                    LostCallEffect::Unknown
                } else {
                    LostCallEffect::NotApplied
                };
                error.with_lost_call_effect(effect, None)
            }
            _ => error,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use ab_core::ErrorCode;
    use tokio::time::{advance, sleep};

    use super::*;

    const WHOLE: Duration = Duration::from_secs(100);

    async fn timed<T>(future: impl Future<Output = T>) -> (Duration, T) {
        let before = Instant::now();
        let done = future.await;
        (before.elapsed(), done)
    }

    #[tokio::test(start_paused = true)]
    async fn parts_share_the_time_of_their_call() {
        let deadline = Deadline::new(WHOLE, &LastProgress::default());
        let context = CallContext::new(&deadline);
        let parts = async {
            let first = context.within(WHOLE, sleep(WHOLE * 9 / 10)).await;
            (first, context.within(WHOLE, pending::<()>()).await)
        };
        let (took, answers) = timed(parts).await;
        assert_eq!((took.as_secs(), answers), (WHOLE.as_secs(), (Some(()), None)));
        // Outside of a call, each request has its own deadline.
        let alone = CallContext::NONE.within(WHOLE, pending::<()>());
        assert_eq!(timed(alone).await.0.as_secs(), WHOLE.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_elsewhere_has_the_deadline_of_its_call() {
        let began = Instant::now();
        let deadline = Deadline::new(WHOLE, &LastProgress::default());
        sleep(WHOLE / 2).await;
        assert_eq!(CallContext::new(&deadline).until(WHOLE), began + WHOLE);
        assert_eq!(CallContext::NONE.until(WHOLE), Instant::now() + WHOLE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_is_under_way_goes_on_while_others_are_answered() {
        let deadline = Deadline::new(WHOLE, &LastProgress::default());
        let context = CallContext::new(&deadline);
        let parts = async {
            let answers = async {
                for _ in 0..3 {
                    sleep(WHOLE * 9 / 10).await;
                    context.moved();
                }
            };
            tokio::join!(context.within(WHOLE, pending::<()>()), answers).0
        };
        let (took, answer) = timed(parts).await;
        assert_eq!((took.as_secs(), answer), (370, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_is_waited_for_while_others_make_progress() {
        let last_progress = LastProgress::default();
        let (waits, other) =
            (Deadline::new(WHOLE, &last_progress), Deadline::new(WHOLE, &last_progress));
        let waiting = CallContext::new(&waits).turn(WHOLE, pending::<()>());
        let others = async {
            sleep(WHOLE * 9 / 10).await;
            CallContext::new(&other).moved();
        };
        let (took, (turn, ())) = timed(async { tokio::join!(waiting, others) }).await;
        assert_eq!((took.as_secs(), turn), (190, None));
        // Earlier progress does not extend the deadline.
        advance(WHOLE).await;
        let waits = Deadline::new(WHOLE, &last_progress);
        let waiting = CallContext::new(&waits).turn(WHOLE, pending::<()>());
        assert_eq!(timed(waiting).await.0.as_secs(), WHOLE.as_secs());
    }

    #[test]
    fn the_effect_of_a_lost_call_is_known_unless_it_recorded_a_change() {
        let lost = || {
            Err::<(), _>(Error::new(ErrorCode::ConnectionClosed, ErrorKind::Disconnected, "lost"))
        };
        let effect =
            |context: CallContext<'_>| context.judged(lost()).unwrap_err().lost_call_effect();
        let changes = Changes::default();
        let context = CallContext::NONE.with_changes(&changes);
        context.without_recording().record_change();
        assert_eq!(effect(context), Some(LostCallEffect::NotApplied));
        context.record_change();
        assert_eq!(effect(context), Some(LostCallEffect::Unknown));
        assert_eq!(effect(context.without_recording()), Some(LostCallEffect::Unknown));
        let refused = Error::new(ErrorCode::WriteFailed, ErrorKind::PermissionDenied, "no");
        assert_eq!(context.judged(Err::<(), _>(refused)).unwrap_err().lost_call_effect(), None);
    }
}
