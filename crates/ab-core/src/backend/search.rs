//! Search through the handle: file names by glob, text in files, and directory trees.

use super::Backend;
use crate::call::Verb;
use crate::error::Result;
use crate::metadata::{DirEntry, FileKind, TruncationCause, WalkProblem};
use crate::options::{DEFAULT_MAX_LIST_ENTRIES, ListOptions};
use crate::path::{PathInput, WsPath};
use crate::search::{
    CaseSensitivity, DotfileVisibility, EntryKindFilter, IgnoreFileHandling, IgnoredEntryCounts,
    LineSelection, MatchLineMode, PatternSyntax, SearchLimits, SearchMatch, SearchOutputMode,
    SearchQuery, SearchResults, SearchTarget, TextQuery,
};

/// Options for finding names. The default finds visible files below the root.
#[derive(Clone, Debug)]
pub struct GlobOptions {
    /// The directory to search. The pattern is relative to it.
    pub root: String,
    pub kinds: EntryKindFilter,
    /// Globs of entries to exclude. An excluded directory is skipped with everything below it.
    pub exclude: Vec<String>,
    /// Like `exclude`, but the result contains the number of ignored entries.
    pub ignore: Vec<String>,
    pub dotfiles: DotfileVisibility,
    pub ignore_files: IgnoreFileHandling,
    pub limits: SearchLimits,
}

impl Default for GlobOptions {
    fn default() -> Self {
        Self {
            root: ".".to_owned(),
            kinds: EntryKindFilter::default(),
            exclude: Vec::new(),
            ignore: Vec::new(),
            dotfiles: DotfileVisibility::default(),
            ignore_files: IgnoreFileHandling::default(),
            limits: SearchLimits::default(),
        }
    }
}

/// Options for finding text. The default finds lines that contain the pattern literally.
#[derive(Clone, Debug)]
pub struct GrepOptions {
    /// A directory or a single file to search.
    pub root: String,
    pub syntax: PatternSyntax,
    pub case: CaseSensitivity,
    pub line_mode: MatchLineMode,
    pub lines: LineSelection,
    /// Maximum number of lines that are found in one file.
    pub max_lines_per_file: Option<u64>,
    /// Number of lines to return before and after each match.
    pub context_before: usize,
    pub context_after: usize,
    pub output_mode: SearchOutputMode,
    /// Globs of files to search. If not empty, a file must match one of them.
    pub include: Vec<String>,
    pub exclude: Vec<String>,
    /// See [`GlobOptions::ignore`].
    pub ignore: Vec<String>,
    pub dotfiles: DotfileVisibility,
    pub ignore_files: IgnoreFileHandling,
    pub limits: SearchLimits,
}

impl Default for GrepOptions {
    fn default() -> Self {
        Self {
            root: ".".to_owned(),
            syntax: PatternSyntax::default(),
            case: CaseSensitivity::default(),
            line_mode: MatchLineMode::default(),
            lines: LineSelection::default(),
            max_lines_per_file: None,
            context_before: 0,
            context_after: 0,
            output_mode: SearchOutputMode::default(),
            include: Vec::new(),
            exclude: Vec::new(),
            ignore: Vec::new(),
            dotfiles: DotfileVisibility::default(),
            ignore_files: IgnoreFileHandling::default(),
            limits: SearchLimits::default(),
        }
    }
}

/// The names that were found, in path order.
#[derive(Clone, Debug, Default)]
pub struct GlobResults {
    pub entries: Vec<DirEntry>,
    pub truncated: Option<TruncationCause>,
    pub ignored_entries: IgnoredEntryCounts,
    pub problems: Vec<WalkProblem>,
}

#[derive(Clone, Debug)]
pub struct TreeOptions {
    pub max_depth: usize,
    pub max_entries: usize,
    /// Globs of entries to exclude. An excluded directory is skipped with everything below it.
    pub exclude: Vec<String>,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self { max_depth: usize::MAX, max_entries: DEFAULT_MAX_LIST_ENTRIES, exclude: Vec::new() }
    }
}

