//! How long a call may take: one deadline, from the moment in which it is made, for its turn, the
//! connection and the answer together.
//!
//! A call whose answers come one after the other goes on for as long as they do: each of them
//! [moves](moved) the deadline. So a transfer is not cut while it gets on, and a call that waits its
//! turn behind transfers is patient as long as one of them gets on.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

tokio::task_local! {
    static CALL: Deadline;
}

/// When the calls of a backend were last answered in part.
#[derive(Clone, Debug, Default)]
pub(crate) struct Motion(Arc<Mutex<Option<Instant>>>);

impl Motion {
    fn last(&self) -> Option<Instant> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, now: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }
}

#[derive(Debug)]
struct Deadline {
    whole: Duration,
    end: Mutex<Instant>,
    motion: Motion,
}

impl Deadline {
    fn end(&self) -> Instant {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is so long after this, if that is later than it was.
    fn after(&self, moment: Instant) {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        *end = (*end).max(later(moment, self.whole));
    }
}

/// The moment `time` after another. A time that is too long to be counted is cut to 30 years.
pub(crate) fn later(moment: Instant, time: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    moment + time.min(FAR)
}

/// Makes a call, which may take so long as a whole. What it waits for, it waits for
/// [within] that.
pub(crate) async fn call<T>(whole: Duration, motion: &Motion, call: impl Future<Output = T>) -> T {
    let end = Mutex::new(later(Instant::now(), whole));
    CALL.scope(Deadline { whole, end, motion: motion.clone() }, call).await
}

/// Waits for a part of a call until the deadline of that; outside of one, for as long as `patience`.
/// Nothing if it took too long.
pub(crate) async fn within<T>(patience: Duration, part: impl Future<Output = T>) -> Option<T> {
    let mut part = pin!(part);
    let alone = later(Instant::now(), patience);
    loop {
        let end = || CALL.try_with(Deadline::end).unwrap_or(alone);
        let until = end();
        if let Ok(done) = timeout_at(until, &mut part).await {
            return Some(done);
        }
        if end() <= until {
            return None;
        }
    }
}

/// The deadline of the call that this is a part of, for a part that is done elsewhere; outside of a
/// call, `patience` from now.
pub(crate) fn until(patience: Duration) -> Instant {
    CALL.try_with(Deadline::end).unwrap_or_else(|_| later(Instant::now(), patience))
}

/// Waits for a call's turn: the same, but as long as other calls get on it goes on.
pub(crate) async fn turn<T>(patience: Duration, part: impl Future<Output = T>) -> Option<T> {
    let mut part = pin!(part);
    loop {
        if let Some(done) = within(patience, &mut part).await {
            return Some(done);
        }
        let goes_on = CALL.try_with(|call| {
            if let Some(last) = call.motion.last() {
                call.after(last);
            }
            call.end() > Instant::now()
        });
        if !goes_on.unwrap_or(false) {
            return None;
        }
    }
}

/// The call that this is a part of was answered in part.
pub(crate) fn moved() {
    let now = Instant::now();
    let _ = CALL.try_with(|call| {
        call.after(now);
        call.motion.note(now);
    });
}

#[cfg(test)]
mod tests {
    use std::future::pending;

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
        let parts = async {
            let first = within(WHOLE, sleep(WHOLE * 9 / 10)).await;
            (first, within(WHOLE, pending::<()>()).await)
        };
        let (took, answers) = timed(call(WHOLE, &Motion::default(), parts)).await;
        assert_eq!((took.as_secs(), answers), (WHOLE.as_secs(), (Some(()), None)));
        // Outside of a call each has its own.
        assert_eq!(timed(within(WHOLE, pending::<()>())).await.0.as_secs(), WHOLE.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_elsewhere_has_the_deadline_of_its_call() {
        let began = Instant::now();
        let part = async {
            sleep(WHOLE / 2).await;
            until(WHOLE)
        };
        assert_eq!(call(WHOLE, &Motion::default(), part).await, began + WHOLE);
        assert_eq!(until(WHOLE), Instant::now() + WHOLE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_is_under_way_goes_on_while_others_are_answered() {
        let parts = async {
            let answers = async {
                for _ in 0..3 {
                    sleep(WHOLE * 9 / 10).await;
                    moved();
                }
            };
            tokio::join!(within(WHOLE, pending::<()>()), answers).0
        };
        let (took, answer) = timed(call(WHOLE, &Motion::default(), parts)).await;
        assert_eq!((took.as_secs(), answer), (370, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_is_waited_for_while_others_get_on() {
        let motion = Motion::default();
        let waiting = call(WHOLE, &motion, turn(WHOLE, pending::<()>()));
        let others = call(WHOLE, &motion, async {
            sleep(WHOLE * 9 / 10).await;
            moved();
        });
        let (took, (turn, ())) = timed(async { tokio::join!(waiting, others) }).await;
        assert_eq!((took.as_secs(), turn), (190, None));
        // Of what was long ago nobody hopes for anything.
        advance(WHOLE).await;
        let waiting = call(WHOLE, &motion, self::turn(WHOLE, pending::<()>()));
        assert_eq!(timed(waiting).await.0.as_secs(), WHOLE.as_secs());
    }
}
