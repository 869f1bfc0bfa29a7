//! The directories of spaces in the data directory. This is the only module of the crate that
//! creates or removes directories of the host.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ab_api::SpaceId;

const PRIVATE_DIRECTORY: u32 = 0o700;
/// The name of the subdirectory that holds the files of a space.
const FILES: &str = "files";

/// The host directory below which every space has its own directory.
#[derive(Clone, Debug)]
pub(crate) struct SpaceArea {
    directory: PathBuf,
}

impl SpaceArea {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// The directory with the files of a space.
    pub(crate) fn files(&self, space: SpaceId) -> PathBuf {
        self.own(space).join(FILES)
    }

    /// Creates the directory of a space.
    pub(crate) fn make(&self, space: SpaceId) -> io::Result<PathBuf> {
        let files = self.files(space);
        DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(&files)?;
        Ok(files)
    }

    /// Creates the directory of a space as a copy of `from`, a directory of the host.
    ///
    /// # Errors
    ///
    /// Returns why the directory cannot be copied, as a text for the caller.
    pub(crate) async fn copy(&self, space: SpaceId, from: &Path) -> Result<(), String> {
        let refuse = |error: io::Error| format!("cannot be copied: {error}");
        DirBuilder::new()
            .recursive(true)
            .mode(PRIVATE_DIRECTORY)
            .create(self.own(space))
            .map_err(refuse)?;
        let source = fs::canonicalize(from).map_err(refuse)?;
        if !source.is_dir() {
            return Err("is not a directory".to_owned());
        }
        // The data directory contains the server's token, so no part of it may be copied into a
        // space.
        let spaces = fs::canonicalize(&self.directory).map_err(refuse)?;
        let data = spaces.parent().unwrap_or(&spaces);
        if data.starts_with(&source) || source.starts_with(data) {
            return Err("contains the data directory of the server, or is in it".to_owned());
        }
        let copied = ab_snapshot::copy_directory_tree(&source, &self.files(space)).await;
        copied.map_err(|error| format!("cannot be copied: {}", error.message()))
    }

    /// Removes the directory of a space, if it is there. Links in it are removed and not followed.
    pub(crate) async fn remove(&self, space: SpaceId) -> ab_core::Result<()> {
        ab_snapshot::remove_directory_tree(&self.own(space)).await
    }

    /// Removes the directories of unknown spaces. A crash can leave such a directory behind before
    /// its space is stored, or after its space is destroyed.
    pub(crate) fn remove_unknown(&self, is_known: impl Fn(&str) -> bool) -> io::Result<()> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.parse::<SpaceId>().is_ok() && !is_known(name))
            {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    fn own(&self, space: SpaceId) -> PathBuf {
        Path::new(&self.directory).join(space.to_string())
    }
}
