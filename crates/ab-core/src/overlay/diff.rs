//! The changes of an overlay: walks the upper layer and compares each entry with the lower layer.
//!
//! A file with the same content in both layers is not a change. A directory that the upper layer
//! has only because of its entries is not a change either. The root is not compared.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::look::{KEEP, found};
use super::{Layer, Overlay};
use crate::call::Verb;
use crate::driver::Driver;
use crate::edit::unified_diff;
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::{DirEntry, FileKind, Stat};
use crate::options::{DEFAULT_MAX_LIST_ENTRIES, EntryDetailLevel, ListOptions, ReadOptions};
use crate::path::WsPath;
use crate::transfer::{self, TransferEnd};

/// Maximum size in bytes of a file that is compared as text.
pub const MAX_OVERLAY_DIFF_FILE_BYTES: u64 = 1024 * 1024;
/// Maximum number of bytes of all diffs in one result.
pub(crate) const MAX_OVERLAY_DIFF_TOTAL_BYTES: usize = 16 * 1024 * 1024;

/// A path that differs from the lower layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverlayChange {
    pub path: WsPath,
    pub kind: OverlayChangeKind,
    /// The attributes of the file in the lower layer.
    pub before: Option<Stat>,
    /// The attributes of the file in the overlay.
    pub after: Option<Stat>,
    /// The change as a unified diff. `Some` only for text files of at most
    /// [`MAX_OVERLAY_DIFF_FILE_BYTES`]. When the limit on all diffs is reached, this is a note
    /// instead of a diff.
    pub diff: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OverlayChangeKind {
    /// The path was added. For a directory, all its entries are listed too.
    Added,
    /// The content, the mode or the kind of the file differs.
    Changed,
    /// The path was removed. The entries of a removed directory are not listed.
    Removed,
}

impl OverlayChangeKind {
    pub fn as_str(self) -> &'static str {
        match self {
            OverlayChangeKind::Added => "added",
            OverlayChangeKind::Changed => "changed",
            OverlayChangeKind::Removed => "removed",
        }
    }
}

/// What exists in the lower layer at the path of a directory of the upper layer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Below {
    /// A directory that is visible, except for entries that a marker file in the upper layer hides.
    Shows,
    /// A directory that was removed in the overlay before the directory in the upper layer was
    /// created.
    WasRemoved,
    Nothing,
}

impl Overlay {
    /// All changes, in path order.
    pub(crate) async fn diff(&self) -> Result<Vec<OverlayChange>> {
        self.alive(Verb::List)?;
        let _tree = self.locks.tree.write().await;
        let mut differ = Differ { overlay: self, changes: Vec::new(), text: 0 };
        let mut dirs = vec![(WsPath::root(), Below::Shows)];
        while let Some((path, below)) = dirs.pop() {
            dirs.extend(differ.directory(&path, below).await?);
        }
        differ.finish().await
    }

    /// Whether the file has the same bytes and the same mode in both layers.
    pub(super) async fn is_same_file(
        &self,
        path: &WsPath,
        upper: &Stat,
        lower: &Stat,
    ) -> Result<bool> {
        if is_other_mode(upper, lower) || upper.size != lower.size {
            return Ok(false);
        }
        let (one, other) = (
            TransferEnd { driver: &*self.upper, path },
            TransferEnd { driver: &*self.lower, path },
        );
        transfer::same_bytes(one, other).await
    }
}

/// Whether both files have a mode and the modes differ.
pub(super) fn is_other_mode(one: &Stat, other: &Stat) -> bool {
    matches!((one.mode, other.mode), (Some(one), Some(other)) if one != other)
}

struct Differ<'a> {
    overlay: &'a Overlay,
    changes: Vec<OverlayChange>,
    /// The number of bytes of all diffs so far.
    text: usize,
}

