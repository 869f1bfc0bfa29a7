//! How much is how much: the bounds of this server, each by name.

use std::time::Duration;

use ab_core::process::TerminalSize;

/// Bytes of text in one result, unless the caller said how much it wants. More than that and
/// callers drop the whole result.
pub const DEFAULT_MAX_RESULT_BYTES: usize = 100 * 1024;
/// Bytes of text in a result whose number of lines the caller chose.
pub const MAX_REQUESTED_RESULT_BYTES: usize = 1024 * 1024;
/// Lines of a file that are shown unless the caller says how many.
pub const DEFAULT_READ_LINES: u64 = 2000;
/// Bytes of a line that are shown.
pub const MAX_SHOWN_LINE_BYTES: usize = 20_000;
/// A file up to this size is read whole, so that its lines can be counted.
pub(crate) const COUNTED_BYTES: u64 = 1024 * 1024;
/// The largest file whose last lines are shown with their numbers: all that come before have to be counted.
pub(crate) const NUMBERED_TAIL_BYTES: u64 = 16 * 1024 * 1024;
/// The largest file that is sent in base64.
pub(crate) const MEDIA_BYTES: u64 = 48 * 1024 * 1024;
/// Paths in one `read_multiple_files`.
pub(crate) const FILES_AT_ONCE: usize = 100;
/// Edits in one `edit_file`.
pub(crate) const EDITS_AT_ONCE: usize = 1000;
/// Entries of a directory, or names found, in one result.
pub(crate) const DEFAULT_ENTRIES: usize = 1000;
pub(crate) const MAX_ENTRIES: usize = 10_000;
/// Entries in one tree.
pub(crate) const TREE_ENTRIES: usize = 20_000;
/// Matching lines, files or counts in one result.
pub(crate) const DEFAULT_MATCHES: usize = 200;
pub(crate) const MAX_MATCHES: usize = 10_000;
/// Lines around a match.
pub(crate) const MAX_CONTEXT: usize = 100;
/// Patterns to leave out in one call.
pub(crate) const MAX_PATTERNS: usize = 100;

/// How long a command may take unless the caller says. Many clients give up after 60 seconds; the answer
/// that the time was up has to come before.
pub const DEFAULT_EXEC_TIMEOUT: Duration = Duration::from_secs(50);
/// The longest time that a caller may give a command it waits for.
pub const MAX_EXEC_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// The longest time that a caller may give a command that stays.
pub(crate) const MAX_STAY: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// The longest time that a caller may wait for output.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);
/// When nothing more came for this long, what came is shown.
pub(crate) const QUIET: Duration = Duration::from_millis(30);
/// How long an ended process is waited for, so that its end can be told.
pub(crate) const KILL_WAIT: Duration = Duration::from_secs(2);
/// Between two notes of progress.
pub(crate) const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// The size of a terminal, unless the caller says.
pub(crate) const DEFAULT_TERMINAL: TerminalSize = TerminalSize { columns: 80, rows: 24 };
/// Characters of a command in a list of processes.
pub(crate) const COMMAND_CHARS: usize = 200;

/// Bytes of one message.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;
/// Calls that were read and not yet answered; reading goes on when one is.
pub const MAX_UNANSWERED_CALLS: usize = 1024;
/// Calls that are worked on at a time.
pub const MAX_CONCURRENT_CALLS: usize = 64;
/// How long calls may go on after the caller closed its end.
pub(crate) const LAST_CALLS: Duration = Duration::from_secs(2);

/// Bytes of large answers that wait to be taken by their callers, of all of them together; more wait
/// for room.
pub const MAX_QUEUED_ANSWER_BYTES: usize = 512 * 1024 * 1024;
/// An answer up to this size waits for no room, and is written where it was made.
pub(crate) const LARGE_ANSWER: usize = 256 * 1024;
/// Large answers that are written, and large requests that are read, at a time.
pub(crate) const HANDS: usize = 4;

/// Bytes of one HTTP body, unless told.
pub const DEFAULT_MAX_BODY_BYTES: usize = 64 * 1024 * 1024;
/// Bodies of the largest size that are held at a time; more wait for room.
pub(crate) const BODIES_AT_ONCE: usize = 4;
/// A body up to this size is read without waiting for room.
pub(crate) const SMALL_BODY: usize = 256 * 1024;
/// How long the next piece of a body may take.
pub(crate) const BODY_PATIENCE: Duration = Duration::from_secs(30);
/// How long a large body, or a large answer, may wait for room.
pub(crate) const ROOM_PATIENCE: Duration = Duration::from_secs(30);
/// Bytes a second below which a body is too slow to wait for.
pub(crate) const SLOWEST_BODY: u64 = 16 * 1024;
/// Bytes at the start of what cannot be read in which its id is looked for.
pub(crate) const ID_WITHIN: usize = 16 * 1024;
/// Messages in one batch.
pub(crate) const BATCH_MESSAGES: usize = 1000;
/// Bytes of answers after which the rest of a batch is refused.
pub(crate) const BATCH_BYTES: usize = 16 * 1024 * 1024;
/// How long a session may be silent; a call that is waited for is silence too.
pub(crate) const SESSION_PATIENCE: Duration = Duration::from_secs(65 * 60);
/// How long a client whose connection closed may take to come back to a call in its session.
pub(crate) const RETURN_PATIENCE: Duration = Duration::from_secs(10);
/// Sessions at a time.
pub(crate) const MAX_SESSIONS: usize = 1024;

/// How long the search for paths like a missing one may take.
pub(crate) const NEAREST_TIME: Duration = Duration::from_millis(200);
/// Names of one directory that are compared with a missing one.
pub(crate) const NEAREST_NAMES: usize = 2000;
/// Paths that an error offers instead of a missing one.
pub(crate) const NEAREST_SHOWN: usize = 3;
