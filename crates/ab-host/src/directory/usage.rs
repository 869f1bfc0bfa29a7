//! Counts the disk space and the files of a directory.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ab_core::Result;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::failure;
use crate::blocking::Cancel;

/// Size of a block in `st_blocks` in bytes. It is the same on every file system.
const BLOCK: u64 = 512;
/// Maximum number of entries that are counted.
const MAX_ENTRIES: u64 = 1_000_000;

/// The disk space and the files of a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectoryUsage {
    /// The number of bytes that the file system has allocated. A file with several names in the
    /// directory counts once.
    pub bytes: u64,
    /// The number of entries that are not directories.
    pub files: u64,
    /// Whether the counts are incomplete, because there are more than a million entries or a
    /// directory could not be opened.
    pub is_partial: bool,
}

/// Counts everything below `path`, without following links.
pub(super) fn count(path: &Path, cancel: &Cancel) -> Result<DirectoryUsage> {
    let failed = |errno| failure("count", path, errno);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    let mut walk =
        Walk { root, usage: DirectoryUsage::default(), linked: HashSet::new(), entries: 0 };
    let mut waiting = vec![PathBuf::from(".")];
    while let Some(directory) = waiting.pop() {
        if cancel.is_set() {
            return Err(failed(Errno::CANCELED));
        }
        // The directory may be gone, or its path may be too long. The other directories are still
        // counted.
        if walk.enter(&directory, &mut waiting).is_err() {
            walk.usage.is_partial = true;
        }
        if walk.entries >= MAX_ENTRIES {
            walk.usage.is_partial = true;
            break;
        }
    }
    Ok(walk.usage)
}

struct Walk {
    root: OwnedFd,
    usage: DirectoryUsage,
    /// The files with more than one name (hard links) that were already counted, by device and
    /// inode.
    linked: HashSet<(u64, u64)>,
    entries: u64,
}

impl Walk {
    fn enter(&mut self, directory: &Path, waiting: &mut Vec<PathBuf>) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let handle = rustix::fs::openat2(&self.root, directory, flags, Mode::empty(), resolve)?;
        for entry in Dir::read_from(&handle)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            self.entries += 1;
            if self.entries >= MAX_ENTRIES {
                return Ok(());
            }
            let stat = match rustix::fs::statat(&handle, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno),
            };
            let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            if is_directory {
                waiting.push(directory.join(OsStr::from_bytes(name.to_bytes())));
            } else {
                self.usage.files += 1;
                if stat.st_nlink > 1 && !self.linked.insert((stat.st_dev, stat.st_ino)) {
                    continue;
                }
            }
            let blocks = u64::try_from(stat.st_blocks).unwrap_or_default();
            self.usage.bytes = self.usage.bytes.saturating_add(blocks.saturating_mul(BLOCK));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use crate::directory::directory_usage;

    #[tokio::test]
    async fn files_are_counted_once_and_links_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(place.path().join("outside"), vec![1; 1024 * 1024]).unwrap();
        let empty = directory_usage(&root).await.unwrap();
        assert_eq!((empty.files, empty.is_partial), (0, false));
        fs::write(root.join("a/b/file"), vec![1; 64 * 1024]).unwrap();
        fs::hard_link(root.join("a/b/file"), root.join("again")).unwrap();
        symlink(place.path(), root.join("a/up")).unwrap();
        symlink(place.path().join("outside"), root.join("link")).unwrap();
        let usage = directory_usage(&root).await.unwrap();
        assert_eq!((usage.files, usage.is_partial), (4, false));
        let more = usage.bytes - empty.bytes;
        assert!((64 * 1024..128 * 1024).contains(&more), "{more}");
        assert!(directory_usage(&root.join("missing")).await.is_err());
        assert!(directory_usage(&root.join("a/up")).await.is_err());
    }
}
