//! The data directory: private to its user, and used by one process at a time. This is the only
//! module of the crate that accesses the file system directly.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::StoreError;

const LOCK: &str = "lock";
pub(crate) const DATABASE: &str = "state.db";
const PRIVATE_DIRECTORY: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// Permission bits of the group and of other users.
const OTHERS: u32 = 0o077;

/// A locked data directory. Dropping the value releases the lock. The kernel also releases the lock
/// when the process ends.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    _lock: File,
}

impl DataDir {
    /// Locks the directory. Creates it with mode 0700 if it is missing.
    ///
    /// An existing directory that is accessible to other users is made private. This is done only
    /// if it is empty or already a data directory.
    ///
    /// # Errors
    ///
    /// [`StoreError::Locked`] if another process uses the directory. [`StoreError::DataDirNotPrivate`] if it
    /// contains other files and is accessible to other users. [`StoreError::DataDir`] if it cannot be
    /// made.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let path = path.into();
        let refuse = |problem: String| StoreError::DataDir { path: path.clone(), problem };
        if prepare(&path).map_err(|error| refuse(error.to_string()))? == Prepared::OpenToOthers {
            return Err(StoreError::DataDirNotPrivate { path });
        }
        let lock = open_lock(&path).map_err(|error| refuse(error.to_string()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::Locked { pid: holder(&lock), path });
            }
            Err(TryLockError::Error(error)) => return Err(refuse(error.to_string())),
        }
        note_holder(&lock).map_err(|error| refuse(error.to_string()))?;
        Ok(Self { path, _lock: lock })
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of the database. Creates the file if it is missing, so that the file is private
    /// from the start. SQLite gives its other files the same mode.
    pub(crate) fn database(&self) -> Result<PathBuf, StoreError> {
        let path = self.path.join(DATABASE);
        let mut options = OpenOptions::new();
        options.create(true).append(true).mode(PRIVATE_FILE);
        match options.open(&path) {
            Ok(_) => Ok(path),
            Err(error) => {
                let problem = format!("cannot open {DATABASE}: {error}");
                Err(StoreError::DataDir { path: self.path.clone(), problem })
            }
        }
    }
}

/// The state of a directory after [`prepare`].
#[derive(Debug, PartialEq, Eq)]
enum Prepared {
    Private,
    /// Other users can enter the directory. Its mode is not changed, because the directory contains
    /// files that are not ours.
    OpenToOthers,
}

fn prepare(path: &Path) -> io::Result<Prepared> {
    DirBuilder::new().recursive(true).mode(PRIVATE_DIRECTORY).create(path)?;
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & OTHERS == 0 {
        return Ok(Prepared::Private);
    }
    let is_ours = path.join(LOCK).exists() || fs::read_dir(path)?.next().is_none();
    if !is_ours {
        return Ok(Prepared::OpenToOthers);
    }
    fs::set_permissions(path, Permissions::from_mode(PRIVATE_DIRECTORY))?;
    Ok(Prepared::Private)
}

fn open_lock(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).read(true).write(true).truncate(false).mode(PRIVATE_FILE);
    options.open(path.join(LOCK))
}

/// The id of the process that holds the lock. The holder writes it into the lock file.
fn holder(lock: &File) -> Option<u32> {
    let mut text = String::new();
    lock.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn note_holder(mut lock: &File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", std::process::id())
}
