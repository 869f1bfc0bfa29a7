//! The contents of a directory in the upper layer. Marker files are separated from the entries that
//! callers see.

use std::collections::BTreeSet;

use super::{Overlay, marks};
use crate::call::Verb;
use crate::error::{Error, ErrorKind, Result};
use crate::metadata::{DirEntry, WalkProblem};
use crate::options::{EntryDetailLevel, ListOptions, ReadOptions};
use crate::path::{MAX_PATH_SEGMENT_BYTES, WsPath};

/// The entries of one directory in the upper layer.
#[derive(Debug, Default)]
pub(super) struct UpperDir {
    /// The visible entries, in path order.
    pub(super) entries: Vec<DirEntry>,
    /// The names of whiteouts, which are marker files that hide an entry of the lower layer.
    pub(super) whiteouts: BTreeSet<String>,
    /// Other reserved names: keepers, which are marker files that keep a directory in existence,
    /// and leftovers of interrupted writes.
    pub(super) silent: Vec<WsPath>,
    pub(super) problems: Vec<WalkProblem>,
}

impl UpperDir {
    /// Whether the entry with this name in the lower layer is hidden.
    pub(super) fn hides(&self, name: &str) -> bool {
        !self.whiteouts.is_empty() && self.whiteouts.contains(&marks::whiteout(name).name)
    }
}

impl Overlay {
    pub(super) async fn upper_dir(
        &self,
        path: &WsPath,
        detail: EntryDetailLevel,
    ) -> Result<UpperDir> {
        // List all entries, because a whiteout may come last. Only this overlay writes to the upper
        // layer, so the directory is not large.
        let options = ListOptions { depth: 1, limit: usize::MAX, detail };
        let listing = self.upper.list(path, options).await?;
        if listing.truncated.is_some() {
            let message = "more entries than the upper layer can list";
            return Err(Error::for_path(Verb::List, path, ErrorKind::TooLarge, message));
        }
        let mut dir = UpperDir { problems: listing.problems, ..UpperDir::default() };
        for entry in listing.entries {
            let Some(name) = entry.path.name() else { continue };
            match marks::read(name) {
                marks::Name::Plain => dir.entries.push(entry),
                marks::Name::Silent => dir.silent.push(entry.path),
                marks::Name::Whiteout(_) | marks::Name::CutWhiteout => {
                    dir.whiteouts.insert(name.to_owned());
                }
            }
        }
        Ok(dir)
    }

    /// The names that the whiteouts in a directory hide.
    pub(super) async fn hidden_names(
        &self,
        path: &WsPath,
        dir: &UpperDir,
    ) -> Result<BTreeSet<String>> {
        let mut names = BTreeSet::new();
        for whiteout in &dir.whiteouts {
            match marks::read(whiteout) {
                marks::Name::Whiteout(name) => drop(names.insert(name.to_owned())),
                marks::Name::CutWhiteout => {
                    let mark = path.with_name(whiteout);
                    let options = ReadOptions { range: None, limit: MAX_PATH_SEGMENT_BYTES as u64 };
                    let bytes = self.upper.read(&mark, options).await?.bytes;
                    let name = String::from_utf8_lossy(&bytes).into_owned();
                    // Ignore a whiteout that was not written by an overlay.
                    if marks::whiteout(&name).name == *whiteout {
                        names.insert(name);
                    }
                }
                marks::Name::Plain | marks::Name::Silent => {}
            }
        }
        Ok(names)
    }
}
