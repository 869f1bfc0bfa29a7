//! Walks the merged tree below a directory in path order.
//!
//! A directory that only the lower layer has is listed with a single call. Directories that both
//! layers have are merged level by level.

use std::collections::BTreeMap;

use super::look::Spot;
use super::upper::UpperDir;
use super::{Overlay, marks};
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::{DirEntry, FileKind, Listing, Stat, TruncationCause, WalkProblem};
use crate::options::{EntryDetailLevel, ListOptions};
use crate::path::WsPath;

/// An entry that exists in one layer or in both.
#[derive(Debug)]
pub(super) struct LayeredEntry {
    pub(super) path: WsPath,
    pub(super) upper: Option<DirEntry>,
    /// The entry in the lower layer. `None` if there is none, or if a marker file hides it.
    pub(super) lower: Option<DirEntry>,
}

impl LayeredEntry {
    pub(super) fn kind(&self) -> FileKind {
        let entry = self.upper.as_ref().or(self.lower.as_ref());
        entry.map_or(FileKind::Other, |entry| entry.kind)
    }

    fn is_dir_in_upper(&self) -> bool {
        self.upper.as_ref().is_some_and(|entry| entry.kind.is_dir())
    }

    fn shows_lower(&self) -> bool {
        let lower = self.lower.as_ref().is_some_and(|entry| entry.kind.is_dir());
        lower && (self.upper.is_none() || self.is_dir_in_upper())
    }
}

/// Entries of the merged tree, in path order.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    pub(super) nodes: Vec<LayeredEntry>,
    pub(super) truncated: Option<TruncationCause>,
    pub(super) problems: Vec<WalkProblem>,
}

impl Overlay {
    /// Lists the directory at `spot`. The listed paths begin with the path that the caller used.
    pub(super) async fn list_dir(
        &self,
        spot: &Spot,
        path: &WsPath,
        options: ListOptions,
    ) -> Result<Listing> {
        let found = self.tree_below(spot, options).await?;
        let mut listing = Listing {
            entries: Vec::with_capacity(found.nodes.len()),
            truncated: found.truncated,
            problems: found.problems,
        };
        for node in found.nodes {
            let stat = match options.detail {
                EntryDetailLevel::Kind => None,
                EntryDetailLevel::Stat => self.node_stat(&node).await?,
            };
            let kind = node.kind();
            let path = match node.path.strip_prefix(&spot.path) {
                Some(below) => path.join(&below.without_access_rules()),
                None => node.path,
            };
            listing.entries.push(DirEntry { path, kind, stat });
        }
        Ok(listing)
    }

    /// All entries below the directory at `spot`, within the limits in `options`.
    pub(super) async fn tree_below(&self, spot: &Spot, options: ListOptions) -> Result<Nodes> {
        let mut walk = Walk { overlay: self, options, found: Nodes::default() };
        if options.max_depth > 0 {
            let top = Place {
                path: spot.path.clone(),
                upper: spot.is_dir_in_upper(),
                lower: spot.shows_lower(),
            };
            walk.run(top).await?;
        }
        Ok(walk.found)
    }

    /// Whether the directory at `spot` has no visible entries.
    pub(super) async fn is_empty(&self, spot: &Spot) -> Result<bool> {
        let one = ListOptions { max_depth: 1, max_entries: 1, detail: EntryDetailLevel::Kind };
        Ok(self.tree_below(spot, one).await?.nodes.is_empty())
    }

    async fn node_stat(&self, node: &LayeredEntry) -> Result<Option<Stat>> {
        let lower = node.lower.as_ref().and_then(|entry| entry.stat.as_ref());
        let upper = node.upper.as_ref().map(|entry| entry.stat.as_ref());
        match upper {
            Some(Some(upper)) if upper.kind.is_dir() => {
                self.describe_dir(&node.path, upper, lower).await.map(Some)
            }
            Some(upper) => Ok(upper.cloned()),
            None => Ok(lower.cloned()),
        }
    }
}

/// A directory to list, and the layers in which it exists.
struct Place {
    path: WsPath,
    upper: bool,
    lower: bool,
}

struct Walk<'a> {
    overlay: &'a Overlay,
    options: ListOptions,
    found: Nodes,
}

/// A directory whose entries are being listed.
struct Level {
    /// The remaining entries in reverse order, so that the next one is the last.
    children: Vec<LayeredEntry>,
    /// The limit that truncated this listing. `None` if it is complete.
    cut: Option<TruncationCause>,
}

enum Next {
    GoOn,
    Stop,
}