/// A directory tree.
#[derive(Clone, Debug, Default)]
pub struct DirectoryTree {
    pub nodes: Vec<TreeNode>,
    pub truncated: Option<TruncationCause>,
    pub problems: Vec<WalkProblem>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeNode {
    pub name: String,
    pub kind: FileKind,
    /// The entries of a directory, sorted by name.
    pub children: Vec<TreeNode>,
}

impl Backend {
    /// Finds names. The pattern `*.rs` matches at any depth, and `src/*.rs` only relative to the
    /// root of the search.
    pub async fn glob(&self, pattern: &str, options: GlobOptions) -> Result<GlobResults> {
        let query = SearchQuery {
            root: self.parse(Verb::Search, &options.root)?,
            target: SearchTarget::Names { glob: pattern.to_owned(), kinds: options.kinds },
            include: Vec::new(),
            exclude: options.exclude,
            ignore: options.ignore,
            dotfiles: options.dotfiles,
            ignore_files: options.ignore_files,
            limits: options.limits,
        };
        let found = self.driver().search(&query).await?;
        let entries = found.matches.into_iter().filter_map(|found| match found {
            SearchMatch::Name(entry) => Some(entry),
            SearchMatch::Line { .. } | SearchMatch::File { .. } | SearchMatch::Count { .. } => None,
        });
        Ok(GlobResults {
            entries: entries.collect(),
            truncated: found.truncated,
            ignored_entries: found.ignored_entries,
            problems: found.problems,
        })
    }

    /// Finds text in files, line by line.
    pub async fn grep(&self, pattern: &str, options: GrepOptions) -> Result<SearchResults> {
        let text = TextQuery {
            pattern: pattern.to_owned(),
            syntax: options.syntax,
            case: options.case,
            line_mode: options.line_mode,
            lines: options.lines,
            max_lines_per_file: options.max_lines_per_file,
            context_before: options.context_before,
            context_after: options.context_after,
            output_mode: options.output_mode,
        };
        let query = SearchQuery {
            root: self.parse(Verb::Search, &options.root)?,
            target: SearchTarget::Text(text),
            include: options.include,
            exclude: options.exclude,
            ignore: options.ignore,
            dotfiles: options.dotfiles,
            ignore_files: options.ignore_files,
            limits: options.limits,
        };
        self.driver().search(&query).await
    }

    /// The entries of a directory and its subdirectories, nested.
    pub async fn tree<'p>(
        &self,
        path: impl Into<PathInput<'p>>,
        options: TreeOptions,
    ) -> Result<DirectoryTree> {
        let root = self.parse(Verb::List, path)?;
        let (entries, mut truncated, problems) = if options.exclude.is_empty() {
            let list = ListOptions {
                max_depth: options.max_depth,
                max_entries: options.max_entries,
                ..ListOptions::default()
            };
            let listing = self.driver().list(&root, list).await?;
            (listing.entries, listing.truncated, listing.problems)
        } else {
            let names = self.names_below(&root, &options).await?;
            (names.entries, names.truncated, names.problems)
        };
        let above = root.depth();
        let mut shallow = entries;
        if !options.exclude.is_empty() {
            // A search has no depth limit, so remove deeper entries here.
            shallow.retain(|entry| entry.path.depth() - above <= options.max_depth);
        }
        if shallow.len() > options.max_entries {
            shallow.truncate(options.max_entries);
            truncated = Some(TruncationCause::Count);
        }
        Ok(DirectoryTree { nodes: nest(shallow, above), truncated, problems })
    }

    async fn names_below(&self, root: &WsPath, options: &TreeOptions) -> Result<GlobResults> {
        let limits = SearchLimits {
            max_matches: options.max_entries,
            max_bytes: usize::MAX,
            ..SearchLimits::default()
        };
        let options = GlobOptions {
            root: root.to_string(),
            kinds: EntryKindFilter::All,
            exclude: options.exclude.clone(),
            dotfiles: DotfileVisibility::Include,
            limits,
            ..GlobOptions::default()
        };
        self.glob("**", options).await
    }
}

/// Builds a tree from entries in path order. `above` is the depth of the root.
fn nest(entries: Vec<DirEntry>, above: usize) -> Vec<TreeNode> {
    let mut top = Vec::new();
    let mut open: Vec<TreeNode> = Vec::new();
    let close = |open: &mut Vec<TreeNode>, top: &mut Vec<TreeNode>, depth: usize| {
        while open.len() > depth {
            if let Some(node) = open.pop() {
                open.last_mut().map_or(&mut *top, |parent| &mut parent.children).push(node);
            }
        }
    };
    for entry in entries {
        let depth = entry.path.depth() - above;
        close(&mut open, &mut top, depth - 1);
        let name = entry.path.into_name();
        open.push(TreeNode { name, kind: entry.kind, children: Vec::new() });
    }
    close(&mut open, &mut top, 0);
    top
}
