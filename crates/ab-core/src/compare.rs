//! Compares two files, two directory trees, or a workspace with its overlay.

mod pairs;

use std::vec;

use crate::backend::{Backend, OverlayWorkspace};
use crate::call::Verb;
use crate::edit::{DiffLineCounts, unified_diff_with_names};
use crate::error::{Error, ErrorKind};
use crate::metadata::{DirEntry, FileKind, Stat, TruncationCause, WalkProblem};
use crate::options::{EntryDetailLevel, ListOptions, ReadOptions};
use crate::overlay::OverlayChange;
use crate::path::WsPath;
use pairs::{Pair, PairedTree, pairs};

/// Maximum size in bytes of a file whose lines are compared.
pub const MAX_COMPARE_DIFF_FILE_BYTES: u64 = 1024 * 1024;
/// The name that is used for a missing file, as in `diff` and `patch`.
const NOTHING: &str = "/dev/null";

/// How much detail a comparison reports about a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareDetailLevel {
    /// Only that the path differs.
    NameOnly,
    /// The numbers of added and removed lines.
    LineCounts,
    /// The changed lines.
    Diff,
}

#[derive(Clone, Copy, Debug)]
pub struct CompareOptions {
    pub detail: CompareDetailLevel,
    /// Maximum number of entries of each of the two compared trees.
    pub max_entries: usize,
    /// Maximum number of bytes of all diffs together.
    pub max_diff_bytes: usize,
}

/// A path that differs between the two sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathDifference {
    /// The path relative to the compared directories. The root stands for the compared paths
    /// themselves.
    pub path: WsPath,
    pub from: Option<ComparedEntry>,
    pub to: Option<ComparedEntry>,
    /// The difference between the contents. Only for files.
    pub content: Option<ContentDifference>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComparedEntry {
    pub kind: FileKind,
    pub size: u64,
    /// The target, if the entry is a symbolic link.
    pub target: Option<String>,
    /// Permission bits, if they are compared.
    pub mode: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentDifference {
    /// Both contents are text. `lines` is absent if there are too many lines to count.
    Text { lines: Option<DiffLineCounts>, diff: OptionalDiffText },
    /// A content is not UTF-8, or contains NUL characters.
    Binary,
    /// A content is larger than [`MAX_COMPARE_DIFF_FILE_BYTES`].
    TooLarge,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionalDiffText {
    Shown(String),
    NotRequested,
    /// The diff would exceed the limit.
    OverLimit,
}

/// Whether paths count as different if only their permission bits differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Modes {
    Ignored,
    Compared,
}

/// Compares two trees in path order.
#[derive(Debug)]
pub struct TreeComparison<'b> {
    from: &'b Backend,
    to: &'b Backend,
    modes: Modes,
    pairs: vec::IntoIter<Pair>,
    depth: CompareDetailLevel,
    /// The number of bytes that the diffs of the remaining files may have.
    room: usize,
    pub truncated: Option<TruncationCause>,
    pub problems: Vec<WalkProblem>,
}

