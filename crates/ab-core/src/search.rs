//! Search queries and results, and the parts that searching drivers share.
//!
//! Drivers search where the files are: with [`search_by_listing`], which uses their other methods, or
//! with their own walk and [`selection`], [`text`] and [`collector`]. The same query has the same
//! result on all of them.

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

/// Default limit of matches.
pub const DEFAULT_MAX_SEARCH_MATCHES: usize = 10_000;
/// Default limit of the bytes of matched text.
pub const DEFAULT_MAX_TOTAL_MATCH_BYTES: usize = 16 * 1024 * 1024;
/// Names of build output, caches and version control: rarely wanted and often large. The search
/// commands and tools ignore them by default. A [`SearchQuery`] ignores them only if it lists them.
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
    /// Globs. If there are any, a file must match one of them.
    pub include: Vec<String>,
    /// Globs of entries to leave out. Excluded directories are left out with everything below them.
    pub exclude: Vec<String>,
    /// Like `exclude`, but the result counts what was left out, as it does for ignore files.
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

    /// Finds text in files below `root`.
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
    /// Everything but directories.
    #[default]
    Files,
    All,
}

#[derive(Clone, Debug)]
pub struct TextQuery {
    pub pattern: String,
    pub syntax: PatternSyntax,
    pub case: CaseSensitivity,
    pub span: MatchLineMode,
    pub before: usize,
    pub after: usize,
    pub output_mode: SearchOutputMode,
}

impl TextQuery {
    /// Finds lines that contain exactly this text.
    pub fn literal(pattern: &str) -> Self {
        Self {
            pattern: pattern.to_owned(),
            syntax: PatternSyntax::Literal,
            case: CaseSensitivity::Sensitive,
            span: MatchLineMode::SingleLine,
            before: 0,
            after: 0,
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

/// Whether a match may span lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatchLineMode {
    #[default]
    SingleLine,
    /// A match may span lines, and a dot matches line ends. The whole file is then kept in memory.
    MultiLine,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SearchOutputMode {
    #[default]
    Lines,
    Files,
    Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DotfileVisibility {
    /// Names that begin with a dot are left out unless a glob names the dot.
    #[default]
    Visible,
    All,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IgnoreFileHandling {
    #[default]
    Disregard,
    /// Leave out the paths that `.gitignore` files list.
    Honour,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchLimits {
    pub matches: usize,
    pub bytes: usize,
    pub time: Duration,
}

impl Default for SearchLimits {
    fn default() -> Self {
        Self {
            matches: DEFAULT_MAX_SEARCH_MATCHES,
            bytes: DEFAULT_MAX_TOTAL_MATCH_BYTES,
            time: DEFAULT_SEARCH_TIMEOUT,
        }
    }
}

/// One match. Matches are in path order, and by line within a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchMatch {
    Name(DirEntry),
    /// A matching line, or a context line.
    Line {
        path: WsPath,
        line: u64,
        text: String,
        /// Length of the whole line in bytes, if `text` is only its beginning.
        cut: Option<u64>,
        role: SearchLineRole,
    },
    /// A file with at least one match.
    File {
        path: WsPath,
    },
    /// A file and the number of its matching lines.
    Count {
        path: WsPath,
        lines: u64,
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

/// How many entries were left out because of ignore files and [`SearchQuery::ignore`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IgnoredEntryCounts {
    /// Each counts once, whatever it contains.
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
    /// Files that were searched.
    pub searched: u64,
    /// Files that seem to be binary and were not searched.
    pub skipped_binary: u64,
    pub ignored: IgnoredEntryCounts,
    pub problems: Vec<WalkProblem>,
}
