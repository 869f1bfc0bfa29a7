//! The limits of this server, each as a named constant.

use std::time::Duration;

use ab_core::process::TerminalSize;

/// Maximum bytes of text in one result, unless the caller asked for more. Clients drop larger
/// results.
pub const DEFAULT_MAX_RESULT_BYTES: usize = 100 * 1024;
/// Maximum bytes of text in a result whose number of lines the caller chose.
pub const MAX_RESULT_BYTES_ON_REQUEST: usize = 1024 * 1024;
/// Number of lines of a file that are shown by default.
pub const DEFAULT_MAX_READ_LINES: u64 = 2000;
/// Maximum bytes of a line that are shown.
pub(crate) const MAX_SHOWN_LINE_BYTES: usize = 20_000;
/// A smaller file is read whole, so that its lines can be counted.
pub(crate) const COUNTED_BYTES: u64 = 1024 * 1024;
/// The largest file whose last lines are shown with their numbers: all lines before have to be
/// counted.
pub(crate) const NUMBERED_TAIL_BYTES: u64 = 16 * 1024 * 1024;
/// The largest file that is sent in base64.
pub(crate) const MEDIA_BYTES: u64 = 48 * 1024 * 1024;
/// Maximum number of paths in one `read_multiple_files`.
pub(crate) const FILES_AT_ONCE: usize = 100;
/// Maximum number of edits in one `edit_file`.
pub(crate) const EDITS_AT_ONCE: usize = 1000;
/// Entries of a directory, or names found, in one result: default and maximum.
pub(crate) const DEFAULT_ENTRIES: usize = 1000;
pub(crate) const MAX_ENTRIES: usize = 10_000;
/// Maximum number of entries in one tree.
pub(crate) const TREE_ENTRIES: usize = 20_000;
/// Matching lines, files or counts in one result: default and maximum.
pub(crate) const DEFAULT_MATCHES: usize = 200;
pub(crate) const MAX_MATCHES: usize = 10_000;
/// Maximum number of context lines before and after a match.
pub(crate) const MAX_CONTEXT: usize = 100;
/// Maximum number of exclude patterns in one call.
pub(crate) const MAX_PATTERNS: usize = 100;

/// Default time limit of a command. Many clients give up after 60 seconds, so the answer about the
/// timeout has to come earlier.
pub(crate) const DEFAULT_EXEC_TIMEOUT: Duration = Duration::from_secs(50);
/// The longest time limit that a caller may set for a command that it waits for.
pub(crate) const MAX_EXEC_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// The longest time limit that a caller may set for a background process.
pub(crate) const MAX_STAY: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The longest time that a call may wait for output.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);
/// If no more output arrives for this time, the output so far is returned.
pub(crate) const QUIET: Duration = Duration::from_millis(30);
/// How long to wait for the end of a process after a signal, so that the answer can report it.
pub(crate) const KILL_WAIT: Duration = Duration::from_secs(2);
/// The time between two progress notifications.
pub(crate) const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// The default size of a terminal.
pub(crate) const DEFAULT_TERMINAL: TerminalSize = TerminalSize { columns: 80, rows: 24 };
/// Maximum number of characters of a command in a list of processes.
pub(crate) const COMMAND_CHARS: usize = 200;

/// Maximum size of one message.
pub(crate) const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;
/// Maximum number of calls without an answer. Reading continues when one is answered.
pub(crate) const MAX_UNANSWERED_CALLS: usize = 1024;
/// Maximum number of calls that run at the same time.
pub(crate) const MAX_CONCURRENT_CALLS: usize = 64;
/// How long calls may continue after the client closed its end.
pub(crate) const LAST_CALLS: Duration = Duration::from_secs(2);

/// Maximum bytes of large answers that their clients have not received yet, for all clients
/// together. Further large answers wait for room.
pub(crate) const MAX_QUEUED_ANSWER_BYTES: usize = 512 * 1024 * 1024;
/// A smaller answer needs no room, and is encoded on the task that made it.
pub(crate) const LARGE_ANSWER: usize = 256 * 1024;
/// Maximum number of large answers and requests that are encoded or decoded at the same time.
pub(crate) const HANDS: usize = 4;

/// Default maximum size of an HTTP body.
pub(crate) const DEFAULT_MAX_BODY_BYTES: usize = 64 * 1024 * 1024;
/// Number of bodies of the maximum size that may be held at the same time. Further ones wait for
/// room.
pub(crate) const BODIES_AT_ONCE: usize = 4;
/// A smaller body is read without waiting for room.
pub(crate) const SMALL_BODY: usize = 256 * 1024;
/// Timeout for the next piece of a body.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a large body, or a large answer, may wait for room.
pub(crate) const ROOM_TIMEOUT: Duration = Duration::from_secs(30);
/// The minimum rate of a body, in bytes per second. A slower one is refused.
pub(crate) const SLOWEST_BODY: u64 = 16 * 1024;
/// In a message that cannot be parsed, the id is searched within this many bytes.
pub(crate) const ID_WITHIN: usize = 16 * 1024;
/// Maximum number of messages in one batch.
pub(crate) const BATCH_MESSAGES: usize = 1000;
/// Once the answers of a batch have this many bytes, its remaining messages are refused.
pub(crate) const BATCH_BYTES: usize = 16 * 1024 * 1024;
/// How long a session may be idle. Waiting for a call counts as idle.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(65 * 60);
/// How long a client may take to return to a call in its session after its connection closed.
pub(crate) const RETURN_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of sessions.
pub(crate) const MAX_SESSIONS: usize = 1024;

/// Time limit of the search for paths similar to a missing one.
pub(crate) const NEAREST_TIME: Duration = Duration::from_millis(200);
/// Maximum number of names in a directory that are compared with a missing name.
pub(crate) const NEAREST_NAMES: usize = 2000;
/// Maximum number of paths that an error suggests for a missing one.
pub(crate) const NEAREST_SHOWN: usize = 3;