impl Walk<'_> {
    async fn run(&mut self, top: Place) -> Result<()> {
        if !top.upper {
            self.lower_tree(&top.path, self.options.max_depth).await?;
            return Ok(());
        }
        let mut levels = vec![self.children(&top).await?];
        while let Some(level) = levels.last_mut() {
            let Some(node) = level.children.pop() else {
                if level.cut.is_some() {
                    self.found.truncated = level.cut;
                    return Ok(());
                }
                levels.pop();
                continue;
            };
            if self.left() == 0 {
                self.found.truncated = Some(TruncationCause::Count);
                return Ok(());
            }
            let (is_dir, in_upper) = (node.kind().is_dir(), node.is_dir_in_upper());
            let place =
                Place { path: node.path.clone(), upper: in_upper, lower: node.shows_lower() };
            self.found.nodes.push(node);
            if !is_dir || levels.len() >= self.options.max_depth {
                continue;
            }
            if in_upper {
                match self.children(&place).await {
                    Ok(level) => levels.push(level),
                    Err(error) => self.passed_by(&place.path, error),
                }
                continue;
            }
            let depth = self.options.max_depth - levels.len();
            match self.lower_tree(&place.path, depth).await {
                Ok(Next::GoOn) => {}
                Ok(Next::Stop) => return Ok(()),
                Err(error) => self.passed_by(&place.path, error),
            }
        }
        Ok(())
    }

    fn left(&self) -> usize {
        self.options.max_entries.saturating_sub(self.found.nodes.len())
    }

    /// Handles an error for a directory. If the directory was removed during the walk, the error is
    /// ignored. Otherwise the result reports it as a problem, and the walk continues.
    fn passed_by(&mut self, path: &WsPath, error: Error) {
        if error.kind() != ErrorKind::NotFound {
            self.found.problems.push(WalkProblem { path: path.to_string(), error });
        }
    }

    /// Lists a directory that only the lower layer has.
    async fn lower_tree(&mut self, path: &WsPath, depth: usize) -> Result<Next> {
        let options = ListOptions { max_depth: depth, max_entries: self.left(), ..self.options };
        let listing = self.overlay.lower.list(path, options).await?;
        let node = |entry: DirEntry| {
            let below = entry.path.strip_prefix(path)?.without_access_rules();
            let is_plain = !below.segments().any(marks::is_reserved);
            // Build the path below the requested path, because the rules of the requested path
            // apply to later operations.
            let path = path.join(&below);
            let shows = is_plain && !path.is_hidden();
            shows.then_some(LayeredEntry { path, upper: None, lower: Some(entry) })
        };
        self.found.nodes.extend(listing.entries.into_iter().filter_map(node));
        self.found.problems.extend(listing.problems);
        self.found.truncated = listing.truncated;
        Ok(if listing.truncated.is_some() { Next::Stop } else { Next::GoOn })
    }

    /// Lists a directory that exists in the upper layer.
    async fn children(&mut self, place: &Place) -> Result<Level> {
        let upper = self.overlay.upper_dir(&place.path, self.options.detail).await?;
        let mut nodes: BTreeMap<String, LayeredEntry> = BTreeMap::new();
        let cut =
            if place.lower { self.lower_children(place, &upper, &mut nodes).await? } else { None };
        // If a listing was truncated, names behind its last name may be missing.
        let horizon = cut.and_then(|_| nodes.last_key_value().map(|(name, _)| name.clone()));
        for entry in upper.entries {
            let Some(name) = entry.path.name().map(str::to_owned) else { continue };
            let path = place.path.with_name(&name);
            let empty = || LayeredEntry { path, upper: None, lower: None };
            nodes.entry(name).or_insert_with(empty).upper = Some(entry);
        }
        if cut.is_some() {
            nodes.retain(|name, _| horizon.as_ref().is_some_and(|last| name <= last));
        }
        self.found.problems.extend(upper.problems);
        Ok(Level { children: nodes.into_values().rev().collect(), cut })
    }

    /// The visible entries of the lower layer, for a directory that both layers have.
    async fn lower_children(
        &mut self,
        place: &Place,
        upper: &UpperDir,
        nodes: &mut BTreeMap<String, LayeredEntry>,
    ) -> Result<Option<TruncationCause>> {
        // Hidden names must not count towards the limit.
        let limit = self.left().saturating_add(upper.whiteouts.len());
        let options = ListOptions { max_depth: 1, max_entries: limit, ..self.options };
        let listing = self.overlay.lower.list(&place.path, options).await?;
        for entry in listing.entries {
            let Some(name) = entry.path.name() else { continue };
            let hidden = upper.hides(name) || place.path.hides_child(name);
            if !marks::is_reserved(name) && !hidden {
                let path = place.path.with_name(name);
                nodes.insert(
                    name.to_owned(),
                    LayeredEntry { path, upper: None, lower: Some(entry) },
                );
            }
        }
        self.found.problems.extend(listing.problems);
        Ok(listing.truncated)
    }
}