impl<'b> TreeComparison<'b> {
    pub async fn new(
        backend: &'b Backend,
        from: &str,
        to: &str,
        options: CompareOptions,
    ) -> Result<TreeComparison<'b>, Error> {
        let mut comparison = TreeComparison::empty(backend, backend, Modes::Ignored, options);
        let (from, to) = (entry(backend, from).await?, entry(backend, to).await?);
        let found = if from.kind.is_dir() && to.kind.is_dir() {
            let from = comparison.tree(&from.path, options.max_entries).await?;
            let to = comparison.tree(&to.path, options.max_entries).await?;
            pairs(from, to)
        } else {
            vec![Pair { path: WsPath::root(), from: Some(from), to: Some(to) }]
        };
        comparison.pairs = found.into_iter();
        Ok(comparison)
    }

    /// Compares an overlay with its lower layer `lower`. Only the entries of the upper layer are
    /// read.
    pub async fn for_overlay(
        lower: &'b Backend,
        overlaid: &'b OverlayWorkspace,
        options: CompareOptions,
    ) -> Result<TreeComparison<'b>, Error> {
        let view = overlaid.backend();
        let mut comparison = TreeComparison::empty(lower, view, Modes::Compared, options);
        let mut changes = overlaid.diff().await?;
        if changes.len() > options.max_entries {
            changes.truncate(options.max_entries);
            comparison.truncated = Some(TruncationCause::Count);
        }
        let pair = |change: OverlayChange| {
            let entry = |stat: Option<Stat>| {
                stat.map(|stat| DirEntry {
                    path: change.path.clone(),
                    kind: stat.kind,
                    stat: Some(stat),
                })
            };
            let (from, to) = (entry(change.before), entry(change.after));
            Pair { path: change.path, from, to }
        };
        comparison.pairs = changes.into_iter().map(pair).collect::<Vec<_>>().into_iter();
        Ok(comparison)
    }

    fn empty(
        from: &'b Backend,
        to: &'b Backend,
        modes: Modes,
        bounds: CompareOptions,
    ) -> TreeComparison<'b> {
        TreeComparison {
            from,
            to,
            modes,
            pairs: Vec::new().into_iter(),
            depth: bounds.detail,
            room: bounds.max_diff_bytes,
            truncated: None,
            problems: Vec::new(),
        }
    }

    /// Returns the next difference. If a path cannot be compared, it is added to `problems` and
    /// skipped.
    pub async fn next(&mut self) -> Option<PathDifference> {
        loop {
            let pair = self.pairs.next()?;
            match self.compare(&pair).await {
                Ok(Some(change)) => return Some(change),
                Ok(None) => {}
                Err(error) => {
                    let path = error.path().map_or_else(|| pair.path.to_string(), str::to_owned);
                    self.problems.push(WalkProblem { path, error });
                }
            }
        }
    }

    async fn tree(&mut self, top: &WsPath, limit: usize) -> Result<PairedTree, Error> {
        let options = ListOptions { depth: usize::MAX, limit, detail: EntryDetailLevel::Stat };
        let mut listing = self.from.list(&top.to_string(), options).await?;
        self.truncated = self.truncated.or(listing.truncated);
        let problems = std::mem::take(&mut listing.problems);
        let troubled: Vec<WsPath> =
            problems.iter().filter_map(|each| self.from.parse_path(&each.path).ok()).collect();
        self.problems.extend(problems);
        Ok(PairedTree::new(top, listing, &troubled))
    }

    async fn compare(&mut self, pair: &Pair) -> Result<Option<PathDifference>, Error> {
        let from = self.side(self.from, pair.from.as_ref()).await?;
        let to = self.side(self.to, pair.to.as_ref()).await?;
        let kinds = (from.as_ref().map(|side| side.kind), to.as_ref().map(|side| side.kind));
        let content = match kinds {
            (Some(FileKind::File), Some(FileKind::File)) => match self.contents(pair).await? {
                None if mode(&from) == mode(&to) => return Ok(None),
                content => content,
            },
            (Some(FileKind::File), None) | (None, Some(FileKind::File)) => match self.depth {
                CompareDetailLevel::NameOnly => None,
                CompareDetailLevel::LineCounts | CompareDetailLevel::Diff => {
                    self.contents(pair).await?
                }
            },
            (Some(FileKind::Symlink), Some(FileKind::Symlink)) => {
                let target =
                    |side: &Option<ComparedEntry>| side.as_ref().and_then(|it| it.target.clone());
                if target(&from) == target(&to) {
                    return Ok(None);
                }
                None
            }
            (Some(FileKind::Other), Some(FileKind::Other)) => return Err(incomparable(pair)),
            (left, right) if left == right && mode(&from) == mode(&to) => return Ok(None),
            _ => None,
        };
        Ok(Some(PathDifference { path: pair.path.clone(), from, to, content }))
    }

    async fn side(
        &self,
        backend: &Backend,
        entry: Option<&DirEntry>,
    ) -> Result<Option<ComparedEntry>, Error> {
        let Some(entry) = entry else { return Ok(None) };
        let target = match entry.kind {
            FileKind::Symlink => Some(backend.read_link(&entry.path.to_string()).await?),
            FileKind::File | FileKind::Dir | FileKind::Other => None,
        };
        let mode = match (self.modes, entry.kind) {
            (Modes::Compared, FileKind::File | FileKind::Dir | FileKind::Other) => {
                entry.stat.as_ref().and_then(|stat| stat.mode)
            }
            (Modes::Compared, FileKind::Symlink) | (Modes::Ignored, _) => None,
        };
        Ok(Some(ComparedEntry { kind: entry.kind, size: size(entry), target, mode }))
    }

    /// The difference between the contents of a pair. A missing side counts as empty.
    async fn contents(&mut self, pair: &Pair) -> Result<Option<ContentDifference>, Error> {
        let largest = [&pair.from, &pair.to].into_iter().flatten().map(size).max().unwrap_or(0);
        if largest > MAX_COMPARE_DIFF_FILE_BYTES {
            return self.large(pair).await;
        }
        let read =
            (bytes(self.from, pair.from.as_ref()).await, bytes(self.to, pair.to.as_ref()).await);
        let (before, after) = match read {
            (Ok(before), Ok(after)) => (before, after),
            // A file has grown since the directory was listed.
            (Err(error), _) | (_, Err(error)) if error.kind() == ErrorKind::TooLarge => {
                return self.large(pair).await;
            }
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        if pair.from.is_some() && pair.to.is_some() && before == after {
            return Ok(None);
        }
        let (Some(before), Some(after)) = (text(&before), text(&after)) else {
            return Ok(Some(ContentDifference::Binary));
        };
        if self.depth == CompareDetailLevel::NameOnly {
            return Ok(Some(ContentDifference::Text {
                lines: None,
                diff: OptionalDiffText::NotRequested,
            }));
        }
        let name = |entry: &Option<DirEntry>| {
            entry.as_ref().map_or_else(|| NOTHING.to_owned(), |entry| entry.path.to_string())
        };
        let diff = unified_diff_with_names(&name(&pair.from), &name(&pair.to), before, after);
        let lines = diff.lines;
        Ok(Some(ContentDifference::Text { lines, diff: self.fitted(diff.text) }))
    }

    /// Compares files of any size byte by byte.
    async fn large(&self, pair: &Pair) -> Result<Option<ContentDifference>, Error> {
        let (Some(from), Some(to)) = (&pair.from, &pair.to) else {
            return Ok(Some(ContentDifference::TooLarge));
        };
        let mut lefts = self.from.read_chunks(&from.path.to_string()).await?;
        let mut rights = self.to.read_chunks(&to.path.to_string()).await?;
        if lefts.file_size() != rights.file_size() {
            return Ok(Some(ContentDifference::TooLarge));
        }
        let (mut left, mut right) = (Vec::new(), Vec::new());
        loop {
            if left.is_empty() {
                left = lefts.next().await?.map_or_else(Vec::new, Vec::from);
            }
            if right.is_empty() {
                right = rights.next().await?.map_or_else(Vec::new, Vec::from);
            }
            let both = left.len().min(right.len());
            if left[..both] != right[..both] || (both == 0 && left.len() != right.len()) {
                return Ok(Some(ContentDifference::TooLarge));
            }
            if both == 0 {
                return Ok(None);
            }
            left.drain(..both);
            right.drain(..both);
        }
    }

    /// The diff, if it fits completely into the limit.
    fn fitted(&mut self, diff: String) -> OptionalDiffText {
        if self.depth == CompareDetailLevel::LineCounts {
            return OptionalDiffText::NotRequested;
        }
        match self.room.checked_sub(diff.len()) {
            Some(room) => {
                self.room = room;
                OptionalDiffText::Shown(diff)
            }
            None => {
                self.room = 0;
                self.truncated.get_or_insert(TruncationCause::Bytes);
                OptionalDiffText::OverLimit
            }
        }
    }
}

