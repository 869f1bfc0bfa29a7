//! Why there is no connection, and whether it is worth trying again.
//!
//! Messages name the act and the host, and never a secret.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use ab_core::{Error, ErrorCause, ErrorCode, ErrorKind, RetryAdvice};
use tokio::time::{Instant, timeout_at};

use crate::client::context::later;

/// A connection that was not made.
#[derive(Clone, Debug)]
pub struct DialError {
    pub error: Error,
    /// Whether it may succeed later without anybody changing anything.
    pub retryable: bool,
}

impl DialError {
    /// The connection was not made, or was lost on the way: that may pass.
    pub(super) fn lost(act: &str, who: &str, why: impl fmt::Display) -> Self {
        let message = format!("cannot {act} {who}: {why}");
        Error::new(ErrorCode::ConnectionClosed, ErrorKind::Disconnected, message).into()
    }

    /// Nothing happened within its time.
    fn late(act: &str, who: &str, patience: Duration) -> Self {
        let message = format!("cannot {act} {who}: no answer within {patience:?}");
        Error::new(ErrorCode::ConnectionClosed, ErrorKind::Timeout, message).into()
    }

    /// One of the two is not who it should be.
    pub(super) fn denied(message: impl Into<String>) -> Self {
        Error::new(ErrorCode::AuthFailed, ErrorKind::Denied, message).into()
    }

    /// The two have no language in common.
    pub(super) fn foreign(act: &str, who: &str, why: impl fmt::Display) -> Self {
        let message = format!("cannot {act} {who}: {why}");
        Error::new(ErrorCode::ConnectionClosed, ErrorKind::Unsupported, message).into()
    }

    pub(super) fn with_detail(mut self, detail: ErrorCause) -> Self {
        self.error = self.error.with_cause(detail);
        self
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.error = self.error.with_hint(hint);
        self
    }

    pub(super) fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.error = self.error.with_source(source);
        self
    }
}

impl From<Error> for DialError {
    fn from(error: Error) -> Self {
        let retryable = error.retry_advice() == RetryAdvice::Safe;
        Self { error, retryable }
    }
}

impl From<DialError> for Error {
    fn from(failure: DialError) -> Self {
        failure.error
    }
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl StdError for DialError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}

/// The time that is left for all steps together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    whole: Duration,
    end: Instant,
}

impl Patience {
    pub(super) fn new(whole: Duration) -> Self {
        Self { whole, end: later(Instant::now(), whole) }
    }

    /// Waits for one step.
    pub(super) async fn spend<T>(
        self,
        act: &str,
        who: &str,
        step: impl Future<Output = T>,
    ) -> Result<T, DialError> {
        let done = timeout_at(self.end, step).await;
        done.map_err(|_| DialError::late(act, who, self.whole))
    }
}

/// What the libraries below us say, in our words.
pub(super) fn words(error: &russh::Error) -> String {
    match error {
        russh::Error::Disconnect | russh::Error::HUP | russh::Error::RecvError => {
            "the connection was closed".to_owned()
        }
        russh::Error::Version => "it does not speak SSH".to_owned(),
        russh::Error::KeepaliveTimeout => "it does not answer any more".to_owned(),
        russh::Error::InactivityTimeout => "it takes nothing any more".to_owned(),
        russh::Error::IO(error) => error.to_string(),
        error => lower(&error.to_string()),
    }
}

/// With a small letter at the beginning, as a part of a sentence, and on one line.
pub(super) fn lower(text: &str) -> String {
    let text = ab_core::error::escape_unprintable(text);
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => text,
    }
}
