//! Limits and timeouts of a connection to an agent.

use std::time::Duration;

/// Maximum length in bytes of a line from an agent. A longer line ends the connection, because the
/// line may have been the response to a pending request. This is also the maximum number of bytes
/// in the queue for the reader.
pub(crate) const MAX_MESSAGE_LINE_BYTES: usize = 8 * 1024 * 1024;

/// Maximum length in bytes of a line that the scripted agent reads. It equals the longest message
/// that the gateway forwards.
pub(crate) const MAX_SCRIPTED_AGENT_LINE_BYTES: usize = 32 * 1024 * 1024;

/// Maximum number of messages in the queue for the reader. When the queue is full, the connection
/// stops reading and the peer blocks on its output.
pub const MAX_QUEUED_MESSAGES: usize = 256;

/// Maximum number of queued lines for a peer that does not read its input.
pub(crate) const OUTGOING_LINES: usize = 256;

/// Maximum number of requests from the peer that have no response yet. Further requests are
/// answered with an error.
pub const MAX_PENDING_INCOMING_REQUESTS: usize = 64;

/// Maximum number of our own requests that have no response yet.
pub(crate) const MAX_PENDING_OUTGOING_REQUESTS: usize = 256;

/// After this many consecutive lines that are not messages, the peer is treated as a program that
/// does not speak ACP.
pub const MAX_CONSECUTIVE_INVALID_LINES: usize = 1000;

/// Maximum number of bytes of an invalid line that are reported.
pub(crate) const MAX_REPORTED_INVALID_LINE_BYTES: usize = 1024;

/// How long an agent may take to start and to answer `initialize`. The first start of an agent
/// written in JavaScript takes many seconds.
pub(crate) const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long an agent may take to answer any other request, except a prompt, which has no deadline.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// How long an agent may take to end a turn that was cancelled.
pub(crate) const CANCEL_TIMEOUT: Duration = Duration::from_secs(15);

/// Maximum number of tool calls of a session that are remembered, so that updates can be merged
/// into them.
pub const MAX_TRACKED_TOOL_CALLS: usize = 1000;

/// Maximum number of bytes of terminal output that the client keeps for one tool call. An event
/// contains fewer bytes.
pub const MAX_TERMINAL_OUTPUT_BYTES: usize = 64 * 1024;
