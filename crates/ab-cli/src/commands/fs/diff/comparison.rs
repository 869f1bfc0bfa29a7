//! Comparing two files, two directories with all they hold, or a workspace with an overlay of it.

use std::vec;

use ab_core::edit::unified_diff;
use ab_core::metadata::{Truncated, WalkProblem};
use ab_core::options::{Detail, ListOptions, ReadOptions};
use ab_core::{Backend, Entry, Error, FileKind, Kind, Overlaid, Stat, Verb, WsPath};

use super::pairs::{Pair, Tree, pairs};

/// Largest file whose lines are compared.
pub(super) const MAX_TEXT_BYTES: u64 = 1024 * 1024;
/// The name of what is not there, as `diff` and `patch` have it.
const NOTHING: &str = "/dev/null";

/// What is to be found out about a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// That there is one.
    Name,
    /// How many lines it adds and removes.
    Lines,
    /// The lines.
    Diff,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) depth: Depth,
    /// Most entries of either directory.
    pub(super) entries: usize,
    /// Most bytes of all diffs.
    pub(super) bytes: usize,
}

/// Something that is not the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// From what is compared; the root when that is meant itself.
    pub(super) path: WsPath,
    pub(super) from: Option<Side>,
    pub(super) to: Option<Side>,
    /// How the content differs, where a file's did.
    pub(super) content: Option<Content>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Side {
    pub(super) kind: FileKind,
    pub(super) size: u64,
    /// Where a link leads.
    pub(super) target: Option<String>,
    /// Permissions, where they are compared.
    pub(super) mode: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Lines were added and removed, unless they are too many to count.
    Text { lines: Option<Lines>, diff: DiffText },
    /// Not UTF-8, or with NUL characters.
    Binary,
    /// Larger than [`MAX_TEXT_BYTES`].
    Large,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lines {
    pub(super) added: u64,
    pub(super) removed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DiffText {
    Shown(String),
    NotWanted,
    /// There was no room for it any more.
    LeftOut,
}

/// Whether files that differ in nothing else are different.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Modes {
    Ignored,
    Compared,
}

/// Goes through two trees in path order.
#[derive(Debug)]
pub(super) struct Comparison<'b> {
    from: &'b Backend,
    to: &'b Backend,
    modes: Modes,
    pairs: vec::IntoIter<Pair>,
    depth: Depth,
    /// Bytes of diffs that there is still room for.
    room: usize,
    pub(super) truncated: Option<Truncated>,
    pub(super) problems: Vec<WalkProblem>,
}

