//! The bounds of a connection to an agent.

use std::time::Duration;

/// The longest line that a peer may send. A longer line ends the connection: it may have been the
/// answer to a request, which would otherwise never come.
pub const MAX_MESSAGE_LINE_BYTES: usize = 8 * 1024 * 1024;

/// Messages that wait for their reader. A full queue stops the connection from reading, and the peer
/// blocks on its output.
pub const MAX_QUEUED_MESSAGES: usize = 256;

/// Bytes of messages that wait for their reader. One message of [`MAX_MESSAGE_LINE_BYTES`] always fits.
pub const MAX_QUEUED_BYTES: usize = MAX_MESSAGE_LINE_BYTES;

/// Lines that wait for a peer that does not read its input.
pub(crate) const OUTGOING_LINES: usize = 256;

/// Requests of the peer that may wait for an answer at one time. Further ones get an error.
pub const MAX_PENDING_INCOMING_REQUESTS: usize = 64;

/// Requests of ours that may wait for an answer at one time.
pub const MAX_PENDING_OUTGOING_REQUESTS: usize = 256;

/// Lines in a row that are no messages before the peer counts as a program that does not speak ACP.
pub const MAX_CONSECUTIVE_INVALID_LINES: usize = 1000;

/// How much of a line that is no message is reported.
pub const MAX_REPORTED_INVALID_LINE_BYTES: usize = 1024;

/// How long an agent may take to start and to answer `initialize`. Agents in JavaScript that are
/// started for the first time take many seconds.
pub const INITIALIZE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long an agent may take to answer any other request, except a prompt, which has no deadline.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// How long an agent may take to end a turn that was cancelled.
pub const CANCEL_TIMEOUT: Duration = Duration::from_secs(15);

/// Tool calls of a session that are remembered, so that updates can be merged into them.
pub const MAX_TRACKED_TOOL_CALLS: usize = 1000;

/// Terminal output of one tool call that is kept. An event shows less of it.
pub const MAX_TERMINAL_OUTPUT_BYTES: usize = 64 * 1024;
