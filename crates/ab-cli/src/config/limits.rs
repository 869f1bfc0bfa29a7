//! The table `limits`: limits on what callers may request.

use std::num::NonZeroU32;

use super::retention::UNLIMITED;
use super::setting::{Setting, Sources};
use crate::failure::Failure;

/// The keys of the table `limits` in the configuration file.
pub(super) const LIMIT_KEYS: &[&str] = &["tasks-per-minute"];

/// Maximum value of `tasks-per-minute`.
const MOST_TASKS: u32 = 10_000;

/// Limits on what callers may request.
#[derive(Debug)]
pub(crate) struct LimitConfig {
    /// Maximum number of tasks per minute, for each caller and for each project.
    pub(crate) tasks_per_minute: Setting<Option<NonZeroU32>>,
}

impl LimitConfig {
    pub(super) fn load(sources: &Sources<'_>) -> Result<LimitConfig, Failure> {
        let tasks_per_minute = sources.pick(
            "limits.tasks-per-minute",
            None,
            || None,
            |words| match words.one()? {
                UNLIMITED => Ok(None),
                text => match text.parse() {
                    Ok(number @ 1..=MOST_TASKS) => Ok(NonZeroU32::new(number)),
                    Ok(_) | Err(_) => {
                        Err(format!("must be a number from 1 to {MOST_TASKS}, or {UNLIMITED}"))
                    }
                },
            },
        )?;
        Ok(LimitConfig { tasks_per_minute })
    }
}
