//! The contract of drivers: [`Driver`], and the [`File`] that a driver opens.
//!
//! No method has a default body. With a default body, a wrapper that forgets a method would
//! silently lose the behaviour of the driver that it wraps. Each line under a *Behaviour* heading
//! names the test case in `ab-testkit` that checks this line on every driver and view. A driver
//! that lacks a capability fails with `ErrorKind::Unsupported`. The same test cases check this.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;

use crate::effective_policy::EffectivePolicy;
use crate::error::Result;
use crate::lost_call::{LostCallEffect, LostCallId};
use crate::metadata::{DiskSpace, FileContent, Listing, RemoveOutcome, RenameOutcome, Stat};
use crate::options::{
    AttributeChanges, ListOptions, OpenOptions, ReadOptions, RemoveOptions, RenameOptions,
    StatOptions, WriteOptions,
};
use crate::path::WsPath;
use crate::process::{ExecRequest, Process, ProcessId, ProcessInfo};
use crate::search::{SearchQuery, SearchResults};
use crate::status::StatusPublisher;

/// Provides access to a workspace. Drivers implement this trait, and callers use a
/// [`Backend`](crate::Backend).
///
/// A path can have a [scope root](WsPath::innermost_scope_root). This is a directory that links
/// must not lead out of, and the driver enforces this. A path can also have
/// [access rules](WsPath::has_access_rules), which hide files or make them read-only. The driver
/// enforces them. It applies them to the file to which links lead, not to the name of a link.
#[async_trait]
pub trait Driver: fmt::Debug + Send + Sync + 'static {
    /// Describes the file or directory at `path`.
    ///
    /// # Behaviour
    /// - `stat::file`: a file has its kind, its size and a modification time
    /// - `stat::directory`: directories and files are distinguished
    /// - `stat::root`: the root always exists and is a directory
    /// - `stat::missing_is_not_found`: a missing path is `NotFound`
    /// - `stat::below_a_file_is_not_a_directory`: a path through a file is `NotADirectory`
    /// - `stat::version_changes_with_each_write`: every write creates a new version
    /// - `links::stat_follows_or_keeps`: a link is followed unless the caller asks for the link
    ///   itself
    /// - `restricted::hidden_files_are_not_there`: a path that the rules hide is `NotFound`, also
    ///   through links
    async fn stat(&self, path: &WsPath, options: StatOptions) -> Result<Stat>;

    /// Lists a directory up to a depth, in path order.
    ///
    /// # Behaviour
    /// - `list::children_in_order`: the direct children, sorted, each once
    /// - `list::fresh_workspace_is_empty`: a new workspace has no entries
    /// - `list::missing_is_not_found`: a missing directory is `NotFound`
    /// - `list::a_file_is_not_a_directory`: listing a file is `NotADirectory`
    /// - `list::depth_bounds_the_walk`: no entry is deeper than requested
    /// - `list::whole_tree_in_path_order`: a directory comes before its entries
    /// - `list::limit_cuts_and_says_so`: a truncated listing has the first entries and says that it
    ///   is truncated
    /// - `list::details_match_stat`: details equal those of `stat`
    /// - `links::list_does_not_follow`: links are listed, not entered
    /// - `restricted::listings_leave_hidden_files_out`: paths that the rules hide are not listed
    async fn list(&self, path: &WsPath, options: ListOptions) -> Result<Listing>;

    /// Finds names or text.
    ///
    /// # Behaviour
    /// - `search::needs_the_capability`: a driver that cannot search fails with `Unsupported`
    /// - `search::globs_match_as_said`: patterns match names at any depth, or from the root
    /// - `search::names_come_in_path_order`: a directory comes before its entries
    /// - `search::kinds_are_chosen`: directories are found only if requested
    /// - `search::excluded_directories_are_left_whole`: excluded directories are skipped with their
    ///   contents
    /// - `search::text_is_literal_unless_asked`: the query chooses case sensitivity and syntax
    /// - `search::lines_have_numbers_and_context`: lines count from 1; context differs from matches
    /// - `search::files_and_counts`: the same search can return only files, or counts
    /// - `search::lines_are_selected_as_asked`: the query can select the lines without a match, the
    ///   matched parts of lines, the files without a match, and a number of lines of each file
    /// - `search::files_are_chosen_by_globs`: include and exclude select the files of a text search
    /// - `search::binary_files_are_counted`: binary files are not searched, but counted
    /// - `search::ignore_files_are_honoured_when_asked`: ignore files apply from the root of the
    ///   workspace down
    /// - `search::what_is_ignored_is_counted`: an ignored directory counts once, with its contents
    /// - `search::limits_cut_and_say_so`: the result has the first matches and names the limit
    /// - `search::a_file_may_be_the_root_of_a_text_search`: a file can be searched, also if
    ///   it is hidden
    /// - `search::missing_root_is_not_found`: a missing root is `NotFound`; a file searched for
    ///   names is `NotADirectory`
    /// - `search::senseless_patterns_are_refused`: an invalid pattern is `Invalid`, and the error
    ///   names it
    /// - `restricted::listings_leave_hidden_files_out`: hidden files are neither searched nor
    ///   counted
    async fn search(&self, query: &SearchQuery) -> Result<SearchResults>;

    /// Reads a file, or a range of it.
    ///
    /// # Behaviour
    /// - `read::returns_what_was_written`: any bytes come back unchanged
    /// - `read::empty_file`: an empty file has no bytes and is not missing
    /// - `read::range`: a range returns exactly its bytes
    /// - `read::range_past_the_end_is_cut`: a range is cut at the end of the file, without an error
    /// - `read::missing_is_not_found`: a missing file is `NotFound`
    /// - `read::a_directory_is_refused`: a directory is `IsADirectory`
    /// - `read::over_the_limit_is_refused`: more than the limit is `TooLarge`, never silently cut
    /// - `read::carries_the_version`: the returned stat belongs to the bytes
    /// - `restricted::hidden_files_are_not_there`: hidden files are `NotFound`
    async fn read(&self, path: &WsPath, options: ReadOptions) -> Result<FileContent>;

    /// Writes a whole file. Readers see either the old bytes or the new ones, never a mixture.
    ///
    /// # Behaviour
    /// - `write::creates_parents`: missing directories are created
    /// - `write::replaces_content`: the old content is gone
    /// - `write::create_new_refuses_existing`: `CreateNew` on an existing path is `AlreadyExists`
    /// - `write::replace_needs_existing`: `Replace` on a missing path is `NotFound`
    /// - `write::create_if_missing_keeps_existing`: `CreateIfMissing` leaves an existing file
    ///   unchanged
    /// - `write::expected_version_is_checked`: another version, or a missing file, is `Conflict`
    /// - `write::onto_a_directory_is_refused`: a directory is `IsADirectory`
    /// - `write::through_a_file_is_refused`: a parent that is a file is `NotADirectory`
    /// - `write::the_root_is_refused`: the root is `IsADirectory`
    /// - `write::odd_names_are_only_names`: quotes, spaces, `$(…)` and newlines have no special
    ///   meaning
    /// - `write::concurrent_writers_leave_one_whole_content`: the last writer wins, with its whole
    ///   content
    /// - `write::concurrent_conditional_writers_lose_nothing`: one writer per version succeeds
    /// - `links::write_goes_to_the_target`: a link inside the workspace stays a link
    /// - `restricted::kept_files_do_not_change`: a path that the rules protect does not change,
    ///   also through links
    async fn write(&self, path: &WsPath, content: Bytes, options: WriteOptions) -> Result<Stat>;

    /// Opens a file for access at offsets.
    ///
    /// # Behaviour
    /// - `open::missing_is_not_found`: without creation, a missing file is `NotFound`
    /// - `open::creates_with_parents`: with creation, the file and its directories are created
    /// - `open::create_always_refuses_existing`: `FileCreationMode::MustBeNew` on an existing path
    ///   is `AlreadyExists`
    /// - `open::truncates_when_asked`: `ExistingContentHandling::Truncate` starts empty
    /// - `open::a_directory_is_refused`: a directory is `IsADirectory`
    /// - `restricted::kept_files_do_not_change`: opening a protected file for writing is refused
    async fn open(&self, path: &WsPath, options: OpenOptions) -> Result<Box<dyn File>>;

    /// Changes permission bits and times.
    ///
    /// # Behaviour
    /// - `attributes::mode_and_times_are_kept`: `stat` reports what was set
    /// - `attributes::missing_is_not_found`: a missing path is `NotFound`
    /// - `attributes::bits_beyond_permissions_are_refused`: set-uid, set-gid and sticky bits are
    ///   refused
    /// - `restricted::kept_files_do_not_change`: attributes of protected files do not change
    async fn set_attributes(&self, path: &WsPath, attributes: AttributeChanges) -> Result<Stat>;

    /// Returns the target of a symbolic link, unchanged.
    ///
    /// # Behaviour
    /// - `links::text_is_kept`: the target is returned unchanged
    /// - `links::reading_a_file_as_a_link_is_invalid`: anything but a link is `Invalid`
    async fn read_link(&self, path: &WsPath) -> Result<String>;

    /// Creates a symbolic link to `target`, which is relative to the link's directory or absolute.
    ///
    /// # Behaviour
    /// - `links::text_is_kept`: the link exists and leads to its target
    /// - `links::leaving_the_workspace_is_refused`: a target outside is `PathEscape`
    /// - `links::existing_name_is_refused`: an existing `path` is `AlreadyExists`
    /// - `restricted::kept_files_do_not_change`: a link at or below a protected path is refused
    async fn symlink(&self, path: &WsPath, target: &str) -> Result<()>;

    /// Creates a directory and its parents.
    ///
    /// # Behaviour
    /// - `mkdir::makes_intermediates`: every missing parent is created
    /// - `mkdir::existing_is_fine`: an existing directory is not an error
    /// - `mkdir::onto_a_file_is_refused`: an existing file is `AlreadyExists`
    /// - `mkdir::through_a_file_is_refused`: a parent that is a file is `NotADirectory`
    /// - `restricted::kept_files_do_not_change`: a directory at or below a protected path is
    ///   refused
    async fn create_dir(&self, path: &WsPath) -> Result<()>;

    /// Removes a file, a link or a directory.
    ///
    /// # Behaviour
    /// - `remove::a_file`: a file is removed and counted
    /// - `remove::missing_is_not_found`: a missing path is `NotFound`
    /// - `remove::missing_can_be_ignored`: with `OnMissingTarget::Ignore` a missing path is not an
    ///   error
    /// - `remove::full_directory_needs_recursion`: without recursion a non-empty directory is
    ///   `NotEmpty`
    /// - `remove::recursion_takes_everything`: recursion removes the directory and everything below
    ///   it
    /// - `remove::names_with_the_same_beginning_stay`: removing `a` does not remove `ab`
    /// - `remove::the_root_is_refused`: the root cannot be removed
    /// - `links::removal_takes_the_link_only`: a link's target stays, also with recursion
    /// - `restricted::kept_files_do_not_change`: protected files, and directories that contain
    ///   them, are not removed
    async fn remove(&self, path: &WsPath, options: RemoveOptions) -> Result<RemoveOutcome>;

    /// Renames a file or a directory, and creates the parents of the target.
    ///
    /// # Behaviour
    /// - `rename::a_file`: the bytes are at the new path and not at the old one
    /// - `rename::a_directory_with_its_content`: a directory moves with everything below it
    /// - `rename::makes_parents`: missing parents of the target are created
    /// - `rename::missing_is_not_found`: a missing source is `NotFound`
    /// - `rename::existing_target_is_refused`: an existing target is `AlreadyExists` unless it is
    ///   overwritten
    /// - `rename::overwrite_replaces_a_file`: with `Replace` the target has the bytes of the source
    /// - `rename::file_onto_directory_is_refused`: a file onto a directory is `IsADirectory`, also
    ///   when overwriting
    /// - `rename::directory_onto_file_is_refused`: a directory onto a file is `NotADirectory`, also
    ///   when overwriting
    /// - `rename::into_itself_is_refused`: a directory cannot move below itself
    /// - `rename::onto_itself_changes_nothing`: the same path twice is not an error
    /// - `rename::the_root_is_refused`: the root cannot be renamed
    /// - `restricted::kept_files_do_not_change`: protected files, and directories that contain
    ///   them, are not moved
    async fn rename(
        &self,
        from: &WsPath,
        to: &WsPath,
        options: RenameOptions,
    ) -> Result<RenameOutcome>;

    /// Returns the total and the available disk space of the workspace.
    ///
    /// # Behaviour
    /// - `stat::space_adds_up`: the available space is at most the total
    async fn disk_space(&self) -> Result<DiskSpace>;

    /// Starts a command.
    ///
    /// # Behaviour
    /// - `exec::needs_the_capability`: a driver that cannot run commands names itself and the verb
    /// - `exec::empty_is_refused`: an empty command is refused before the capability is checked
    /// - `exec::runs_in_a_shell`: loops, pipes and variables work as in a shell
    /// - `exec::starts_at_the_root`: commands see written files, and files that they write can be
    ///   read
    /// - `exec::home_is_the_directory`: `HOME`, `PWD` and the working directory are the same
    /// - `exec::directory_can_be_chosen`: a command can start in any directory of the workspace
    /// - `exec::directory_must_be_inside`: a directory outside is `PathEscape`, a file is
    ///   `NotADirectory`, a missing path is `NotFound`
    /// - `exec::directory_may_be_a_link`: a link to a directory inside works; one that leads
    ///   outside, or is dangling, does not
    /// - `exec::output_is_exact`: every byte arrives, in pieces of any size
    /// - `exec::channels_are_told_apart`: standard error is separate from standard output
    /// - `exec::merged_output_keeps_its_order`: with merged output, standard error also arrives on
    ///   standard output, in the order in which both were written
    /// - `exec::failure_has_code_and_words`: a non-zero exit status is `EXEC_FAILED`, with the code
    ///   and the output
    /// - `exec::codes_are_passed_on`: `exec_allowing_failure` returns every exit status as a value
    /// - `exec::input_is_empty_or_as_given`: standard input is empty unless input was given
    /// - `exec::output_is_cut_with_a_note`: output beyond the limit is cut, and a note says how
    ///   much there was
    /// - `exec::timeout_keeps_what_was_said`: a command is killed at its timeout, and its output
    ///   until then is kept
    /// - `exec::words_are_passed_as_they_are`: the arguments of a command without a shell are
    ///   passed unchanged
    /// - `exec::lines_may_be_long`: a very long line runs; one with a NUL is refused
    /// - `exec::many_at_once`: concurrent commands do not disturb each other
    /// - `exec::directory_may_go_away`: the directory may be removed while its command runs; the
    ///   next command there is `NotFound`
    /// - `environment::starts_small`: commands inherit no variables of this process
    /// - `environment::given_ones_are_there`: variables of the caller are set, with any value
    /// - `environment::scopes_add_theirs`: a scope's variables apply to all its commands; inner
    ///   scopes override outer ones, and the call overrides all
    /// - `environment::loaders_are_refused`: without isolation, variables that make programs load
    ///   or run code are refused; the error has their name, not their value
    /// - `environment::senseless_ones_are_refused`: an invalid name, or a value that the kernel
    ///   cannot pass, is `Invalid`
    /// - `held::exit_is_a_value`: a non-zero exit status is a value
    /// - `held::pieces_are_numbered`: sequence numbers count the bytes of both channels, without
    ///   gaps
    /// - `held::readers_may_be_slow_or_gone`: a slow reader loses nothing, and a process without a
    ///   reader continues
    /// - `held::input_is_fed`: standard input takes pieces, and ends when its sender is dropped or
    ///   it is closed
    /// - `held::signals_arrive`: signals reach the command, which may handle them
    /// - `held::drop_ends_everything`: dropping a process ends it and everything that it started
    /// - `held::the_end_takes_everything_along`: processes that a command leaves behind end with it
    /// - `held::cancelling_ends_everything`: dropping the future ends its command
    /// - `held::terminals_have_a_size`: a command on a terminal sees the terminal and its size
    /// - `held::terminals_know_keys`: control keys send signals or end the input
    /// - `held::terminals_pass_signals_on`: signals reach a command on a terminal like any other
    async fn exec(&self, request: ExecRequest) -> Result<Process>;

    /// Lists the detached processes: those that continue after their caller has dropped them.
    ///
    /// # Behaviour
    /// - `exec::needs_the_capability`: a driver that cannot run commands is `Unsupported`
    /// - `detached::are_listed`: running and ended processes are in the table
    /// - `detached::scopes_see_their_own`: a scope lists only the processes that were started in
    ///   it; a handle on a parent directory lists these too
    /// - `detached::destroy_ends_them`: destroying a backend ends its processes; destroying a scope
    ///   does not
    /// - `detached::they_stay_until_ended`: a process continues after its caller has dropped it,
    ///   and every caller that attaches to it can end it
    /// - `detached::nobody_has_to_read`: a detached process does not wait for a reader
    async fn processes(&self) -> Result<Vec<ProcessInfo>>;

    /// Attaches to a detached process and reads its output from a sequence number on.
    ///
    /// # Behaviour
    /// - `exec::needs_the_capability`: a driver that cannot run commands is `Unsupported`
    /// - `detached::unknown_is_not_found`: an unknown id is `NotFound`
    /// - `detached::output_is_kept`: the output is available after the end, from any byte on
    /// - `detached::leaving_loses_nothing`: a reader that leaves and returns gets everything, and
    ///   so does a second reader
    /// - `detached::loss_is_told`: bytes beyond the limit are dropped and counted
    /// - `detached::input_is_shared`: input from several attached callers arrives; only
    ///   `CloseStdin` closes standard input
    async fn attach(&self, id: &ProcessId, from: u64) -> Result<Process>;

    /// Returns the kind, the root and the capabilities of this driver.
    ///
    /// # Behaviour
    /// - `status::info_is_honest`: kind and capabilities agree with the results of calls
    fn info(&self) -> BackendInfo;

    /// Returns the policy that is in force for commands. The first call may run test commands to
    /// find out what the host supports.
    ///
    /// # Behaviour
    /// - `exec::says_what_is_in_force`: for every control, the policy says what was requested and
    ///   what enforces it
    async fn effective_policy(&self) -> Result<EffectivePolicy>;

    /// Returns the object that stores the connection status of this driver and reports its changes.
    ///
    /// # Behaviour
    /// - `status::starts_connected`: a workspace without a connection is connected from the start
    fn status_publisher(&self) -> &StatusPublisher;

    /// Connects a remote workspace. Does nothing for other kinds.
    ///
    /// # Behaviour
    /// - `status::connect_is_idempotent`: a connected workspace stays connected, without a
    ///   transition
    async fn connect(&self) -> Result<()>;

    /// Returns whether a call took effect if its answer was lost because the connection broke. See
    /// [`Error::lost_call_id`](crate::Error::lost_call_id).
    ///
    /// # Behaviour
    /// - `status::tickets_of_others_are_unknown`: the effect of a call on another backend is
    ///   unknown
    async fn query_lost_call(&self, ticket: &LostCallId) -> Result<LostCallEffect>;

    /// Ends the driver: its status becomes `Destroyed`, and all calls fail. Closing again is not an
    /// error.
    ///
    /// # Behaviour
    /// - `destroy::is_idempotent`: a second call is not an error
    /// - `destroy::refuses_everything_after`: every call fails at once with `Destroyed`
    /// - `destroy::is_one_transition`: subscribers see one transition
    /// - `destroy::ends_open_files`: files that were opened before stop working
    async fn close(&self) -> Result<()>;
}

