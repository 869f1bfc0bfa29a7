//! The effect of a call whose answer was lost.
//!
//! A driver that uses a connection gives every call that changes something a [`LostCallId`]. If the
//! connection ends before the answer comes, the error has this ticket and the known
//! [`LostCallEffect`]. On the next connection the caller can ask with the ticket.

use std::fmt;

/// Whether a failed call took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LostCallEffect {
    /// It took effect completely.
    Applied,
    /// It did not take effect, and never will.
    NotApplied,
    /// It is not known.
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
    /// It would fail again, or it may have taken effect already.
    Never,
    /// It had no effect and may succeed later.
    Safe,
    /// The answer was lost. Call [`Backend::query_lost_call`](crate::Backend::query_lost_call) with
    /// the ticket, and repeat the call only if it was not applied.
    AskEffectFirst(LostCallId),
}

/// Identifies a call to the driver that made it. It has no meaning for other drivers.
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
