//! The table `retention`: how long and how much data of ended sessions is kept.

use std::time::Duration;

use ab_control::RetentionSettings;

use super::setting::{Setting, Sources, Words};
use crate::commands::exec::amount;
use crate::failure::Failure;

/// The keys of the table `retention` in the configuration file.
pub(super) const RETENTION_KEYS: &[&str] =
    &["workspaces", "sessions", "cache", "grace", "disk-limit", "database-limit", "free-space"];

/// The words for a time and a size without a limit.
const FOREVER: &str = "forever";
pub(super) const UNLIMITED: &str = "unlimited";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How long and how much data of ended sessions is kept.
#[derive(Debug)]
pub(crate) struct RetentionConfig {
    pub(crate) workspaces: Setting<Option<Duration>>,
    pub(crate) sessions: Setting<Option<Duration>>,
    pub(crate) cache: Setting<Option<Duration>>,
    pub(crate) grace: Setting<Duration>,
    pub(crate) disk_limit: Setting<Option<u64>>,
    pub(crate) database_limit: Setting<Option<u64>>,
    pub(crate) free_space: Setting<u64>,
}

impl RetentionConfig {
    pub(super) fn load(sources: &Sources<'_>) -> Result<RetentionConfig, Failure> {
        let defaults = RetentionSettings::default();
        let period = |key, default: Option<Duration>| sources.pick(key, None, || default, period);
        let limit = |key, default: Option<u64>| sources.pick(key, None, || default, limit);
        Ok(RetentionConfig {
            workspaces: period("retention.workspaces", defaults.workspace_lifetime)?,
            sessions: period("retention.sessions", defaults.session_lifetime)?,
            cache: period("retention.cache", defaults.cache_lifetime)?,
            grace: sources.pick(
                "retention.grace",
                None,
                || defaults.workspace_grace,
                |words| days(words.one()?),
            )?,
            disk_limit: limit("retention.disk-limit", defaults.max_disk_bytes)?,
            database_limit: limit("retention.database-limit", defaults.max_database_bytes)?,
            free_space: sources.pick(
                "retention.free-space",
                None,
                || defaults.min_free_bytes,
                |words| amount::size(words.one()?),
            )?,
        })
    }

    /// Converts the configuration to the settings of the control plane.
    pub(crate) fn settings(&self) -> RetentionSettings {
        RetentionSettings {
            workspace_lifetime: self.workspaces.value,
            session_lifetime: self.sessions.value,
            cache_lifetime: self.cache.value,
            workspace_grace: self.grace.value,
            max_disk_bytes: self.disk_limit.value,
            max_database_bytes: self.database_limit.value,
            min_free_bytes: self.free_space.value,
            ..RetentionSettings::default()
        }
    }
}

/// Parses a time, or `forever`.
fn period(words: &Words<'_>) -> Result<Option<Duration>, String> {
    match words.one()? {
        FOREVER => Ok(None),
        text => days(text).map(Some).map_err(|why| format!("{why}, or {FOREVER}")),
    }
}

/// Parses a time. In addition to the usual units it may be in days.
fn days(text: &str) -> Result<Duration, String> {
    let Some(number) = text.strip_suffix('d') else {
        return amount::time(text)
            .map_err(|why| why.replace("use ms, s, m or h", "use s, m, h or d"));
    };
    let number: u32 = number.parse().map_err(|_| format!("'{number}' is not a number of days"))?;
    amount::time(&format!("{}h", u64::from(number) * 24))
}

/// Parses a size, or `unlimited`.
fn limit(words: &Words<'_>) -> Result<Option<u64>, String> {
    match words.one()? {
        UNLIMITED => Ok(None),
        text => amount::size(text).map(Some).map_err(|why| format!("{why}, or {UNLIMITED}")),
    }
}

/// Formats a time of this table in the form in which the file contains it.
pub(super) fn period_text(time: Option<Duration>) -> String {
    match time {
        None => FOREVER.to_owned(),
        Some(time) if time.as_secs().is_multiple_of(DAY.as_secs()) && time >= DAY => {
            format!("{}d", time.as_secs() / DAY.as_secs())
        }
        Some(time) => super::show::time_text(time),
    }
}

/// Formats a size of this table in the form in which the file contains it.
pub(super) fn size_text(size: Option<u64>) -> String {
    let Some(bytes) = size else { return UNLIMITED.to_owned() };
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let found = units.iter().find(|(shift, _)| bytes > 0 && bytes % (1 << shift) == 0);
    found.map_or_else(|| bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_days_and_sizes_are_written_as_they_are_read() {
        for (text, seconds) in [("30d", 2_592_000), ("12h", 43_200), ("90s", 90)] {
            let time = days(text).unwrap();
            assert_eq!(time.as_secs(), seconds, "{text}");
            assert_eq!(period_text(Some(time)), text);
        }
        assert_eq!(period_text(None), "forever");
        for text in ["0d", "d", "-1d", "1.5d", "99999999d", "5w"] {
            assert!(days(text).is_err(), "{text}");
        }
        for (bytes, text) in [(0, "0"), (1000, "1000"), (64 << 20, "64M"), (3 << 40, "3T")] {
            assert_eq!(size_text(Some(bytes)), text);
        }
        assert_eq!(size_text(None), "unlimited");
    }
}
