//! The data directory of this crate. Only this module opens files directly. The other modules use
//! it and ab-host.
//!
//! ```text
//! cache/KEY.git    one bare repository for each source      cache/KEY.lock
//! workspaces/TOKEN/tree, home, outbox, attachments, import.git, record   one directory for each workspace
//! git/config, git/home                                      the configuration of our own git
//! ```

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ab_core::{Error, ErrorCode, ErrorKind};
use tokio::time::{Instant, sleep};

use crate::error::{Result, SnapshotError};
use crate::token::WorkspaceToken;

/// The pause between two attempts to get a lock that another task or process holds.
const LOCK_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum size, in bytes, of the small files that this module reads.
const MAX_SMALL: u64 = 64 * 1024;
/// The configuration of our own git. It lets git read repositories of any owner. This is safe
/// because the operator has named these repositories.
const GIT_CONFIG: &str = "[safe]\n\tdirectory = *\n";
/// The name of the file that marks a workspace as complete.
pub(crate) const RECORD: &str = "record";
/// The suffixes of the names of a cache and of its lock file.
const CACHE_END: &str = ".git";
const LOCK_END: &str = ".lock";

#[derive(Clone, Debug)]
pub(crate) struct Area {
    root: PathBuf,
}

/// A held lock. Dropping the value releases the lock.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Area {
    pub(crate) fn open(root: &Path) -> Result<Area> {
        make_dir_all(root)?;
        let root = root.canonicalize().map_err(|error| failure("open", root, error))?;
        // Git's lists of directories cannot contain these characters.
        let plain = |text: &str| !text.contains(|c: char| c.is_control() || "\":".contains(c));
        if !root.to_str().is_some_and(plain) {
            let message = format!("unusable data directory {}", root.display());
            return Err(SnapshotError::failed(ErrorKind::InvalidPath, message)
                .with_hint("use a path without colons, quotes and control characters"));
        }
        let area = Area { root };
        for directory in ["cache", "workspaces", "git", "git/home"] {
            make_dir_all(&area.root.join(directory))?;
        }
        // A server must also start on a full disk, where it could not write the file again.
        if read(&area.git_config())?.as_deref() != Some(GIT_CONFIG) {
            write(&area.git_config(), GIT_CONFIG)?;
        }
        Ok(area)
    }

    /// Gives access to a data directory that another process may use. Creates nothing in it.
    pub(crate) fn existing(root: &Path) -> Area {
        Area { root: root.to_owned() }
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn git_config(&self) -> PathBuf {
        self.root.join("git/config")
    }

    pub(crate) fn git_home(&self) -> PathBuf {
        self.root.join("git/home")
    }

    pub(crate) fn cache(&self, key: &str) -> PathBuf {
        self.root.join("cache").join(format!("{key}{CACHE_END}"))
    }

    fn lock_path(&self, key: &str) -> PathBuf {
        self.root.join("cache").join(format!("{key}{LOCK_END}"))
    }

    /// Returns the keys of all caches, sorted, each with the time when its lock was last taken.
    pub(crate) fn caches(&self) -> Result<Vec<(String, SystemTime)>> {
        let directory = self.root.join("cache");
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failure("list", &directory, error)),
        };
        let names = entries.flatten().map(|entry| entry.file_name());
        let keys =
            names.filter_map(|name| Some(name.to_str()?.strip_suffix(CACHE_END)?.to_owned()));
        let used = |key: &String| {
            let lock = self.lock_path(key).metadata();
            let found = lock.or_else(|_| self.cache(key).metadata()).and_then(|it| it.modified());
            found.unwrap_or(SystemTime::UNIX_EPOCH)
        };
        let mut caches: Vec<_> = keys.map(|key| (key.clone(), used(&key))).collect();
        caches.sort();
        Ok(caches)
    }

    /// Returns the record of a workspace, or `None` if the workspace is incomplete.
    pub(crate) fn record(&self, token: &WorkspaceToken) -> Result<Option<String>> {
        read(&self.workspace(token).join(RECORD))
    }

    pub(crate) fn write_record(&self, token: &WorkspaceToken, text: &str) -> Result<()> {
        write(&self.workspace(token).join(RECORD), text)
    }

    pub(crate) fn workspace(&self, token: &WorkspaceToken) -> PathBuf {
        self.root.join("workspaces").join(token.as_str())
    }

    /// Returns the tokens of all existing workspaces, complete or not.
    pub(crate) fn tokens(&self) -> Result<Vec<WorkspaceToken>> {
        let directory = self.root.join("workspaces");
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failure("list", &directory, error)),
        };
        let names = entries.flatten().map(|entry| entry.file_name());
        Ok(names.filter_map(|name| WorkspaceToken::parse(name.to_str()?).ok()).collect())
    }

    /// Waits for the lock of a cache. The lock excludes other tasks and other processes. The
    /// modification time of the lock file is the time when the cache was last used.
    pub(crate) async fn lock(&self, key: &str, most: Duration) -> Result<Lock> {
        let path = self.lock_path(key);
        let deadline = Instant::now() + most;
        loop {
            let mut file = File::options();
            let file = file.create(true).truncate(false).write(true).mode(0o600).open(&path);
            let file = file.map_err(|error| failure("open", &path, error))?;
            match file.try_lock() {
                // The lock file may have been removed together with its cache before this task
                // locked it.
                Ok(()) if is_at(&file, &path) => {
                    let used = file.set_modified(SystemTime::now());
                    used.map_err(|error| failure("lock", &path, error))?;
                    return Ok(Lock { _file: file });
                }
                Ok(()) => {}
                Err(TryLockError::Error(error)) => return Err(failure("lock", &path, error)),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                    let message = format!("the repository cache {} is in use", path.display());
                    return Err(SnapshotError::failed(ErrorKind::Timeout, message));
                }
                Err(TryLockError::WouldBlock) => sleep(LOCK_INTERVAL).await,
            }
        }
    }

    /// Removes the lock file of a cache whose lock is held. Tasks that wait for the lock create a
    /// new file.
    pub(crate) fn remove_lock(&self, key: &str, lock: Lock) -> Result<()> {
        let path = self.lock_path(key);
        let removed = fs::remove_file(&path).map_err(|error| failure("remove", &path, error));
        drop(lock);
        removed
    }
}

