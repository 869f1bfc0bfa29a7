//! What a search asks and answers. Drivers do the searching, where the files are.

use std::time::Duration;

use crate::metadata::{Entry, Problem, Truncated};
use crate::path::WsPath;

/// Most matches unless the caller says otherwise.
pub const DEFAULT_MATCH_LIMIT: usize = 10_000;
/// Most bytes of matched text unless the caller says otherwise.
pub const DEFAULT_MATCH_BYTES: usize = 16 * 1024 * 1024;
/// Longest search unless the caller says otherwise.
pub const DEFAULT_SEARCH_TIME: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct Query {
    pub root: WsPath,
    pub wanted: Wanted,
    /// Globs; a file must match one of them when there are any.
    pub include: Vec<String>,
    /// Globs; what matches is left out, directories with all they hold.
    pub exclude: Vec<String>,
    pub hidden: Visibility,
    pub ignore_files: IgnoreFiles,
    pub limits: SearchLimits,
}

#[derive(Clone, Debug)]
pub enum Wanted {
    /// Names that match a glob.
    Names { glob: String },
    /// Text inside files.
    Text(TextQuery),
}

#[derive(Clone, Debug)]
pub struct TextQuery {
    pub pattern: String,
    pub syntax: Syntax,
    pub case: Case,
    pub before: usize,
    pub after: usize,
    pub answer: Answer,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Syntax {
    #[default]
    Literal,
    Regex,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Case {
    #[default]
    Sensitive,
    Insensitive,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Answer {
    #[default]
    Lines,
    Files,
    Counts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    /// Names that begin with a dot are left out unless a glob names the dot.
    #[default]
    Visible,
    All,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IgnoreFiles {
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
        Self { matches: DEFAULT_MATCH_LIMIT, bytes: DEFAULT_MATCH_BYTES, time: DEFAULT_SEARCH_TIME }
    }
}

#[derive(Clone, Debug)]
pub enum Match {
    Name(Entry),
    Line { path: WsPath, line: u64, text: String, role: LineRole },
    Count { path: WsPath, lines: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineRole {
    Match,
    Context,
}

#[derive(Clone, Debug, Default)]
pub struct Found {
    pub matches: Vec<Match>,
    pub truncated: Option<Truncated>,
    /// Files that looked binary and were not searched.
    pub skipped_binary: u64,
    pub problems: Vec<Problem>,
}
