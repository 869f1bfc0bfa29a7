//! What became of a call whose answer was lost on the way.
//!
//! A driver that reaches its workspace over a connection gives every call that changes something a
//! [`LostCallId`]. When the connection ends before the answer is there, the error has the ticket and what
//! is known of the [`LostCallEffect`]; once there is a connection again, the ticket can be asked about.

use std::fmt;

/// Whether a call that failed took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LostCallEffect {
    /// It did, in full.
    Applied,
    /// It did not, and never will.
    NotApplied,
    /// Nobody knows, or nobody knows any more.
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

/// Whether a failed call may be repeated as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryAdvice {
    /// It would fail again, or it may have taken effect already.
    Never,
    /// It took no effect and may succeed later.
    Safe,
    /// The answer was lost. Ask [`Backend::query_lost_call`](crate::Backend::query_lost_call) by the ticket, and
    /// repeat the call only if it was not applied.
    AskEffectFirst(LostCallId),
}

/// Names a call to the driver that made it; means nothing to others.
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
