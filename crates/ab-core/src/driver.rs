//! The contract of whoever holds the files: [`Driver`], and the [`File`] it opens.
//!
//! No method has a default body: a wrapper that forgets one would silently lose what it wraps.
//! Each line under a *Behaviour* heading names the case of the suite in `ab-testkit` that proves it
//! on every driver and view. A driver that lacks a capability answers `ErrorKind::Unsupported`, and the
//! same cases check that.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;

use crate::effective::EffectivePolicy;
use crate::error::Result;
use crate::metadata::{DiskSpace, FileContent, Listing, RemoveOutcome, RenameOutcome, Stat};
use crate::options::{
    AttributeChanges, ListOptions, OpenOptions, ReadOptions, RemoveOptions, RenameOptions,
    StatOptions, WriteOptions,
};
use crate::path::WsPath;
use crate::process::{ExecRequest, Process, ProcessId, ProcessInfo};
use crate::search::{SearchQuery, SearchResults};
use crate::status::StatusPublisher;
use crate::ticket::{LostCallEffect, LostCallId};

/// Holds a workspace. Implementors write this; everyone else holds a [`Backend`](crate::Backend).
///
/// A path's [fence](WsPath::scope_root) binds: links met on the way may not lead out of it. So do its
/// [rules](WsPath::has_access_rules), which are about the places that links lead to, not about names.
#[async_trait]
pub trait Driver: fmt::Debug + Send + Sync + 'static {
    /// Describes what is at `path`.
    ///
    /// # Behaviour
    /// - `stat::file`: a file has its kind, its size and a time of change
    /// - `stat::directory`: a directory is told from a file
    /// - `stat::root`: the root is always there, as a directory
    /// - `stat::missing_is_not_found`: nothing there is `NotFound`
    /// - `stat::below_a_file_is_not_a_directory`: a path through a file is `NotADirectory`
    /// - `stat::version_changes_with_each_write`: every write makes a new version
    /// - `links::stat_follows_or_keeps`: a link is followed unless the caller keeps it
    /// - `restricted::hidden_files_are_not_there`: what the path's rules hide is `NotFound`, by
    ///   whatever links it is reached
    async fn stat(&self, path: &WsPath, options: StatOptions) -> Result<Stat>;

    /// Lists a directory, to a depth, in path order.
    ///
    /// # Behaviour
    /// - `list::children_in_order`: the immediate children, sorted, each once
    /// - `list::fresh_workspace_is_empty`: a new workspace lists nothing
    /// - `list::missing_is_not_found`: no such directory is `NotFound`
    /// - `list::a_file_is_not_a_directory`: listing a file is `NotADirectory`
    /// - `list::depth_bounds_the_walk`: no entry is deeper than asked for
    /// - `list::whole_tree_in_path_order`: a directory comes before what it holds
    /// - `list::limit_cuts_and_says_so`: a cut listing has its first entries and says it was cut
    /// - `list::details_match_stat`: details are those that `stat` gives
    /// - `links::list_does_not_follow`: links are named, not entered
    /// - `restricted::listings_leave_hidden_files_out`: nor what the path's rules hide
    async fn list(&self, path: &WsPath, options: ListOptions) -> Result<Listing>;

    /// Finds names or text.
    ///
    /// # Behaviour
    /// - `search::needs_the_capability`: a driver that cannot search says so
    /// - `search::globs_match_as_said`: names by pattern, at any depth or from the root
    /// - `search::names_come_in_path_order`: a directory comes before what it holds
    /// - `search::kinds_are_chosen`: directories only when asked for
    /// - `search::excluded_directories_are_left_whole`: with all they hold
    /// - `search::text_is_literal_unless_asked`: case and syntax as the query says
    /// - `search::lines_have_numbers_and_context`: counted from 1, context told from matches
    /// - `search::files_and_counts`: the same search, a shorter answer
    /// - `search::files_are_chosen_by_globs`: include and exclude for text
    /// - `search::binary_files_are_counted`: not searched, not hidden
    /// - `search::ignore_files_are_honoured_when_asked`: from the workspace's root down
    /// - `search::what_is_ignored_is_counted`: a directory once, with all it holds
    /// - `search::limits_cut_and_say_so`: the first matches, and which limit it was
    /// - `search::a_file_may_be_the_root_of_a_text_search`: whatever its name
    /// - `search::missing_root_is_not_found`: `NotFound`; a file searched for names is
    ///   `NotADirectory`
    /// - `search::senseless_patterns_are_refused`: `Invalid`, naming the pattern
    /// - `restricted::listings_leave_hidden_files_out`: nothing of them is searched or counted
    async fn search(&self, query: &SearchQuery) -> Result<SearchResults>;

    /// Reads a file, or a range of it.
    ///
    /// # Behaviour
    /// - `read::returns_what_was_written`: bytes come back as they went in, whatever they are
    /// - `read::empty_file`: an empty file is empty, not missing
    /// - `read::range`: a range is exactly those bytes
    /// - `read::range_past_the_end_is_cut`: beyond the end there is nothing, and that is no error
    /// - `read::missing_is_not_found`: no such file is `NotFound`
    /// - `read::a_directory_is_refused`: a directory is `IsADirectory`
    /// - `read::over_the_limit_is_refused`: more than the limit is `TooLarge`, never cut in silence
    /// - `read::carries_the_version`: the stat that comes along belongs to the bytes
    /// - `restricted::hidden_files_are_not_there`: likewise
    async fn read(&self, path: &WsPath, options: ReadOptions) -> Result<FileContent>;

    /// Writes a whole file. Readers see the old bytes or the new ones, never a mixture.
    ///
    /// # Behaviour
    /// - `write::creates_parents`: missing directories are made
    /// - `write::replaces_content`: what was there is gone
    /// - `write::create_new_refuses_existing`: `CreateNew` on something is `AlreadyExists`
    /// - `write::replace_needs_existing`: `Replace` on nothing is `NotFound`
    /// - `write::create_if_missing_keeps_existing`: `CreateIfMissing` leaves a file alone
    /// - `write::expected_version_is_checked`: another version, or none, is `Conflict`
    /// - `write::onto_a_directory_is_refused`: a directory is `IsADirectory`
    /// - `write::through_a_file_is_refused`: a parent that is a file is `NotADirectory`
    /// - `write::the_root_is_refused`: the root is a directory like any other
    /// - `write::odd_names_are_only_names`: quotes, spaces, `$(…)` and newlines mean nothing
    /// - `write::concurrent_writers_leave_one_whole_content`: the last one wins, whole
    /// - `write::concurrent_conditional_writers_lose_nothing`: one writer per version succeeds
    /// - `links::write_goes_to_the_target`: a link inside keeps being a link
    /// - `restricted::kept_files_do_not_change`: what the path's rules keep stays as it is, by
    ///   whatever links it is reached
    async fn write(&self, path: &WsPath, content: Bytes, options: WriteOptions) -> Result<Stat>;

    /// Opens a file for access at offsets.
    ///
    /// # Behaviour
    /// - `open::missing_is_not_found`: without creation, nothing there is `NotFound`
    /// - `open::creates_with_parents`: with creation, file and directories are made
    /// - `open::create_always_refuses_existing`: `FileCreationMode::MustBeNew` on something is `AlreadyExists`
    /// - `open::truncates_when_asked`: `ExistingContentHandling::Truncate` starts empty
    /// - `open::a_directory_is_refused`: a directory is `IsADirectory`
    /// - `restricted::kept_files_do_not_change`: likewise, unless it is only read
    async fn open(&self, path: &WsPath, options: OpenOptions) -> Result<Box<dyn File>>;

    /// Changes permission bits and times.
    ///
    /// # Behaviour
    /// - `attributes::mode_and_times_are_kept`: what was set is what `stat` says
    /// - `attributes::missing_is_not_found`: nothing there is `NotFound`
    /// - `attributes::bits_beyond_permissions_are_refused`: no set-uid, no sticky bits
    /// - `restricted::kept_files_do_not_change`: likewise
    async fn set_attributes(&self, path: &WsPath, attributes: AttributeChanges) -> Result<Stat>;

    /// The text of a link, as it was made.
    ///
    /// # Behaviour
    /// - `links::text_is_kept`: the target reads back as written
    /// - `links::reading_a_file_as_a_link_is_invalid`: what is no link is `Invalid`
    async fn read_link(&self, path: &WsPath) -> Result<String>;

    /// Makes a link to `target`, which is relative to the link's directory or absolute.
    ///
    /// # Behaviour
    /// - `links::text_is_kept`: the link is there and leads to its target
    /// - `links::leaving_the_workspace_is_refused`: a target outside is `Escape`
    /// - `links::existing_name_is_refused`: something at `path` is `AlreadyExists`
    /// - `restricted::kept_files_do_not_change`: likewise
    async fn symlink(&self, path: &WsPath, target: &str) -> Result<()>;

    /// Makes a directory with its parents.
    ///
    /// # Behaviour
    /// - `mkdir::makes_intermediates`: every missing directory on the way is made
    /// - `mkdir::existing_is_fine`: a directory that is there is no error
    /// - `mkdir::onto_a_file_is_refused`: a file there is `AlreadyExists`
    /// - `mkdir::through_a_file_is_refused`: a file on the way is `NotADirectory`
    /// - `restricted::kept_files_do_not_change`: likewise
    async fn create_dir(&self, path: &WsPath) -> Result<()>;

    /// Removes a file, a link or a directory.
    ///
    /// # Behaviour
    /// - `remove::a_file`: it is gone, and counted
    /// - `remove::missing_is_not_found`: nothing there is `NotFound`
    /// - `remove::missing_can_be_ignored`: unless the caller does not mind
    /// - `remove::full_directory_needs_recursion`: `NotEmpty` without it
    /// - `remove::recursion_takes_everything`: the directory and all below it
    /// - `remove::names_with_the_same_beginning_stay`: `a` is not `ab`
    /// - `remove::the_root_is_refused`: the workspace itself stays
    /// - `links::removal_takes_the_link_only`: never what it leads to, also when recursive
    /// - `restricted::kept_files_do_not_change`: likewise, nor what holds such a file
    async fn remove(&self, path: &WsPath, options: RemoveOptions) -> Result<RemoveOutcome>;

    /// Moves a file or a directory, making the target's parents.
    ///
    /// # Behaviour
    /// - `rename::a_file`: the bytes are there and not here
    /// - `rename::a_directory_with_its_content`: everything below goes along
    /// - `rename::makes_parents`: missing directories of the target are made
    /// - `rename::missing_is_not_found`: nothing there is `NotFound`
    /// - `rename::existing_target_is_refused`: `AlreadyExists` unless overwriting
    /// - `rename::overwrite_replaces_a_file`: with `Replace` the target's bytes are the source's
    /// - `rename::file_onto_directory_is_refused`: `IsADirectory`, also when overwriting
    /// - `rename::directory_onto_file_is_refused`: `NotADirectory`, also when overwriting
    /// - `rename::into_itself_is_refused`: a directory cannot move below itself
    /// - `rename::onto_itself_changes_nothing`: the same path twice is fine
    /// - `rename::the_root_is_refused`: the workspace itself stays
    /// - `restricted::kept_files_do_not_change`: likewise, nor what holds such a file
    async fn rename(
        &self,
        from: &WsPath,
        to: &WsPath,
        options: RenameOptions,
    ) -> Result<RenameOutcome>;

    /// How much room there is.
    ///
    /// # Behaviour
    /// - `stat::space_adds_up`: no more is available than there is
    async fn disk_space(&self) -> Result<DiskSpace>;

    /// Starts a command.
    ///
    /// # Behaviour
    /// - `exec::needs_the_capability`: a driver that cannot run commands names itself and the verb
    /// - `exec::empty_is_refused`: a command of nothing is refused before anybody asks whether
    ///   commands can run
    /// - `exec::runs_in_a_shell`: loops, pipes and variables mean what they mean to a shell
    /// - `exec::starts_at_the_root`: files that were written are there, and files that commands
    ///   write can be read
    /// - `exec::home_is_the_directory`: `HOME`, `PWD` and the working directory are the same
    /// - `exec::directory_can_be_chosen`: any directory of the workspace can be the one that a
    ///   command starts in
    /// - `exec::directory_must_be_inside`: a directory outside is `Escape`; a file is
    ///   `NotADirectory`; nothing there is `NotFound`
    /// - `exec::directory_may_be_a_link`: a link to a directory inside works; one that leads out,
    ///   or nowhere, does not
    /// - `exec::output_is_exact`: every byte arrives, in whatever pieces
    /// - `exec::channels_are_told_apart`: what goes to standard error is not in the output
    /// - `exec::failure_has_code_and_words`: a status other than zero is `EXEC_FAILED`, with the
    ///   code and what was said
    /// - `exec::codes_are_passed_on`: however a command ends, `run` gives it as a value
    /// - `exec::input_is_empty_or_as_given`: a command that reads finds the end at once, unless it
    ///   was given input
    /// - `exec::output_is_cut_with_a_note`: no more than the bound is kept, and the note says how
    ///   much there was
    /// - `exec::timeout_keeps_what_was_said`: a command that takes too long is ended, and what it
    ///   said until then is kept
    /// - `exec::words_are_passed_as_they_are`: words of a command without a shell mean nothing but
    ///   themselves
    /// - `exec::lines_may_be_long`: a line as long as a file runs; one with a NUL does not
    /// - `exec::many_at_once`: commands that run together do not get in each other's way
    /// - `exec::directory_may_go_away`: the directory may be removed while its command runs; the
    ///   next one there is `NotFound`
    /// - `environment::starts_small`: nothing of the environment that this process has reaches a
    ///   command
    /// - `environment::given_ones_are_there`: what the caller gives is there, whatever it is
    /// - `environment::scopes_add_theirs`: a scope's variables are in all its commands; a deeper
    ///   scope's win, and the call's win over all
    /// - `environment::loaders_are_refused`: variables that make programs load or run something are
    ///   refused by name where no wall stands, the value unsaid
    /// - `environment::senseless_ones_are_refused`: what is no name, or no text for the kernel, is
    ///   `Invalid`
    /// - `held::exit_is_a_value`: a status other than zero is a value
    /// - `held::pieces_are_numbered`: the numbers of pieces count bytes of both channels, without a
    ///   gap
    /// - `held::readers_may_be_slow_or_gone`: a reader that takes its time loses nothing, and a
    ///   process without one goes on
    /// - `held::input_is_fed`: standard input is fed piece by piece, and ends when it is dropped or
    ///   told to
    /// - `held::signals_arrive`: a signal reaches the command, which may have its own mind about it
    /// - `held::drop_ends_everything`: letting go of a process ends it with all that it started
    /// - `held::the_end_takes_everything_along`: what a command leaves behind ends with it
    /// - `held::cancelling_ends_everything`: a future that is dropped ends its command
    /// - `held::terminals_have_a_size`: on a terminal a command knows it, and how large it is
    /// - `held::terminals_know_keys`: keys that mean signals are signals, and the end of input is
    ///   one too
    /// - `held::terminals_pass_signals_on`: signals reach a command on a terminal like any other
    async fn exec(&self, request: ExecRequest) -> Result<Process>;

    /// The processes that were started detached.
    ///
    /// # Behaviour
    /// - `exec::needs_the_capability`: likewise
    /// - `detached::are_listed`: one that runs is in the table, and so is one that ended
    /// - `detached::scopes_see_their_own`: a scope knows its own processes and no others; whoever
    ///   holds more sees more
    /// - `detached::destroy_ends_them`: the end of a backend is that of its processes, unless it is
    ///   a scope of one that lives on
    /// - `detached::they_stay_until_ended`: nobody needs to hold one for it to live, and anybody
    ///   can end it
    /// - `detached::nobody_has_to_read`: a process that stays has no reader to wait for
    async fn processes(&self) -> Result<Vec<ProcessInfo>>;

    /// Follows a detached process from a sequence number on.
    ///
    /// # Behaviour
    /// - `exec::needs_the_capability`: likewise
    /// - `detached::unknown_is_not_found`: nobody's process is `NotFound`
    /// - `detached::output_is_kept`: the output is there after the end, from any byte on
    /// - `detached::leaving_loses_nothing`: a reader that leaves and returns has everything, and
    ///   another one too
    /// - `detached::loss_is_told`: what no bound lets be kept is counted
    /// - `detached::input_is_shared`: input from several holders arrives, and only `EndInput` ends
    ///   it
    async fn attach(&self, id: &ProcessId, from: u64) -> Result<Process>;

    /// What this driver is and can do.
    ///
    /// # Behaviour
    /// - `status::info_is_honest`: kind and capabilities agree with what calls do
    fn info(&self) -> BackendInfo;

    /// What is in force for commands. Finding out may take running some, the first time.
    ///
    /// # Behaviour
    /// - `exec::says_what_is_in_force`: every control says what was asked and what sees to it
    async fn effective_policy(&self) -> Result<EffectivePolicy>;

    /// The status that every kind of backend has.
    ///
    /// # Behaviour
    /// - `status::starts_connected`: a workspace that needs no connection is connected at once
    fn status_publisher(&self) -> &StatusPublisher;

    /// Connects, where that means something.
    ///
    /// # Behaviour
    /// - `status::connect_is_idempotent`: connected stays connected, without a transition
    async fn connect(&self) -> Result<()>;

    /// What became of a call whose answer was lost; see [`Error::lost_call`](crate::Error::lost_call).
    ///
    /// # Behaviour
    /// - `status::tickets_of_others_are_unknown`: nobody knows of a call that was made elsewhere
    async fn query_lost_call(&self, ticket: &LostCallId) -> Result<LostCallEffect>;

    /// Ends it: the status is `Destroyed` and nothing works any more. Never fails twice.
    ///
    /// # Behaviour
    /// - `destroy::is_idempotent`: a second time is fine
    /// - `destroy::refuses_everything_after`: every call fails at once with `Destroyed`
    /// - `destroy::is_one_transition`: subscribers hear of it once
    /// - `destroy::ends_open_files`: files that were opened before end too
    async fn close(&self) -> Result<()>;
}

