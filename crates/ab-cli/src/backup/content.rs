//! Counts what a backup contains, so that an incomplete one is recognised.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::MANIFEST;

/// The number and the size of the entries of a directory, without its manifest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BackupContent {
    /// Files, directories and links.
    pub(super) entries: u64,
    /// The bytes of all files.
    pub(super) bytes: u64,
}

impl BackupContent {
    /// Counts the entries below `root`. Links are not followed.
    pub(super) fn of(root: &Path) -> io::Result<BackupContent> {
        let mut content = BackupContent::default();
        let mut left = vec![root.to_owned()];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory)? {
                let entry = entry?;
                if entry.path() == root.join(MANIFEST) {
                    continue;
                }
                content.entries += 1;
                let metadata = entry.metadata()?;
                if metadata.is_dir() {
                    left.push(entry.path());
                } else if metadata.is_file() {
                    content.bytes += metadata.len();
                }
            }
        }
        Ok(content)
    }
}
