//! Errors of the gateway.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::envelope::RpcId;

/// Why a request failed.
#[derive(Clone, Debug)]
pub enum AgentGatewayError {
    /// The id of the server is empty or too long.
    InvalidServerId {
        longest: usize,
    },
    /// The body is not one JSON-RPC message.
    InvalidMessage {
        why: String,
    },
    /// There is no server with this id, and the request does not name an agent to start.
    MissingAgent,
    UnknownAgent {
        agent: String,
    },
    NotInstalled {
        agent: String,
        why: String,
    },
    /// The agent could not be installed. No files are left from the failed installation.
    InstallFailed {
        agent: String,
        why: String,
        /// The output of npm, if it ran.
        said: Option<String>,
    },
    /// The server runs a different agent than the request names.
    AgentMismatch {
        bound: String,
        asked: String,
    },
    /// A request with this id is still pending.
    DuplicateRequestId {
        id: RpcId,
    },
    TooManyRequests {
        bound: usize,
    },
    TooManyServers {
        bound: usize,
    },
    UnknownServer,
    /// The agent's process could not be started.
    NotStarted {
        agent: String,
        why: String,
    },
    /// The agent's process does not accept input.
    WriteFailed {
        why: Arc<str>,
    },
    AgentExited(Arc<AgentExit>),
    /// The agent sent nothing for this time.
    Timeout {
        after: Duration,
    },
    /// The server was deleted, or the gateway is closing.
    Closed,
}

/// How the process of an agent server ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentExit {
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// The cause, if it is known, such as a line that was too long.
    pub reason: Option<String>,
    /// The last part of the agent's standard error.
    pub stderr: String,
}

impl AgentExit {
    pub fn is_success(&self) -> bool {
        self.exit_code == Some(0)
    }
}

impl fmt::Display for AgentExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.reason, self.exit_code, self.signal) {
            (Some(reason), ..) => f.write_str(reason),
            (None, Some(code), _) => write!(f, "the agent exited with code {code}"),
            (None, None, Some(signal)) => write!(f, "the agent was ended by signal {signal}"),
            (None, None, None) => f.write_str("the agent's process was lost"),
        }
    }
}

impl fmt::Display for AgentGatewayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AgentGatewayError::InvalidServerId { longest } => {
                write!(f, "invalid server_id: must have 1 to {longest} bytes")
            }
            AgentGatewayError::InvalidMessage { why } => {
                write!(f, "the body is not one JSON-RPC message: {why}")
            }
            AgentGatewayError::MissingAgent => f.write_str(
                "missing agent: the first POST to a server_id names the agent in the query, as in ?agent=mock",
            ),
            AgentGatewayError::UnknownAgent { agent } => {
                write!(f, "unknown agent {agent:?}: GET /v1/agents lists the agents")
            }
            AgentGatewayError::NotInstalled { agent, why } => {
                write!(f, "the agent {agent:?} is not installed: {why}")
            }
            AgentGatewayError::InstallFailed { agent, why, .. } => {
                write!(f, "cannot install the agent {agent:?}: {why}")
            }
            AgentGatewayError::AgentMismatch { bound, asked } => write!(
                f,
                "this server_id runs the agent {bound:?}, not {asked:?}: DELETE it first, or use another server_id"
            ),
            AgentGatewayError::DuplicateRequestId { id } => {
                write!(f, "a request with the id {id} waits for its response: use another id")
            }
            AgentGatewayError::TooManyRequests { bound } => {
                write!(f, "too many requests: {bound} requests of this server_id already wait for a response")
            }
            AgentGatewayError::TooManyServers { bound } => {
                write!(f, "too many agent servers: {bound} already exist; DELETE one first")
            }
            AgentGatewayError::UnknownServer => f.write_str("there is no such server_id"),
            AgentGatewayError::NotStarted { agent, why } => {
                write!(f, "cannot start the agent {agent:?}: {why}")
            }
            AgentGatewayError::WriteFailed { why } => write!(f, "cannot write to the agent: {why}"),
            AgentGatewayError::AgentExited(end) => {
                write!(f, "{end}; a POST with ?agent= starts it again")
            }
            AgentGatewayError::Timeout { after } => {
                write!(f, "the agent sent nothing for {} ms", after.as_millis())
            }
            AgentGatewayError::Closed => f.write_str("the agent server was closed"),
        }
    }
}

impl std::error::Error for AgentGatewayError {}
