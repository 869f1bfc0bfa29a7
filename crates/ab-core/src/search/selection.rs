//! Decides which entries a search visits, according to globs, hidden names and ignore files.
//!
//! Drivers walk the tree in their own way, and ask this module about each entry. They pass a
//! [`WalkPosition`] down the tree.

use std::path::Path;
use std::sync::Arc;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use super::glob::{DotfileMatching, Glob, GlobMatchState};
use super::{DotfileVisibility, EntryKindFilter, IgnoreFileHandling, SearchQuery, SearchTarget};
use crate::call::Verb;
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::FileKind;

/// The name of ignore files.
pub const IGNORE_FILE_NAME: &str = ".gitignore";
/// Maximum number of bytes that are read of one ignore file.
pub const MAX_IGNORE_FILE_BYTES: u64 = 1024 * 1024;
/// Git's own directory. It is never searched if ignore files are used.
const GIT_DIRECTORY: &str = ".git";

/// The compiled filters of a query.
#[derive(Debug)]
pub struct SearchFilter {
    wanted: Option<Glob>,
    kinds: EntryKindFilter,
    include: Vec<Glob>,
    exclude: Vec<Glob>,
    ignore: Vec<Glob>,
    hidden: DotfileVisibility,
    ignore_files: IgnoreFileHandling,
}

/// How far the path of a directory has matched each filter, and the ignore files that apply in it.
#[derive(Clone, Debug)]
pub struct WalkPosition {
    wanted: Option<GlobMatchState>,
    include: Vec<GlobMatchState>,
    exclude: Vec<GlobMatchState>,
    ignore: Vec<GlobMatchState>,
    ignores: Option<Arc<Ignores>>,
    /// The names on the path from the topmost ignore file to this directory.
    below: Vec<Arc<str>>,
}

/// The ignore file of a directory, and the ignore files of the directories above it.
#[derive(Debug)]
struct Ignores {
    rules: Gitignore,
    /// The number of names in `WalkPosition::below` that are above this file.
    depth: usize,
    above: Option<Arc<Ignores>>,
}

impl SearchFilter {
    pub fn compile(query: &SearchQuery) -> Result<Self> {
        let dots = match query.dotfiles {
            DotfileVisibility::Skip => DotfileMatching::Explicit,
            DotfileVisibility::Include => DotfileMatching::Any,
        };
        let glob = |pattern: &str, dots| {
            Glob::new(pattern, dots).map_err(|reason| {
                let shown: String = pattern.chars().take(100).collect();
                let message =
                    format!("glob '{}': {reason}", crate::error::escape_unprintable(&shown));
                Error::for_path(Verb::Search, &query.root, ErrorKind::Invalid, message)
            })
        };
        let globs = |patterns: &[String], dots| -> Result<Vec<Glob>> {
            patterns.iter().map(|pattern| glob(pattern, dots)).collect()
        };
        let (wanted, kinds) = match &query.target {
            SearchTarget::Names { glob: pattern, kinds } => (Some(glob(pattern, dots)?), *kinds),
            SearchTarget::Text(_) => (None, EntryKindFilter::Files),
        };
        Ok(Self {
            wanted,
            kinds,
            include: globs(&query.include, dots)?,
            exclude: globs(&query.exclude, DotfileMatching::Any)?,
            ignore: globs(&query.ignore, DotfileMatching::Any)?,
            hidden: query.dotfiles,
            ignore_files: query.ignore_files,
        })
    }

    /// The position at the root of the search.
    pub fn start_position(&self) -> WalkPosition {
        WalkPosition {
            wanted: self.wanted.as_ref().map(Glob::start_state),
            include: self.include.iter().map(Glob::start_state).collect(),
            exclude: self.exclude.iter().map(Glob::start_state).collect(),
            ignore: self.ignore.iter().map(Glob::start_state).collect(),
            ignores: None,
            below: Vec::new(),
        }
    }

    /// Whether the driver must read ignore files, from the root of the workspace downwards.
    pub fn honours_ignore_files(&self) -> bool {
        self.ignore_files == IgnoreFileHandling::Honour
    }

    /// Adds the rules of an ignore file in this directory.
    pub fn add_ignore_rules(&self, mut position: WalkPosition, text: &str) -> WalkPosition {
        let mut builder = GitignoreBuilder::new(".");
        for line in text.lines() {
            // Invalid lines are skipped, as in git.
            let _ = builder.add_line(None, line);
        }
        if let Ok(rules) = builder.build()
            && !rules.is_empty()
        {
            let depth = position.below.len();
            position.ignores = Some(Arc::new(Ignores { rules, depth, above: position.ignores }));
        }
        position
    }