/// An open file. It refers to the same file even after its path was removed or replaced.
#[async_trait]
pub trait File: fmt::Debug + Send + Sync {
    /// Reads up to `length` bytes from `offset`. Returns fewer only at the end.
    ///
    /// # Behaviour
    /// - `open::reads_at_offsets`: reads work in any order and are cut at the end
    /// - `open::handle_outlives_its_name`: a replaced file can still be read
    async fn read_at(&self, offset: u64, length: usize) -> Result<Bytes>;

    /// Writes in place. A gap before `offset` is filled with zeros.
    ///
    /// # Behaviour
    /// - `open::writes_at_offsets`: writes work in any order and extend the file
    /// - `open::read_only_refuses_writes`: a handle without write access is `PermissionDenied`
    /// - `open::appends_when_told`: an append handle writes at the end and ignores the offset
    async fn write_at(&self, offset: u64, bytes: Bytes) -> Result<()>;

    /// Truncates or extends the file.
    ///
    /// # Behaviour
    /// - `open::sets_the_length`: truncation drops bytes, extension adds zeros
    async fn set_len(&self, length: u64) -> Result<()>;

    /// Describes the open file.
    ///
    /// # Behaviour
    /// - `open::describes_itself`: size and version reflect the writes
    async fn stat(&self) -> Result<Stat>;