async fn entry(backend: &Backend, path: &str) -> Result<DirEntry, Error> {
    let stat = backend.stat(path).await?;
    Ok(DirEntry { path: backend.parse_path(path)?, kind: stat.kind, stat: Some(stat) })
}

async fn bytes(backend: &Backend, entry: Option<&DirEntry>) -> Result<Vec<u8>, Error> {
    let Some(entry) = entry else { return Ok(Vec::new()) };
    let options = ReadOptions { range: None, limit: MAX_COMPARE_DIFF_FILE_BYTES };
    let content = backend.read_with(&entry.path.to_string(), options).await?;
    Ok(content.bytes.into())
}

/// The error for FIFOs, sockets and devices, which cannot be compared.
fn incomparable(pair: &Pair) -> Error {
    let path = pair.to.as_ref().map_or(&pair.path, |entry| &entry.path);
    Error::for_path(Verb::Read, path, ErrorKind::SpecialFile, "special files cannot be compared")
}

fn size(entry: &DirEntry) -> u64 {
    entry.stat.as_ref().map_or(0, |stat| stat.size)
}

fn mode(side: &Option<ComparedEntry>) -> Option<u32> {
    side.as_ref().and_then(|side| side.mode)
}

fn text(bytes: &[u8]) -> Option<&str> {
    str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}
