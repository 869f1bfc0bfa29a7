//! The limits of this server, each as a named constant.

use std::time::Duration;

use ab_core::process::TerminalSize;

/// Maximum number of bytes of text in one result, unless the caller requested more. Clients drop
/// larger results.
pub const DEFAULT_MAX_RESULT_BYTES: usize = 100 * 1024;
/// Maximum number of bytes of text in a result, if the caller requested a number of lines.
pub const MAX_RESULT_BYTES_ON_REQUEST: usize = 1024 * 1024;
/// Number of lines of a file that are shown by default.
pub const DEFAULT_MAX_READ_LINES: u64 = 2000;
/// Maximum number of bytes that are shown of one line.
pub(crate) const MAX_SHOWN_LINE_BYTES: usize = 20_000;
/// Files smaller than this are read completely, so that their lines can be counted.
pub(crate) const COUNTED_BYTES: u64 = 1024 * 1024;
/// Maximum size of a file whose last lines are shown with line numbers. To number these lines, all
/// lines before them must be counted.
pub(crate) const NUMBERED_TAIL_BYTES: u64 = 16 * 1024 * 1024;
/// Maximum size of a file that is sent in base64, in bytes.
pub(crate) const MEDIA_BYTES: u64 = 48 * 1024 * 1024;
/// Maximum number of paths in one `read_multiple_files`.
pub(crate) const FILES_AT_ONCE: usize = 100;
/// Maximum number of edits in one `edit_file`.
pub(crate) const EDITS_AT_ONCE: usize = 1000;
/// Default and maximum number of directory entries or found names in one result.
pub(crate) const DEFAULT_ENTRIES: usize = 1000;
pub(crate) const MAX_ENTRIES: usize = 10_000;
/// Maximum number of entries in one tree.
pub(crate) const TREE_ENTRIES: usize = 20_000;
/// Default and maximum number of matching lines, files or counts in one result.
pub(crate) const DEFAULT_MATCHES: usize = 200;
pub(crate) const MAX_MATCHES: usize = 10_000;
/// Maximum number of context lines before and after a match.
pub(crate) const MAX_CONTEXT: usize = 100;
/// Maximum number of exclude patterns in one call.
pub(crate) const MAX_PATTERNS: usize = 100;

/// Default time limit of a command. The answer that reports the timeout must come before many
/// clients give up, which is after 60 seconds.
pub(crate) const DEFAULT_EXEC_TIMEOUT: Duration = Duration::from_secs(50);
/// Maximum time limit that a caller can set for a command that it waits for.
pub(crate) const MAX_EXEC_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// Maximum time limit that a caller can set for a background process.
pub(crate) const MAX_STAY: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Maximum time that a call can wait for output.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);
/// If a process prints nothing for this time, a call that waits for its output returns.
pub(crate) const QUIET: Duration = Duration::from_millis(30);
/// How long to wait for the end of a process after a signal, so that the answer can report the end.
pub(crate) const KILL_WAIT: Duration = Duration::from_secs(2);
/// The time between two progress notifications.
pub(crate) const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// The default size of a terminal.
pub(crate) const DEFAULT_TERMINAL: TerminalSize = TerminalSize { columns: 80, rows: 24 };
/// Maximum number of characters of a command in a list of processes.
pub(crate) const COMMAND_CHARS: usize = 200;

/// Maximum size of one message in bytes.
pub(crate) const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;
/// Maximum number of calls that have no answer yet. When this number is reached, no more messages
/// are read until a call is answered.
pub(crate) const MAX_UNANSWERED_CALLS: usize = 1024;
/// Maximum number of calls that run at the same time.
pub(crate) const MAX_CONCURRENT_CALLS: usize = 64;
/// Default of the time that calls may continue after the client has closed its side.
pub(crate) const LAST_CALLS: Duration = Duration::from_secs(2);
/// Time after which every call has ended by its own limits.
pub const MAX_CALL_TIME: Duration = MAX_EXEC_TIMEOUT.saturating_add(LAST_CALLS);

/// Maximum number of bytes of all large answers that clients have not received yet. It applies to
/// all clients together. When it is reached, further large answers wait.
pub(crate) const MAX_QUEUED_ANSWER_BYTES: usize = 512 * 1024 * 1024;
/// Answers up to this size need no memory reservation and are encoded by the task that made them.
pub(crate) const LARGE_ANSWER: usize = 256 * 1024;
/// Maximum number of threads that encode large answers or decode large requests. Calls run on other
/// threads.
pub(crate) const HANDS: usize = 4;

/// Default of the maximum size of an HTTP body in bytes.
pub(crate) const DEFAULT_MAX_BODY_BYTES: usize = 64 * 1024 * 1024;
/// How many bodies of the maximum size may be in memory at the same time. Further bodies wait.
pub(crate) const BODIES_AT_ONCE: usize = 4;
/// Bodies up to this size are read without a memory reservation.
pub(crate) const SMALL_BODY: usize = 256 * 1024;
/// Timeout for the next piece of a body.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a large body or a large answer may wait for free memory.
pub(crate) const ROOM_TIMEOUT: Duration = Duration::from_secs(30);
/// The minimum rate of a body in bytes per second. Slower bodies are refused.
pub(crate) const SLOWEST_BODY: u64 = 16 * 1024;
/// If a message cannot be parsed, its id is searched in this many bytes at its start.
pub(crate) const ID_WITHIN: usize = 16 * 1024;
/// Maximum number of messages in one batch.
pub(crate) const BATCH_MESSAGES: usize = 1000;
/// When the answers of a batch have reached this many bytes, its remaining messages are refused.
pub(crate) const BATCH_BYTES: usize = 16 * 1024 * 1024;
/// How long a session may be idle. The time during which a call runs counts as idle.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(65 * 60);
/// How long a client that has lost its connection may take to reconnect to its session before its
/// running call is cancelled.
pub(crate) const RETURN_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of sessions.
pub(crate) const MAX_SESSIONS: usize = 1024;

/// Time limit for finding paths that are similar to a missing path.
pub(crate) const NEAREST_TIME: Duration = Duration::from_millis(200);
/// Maximum number of names in a directory that are compared with a missing name.
pub(crate) const NEAREST_NAMES: usize = 2000;
/// Maximum number of paths that an error suggests for a missing path.
pub(crate) const NEAREST_SHOWN: usize = 3;
