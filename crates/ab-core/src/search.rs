//! Search queries and results, and code that searching drivers share.
//!
//! Drivers search where the files are. They either use [`search_by_listing`], which calls their
//! other methods, or walk themselves and use [`selection`], [`text`] and [`collector`]. The same
//! query has the same result on all drivers.

pub mod collector;
pub mod file_type;
pub mod glob;
mod over;
pub mod selection;
pub mod text;
mod wildcard;

use std::time::Duration;

use crate::metadata::{DirEntry, FileKind, TruncationCause, WalkProblem};
use crate::path::WsPath;

pub use over::{search_by_listing, search_error_from_io};

/// Default of the maximum number of matches.
pub const DEFAULT_MAX_SEARCH_MATCHES: usize = 10_000;
/// Default of the maximum number of bytes of matched text.
pub const DEFAULT_MAX_TOTAL_MATCH_BYTES: usize = 16 * 1024 * 1024;
/// Names of build output, caches and version control. The search commands and tools ignore them by
/// default, because they are rarely wanted and often large. A [`SearchQuery`] ignores them only if
/// it lists them.
pub const COMMON_IGNORE_GLOBS: [&str; 27] = [
    ".git",
    ".svn",
    ".hg",
    "node_modules",
    ".venv",
    "venv",
    "__pycache__",
    ".tox",
    ".nox",
    "dist",
    "build",
    ".next",
    ".nuxt",
    ".output",
    "target",
    ".cache",
    ".pytest_cache",
    ".mypy_cache",
    ".ruff_cache",
    "coverage",
    ".coverage",
    "htmlcov",
    ".idea",
    ".vscode",
    ".DS_Store",
    "*.egg-info",
    ".eggs",
];
/// Default time limit of a search.
pub const DEFAULT_SEARCH_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct SearchQuery {
    pub root: WsPath,
    pub target: SearchTarget,
    /// Globs of files to search. If not empty, a file must match one of them.
    pub include: Vec<String>,
    /// Globs of entries to exclude. An excluded directory is skipped with everything below it.
    pub exclude: Vec<String>,
    /// Like `exclude`, but the result counts the ignored entries, together with the entries that
    /// ignore files exclude.
    pub ignore: Vec<String>,
    pub dotfiles: DotfileVisibility,
    pub ignore_files: IgnoreFileHandling,
    pub limits: SearchLimits,
}

impl SearchQuery {
    /// Finds names below `root` that match a glob.
    pub fn for_names(root: WsPath, glob: &str) -> Self {
        let wanted = SearchTarget::Names { glob: glob.to_owned(), kinds: EntryKindFilter::Files };
        Self::new(root, wanted)
    }

    /// Finds a text in the files below `root`.
    pub fn for_text(root: WsPath, text: TextQuery) -> Self {
        Self::new(root, SearchTarget::Text(text))
    }

    fn new(root: WsPath, wanted: SearchTarget) -> Self {
        Self {
            root,
            target: wanted,
            include: Vec::new(),
            exclude: Vec::new(),
            ignore: Vec::new(),
            dotfiles: DotfileVisibility::default(),
            ignore_files: IgnoreFileHandling::default(),
            limits: SearchLimits::default(),
        }
    }
}

#[derive(Clone, Debug)]
pub enum SearchTarget {
    /// Names that match a glob.
    Names { glob: String, kinds: EntryKindFilter },
    /// Text inside files.
    Text(TextQuery),
}

/// Which kinds of entries a search for names finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EntryKindFilter {
    /// Everything except directories.
    #[default]
    Files,
    All,
}

#[derive(Clone, Debug)]
pub struct TextQuery {
    pub pattern: String,
    pub syntax: PatternSyntax,
    pub case: CaseSensitivity,
    pub line_mode: MatchLineMode,
    pub lines: LineSelection,
    /// Maximum number of lines that are found in one file.
    pub max_lines_per_file: Option<u64>,
    pub context_before: usize,
    pub context_after: usize,
    pub output_mode: SearchOutputMode,
}

