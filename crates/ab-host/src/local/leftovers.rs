//! Temporary files that killed writers left in a directory.
//!
//! A writer holds a lock on its temporary file for as long as the file is open, and the kernel
//! releases the lock when the writer's process ends. A file without a lock whose inode has not
//! changed for [`MIN_AGE`] has no writer. The age is needed because a file has no lock for an instant
//! after it was created, and between its last write and its rename.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ab_core::path::TEMP_FILE_PREFIX;
use rustix::fd::AsFd;
use rustix::ffi::CStr;
use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, flock, fstat, openat, statat, unlinkat,
};
use rustix::io::Errno;

/// How long the inode of a temporary file must be unchanged before the file is removed.
const MIN_AGE: Duration = Duration::from_secs(60);
/// Maximum number of directories that are remembered as swept.
const MAX_SWEPT: usize = 4096;

/// The directories, by device and inode, in which this process found no more leftovers.
static SWEPT: LazyLock<Mutex<HashSet<(u64, u64)>>> = LazyLock::new(Mutex::default);

/// Marks an open temporary file as in use. An error is ignored: a file system without locks has no
/// leftovers that can be told apart, and its files are protected by their age only.
pub(super) fn mark_in_use(file: impl AsFd) {
    let _ = flock(file, FlockOperation::NonBlockingLockExclusive);
}

/// Removes the leftovers in a directory, once per process. Called before a temporary file is created
/// there.
pub(super) fn sweep_once(directory: impl AsFd) {
    let Ok(stat) = fstat(&directory) else { return };
    let identity = (stat.st_dev, stat.st_ino);
    if SWEPT.lock().unwrap_or_else(PoisonError::into_inner).contains(&identity) {
        return;
    }
    if matches!(sweep(directory, MIN_AGE), Ok(0)) {
        let mut swept = SWEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if swept.len() >= MAX_SWEPT {
            swept.clear();
        }
        swept.insert(identity);
    }
}

/// Removes the leftovers that are at least `min_age` old, and returns the number of temporary files
/// that stay.
fn sweep(directory: impl AsFd, min_age: Duration) -> Result<usize, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(directory, ".", flags, Mode::empty())?;
    let mut kept = 0;
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_temporary = name.to_bytes().starts_with(TEMP_FILE_PREFIX.as_bytes());
        if is_temporary && remove(&directory, name, min_age).is_err() {
            kept += 1;
        }
    }
    Ok(kept)
}

/// Removes a temporary file that no process uses.
fn remove(directory: impl AsFd, name: &CStr, min_age: Duration) -> Result<(), Errno> {
    let found = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let changed = u64::try_from(found.st_ctime).unwrap_or_default();
    if now.saturating_sub(changed) < min_age.as_secs() {
        return Err(Errno::AGAIN);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = openat(&directory, name, flags, Mode::empty())?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    let opened = fstat(&file)?;
    if (opened.st_dev, opened.st_ino, opened.st_ctime)
        != (found.st_dev, found.st_ino, found.st_ctime)
    {
        return Err(Errno::AGAIN);
    }
    unlinkat(&directory, name, AtFlags::empty())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn only_temporary_files_without_a_writer_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let (used, left) = (path(".ab-tmp-used"), path(".ab-tmp-left"));
        let writer = File::create(&used).unwrap();
        mark_in_use(&writer);
        fs::write(&left, "half").unwrap();
        fs::write(path("own"), "kept").unwrap();
        fs::create_dir(path(".ab-tmp-directory")).unwrap();
        let open = || File::open(directory.path()).unwrap();
        assert_eq!(sweep(open(), MIN_AGE), Ok(3), "all are young");
        assert!(left.exists());
        assert_eq!(sweep(open(), Duration::ZERO), Ok(2));
        assert!(!left.exists() && used.exists() && path("own").exists());
        // The end of the writer releases the lock.
        drop(writer);
        assert_eq!(sweep(open(), Duration::ZERO), Ok(1));
        assert!(!used.exists() && path(".ab-tmp-directory").is_dir());
    }

    #[test]
    fn directory_with_young_leftovers_is_swept_again() {
        let directory = tempfile::tempdir().unwrap();
        let left = directory.path().join(".ab-tmp-left");
        fs::write(&left, "half").unwrap();
        let open = || File::open(directory.path()).unwrap();
        let stat = fstat(open()).unwrap();
        let is_swept = || SWEPT.lock().unwrap().contains(&(stat.st_dev, stat.st_ino));
        sweep_once(open());
        assert!(left.exists() && !is_swept());
        fs::remove_file(&left).unwrap();
        sweep_once(open());
        assert!(is_swept());
    }
}
