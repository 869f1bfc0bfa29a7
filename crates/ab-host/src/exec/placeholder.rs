//! An empty file at a path that commands must not create. A mount can then cover this file. The
//! file is removed when the last command that needs it has ended.
//!
//! Each user of the file, in this process or another, holds a shared lock on it, and the last user
//! removes the file. If that process is killed, its watchdog removes the file. The file is recognized
//! by properties that a file of a workspace does not have by chance: it has no bytes, mode 0400 and a
//! modification time of zero.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Stat, Timespec, Timestamps, fchmod,
    flock, fstat, futimens, linkat, openat, statat, unlinkat,
};
use rustix::io::Errno;

use super::visible_files::identity_of;
use crate::jail::Spot;
use crate::limits::cgroup::Groups;
use crate::process::watchdog::{self, WatchedFile};

const MODE: Mode = Mode::RUSR;
const TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

#[derive(Debug)]
pub(super) struct Placeholder {
    spot: Spot,
    file: OwnedFd,
    /// `None` if the path of the file on the host is unknown.
    _watched: Option<WatchedFile>,
}

impl Placeholder {
    /// Creates a placeholder. If another command has just created it, joins that placeholder.
    pub(super) fn make(spot: Spot) -> Result<Option<Placeholder>, Errno> {
        // The watchdog must know the file before the file has a name. If this process were killed in
        // between, the file would stay.
        if let Ok(file) = unnamed(&spot) {
            let watched = watched(&spot, &file)?;
            match give_name(&file, &spot) {
                Ok(()) => return Ok(Some(Placeholder { spot, file, _watched: watched })),
                Err(Errno::EXIST) => return Placeholder::join(spot),
                Err(_) => {}
            }
        }
        // Not every file system has files without a name.
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDONLY | OFlags::CLOEXEC;
        let file = match openat(&spot.dir, spot.name()?, flags | OFlags::NOFOLLOW, MODE) {
            Ok(file) => file,
            Err(Errno::EXIST) => return Placeholder::join(spot),
            Err(errno) => return Err(errno),
        };
        prepare(&file)?;
        let watched = watched(&spot, &file)?;
        Ok(Some(Placeholder { spot, file, _watched: watched }))
    }

    /// Returns whether the file at `spot` is a placeholder.
    pub(super) fn is_at(spot: &Spot) -> Result<bool, Errno> {
        Ok(is_one(&statat(&spot.dir, spot.name()?, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    /// Joins the placeholder at `spot`. Returns `None` if the file there is not a placeholder.
    pub(super) fn join(spot: Spot) -> Result<Option<Placeholder>, Errno> {
        if !Placeholder::is_at(&spot)? {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = openat(&spot.dir, spot.name()?, flags, Mode::empty())?;
        // Do not wait for the lock. A command may have made a file that looks the same, and may
        // keep it locked forever.
        flock(&file, FlockOperation::NonBlockingLockShared)?;
        // The last holder may have removed the placeholder before we got the lock.
        match statat(&spot.dir, spot.name()?, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) if same(&there, &fstat(&file)?) => {
                let watched = watched(&spot, &file)?;
                Ok(Some(Placeholder { spot, file, _watched: watched }))
            }
            Ok(_) | Err(Errno::NOENT) => Err(Errno::AGAIN),
            Err(errno) => Err(errno),
        }
    }

    fn wait_for_drop(&self) -> Result<(), Errno> {
        // This fails while others hold the placeholder. The last of them removes it.
        flock(&self.file, FlockOperation::NonBlockingLockExclusive)?;
        let name = self.spot.name()?;
        let there = statat(&self.spot.dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if is_one(&there) && same(&there, &fstat(&self.file)?) {
            unlinkat(&self.spot.dir, name, AtFlags::empty())?;
        }
        Ok(())
    }
}

impl Drop for Placeholder {
    fn drop(&mut self) {
        // If a placeholder cannot be removed, an empty read-only file remains. The next command
        // that uses the placeholder tries again.
        let _ = self.wait_for_drop();
    }
}

/// Creates a file without a name in the directory of `spot`.
fn unnamed(spot: &Spot) -> Result<OwnedFd, Errno> {
    // A file can get a name only if it can be opened for writing.
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = openat(&spot.dir, ".", flags, MODE)?;
    prepare(&file)?;
    Ok(file)
}

fn give_name(file: &OwnedFd, spot: &Spot) -> Result<(), Errno> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, path, &spot.dir, spot.name()?, AtFlags::SYMLINK_FOLLOW)
}

/// Locks a new placeholder, and gives it the properties by which it is recognized.
fn prepare(file: &OwnedFd) -> Result<(), Errno> {
    flock(file, FlockOperation::NonBlockingLockShared)?;
    fchmod(file, MODE)?;
    futimens(file, &Timestamps { last_access: TIME, last_modification: TIME })
}

/// Tells the watchdog about a placeholder at `spot`.
fn watched(spot: &Spot, file: &OwnedFd) -> Result<Option<WatchedFile>, Errno> {
    let link = format!("/proc/self/fd/{}", spot.dir.as_fd().as_raw_fd());
    let Ok(directory) = std::fs::read_link(link) else { return Ok(None) };
    let path = Path::new(&directory).join(spot.name()?);
    // If the watchdog cannot be started, the placeholder stays if this process is killed. The next
    // command that uses it removes it.
    let _ = watchdog::stand(&Groups::find().parents());
    Ok(path.is_absolute().then_some(watchdog::removes(identity_of(file)?, path)))
}

fn is_one(stat: &Stat) -> bool {
    let kind = FileType::from_raw_mode(stat.st_mode);
    let mode = Mode::from_raw_mode(stat.st_mode);
    kind == FileType::RegularFile && mode == MODE && stat.st_size == 0 && stat.st_mtime == 0
}

fn same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn spot(directory: &Path) -> Spot {
        let dir = crate::jail::open_host_dir(directory).unwrap();
        Spot::at(dir, "missing", ab_core::WsPath::root())
    }

    #[test]
    fn the_last_to_let_go_removes_it() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("missing");
        let made = Placeholder::make(spot(directory.path())).unwrap().unwrap();
        let also = Placeholder::make(spot(directory.path())).unwrap().unwrap();
        let third = Placeholder::join(spot(directory.path())).unwrap().unwrap();
        drop(made);
        assert!(place.exists());
        drop(third);
        assert!(place.exists());
        drop(also);
        assert!(!place.exists());
    }

    #[test]
    fn a_lock_of_somebody_else_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("missing");
        let made = Placeholder::make(spot(directory.path())).unwrap().unwrap();
        let held = std::fs::File::open(&place).unwrap();
        flock(&made.file, FlockOperation::Unlock).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        assert_eq!(Placeholder::join(spot(directory.path())).unwrap_err(), Errno::AGAIN);
        drop(made);
        assert!(place.exists());
    }

    #[test]
    fn a_file_of_the_workspace_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("missing");
        std::fs::write(&place, "").unwrap();
        assert!(Placeholder::make(spot(directory.path())).unwrap().is_none());
        assert!(Placeholder::join(spot(directory.path())).unwrap().is_none());
        assert!(place.exists());
    }

    #[test]
    fn one_that_became_a_file_stays() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("missing");
        let made = Placeholder::make(spot(directory.path())).unwrap().unwrap();
        std::fs::remove_file(&place).unwrap();
        std::fs::write(&place, "mine").unwrap();
        drop(made);
        assert_eq!(std::fs::read_to_string(&place).unwrap(), "mine");
    }
}
