//! Backups of a data directory: which files a backup contains, and which are omitted.
//!
//! A backup is a directory, or a tar archive of a directory. The directory has the layout of a data
//! directory and an additional file `manifest.json`.

mod archive;
mod content;
mod making;
mod restoring;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use content::BackupContent;
pub(crate) use making::make;
pub(crate) use restoring::restore;

use crate::failure::Failure;

/// The name of the file that describes a backup.
const MANIFEST: &str = "manifest.json";
const DATABASE: &str = "state.db";
/// The version of the backup layout.
const FORMAT: u32 = 1;
/// File name endings of archives. Backups with other names are directories.
const ARCHIVE_ENDS: [&str; 5] = [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.xz"];
/// Entries of a data directory that are not copied, because they belong to the running server or
/// can be made again.
const LEFT_OUT: [&str; 5] = ["lock", "reserve", "server.json", "agents", "agent-servers"];
/// Maximum size in bytes of a file directly in the data directory, such as a key.
const MAX_SMALL_FILE: u64 = 16 * 1024 * 1024;

/// The content of `manifest.json`: facts about a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    format: u32,
    /// The version of the program that made the backup.
    version: String,
    created_at: String,
    /// The path of the original data directory. Files of workspaces contain this path.
    data_dir: String,
    /// The SHA-256 digest of the database.
    database_sha256: String,
    /// Everything else in the backup, so that an incomplete one is recognised. Missing in backups of
    /// earlier versions.
    #[serde(default)]
    content: Option<BackupContent>,
}

/// The result of making or restoring a backup.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BackupReport {
    pub(crate) path: String,
    pub(crate) sessions: u64,
    pub(crate) workspaces: u64,
    /// Problems with items that could not be copied, one sentence each.
    pub(crate) problems: Vec<String>,
}

/// Whether a backup is a directory or an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BackupForm {
    Directory,
    Archive,
}

impl BackupForm {
    fn by_name(path: &Path) -> BackupForm {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if ARCHIVE_ENDS.iter().any(|end| name.ends_with(end) && name.len() > end.len()) {
            BackupForm::Archive
        } else {
            BackupForm::Directory
        }
    }
}

/// A hidden path next to `path`, for an incomplete file or directory.
fn beside(path: &Path, what: &str) -> Result<PathBuf, Failure> {
    let Some(name) = path.file_name() else {
        return Err(Failure::usage(format!("{} has no name", path.display())));
    };
    let name = name.to_string_lossy();
    Ok(path.with_file_name(format!(".{name}.{what}-{}", std::process::id())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_follows_from_the_name() {
        for (name, form) in [
            ("/b/x.tar", BackupForm::Archive),
            ("x.tar.gz", BackupForm::Archive),
            ("x.tgz", BackupForm::Archive),
            ("x", BackupForm::Directory),
            ("x.tar/", BackupForm::Archive),
            (".tar", BackupForm::Directory),
            ("x.gz", BackupForm::Directory),
        ] {
            assert_eq!(BackupForm::by_name(Path::new(name)), form, "{name}");
        }
    }
}