/// Returns whether the open file is the file at `path`.
fn is_at(file: &File, path: &Path) -> bool {
    let known = |it: fs::Metadata| (it.dev(), it.ino());
    file.metadata().map(known).ok() == path.metadata().map(known).ok()
}

/// Creates a directory that only our user can enter. The parent directory must exist.
pub(crate) fn make_dir(path: &Path) -> Result<()> {
    DirBuilder::new().mode(0o700).create(path).map_err(|error| failure("create", path, error))
}

fn make_dir_all(path: &Path) -> Result<()> {
    let made = DirBuilder::new().mode(0o700).recursive(true).create(path);
    made.map_err(|error| failure("create", path, error))
}

pub(crate) fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(|error| failure("rename", from, error))
}

/// Writes a small file atomically.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    let written = || -> io::Result<()> {
        let mut file = File::options();
        let mut file = file.create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&new, path)
    };
    written().map_err(|error| failure("write", path, error))
}

/// Appends text to an existing file.
pub(crate) fn append(path: &Path, text: &str) -> Result<()> {
    let appended = || File::options().append(true).open(path)?.write_all(text.as_bytes());
    appended().map_err(|error| failure("write", path, error))
}

/// Returns the text of a small file, or `None` if the file does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<String>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failure("read", path, error)),
    };
    let mut text = String::new();
    let read = file.take(MAX_SMALL).read_to_string(&mut text);
    read.map_err(|error| failure("read", path, error))?;
    Ok(Some(text))
}

/// Removes the files whose names begin or end with `part` from one of our own directories. Does
/// nothing if the directory does not exist.
pub(crate) fn sweep(directory: &Path, part: &str) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(part) || name.ends_with(part) {
            // A file that cannot be removed does no harm.
            let _ = fs::remove_file(entry.path());
        }
    }
}

pub(crate) fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

pub(crate) fn is_dir(path: &Path) -> bool {
    path.is_dir()
}

/// Returns the path with all symbolic links resolved. Fails if the path does not exist.
pub(crate) fn canonical(path: &Path) -> io::Result<PathBuf> {
    path.canonicalize()
}

fn failure(act: &str, path: &Path, error: io::Error) -> SnapshotError {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::AlreadyExists => ErrorKind::AlreadyExists,
        io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
        _ => ErrorKind::Io,
    };
    let message = format!("cannot {act} {}: {error}", path.display());
    Error::new(ErrorCode::WriteFailed, kind, message).with_source(error).into()
}
