//! What a search asks and answers, and the parts that searching drivers share.
//!
//! Drivers do the searching, where the files are: [`search_by_walk`] by their other methods, or their own walk
//! with [`selection`], [`text`] and [`collector`]. The same query has the same answer on all of them.

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

pub use over::{search_by_walk, search_error_from_io};

/// Most matches unless the caller says otherwise.
pub const DEFAULT_MAX_SEARCH_MATCHES: usize = 10_000;
/// Most bytes of matched text unless the caller says otherwise.
pub const DEFAULT_MAX_TOTAL_MATCH_BYTES: usize = 16 * 1024 * 1024;
/// Names of build output, caches and version control: rarely wanted and often large. What people and
/// models search through leaves them out unless asked for; a [`SearchQuery`] has to name them.
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
/// Longest search unless the caller says otherwise.
pub const DEFAULT_SEARCH_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct SearchQuery {
    pub root: WsPath,
    pub target: SearchTarget,
    /// Globs; a file must match one of them when there are any.
    pub include: Vec<String>,
    /// Globs; what matches is left out, directories with all they hold.
    pub exclude: Vec<String>,
    /// The same, but the answer counts what they leave out, as it does for ignore files.
    pub ignore: Vec<String>,
    pub dotfiles: DotfileVisibility,
    pub ignore_files: IgnoreFileHandling,
    pub limits: SearchLimits,
}

impl SearchQuery {
    /// Names below `root` that match a glob.
    pub fn names(root: WsPath, glob: &str) -> Self {
        let wanted = SearchTarget::Names { glob: glob.to_owned(), kinds: EntryKindFilter::Files };
        Self::new(root, wanted)
    }

    /// Text in files below `root`.
    pub fn text(root: WsPath, text: TextQuery) -> Self {
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

/// What a search for names may find.
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
    /// Lines that hold exactly this text.
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

/// How far a match may reach.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatchLineMode {
    #[default]
    SingleLine,
    /// Over line ends; a dot matches them too. A file is then held in memory whole.
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
    /// Leave out what `.gitignore` names.
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

/// One thing found. Matches come in path order, and by line within a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchMatch {
    Name(DirEntry),
    /// A line that matches, or one beside it.
    Line {
        path: WsPath,
        line: u64,
        text: String,
        /// Bytes of the whole line, when `text` is only its beginning.
        cut: Option<u64>,
        role: SearchLineRole,
    },
    /// A file that has a match.
    File {
        path: WsPath,
    },
    /// A file and how many of its lines match.
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

/// What a search would have looked at, but for ignore files and [`SearchQuery::ignore`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IgnoredCounts {
    /// Each counts once, whatever it holds.
    pub directories: u64,
    pub files: u64,
}

impl IgnoredCounts {
    pub fn is_empty(self) -> bool {
        self == IgnoredCounts::default()
    }

    pub fn add(&mut self, kind: FileKind) {
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
    /// Files that were looked into.
    pub searched: u64,
    /// Files that looked binary and were not searched.
    pub skipped_binary: u64,
    pub ignored: IgnoredCounts,
    pub problems: Vec<WalkProblem>,
}
