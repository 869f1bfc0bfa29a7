//! Limits the number of tasks per minute, for each caller and for each project.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
/// Maximum number of callers and projects in the table. If it is full, the entry with the least use
/// is removed.
const REMEMBERED: usize = 4096;

/// The caller or project for which a task is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum TaskCounter {
    /// The kind and name of the caller's principal.
    Caller(String),
    Project(String),
}

/// Limits the tasks of each caller and of each project. All tasks of a minute may arrive at once.
/// Further tasks are accepted at regular intervals. An interval is one minute divided by the limit.
#[derive(Debug)]
pub(crate) struct TaskRateLimit {
    per_minute: NonZeroU32,
    /// For each counter, the time at which the full number of tasks is available again.
    full_again: Mutex<HashMap<TaskCounter, Instant>>,
}

/// The error for a task that exceeds the limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TaskRateExceeded {
    pub(super) counter: TaskCounter,
    pub(super) per_minute: NonZeroU32,
    pub(super) wait: Duration,
}

impl TaskRateLimit {
    pub(super) fn new(per_minute: NonZeroU32) -> TaskRateLimit {
        TaskRateLimit { per_minute, full_again: Mutex::default() }
    }

    /// Counts a task for all counters. If the limit of one counter is exceeded, counts the task for
    /// none of them.
    pub(super) fn take(
        &self,
        counters: &[TaskCounter],
        now: Instant,
    ) -> Result<(), TaskRateExceeded> {
        let interval = MINUTE / self.per_minute.get();
        let mut full_again = self.full_again.lock().unwrap_or_else(PoisonError::into_inner);
        let next =
            |known: Option<&Instant>| known.map_or(now, |known| (*known).max(now)) + interval;
        for counter in counters {
            let wait = next(full_again.get(counter)).saturating_duration_since(now + MINUTE);
            if !wait.is_zero() {
                let (counter, per_minute) = (counter.clone(), self.per_minute);
                return Err(TaskRateExceeded { counter, per_minute, wait });
            }
        }
        for counter in counters {
            if full_again.len() >= REMEMBERED && !full_again.contains_key(counter) {
                let least = full_again.iter().min_by_key(|(_, instant)| **instant);
                if let Some(least) = least.map(|(counter, _)| counter.clone()) {
                    full_again.remove(&least);
                }
            }
            let instant = next(full_again.get(counter));
            full_again.insert(counter.clone(), instant);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(per_minute: u32) -> TaskRateLimit {
        TaskRateLimit::new(NonZeroU32::new(per_minute).unwrap())
    }

    fn caller(name: &str) -> TaskCounter {
        TaskCounter::Caller(name.to_owned())
    }

    #[test]
    fn a_minutes_worth_comes_at_once_and_then_one_by_one() {
        let (limit, start) = (limit(3), Instant::now());
        let wait = |seconds| {
            let taken = limit.take(&[caller("a")], start + Duration::from_secs(seconds));
            taken.err().map_or(0, |exceeded| exceeded.wait.as_secs())
        };
        assert_eq!([0, 0, 0, 0, 5, 20, 20].map(wait), [0, 0, 0, 20, 15, 0, 20]);
        assert_eq!([200, 200, 200, 200].map(wait), [0, 0, 0, 20]);
    }

    #[test]
    fn a_task_that_is_refused_counts_for_nothing() {
        let (limit, now) = (limit(1), Instant::now());
        let project = TaskCounter::Project("p".to_owned());
        let both = |name| [caller(name), project.clone()];
        assert_eq!(limit.take(&both("a"), now), Ok(()));
        assert_eq!(limit.take(&both("b"), now).unwrap_err().counter, project);
        assert_eq!(limit.take(&[caller("b")], now), Ok(()));
        assert_eq!(limit.take(&both("a"), now).unwrap_err().counter, caller("a"));
    }

    #[test]
    fn only_so_many_are_remembered_and_the_busiest_are_among_them() {
        let (limit, now) = (limit(2), Instant::now());
        limit.take(&[caller("busy")], now).unwrap();
        limit.take(&[caller("busy")], now).unwrap();
        for number in 0..2 * REMEMBERED {
            limit.take(&[caller(&number.to_string())], now).unwrap();
        }
        assert_eq!(limit.full_again.lock().unwrap().len(), REMEMBERED);
        assert!(limit.take(&[caller("busy")], now).is_err());
    }
}