    /// The position in the directory `name`, on the way from the root of the workspace to the root
    /// of the search. This is used for ignore files above the root of the search.
    pub fn descend_to_search_root(&self, mut position: WalkPosition, name: &str) -> WalkPosition {
        position.below.push(Arc::from(name));
        position
    }

    /// The position inside a directory. `None` if the directory need not be entered.
    pub fn enter_directory(&self, position: &WalkPosition, name: &str) -> Option<WalkPosition> {
        if self.excluded(position, name) || self.ignored(position, name, FileKind::Dir) {
            return None;
        }
        self.step(position, name)
    }

    /// Like `enter_directory`, but without exclusions and ignore files.
    fn step(&self, position: &WalkPosition, name: &str) -> Option<WalkPosition> {
        let step = |globs: &[Glob], positions: &[GlobMatchState]| -> Vec<GlobMatchState> {
            globs.iter().zip(positions).map(|(glob, at)| glob.next_state(at, name)).collect()
        };
        let include = step(&self.include, &position.include);
        if !include.is_empty() && !include.iter().any(GlobMatchState::can_match_below) {
            return None;
        }
        let wanted = match (&self.wanted, &position.wanted) {
            (Some(glob), Some(at)) => {
                Some(glob.next_state(at, name)).filter(GlobMatchState::can_match_below)?.into()
            }
            _ => None,
        };
        if self.hides(name) && wanted.is_none() && include.is_empty() {
            return None;
        }
        let mut below = position.below.clone();
        if self.honours_ignore_files() {
            below.push(Arc::from(name));
        }
        Some(WalkPosition {
            wanted,
            include,
            exclude: step(&self.exclude, &position.exclude),
            ignore: step(&self.ignore, &position.ignore),
            ignores: position.ignores.clone(),
            below,
        })
    }

    /// Whether the search includes this entry.
    pub fn accepts(&self, position: &WalkPosition, name: &str, kind: FileKind) -> bool {
        self.wants(position, name, kind)
            && !self.excluded(position, name)
            && !self.ignored(position, name, kind)
    }

    /// Whether an entry was skipped only because it is ignored.
    pub fn is_ignored(&self, position: &WalkPosition, name: &str, kind: FileKind) -> bool {
        if self.ignore.is_empty() && !self.honours_ignore_files() {
            return false;
        }
        let wanted = match kind {
            FileKind::Dir => true,
            FileKind::File | FileKind::Symlink | FileKind::Other => {
                self.wants(position, name, kind)
            }
        };
        wanted
            && self.ignored(position, name, kind)
            && !self.excluded(position, name)
            && (kind != FileKind::Dir || self.step(position, name).is_some())
    }

    /// Whether the query selects the entry. Exclusions are not considered.
    fn wants(&self, position: &WalkPosition, name: &str, kind: FileKind) -> bool {
        let right_kind = match (&self.wanted, kind) {
            (Some(_), FileKind::Dir) => self.kinds == EntryKindFilter::All,
            (Some(_), FileKind::File | FileKind::Symlink | FileKind::Other) => true,
            (None, kind) => kind == FileKind::File,
        };
        let fits = |globs: &[Glob], positions: &[GlobMatchState]| {
            globs.iter().zip(positions).any(|(glob, at)| glob.matches(at, name))
        };
        right_kind
            && match (&self.wanted, &position.wanted) {
                (Some(glob), Some(at)) => glob.matches(at, name),
                _ => !self.hides(name) || !self.include.is_empty(),
            }
            && (self.include.is_empty() || fits(&self.include, &position.include))
    }

    fn hides(&self, name: &str) -> bool {
        self.hidden == DotfileVisibility::Skip && name.starts_with('.')
    }

    fn excluded(&self, position: &WalkPosition, name: &str) -> bool {
        self.exclude.iter().zip(&position.exclude).any(|(glob, at)| glob.matches(at, name))
    }

    fn ignored(&self, position: &WalkPosition, name: &str, kind: FileKind) -> bool {
        let ignored =
            || self.ignore.iter().zip(&position.ignore).any(|(glob, at)| glob.matches(at, name));
        ignored()
            || self.honours_ignore_files()
                && (name == GIT_DIRECTORY || position.ignores_entry(name, kind == FileKind::Dir))
    }
}

impl WalkPosition {
    fn ignores_entry(&self, name: &str, is_dir: bool) -> bool {
        let mut next = self.ignores.as_deref();
        while let Some(ignores) = next {
            let mut path = self.below[ignores.depth..].join("/");
            if !path.is_empty() {
                path.push('/');
            }
            path.push_str(name);
            match ignores.rules.matched(Path::new(&path), is_dir) {
                ignore::Match::None => next = ignores.above.as_deref(),
                ignore::Match::Ignore(_) => return true,
                ignore::Match::Whitelist(_) => return false,
            }
        }
        false
    }
}
