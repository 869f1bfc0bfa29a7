//! Why a conversation with an agent failed.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::profile::AuthMethod;
use crate::rpc::RpcError;

/// A failed request, or the end of a connection. Cheap to clone.
#[derive(Clone, Debug)]
pub enum AcpError {
    /// The connection ended.
    Closed { reason: Arc<str> },
    /// The agent sent a line that is longer than the limit. The connection has ended.
    LineTooLong { limit: usize },
    /// The agent printed this many consecutive lines that are not messages. The connection has
    /// ended.
    NotAcp { lines: usize },
    /// The agent did not answer in time.
    Timeout { method: Cow<'static, str>, after: Duration },
    /// The agent answered a request with an error.
    RequestFailed { method: Cow<'static, str>, error: Box<RpcError> },
    /// The agent requires a login, and the configuration selects none of its login methods.
    LoginRequired { methods: Vec<AuthMethod> },
    /// The client cannot use the agent's response.
    InvalidResponse { method: Cow<'static, str>, reason: String },
    /// The agent does not support the request.
    Unsupported { what: &'static str },
    /// A turn of this session is already running.
    TurnAlreadyRunning,
    /// Too many requests are pending.
    TooManyRequests { requests: usize },
}

impl AcpError {
    pub(crate) fn closed(reason: impl Into<Arc<str>>) -> AcpError {
        AcpError::Closed { reason: reason.into() }
    }

    /// Whether this error means that the connection has ended, so that no further request can
    /// succeed.
    pub fn ends_connection(&self) -> bool {
        matches!(
            self,
            AcpError::Closed { .. } | AcpError::LineTooLong { .. } | AcpError::NotAcp { .. }
        )
    }
}

impl fmt::Display for AcpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcpError::Closed { reason } => write!(f, "connection to the agent ended: {reason}"),
            AcpError::LineTooLong { limit } => {
                write!(f, "the agent sent a line of more than {limit} bytes")
            }
            AcpError::NotAcp { lines } => write!(
                f,
                "the agent does not speak ACP: {lines} consecutive lines are not JSON-RPC messages"
            ),
            AcpError::Timeout { method, after } => {
                write!(f, "the agent did not answer {method} within {after:?}")
            }
            AcpError::RequestFailed { method, error } => {
                write!(f, "the agent refused {method}: {} (code {})", error.message, error.code)?;
                // Some agents report only "Internal error" and put the cause into the data.
                match &error.data {
                    Some(data) => write!(f, ": {}", cut(&data.to_string())),
                    None => Ok(()),
                }
            }
            AcpError::LoginRequired { methods } => {
                f.write_str("the agent requires a login")?;
                for (index, method) in methods.iter().enumerate() {
                    let before = if index == 0 { "; it offers: " } else { ", " };
                    write!(f, "{before}{} ({})", method.id, method.name)?;
                }
                Ok(())
            }
            AcpError::InvalidResponse { method, reason } => {
                write!(f, "cannot use the agent's answer to {method}: {reason}")
            }
            AcpError::Unsupported { what } => write!(f, "the agent does not support {what}"),
            AcpError::TurnAlreadyRunning => f.write_str("a turn of this session is under way"),
            AcpError::TooManyRequests { requests } => {
                write!(
                    f,
                    "too many requests: {requests} requests to the agent already wait for a response"
                )
            }
        }
    }
}

impl std::error::Error for AcpError {}

/// Maximum number of bytes of an error's data in the message.
const SHOWN_DATA: usize = 1000;

fn cut(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_DATA).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}