impl Differ<'_> {
    /// Compares one directory of the upper layer, and returns its subdirectories to compare.
    async fn directory(&mut self, path: &WsPath, below: Below) -> Result<Vec<(WsPath, Below)>> {
        let upper = self.overlay.upper_dir(path, EntryDetailLevel::Stat).await?;
        if let Some(problem) = upper.problems.first() {
            return Err(problem.error.clone());
        }
        let hidden = self.overlay.hidden_names(path, &upper).await?;
        let mut lower = match below {
            Below::Shows => BTreeMap::new(),
            Below::WasRemoved => self.lower_dir(path).await?,
            Below::Nothing => BTreeMap::new(),
        };
        if below == Below::Shows {
            let own = upper.entries.iter().filter_map(|entry| entry.path.name());
            for name in own.chain(hidden.iter().map(String::as_str)) {
                let child = path.with_name(name);
                if let Some(stat) = found(self.overlay.lower.stat(&child, KEEP).await)? {
                    lower.insert(name.to_owned(), stat);
                }
            }
        }
        let mut dirs = Vec::new();
        for entry in upper.entries {
            let Some(name) = entry.path.name() else { continue };
            let before = lower.remove(name);
            let was_removed = below == Below::WasRemoved || hidden.contains(name);
            if entry.kind.is_dir() {
                let inside = match &before {
                    Some(before) if before.kind.is_dir() && was_removed => Below::WasRemoved,
                    Some(before) if before.kind.is_dir() => Below::Shows,
                    Some(_) | None => Below::Nothing,
                };
                dirs.push((entry.path.clone(), inside));
            }
            self.entry(entry, before).await?;
        }
        // The remaining entries are in the lower layer and are not visible in the overlay.
        for (name, before) in lower {
            let path = path.with_name(&name);
            self.note(path, OverlayChangeKind::Removed, Some(before), None);
        }
        Ok(dirs)
    }

    async fn lower_dir(&self, path: &WsPath) -> Result<BTreeMap<String, Stat>> {
        let options = ListOptions {
            max_depth: 1,
            max_entries: DEFAULT_MAX_LIST_ENTRIES,
            detail: EntryDetailLevel::Stat,
        };
        let listing = self.overlay.lower.list(path, options).await?;
        if listing.truncated.is_some() {
            let message = format!("more than {DEFAULT_MAX_LIST_ENTRIES} entries");
            return Err(Error::for_path(Verb::List, path, ErrorKind::TooLarge, message));
        }
        let named = |entry: DirEntry| Some((entry.path.name()?.to_owned(), entry.stat?));
        Ok(listing.entries.into_iter().filter_map(named).collect())
    }

    async fn entry(&mut self, entry: DirEntry, before: Option<Stat>) -> Result<()> {
        let DirEntry { path, stat: Some(after), .. } = entry else { return Ok(()) };
        let after = match after.kind {
            FileKind::Dir => self.overlay.describe_dir(&path, &after, before.as_ref()).await?,
            FileKind::File | FileKind::Symlink | FileKind::Other => after,
        };
        let kind = match &before {
            None => OverlayChangeKind::Added,
            Some(before) if self.is_same(&path, before, &after).await? => return Ok(()),
            Some(_) => OverlayChangeKind::Changed,
        };
        self.note(path, kind, before, Some(after));
        Ok(())
    }

    async fn is_same(&self, path: &WsPath, before: &Stat, after: &Stat) -> Result<bool> {
        match (after.kind, before.kind) {
            (FileKind::Dir, FileKind::Dir) => Ok(!is_other_mode(before, after)),
            (FileKind::File, FileKind::File) => {
                self.overlay.is_same_file(path, after, before).await
            }
            (FileKind::Symlink, FileKind::Symlink) => {
                let upper = self.overlay.upper.read_link(path).await?;
                Ok(upper == self.overlay.lower.read_link(path).await?)
            }
            (FileKind::Other, FileKind::Other) => Ok(false),
            (
                FileKind::Dir | FileKind::File | FileKind::Symlink | FileKind::Other,
                FileKind::Dir | FileKind::File | FileKind::Symlink | FileKind::Other,
            ) => Ok(false),
        }
    }

    fn note(
        &mut self,
        path: WsPath,
        kind: OverlayChangeKind,
        before: Option<Stat>,
        after: Option<Stat>,
    ) {
        self.changes.push(OverlayChange { path, kind, before, after, diff: None });
    }

    /// Sorts the changes and adds their diffs in that order.
    async fn finish(mut self) -> Result<Vec<OverlayChange>> {
        let mut changes = std::mem::take(&mut self.changes);
        changes.sort_by(|a, b| a.path.cmp(&b.path));
        for change in &mut changes {
            change.diff = self.text_diff(change).await?;
        }
        Ok(changes)
    }

    async fn text_diff(&mut self, change: &OverlayChange) -> Result<Option<String>> {
        let OverlayChange { path, before, after, .. } = change;
        let Some(old) = self.text(Layer::Lower, path, before.as_ref()).await? else {
            return Ok(None);
        };
        let Some(new) = self.text(Layer::Upper, path, after.as_ref()).await? else {
            return Ok(None);
        };
        if old == new {
            return Ok(None);
        }
        if self.text >= MAX_OVERLAY_DIFF_TOTAL_BYTES {
            let most = MAX_OVERLAY_DIFF_TOTAL_BYTES / (1024 * 1024);
            return Ok(Some(format!("\\ Diff left out: those before it have {most} MiB\n")));
        }
        let diff = unified_diff(path.as_str(), &old, &new).text;
        self.text += diff.len();
        Ok(Some(diff))
    }

    /// The text of a file. Empty if the file is missing. `None` if it is not text or too large.
    async fn text(
        &self,
        layer: Layer,
        path: &WsPath,
        stat: Option<&Stat>,
    ) -> Result<Option<String>> {
        match stat {
            None => Ok(Some(String::new())),
            Some(stat)
                if stat.kind != FileKind::File || stat.size > MAX_OVERLAY_DIFF_FILE_BYTES =>
            {
                Ok(None)
            }
            Some(_) => Ok(as_text(read_small(self.overlay.layer(layer), path).await?)),
        }
    }
}

async fn read_small(driver: &dyn Driver, path: &WsPath) -> Result<Option<Bytes>> {
    let options = ReadOptions { range: None, max_bytes: MAX_OVERLAY_DIFF_FILE_BYTES };
    match driver.read(path, options).await {
        Ok(content) => Ok(Some(content.bytes)),
        Err(error) if error.kind() == ErrorKind::TooLarge => Ok(None),
        Err(error) => Err(error),
    }
}

fn as_text(bytes: Option<Bytes>) -> Option<String> {
    let text = String::from_utf8(bytes?.into()).ok()?;
    (!text.contains('\0')).then_some(text)
}
