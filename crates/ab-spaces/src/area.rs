//! The directories of spaces in the data directory. This is the only module of the crate that
//! creates or removes directories of the host.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ab_api::SpaceId;

const PRIVATE_DIRECTORY: u32 = 0o700;
/// The files of a space, below its own directory.
const FILES: &str = "files";

/// The directory of all spaces.
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

    /// Removes the directory of a space, if it exists. Links in it are removed and not followed.
    pub(crate) fn remove(&self, space: SpaceId) -> io::Result<()> {
        match fs::remove_dir_all(self.own(space)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes the directories of unknown spaces, which a crash left behind before the space was
    /// stored or after it was destroyed.
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
