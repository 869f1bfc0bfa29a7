//! Points in time in JSON: RFC 3339 in UTC, with milliseconds.

use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use utoipa::openapi::{KnownFormat, ObjectBuilder, RefOr, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};

/// A point in time with millisecond precision, written like `2026-01-31T12:00:00.250Z`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(Timestamp);

/// The error for a text that is not an RFC 3339 time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeError(String);

impl fmt::Display for TimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid time {:?}: must be RFC 3339, such as 2026-01-31T12:00:00Z", self.0)
    }
}

impl std::error::Error for TimeError {}

impl Time {
    /// The current time.
    pub fn now() -> Self {
        Self::cut(Timestamp::now())
    }

    /// The time `millis` milliseconds after the Unix epoch. If this time is out of range, the
    /// earliest or the latest time that can be represented.
    pub fn from_millis(millis: i64) -> Self {
        let fallback = if millis < 0 { Timestamp::MIN } else { Timestamp::MAX };
        Self::cut(Timestamp::from_millisecond(millis).unwrap_or(fallback))
    }

    /// The number of milliseconds since the Unix epoch.
    pub fn as_millis(self) -> i64 {
        self.0.as_millisecond()
    }

    /// This time plus `duration`. Limited to the last time that can be represented.
    pub fn saturating_add(self, duration: std::time::Duration) -> Self {
        let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
        Self::cut(self.0.saturating_add(duration).unwrap_or(Timestamp::MAX))
    }

    fn cut(timestamp: Timestamp) -> Self {
        let millis = timestamp.as_millisecond();
        Self(Timestamp::from_millisecond(millis).unwrap_or(timestamp))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Time {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        match text.parse::<Timestamp>() {
            Ok(timestamp) => Ok(Self::cut(timestamp)),
            Err(_) => Err(TimeError(text.chars().take(64).collect())),
        }
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl PartialSchema for Time {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
            .into()
    }
}

impl ToSchema for Time {
    fn name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }
}