impl<'b> Comparison<'b> {
    pub(super) async fn new(
        backend: &'b Backend,
        from: &str,
        to: &str,
        bounds: Bounds,
    ) -> Result<Comparison<'b>, Error> {
        let mut comparison = Comparison::empty(backend, backend, Modes::Ignored, bounds);
        let (from, to) = (entry(backend, from).await?, entry(backend, to).await?);
        let found = if from.kind.is_dir() && to.kind.is_dir() {
            let from = comparison.tree(&from.path, bounds.entries).await?;
            let to = comparison.tree(&to.path, bounds.entries).await?;
            pairs(from, to)
        } else {
            vec![Pair { path: WsPath::root(), from: Some(from), to: Some(to) }]
        };
        comparison.pairs = found.into_iter();
        Ok(comparison)
    }

    /// What an overlay has changed over `lower`. Looks only at what its upper layer has.
    pub(super) async fn overlaid(
        lower: &'b Backend,
        overlaid: &'b Overlaid,
        bounds: Bounds,
    ) -> Result<Comparison<'b>, Error> {
        let view = overlaid.backend();
        let mut comparison = Comparison::empty(lower, view, Modes::Compared, bounds);
        let mut changes = overlaid.diff().await?;
        if changes.len() > bounds.entries {
            changes.truncate(bounds.entries);
            comparison.truncated = Some(Truncated::Count);
        }
        let pair = |change: ab_core::Change| {
            let entry = |stat: Option<Stat>| {
                stat.map(|stat| Entry {
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

    fn empty(from: &'b Backend, to: &'b Backend, modes: Modes, bounds: Bounds) -> Comparison<'b> {
        Comparison {
            from,
            to,
            modes,
            pairs: Vec::new().into_iter(),
            depth: bounds.depth,
            room: bounds.bytes,
            truncated: None,
            problems: Vec::new(),
        }
    }

    /// The next change. What could not be compared is a problem, and there may be more changes.
    pub(super) async fn next(&mut self) -> Option<Change> {
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

    async fn tree(&mut self, top: &WsPath, limit: usize) -> Result<Tree, Error> {
        let options = ListOptions { depth: usize::MAX, limit, detail: Detail::Stat };
        let mut listing = self.from.list(&top.to_string(), options).await?;
        self.truncated = self.truncated.or(listing.truncated);
        let problems = std::mem::take(&mut listing.problems);
        let troubled: Vec<WsPath> =
            problems.iter().filter_map(|each| self.from.resolve(&each.path).ok()).collect();
        self.problems.extend(problems);
        Ok(Tree::new(top, listing, &troubled))
    }

    async fn compare(&mut self, pair: &Pair) -> Result<Option<Change>, Error> {
        let from = self.side(self.from, pair.from.as_ref()).await?;
        let to = self.side(self.to, pair.to.as_ref()).await?;
        let kinds = (from.as_ref().map(|side| side.kind), to.as_ref().map(|side| side.kind));
        let content = match kinds {
            (Some(FileKind::File), Some(FileKind::File)) => match self.contents(pair).await? {
                None if mode(&from) == mode(&to) => return Ok(None),
                content => content,
            },
            (Some(FileKind::File), None) | (None, Some(FileKind::File)) => match self.depth {
                Depth::Name => None,
                Depth::Lines | Depth::Diff => self.contents(pair).await?,
            },
            (Some(FileKind::Symlink), Some(FileKind::Symlink)) => {
                let target = |side: &Option<Side>| side.as_ref().and_then(|it| it.target.clone());
                if target(&from) == target(&to) {
                    return Ok(None);
                }
                None
            }
            (Some(FileKind::Other), Some(FileKind::Other)) => return Err(incomparable(pair)),
            (left, right) if left == right && mode(&from) == mode(&to) => return Ok(None),
            _ => None,
        };
        Ok(Some(Change { path: pair.path.clone(), from, to, content }))
    }

    async fn side(&self, backend: &Backend, entry: Option<&Entry>) -> Result<Option<Side>, Error> {
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
        Ok(Some(Side { kind: entry.kind, size: size(entry), target, mode }))
    }

    /// How the files of a pair differ; where there is none, its content is nothing.
    async fn contents(&mut self, pair: &Pair) -> Result<Option<Content>, Error> {
        let largest = [&pair.from, &pair.to].into_iter().flatten().map(size).max().unwrap_or(0);
        if largest > MAX_TEXT_BYTES {
            return self.large(pair).await;
        }
        let read =
            (bytes(self.from, pair.from.as_ref()).await, bytes(self.to, pair.to.as_ref()).await);
        let (before, after) = match read {
            (Ok(before), Ok(after)) => (before, after),
            // It has grown since it was listed.
            (Err(error), _) | (_, Err(error)) if error.kind() == Kind::TooLarge => {
                return self.large(pair).await;
            }
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        if pair.from.is_some() && pair.to.is_some() && before == after {
            return Ok(None);
        }
        let (Some(before), Some(after)) = (text(&before), text(&after)) else {
            return Ok(Some(Content::Binary));
        };
        if self.depth == Depth::Name {
            return Ok(Some(Content::Text { lines: None, diff: DiffText::NotWanted }));
        }
        let name = |entry: &Option<Entry>| entry.as_ref().map(|entry| entry.path.to_string());
        let diff = renamed(&unified_diff("", before, after), name(&pair.from), name(&pair.to));
        let lines = count(&diff);
        Ok(Some(Content::Text { lines, diff: self.fitted(diff) }))
    }

    /// Compares byte by byte, whatever the size.
    async fn large(&self, pair: &Pair) -> Result<Option<Content>, Error> {
        let (Some(from), Some(to)) = (&pair.from, &pair.to) else {
            return Ok(Some(Content::Large));
        };
        let mut lefts = self.from.chunks(&from.path.to_string()).await?;
        let mut rights = self.to.chunks(&to.path.to_string()).await?;
        if lefts.size() != rights.size() {
            return Ok(Some(Content::Large));
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
                return Ok(Some(Content::Large));
            }
            if both == 0 {
                return Ok(None);
            }
            left.drain(..both);
            right.drain(..both);
        }
    }

    /// The diff, as long as there is room for all of it.
    fn fitted(&mut self, diff: String) -> DiffText {
        if self.depth == Depth::Lines {
            return DiffText::NotWanted;
        }
        match self.room.checked_sub(diff.len()) {
            Some(room) => {
                self.room = room;
                DiffText::Shown(diff)
            }
            None => {
                self.room = 0;
                self.truncated.get_or_insert(Truncated::Bytes);
                DiffText::LeftOut
            }
        }
    }
}

async fn entry(backend: &Backend, path: &str) -> Result<Entry, Error> {
    let stat = backend.stat(path).await?;
    Ok(Entry { path: backend.resolve(path)?, kind: stat.kind, stat: Some(stat) })
}

async fn bytes(backend: &Backend, entry: Option<&Entry>) -> Result<Vec<u8>, Error> {
    let Some(entry) = entry else { return Ok(Vec::new()) };
    let options = ReadOptions { range: None, limit: MAX_TEXT_BYTES };
    let content = backend.read_with(&entry.path.to_string(), options).await?;
    Ok(content.bytes.into())
}

/// Nobody can tell whether two FIFOs, sockets or devices are equal.
fn incomparable(pair: &Pair) -> Error {
    let path = pair.to.as_ref().map_or(&pair.path, |entry| &entry.path);
    Error::on(Verb::Read, path, Kind::SpecialFile, "special files cannot be compared")
}

fn size(entry: &Entry) -> u64 {
    entry.stat.as_ref().map_or(0, |stat| stat.size)
}

fn mode(side: &Option<Side>) -> Option<u32> {
    side.as_ref().and_then(|side| side.mode)
}

fn text(bytes: &[u8]) -> Option<&str> {
    str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// A diff with the names of both sides at its head.
fn renamed(diff: &str, from: Option<String>, to: Option<String>) -> String {
    let named = |path: Option<String>| match path {
        None => NOTHING.to_owned(),
        Some(path) if path.contains(char::is_control) => format!("{path:?}"),
        Some(path) => path,
    };
    match diff.splitn(3, '\n').nth(2) {
        Some(hunks) => format!("--- {}\n+++ {}\n{hunks}", named(from), named(to)),
        None => String::new(),
    }
}

/// The lines that a diff adds and removes, unless it says that it was cut.
fn count(diff: &str) -> Option<Lines> {
    let mut lines = Lines::default();
    for line in diff.lines().skip(2) {
        match line.as_bytes() {
            [b'+', ..] => lines.added += 1,
            [b'-', ..] => lines.removed += 1,
            _ if line.starts_with("\\ Diff ") => return None,
            _ => {}
        }
    }
    Some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_names_both_sides() {
        let diff = unified_diff("", "a\n", "b\n");
        let named = |from: &str, to: &str| renamed(&diff, Some(from.into()), Some(to.into()));
        assert_eq!(named("x", "y/z"), "--- x\n+++ y/z\n@@ -1 +1 @@\n-a\n+b\n");
        assert!(named("a\n+++ b", "c").starts_with("--- \"a\\n+++ b\"\n+++ c\n@@"));
        assert!(renamed(&diff, None, Some("c".into())).starts_with("--- /dev/null\n+++ c\n"));
        assert_eq!(renamed("", None, None), "");
    }

    #[test]
    fn lines_are_counted_where_all_are_there() {
        let count_of = |before: &str, after: &str| count(&unified_diff("f", before, after));
        assert_eq!(count_of("-- a\nb\n", "++ c\n"), Some(Lines { added: 1, removed: 2 }));
        assert_eq!(count_of("", "a"), Some(Lines { added: 1, removed: 0 }));
        assert_eq!(count_of("a", "a"), Some(Lines::default()));
        let long = "x\n".repeat(200_000);
        assert_eq!(count_of(&long, ""), None);
    }
}
