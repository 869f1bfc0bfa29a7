//! Lists a directory with mounts below it, by merging the listings of the base and the mounts.

use std::collections::BTreeMap;

use super::parts::Part;
use super::{KEEP, Mount, Mounts, nothing_there};
use crate::call::Verb;
use crate::error::{Error, Result};
use crate::metadata::{DirEntry, FileKind, Listing, TruncationCause, WalkProblem};
use crate::options::{DEFAULT_MAX_LIST_ENTRIES, EntryDetailLevel, ListOptions};
use crate::path::WsPath;

/// Lists `path`, which belongs to `part` (the base or a mount) and has mounts below it.
pub(super) async fn merged(
    mounts: &Mounts,
    part: Part<'_>,
    path: &WsPath,
    options: ListOptions,
) -> Result<Listing> {
    let mut merge = Merge::new(mounts, options);
    match merge.take(part, part.inward(path), options.depth).await {
        Err(error) if !nothing_there(&error) => return Err(part.shown_error(error)),
        Ok(()) | Err(_) => {}
    }
    // Add inner mounts after outer ones, because they may cover entries of the outer ones.
    for mount in mounts.below(path) {
        merge.mount(path, mount).await;
    }
    Ok(merge.finish())
}

struct Merge<'a> {
    mounts: &'a Mounts,
    options: ListOptions,
    entries: BTreeMap<WsPath, DirEntry>,
    problems: Vec<WalkProblem>,
    truncated: Option<TruncationCause>,
    /// The last path of a listing that was truncated. Entries that come after it may be missing.
    horizon: Option<WsPath>,
}

impl<'a> Merge<'a> {
    fn new(mounts: &'a Mounts, options: ListOptions) -> Self {
        Self {
            mounts,
            options,
            entries: BTreeMap::new(),
            problems: Vec::new(),
            truncated: None,
            horizon: None,
        }
    }

    /// Adds the entries of the base or of a mount at `path`, up to the depth `depth`. Entries that
    /// are covered by another mount are omitted.
    async fn take(&mut self, part: Part<'_>, path: WsPath, depth: usize) -> Result<()> {
        let wanted = self.options.limit;
        let most = wanted.saturating_add(DEFAULT_MAX_LIST_ENTRIES);
        let mut limit = wanted;
        let listing = loop {
            let options = ListOptions { depth, limit, ..self.options };
            let listing = part.shown_listing(part.driver.list(&path, options).await?);
            let seen = listing.entries.iter().filter(|e| self.is_seen(part, &e.path)).count();
            let covered = listing.entries.len() - seen;
            // Covered entries must not count towards the limit, so request more entries.
            if listing.truncated.is_none() || seen >= wanted || covered == 0 || limit >= most {
                break listing;
            }
            limit = limit.saturating_mul(2).clamp(1, most);
        };
        if listing.truncated.is_some() {
            self.truncated = self.truncated.or(listing.truncated);
            let last = listing.entries.last().map_or_else(WsPath::root, |e| e.path.clone());
            self.horizon = Some(self.horizon.take().map_or(last.clone(), |h| h.min(last)));
        }
        let seen: Vec<DirEntry> =
            listing.entries.into_iter().filter(|e| self.is_seen(part, &e.path)).collect();
        self.entries.extend(seen.into_iter().map(|entry| (entry.path.clone(), entry)));
        self.problems.extend(listing.problems);
        Ok(())
    }

    fn is_seen(&self, part: Part<'_>, path: &WsPath) -> bool {
        self.mounts.owner(path).point == part.point
    }

    /// Adds a mount below `top`: the parent directories of its mount point, the mount point, and
    /// its entries.
    async fn mount(&mut self, top: &WsPath, mount: &Mount) {
        let Some(below) = mount.point.strip_prefix(top) else { return };
        if top.join(&below).is_hidden() {
            return;
        }
        let names: Vec<&str> = below.segments().collect();
        let mut path = top.clone();
        for (level, name) in names.iter().enumerate().take(self.options.depth) {
            path = path.with_name(name);
            if level + 1 < names.len() {
                self.way(&path);
            }
        }
        let Some(depth) = self.options.depth.checked_sub(names.len()) else { return };
        let part = Part::of(mount);
        let root = match self.point(part).await {
            Ok(entry) => entry,
            Err(error) => {
                self.problem(part, error);
                DirEntry { path: mount.point.clone(), kind: FileKind::Dir, stat: None }
            }
        };
        self.entries.insert(root.path.clone(), root);
        if depth == 0 {
            return;
        }
        let taken = match part.check(Verb::List) {
            // Keep the access rules of the listing. They are translated for the driver of the
            // mount.
            Ok(()) => self.take(part, part.inward(&top.join(&below)), depth).await,
            Err(_) => return,
        };
        if let Err(error) = taken {
            self.problem(part, part.shown_error(error));
        }
    }

    /// Adds a parent directory of a mount point. It exists even if the workspace that contains it
    /// has no such directory.
    fn way(&mut self, path: &WsPath) {
        let is_dir = self.entries.get(path).is_some_and(|entry| entry.kind.is_dir());
        if !is_dir {
            let stat = match self.options.detail {
                EntryDetailLevel::Kind => None,
                EntryDetailLevel::Stat => Some(self.mounts.virtual_dir()),
            };
            let entry = DirEntry { path: path.clone(), kind: FileKind::Dir, stat };
            self.entries.insert(path.clone(), entry);
        }
    }

    async fn point(&self, part: Part<'_>) -> Result<DirEntry> {
        part.check(Verb::List)?;
        let stat = match self.options.detail {
            EntryDetailLevel::Kind => None,
            EntryDetailLevel::Stat => {
                Some(part.shown(part.driver.stat(&WsPath::root(), KEEP).await)?)
            }
        };
        Ok(DirEntry { path: part.point.clone(), kind: FileKind::Dir, stat })
    }

    fn problem(&mut self, part: Part<'_>, error: Error) {
        self.problems.push(WalkProblem { path: part.point.to_string(), error });
    }

    fn finish(mut self) -> Listing {
        if let Some(horizon) = &self.horizon {
            self.entries.retain(|path, _| path <= horizon);
        }
        if self.entries.len() > self.options.limit {
            self.truncated = self.truncated.or(Some(TruncationCause::Count));
        }
        let entries = self.entries.into_values().take(self.options.limit).collect();
        Listing { entries, truncated: self.truncated, problems: self.problems }
    }
}
