//! Matches the entries of two listings by path.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::iter::Peekable;

use crate::metadata::{DirEntry, Listing};
use crate::path::WsPath;

/// A listed directory tree.
#[derive(Debug)]
pub(super) struct PairedTree {
    /// Paths relative to the listed directory, in path order.
    entries: Vec<(WsPath, DirEntry)>,
    /// Paths that could not be read. It is not known what exists at and below them.
    unknown: BTreeSet<WsPath>,
    /// The last path of a truncated listing. It is not known what exists after it.
    horizon: Option<WsPath>,
}

/// One path with its entries on both sides. At least one side has an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    /// The path relative to the compared directories. The root stands for the compared paths
    /// themselves.
    pub(super) path: WsPath,
    pub(super) from: Option<DirEntry>,
    pub(super) to: Option<DirEntry>,
}

impl PairedTree {
    /// Prepares a listing of `top`. `troubled` are the paths that could not be read.
    pub(super) fn new(top: &WsPath, listing: Listing, troubled: &[WsPath]) -> PairedTree {
        let below = |path: &WsPath| path.strip_prefix(top);
        let mut unknown: BTreeSet<WsPath> = troubled.iter().filter_map(below).collect();
        let mut entries = Vec::with_capacity(listing.entries.len());
        let mut last = WsPath::root();
        for entry in listing.entries {
            let Some(path) = below(&entry.path) else { continue };
            last = path.clone();
            match entry.stat {
                Some(_) => entries.push((path, entry)),
                None => drop(unknown.insert(path)),
            }
        }
        PairedTree { entries, unknown, horizon: listing.truncated.map(|_| last) }
    }

    fn knows(&self, path: &WsPath) -> bool {
        let within = self.horizon.as_ref().is_none_or(|horizon| path <= horizon);
        let above = std::iter::successors(Some(path.clone()), WsPath::parent);
        within
            && (self.unknown.is_empty() || !above.into_iter().any(|at| self.unknown.contains(&at)))
    }
}

/// The paths of both trees, in order. Paths that are unknown on one side are omitted.
pub(super) fn pairs(from: PairedTree, to: PairedTree) -> Vec<Pair> {
    let mut pairs = Vec::with_capacity(from.entries.len().max(to.entries.len()));
    let (mut lefts, mut rights) = (from.entries.iter().peekable(), to.entries.iter().peekable());
    while let Some(order) = next_side(&mut lefts, &mut rights) {
        let left = if order.is_le() { lefts.next() } else { None };
        let right = if order.is_ge() { rights.next() } else { None };
        let Some((path, _)) = left.or(right) else { break };
        if from.knows(path) && to.knows(path) {
            let entry = |side: Option<&(WsPath, DirEntry)>| side.map(|(_, entry)| entry.clone());
            pairs.push(Pair { path: path.clone(), from: entry(left), to: entry(right) });
        }
    }
    pairs
}

/// Which side has the next path. `Equal` means that both have it.
fn next_side<'e>(
    lefts: &mut Peekable<impl Iterator<Item = &'e (WsPath, DirEntry)>>,
    rights: &mut Peekable<impl Iterator<Item = &'e (WsPath, DirEntry)>>,
) -> Option<Ordering> {
    match (lefts.peek(), rights.peek()) {
        (Some((left, _)), Some((right, _))) => Some(left.cmp(right)),
        (Some(_), None) => Some(Ordering::Less),
        (None, Some(_)) => Some(Ordering::Greater),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use crate::metadata::{FileKind, FileVersion, Stat, TruncationCause};
    use crate::path::PathParser;

    use super::*;

    fn path(text: &str) -> WsPath {
        PathParser::lenient().parse(text).unwrap()
    }

    fn tree(
        top: &str,
        names: &[&str],
        cut: Option<TruncationCause>,
        troubled: &[&str],
    ) -> PairedTree {
        let stat = Stat {
            kind: FileKind::File,
            size: 0,
            modified: UNIX_EPOCH,
            accessed: None,
            created: None,
            mode: None,
            version: FileVersion::new(0),
        };
        let entry = |name: &&str| DirEntry {
            path: path(&format!("{top}/{name}")),
            kind: FileKind::File,
            stat: Some(stat.clone()),
        };
        let entries = names.iter().map(entry).collect();
        let listing = Listing { entries, truncated: cut, problems: Vec::new() };
        let troubled: Vec<WsPath> =
            troubled.iter().map(|name| path(&format!("{top}/{name}"))).collect();
        PairedTree::new(&path(top), listing, &troubled)
    }

    /// The paths as text, with `<` or `>` if a path exists on only one side.
    fn shown(from: PairedTree, to: PairedTree) -> Vec<String> {
        let sign = |pair: &Pair| match (&pair.from, &pair.to) {
            (Some(_), Some(_)) => "=",
            (Some(_), None) => "<",
            (None, _) => ">",
        };
        pairs(from, to).iter().map(|pair| format!("{}{}", sign(pair), pair.path)).collect()
    }

    #[test]
    fn paths_meet_in_order() {
        let from = tree("a", &["b", "d", "d/x", "d.txt"], None, &[]);
        let to = tree("t/o", &["a", "b", "d", "d/y", "e"], None, &[]);
        assert_eq!(shown(from, to), [">a", "=b", "=d", "<d/x", ">d/y", "<d.txt", ">e"]);
        let empty = || tree("a", &[], None, &[]);
        assert_eq!(shown(empty(), tree("b", &["x"], None, &[])), [">x"]);
        assert_eq!(shown(tree("b", &["x"], None, &[]), empty()), ["<x"]);
        assert!(shown(empty(), empty()).is_empty());
    }

    #[test]
    fn beyond_a_cut_nothing_is_claimed() {
        let cut = Some(TruncationCause::Count);
        let from = tree("a", &["b", "d"], cut, &[]);
        let to = tree("t", &["b", "c", "e"], None, &[]);
        assert_eq!(shown(from, to), ["=b", ">c", "<d"]);
        let from = tree("a", &["b", "d"], cut, &[]);
        let to = tree("t", &["b"], cut, &[]);
        assert_eq!(shown(from, to), ["=b"]);
    }

    #[test]
    fn below_what_cannot_be_read_nothing_is_claimed() {
        let from = tree("a", &["b", "c"], None, &["b"]);
        let to = tree("t", &["b", "b/x", "bx", "c"], None, &[]);
        assert_eq!(shown(from, to), [">bx", "=c"]);
    }
}
