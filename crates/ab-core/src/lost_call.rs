//! The effect of a call whose answer was lost.
//!
//! A driver with a connection assigns a [`LostCallId`] to every call that changes something. If the
//! connection ends before the answer arrives, the error contains this id and the known
//! [`LostCallEffect`]. After the next connect, the caller can use the id to ask for the effect.

use std::fmt;

/// Whether a failed call took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LostCallEffect {
    /// The call took effect completely.
    Applied,
    /// The call did not take effect, and never will.
    NotApplied,
    /// It is not known whether the call took effect.
    Unknown,
}

impl LostCallEffect {
    pub const ALL: [LostCallEffect; 3] =
        [LostCallEffect::Applied, LostCallEffect::NotApplied, LostCallEffect::Unknown];

    pub fn as_str(self) -> &'static str {
        match self {
            LostCallEffect::Applied => "applied",
            LostCallEffect::NotApplied => "not_applied",
            LostCallEffect::Unknown => "unknown",
        }
    }
}

impl fmt::Display for LostCallEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whether a failed call may be repeated unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryAdvice {
    /// The call must not be repeated. It would fail again, or it may already have taken effect.
    Never,
    /// The call may be repeated. It had no effect and may succeed later.
    Safe,
    /// The answer was lost. Call [`Backend::query_lost_call`](crate::Backend::query_lost_call) with
    /// this id, and repeat the call only if it was not applied.
    AskEffectFirst(LostCallId),
}

/// Identifies a call to the driver that made it. The id is meaningless to other drivers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LostCallId(String);

impl LostCallId {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LostCallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