/// An open file. It keeps meaning the same file when the name is removed or replaced.
#[async_trait]
pub trait File: fmt::Debug + Send + Sync {
    /// Up to `length` bytes from `offset`; fewer only at the end.
    ///
    /// # Behaviour
    /// - `open::reads_at_offsets`: any order, cut at the end
    /// - `open::handle_outlives_its_name`: a replaced file is still readable
    async fn read_at(&self, offset: u64, length: usize) -> Result<Bytes>;

    /// Writes in place; a gap before `offset` reads as zeros.
    ///
    /// # Behaviour
    /// - `open::writes_at_offsets`: any order, growing the file
    /// - `open::read_only_refuses_writes`: a handle without write access is `PermissionDenied`
    /// - `open::appends_when_told`: a handle that writes at the end does so whatever the offset
    async fn write_at(&self, offset: u64, bytes: Bytes) -> Result<()>;

    /// Cuts or extends the file.
    ///
    /// # Behaviour
    /// - `open::sets_the_length`: shorter drops, longer adds zeros
    async fn set_len(&self, length: u64) -> Result<()>;

    /// Describes the open file.
    ///
    /// # Behaviour
    /// - `open::describes_itself`: size and version follow what was written
    async fn stat(&self) -> Result<Stat>;

    /// Changes permission bits and times of the open file, which must be open for writing.
    ///
    /// # Behaviour
    /// - `open::attributes_are_of_the_file`: it is the file that was opened, whatever its name is
    ///   now
    async fn set_attributes(&self, attributes: AttributeChanges) -> Result<Stat>;

    /// Makes what was written survive loss of power, where the driver can.
    ///
    /// # Behaviour
    /// - `open::syncs`: returns once it is done
    async fn sync(&self) -> Result<()>;
}

/// What a driver is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendInfo {
    pub kind: BackendKind,
    /// Absolute paths that mean the root, the one to show first.
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

/// What a driver can do; what is false answers `Unsupported`, or is weaker as said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    pub exec: bool,
    /// Commands can be started to stay, and be found and followed later.
    pub detached: bool,
    pub search: bool,
    /// Symbolic links can be made and read.
    pub links: bool,
    /// Permission bits exist.
    pub modes: bool,
    /// A directory may be empty; otherwise directories are where keys are.
    pub empty_dirs: bool,
    /// Links cannot lead out, whoever changes them in the meantime.
    pub jail: bool,
    /// Readers never see half a write.
    pub atomic_write: bool,
    /// Failures have the kind that this page says.
    pub exact_kinds: bool,
}
