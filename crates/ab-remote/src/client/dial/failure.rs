//! Errors of a connection attempt, and whether a retry can help.
//!
//! Messages contain the action and the host, but never a secret.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use ab_core::{Error, ErrorCause, ErrorCode, ErrorKind, RetryAdvice};
use tokio::time::{Instant, timeout_at};

use crate::client::context::later;

/// A failed attempt to connect.
#[derive(Clone, Debug)]
pub struct ConnectError {
    pub error: Error,
    /// Whether a retry may succeed although the configuration is not changed.
    pub retryable: bool,
}

impl ConnectError {
    /// The error if the connection was refused or lost. A retry may succeed.
    pub(super) fn lost(act: &str, who: &str, why: impl fmt::Display) -> Self {
        let message = format!("cannot {act} {who}: {why}");
        Error::new(ErrorCode::ConnectionClosed, ErrorKind::Disconnected, message).into()
    }

    /// The error if a step was not complete within the time limit.
    fn late(act: &str, who: &str, time_left: Duration) -> Self {
        let message = format!("cannot {act} {who}: no answer within {time_left:?}");
        Error::new(ErrorCode::ConnectionClosed, ErrorKind::Timeout, message).into()
    }

    /// The error if the identity of the host or of the user was not accepted.
    pub(super) fn denied(message: impl Into<String>) -> Self {
        Error::new(ErrorCode::AuthFailed, ErrorKind::DeniedByPolicy, message).into()
    }

    /// The error if the two sides have no protocol or algorithm in common.
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

impl From<Error> for ConnectError {
    fn from(error: Error) -> Self {
        let retryable = error.retry_advice() == RetryAdvice::Safe;
        Self { error, retryable }
    }
}

impl From<ConnectError> for Error {
    fn from(failure: ConnectError) -> Self {
        failure.error
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl StdError for ConnectError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.error.source()
    }
}

/// The time limit for all steps of an attempt together.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeLeft {
    whole: Duration,
    end: Instant,
}

impl TimeLeft {
    pub(super) fn new(whole: Duration) -> Self {
        Self { whole, end: later(Instant::now(), whole) }
    }

    /// Runs one step of the attempt. Fails if the time limit of the attempt is exceeded.
    pub(super) async fn spend<T>(
        self,
        act: &str,
        who: &str,
        step: impl Future<Output = T>,
    ) -> Result<T, ConnectError> {
        let done = timeout_at(self.end, step).await;
        done.map_err(|_| ConnectError::late(act, who, self.whole))
    }
}

/// Describes an error of russh in plain language.
pub(super) fn words(error: &russh::Error) -> String {
    match error {
        russh::Error::Disconnect | russh::Error::HUP | russh::Error::RecvError => {
            "the connection was closed".to_owned()
        }
        russh::Error::Version => "it does not speak SSH".to_owned(),
        russh::Error::KeepaliveTimeout => "it stopped answering".to_owned(),
        russh::Error::InactivityTimeout => "it stopped reading".to_owned(),
        russh::Error::IO(error) => error.to_string(),
        error => lower(&error.to_string()),
    }
}

/// Converts a text for use inside a sentence. The first letter becomes lower case, and the text is
/// put on one line.
pub(super) fn lower(text: &str) -> String {
    let text = ab_core::error::escape_unprintable(text);
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => text,
    }
}