    /// Changes permission bits and times of the open file, which must be open for writing.
    ///
    /// # Behaviour
    /// - `open::attributes_are_of_the_file`: the change applies to the opened file, even if its
    ///   path has changed
    async fn set_attributes(&self, attributes: AttributeChanges) -> Result<Stat>;

    /// Makes written data survive a power loss, if the driver can.
    ///
    /// # Behaviour
    /// - `open::syncs`: returns when the data is synced
    async fn sync(&self) -> Result<()>;
}

/// The kind, root and capabilities of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendInfo {
    pub kind: BackendKind,
    /// Absolute paths of the root. The first one is shown to users.
    pub root_aliases: Vec<String>,
    pub capabilities: Capabilities,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BackendKind {
    Local,
    Memory,
    Remote,
    Scoped,
    Mounts,
    Overlay,
}

impl BackendKind {
    pub const ALL: [BackendKind; 6] = [
        BackendKind::Local,
        BackendKind::Memory,
        BackendKind::Remote,
        BackendKind::Scoped,
        BackendKind::Mounts,
        BackendKind::Overlay,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            BackendKind::Local => "local",
            BackendKind::Memory => "memory",
            BackendKind::Remote => "remote",
            BackendKind::Scoped => "scoped",
            BackendKind::Mounts => "mounts",
            BackendKind::Overlay => "overlay",
        }
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The capabilities of a driver. If a capability is missing, calls fail with `Unsupported`, or have
/// the weaker behaviour that is described here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    pub exec: bool,
    /// Commands can be started detached. They can be listed, and callers can attach to them.
    pub detached_processes: bool,
    pub search: bool,
    /// Symbolic links can be created and read.
    pub symlinks: bool,
    /// Files have permission bits.
    pub file_modes: bool,
    /// Directories may be empty. Without this capability, a directory exists only while it contains
    /// files.
    pub empty_dirs: bool,
    /// Links cannot lead outside, even if another process changes them during a call.
    pub jail: bool,
    /// Readers never see a partially written file.
    pub atomic_write: bool,
    /// Errors have exactly the kinds that [`Driver`] and [`File`] specify.
    pub exact_error_kinds: bool,
}