impl TextQuery {
    /// Finds lines that contain exactly this text.
    pub fn literal(pattern: &str) -> Self {
        Self {
            pattern: pattern.to_owned(),
            syntax: PatternSyntax::Literal,
            case: CaseSensitivity::Sensitive,
            line_mode: MatchLineMode::SingleLine,
            lines: LineSelection::Matching,
            max_lines_per_file: None,
            context_before: 0,
            context_after: 0,
            output_mode: SearchOutputMode::Lines,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PatternSyntax {
    #[default]
    Literal,
    Regex,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaseSensitivity {
    #[default]
    Sensitive,
    Insensitive,
}

/// Whether a match may span several lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatchLineMode {
    #[default]
    SingleLine,
    /// A match may span several lines, and a dot matches line ends. The whole file is kept in
    /// memory.
    MultiLine,
}

/// Which lines a search finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineSelection {
    /// Lines that contain a match.
    #[default]
    Matching,
    /// Lines that contain no match.
    NonMatching,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SearchOutputMode {
    #[default]
    Lines,
    Files,
    Counts,
    /// Only the matched parts of lines, each as a line of its own. Empty matches and context lines
    /// are left out.
    MatchedParts,
    /// The files in which no line was found.
    FilesWithoutMatch,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DotfileVisibility {
    /// Names with a leading dot are skipped, unless a glob contains the dot.
    #[default]
    Skip,
    Include,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IgnoreFileHandling {
    #[default]
    Disregard,
    /// Skip the paths that `.gitignore` files list.
    Honour,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchLimits {
    pub max_matches: usize,
    pub max_bytes: usize,
    pub max_duration: Duration,
}

impl Default for SearchLimits {
    fn default() -> Self {
        Self {
            max_matches: DEFAULT_MAX_SEARCH_MATCHES,
            max_bytes: DEFAULT_MAX_TOTAL_MATCH_BYTES,
            max_duration: DEFAULT_SEARCH_TIMEOUT,
        }
    }
}

/// One match. Matches are in path order, and within a file in the order of lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchMatch {
    Name(DirEntry),
    /// A matching line, or a context line.
    Line {
        path: WsPath,
        line_number: u64,
        text: String,
        /// The length of the whole line in bytes, if `text` contains only its beginning.
        full_line_bytes: Option<u64>,
        role: SearchLineRole,
    },
    /// A file with at least one match, or one without a match if the query asks for those.
    File {
        path: WsPath,
    },
    /// A file and the number of its matching lines.
    Count {
        path: WsPath,
        matching_lines: u64,
    },
}

impl SearchMatch {
    pub fn path(&self) -> &WsPath {
        match self {
            SearchMatch::Name(entry) => &entry.path,
            SearchMatch::Line { path, .. }
            | SearchMatch::File { path }
            | SearchMatch::Count { path, .. } => path,
        }
    }

    pub(crate) fn path_mut(&mut self) -> &mut WsPath {
        match self {
            SearchMatch::Name(entry) => &mut entry.path,
            SearchMatch::Line { path, .. }
            | SearchMatch::File { path }
            | SearchMatch::Count { path, .. } => path,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchLineRole {
    Match,
    Context,
}

/// How many entries were skipped because of ignore files and [`SearchQuery::ignore`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IgnoredEntryCounts {
    /// The number of skipped directories. What they contain is not counted.
    pub directories: u64,
    pub files: u64,
}

impl IgnoredEntryCounts {
    pub fn is_empty(self) -> bool {
        self == IgnoredEntryCounts::default()
    }

    pub fn count_entry(&mut self, kind: FileKind) {
        match kind {
            FileKind::Dir => self.directories += 1,
            FileKind::File | FileKind::Symlink | FileKind::Other => self.files += 1,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct SearchResults {
    pub matches: Vec<SearchMatch>,
    pub truncated: Option<TruncationCause>,
    /// The number of files that were searched.
    pub files_searched: u64,
    /// The number of files that seem to be binary and were not searched.
    pub binary_files_skipped: u64,
    pub ignored_entries: IgnoredEntryCounts,
    pub problems: Vec<WalkProblem>,
}
