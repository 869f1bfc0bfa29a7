//! Locks on names in directories. They make the writers of one file in this process take turns.
//!
//! Writers in other processes of ours are excluded by a lock on the directory itself. A command can
//! also hold this lock, for any length of time. So we try to get it only for [`TIMEOUT`]. Without
//! the lock, only file versions protect writers in different processes from each other.
//!
//! A lock is found by the inode of the directory and the name, so two paths to one file lead to the
//! same lock. All drivers of the process share the locks, because two drivers may use the same
//! directory.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, openat};
use rustix::io::Errno;

const STRIPES: usize = 1024;

static LOCKS: [Mutex<()>; STRIPES] = [const { Mutex::new(()) }; STRIPES];

/// How long a writer tries to lock a directory that another process has locked. Our own processes
/// hold this lock only while they write a file.
const TIMEOUT: Duration = Duration::from_millis(50);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(1);
/// How long no writer tries to lock a directory that was locked for longer than [`TIMEOUT`].
const DISTRUST: Duration = Duration::from_secs(10);
/// Maximum number of directories that are remembered as locked for too long.
const MAX_DISTRUSTED: usize = 1024;

/// Directories, by device and inode, that another process has kept locked for too long. The value
/// is the time until which no writer tries to lock the directory.
static DISTRUSTED: LazyLock<Mutex<HashMap<(u64, u64), Instant>>> = LazyLock::new(Mutex::default);

pub(crate) type Held = MutexGuard<'static, ()>;

/// Waits for the lock on one name.
pub(crate) fn lock(dir: impl AsFd, name: &str) -> Result<Held, Errno> {
    Ok(take(index(dir, name)?))
}

/// Waits for the locks on two names. They are taken in a fixed order, so that two callers cannot
/// cause a deadlock.
pub(crate) fn lock_two(
    first: (impl AsFd, &str),
    second: (impl AsFd, &str),
) -> Result<(Held, Option<Held>), Errno> {
    let (a, b) = (index(first.0, first.1)?, index(second.0, second.1)?);
    let low = take(a.min(b));
    let high = (a != b).then(|| take(a.max(b)));
    Ok((low, high))
}

/// Which other writers may write to a directory at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Across {
    /// Other writers that do not check a condition first.
    Together,
    /// No other writer may write to the directory, because a condition that was checked must still
    /// hold when the file is written.
    Alone,
}

/// Locks a directory against writers in other processes of ours, until the returned handle is
/// dropped. Returns `None` if the directory cannot be locked or another process has locked it. In
/// this case, only file versions protect the writers from each other.
pub(crate) fn lock_across_processes(dir: impl AsFd, across: Across) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let handle = openat(dir, ".", flags, Mode::empty()).ok()?;
    let operation = match across {
        Across::Together => FlockOperation::NonBlockingLockShared,
        Across::Alone => FlockOperation::NonBlockingLockExclusive,
    };
    let begun = Instant::now();
    loop {
        match flock(&handle, operation) {
            Ok(()) => return Some(handle),
            Err(Errno::INTR) => continue,
            Err(Errno::WOULDBLOCK) => {}
            Err(_) => return None,
        }
        let stat = fstat(&handle).ok()?;
        let directory = (stat.st_dev, stat.st_ino);
        let now = Instant::now();
        let mut distrusted = DISTRUSTED.lock().unwrap_or_else(PoisonError::into_inner);
        if distrusted.get(&directory).is_some_and(|until| now < *until) {
            return None;
        }
        if now.duration_since(begun) >= TIMEOUT {
            distrusted.retain(|_, until| now < *until);
            if distrusted.len() < MAX_DISTRUSTED {
                distrusted.insert(directory, now + DISTRUST);
            }
            return None;
        }
        drop(distrusted);
        std::thread::sleep(PAUSE);
    }
}

fn take(index: usize) -> Held {
    LOCKS[index].lock().unwrap_or_else(PoisonError::into_inner)
}

fn index(dir: impl AsFd, name: &str) -> Result<usize, Errno> {
    let stat = fstat(dir)?;
    let mut hasher = DefaultHasher::new();
    (stat.st_dev, stat.st_ino, name).hash(&mut hasher);
    Ok((hasher.finish() % STRIPES as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_held_is_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let open = || std::fs::File::open(directory.path()).unwrap();
        let holder = open();
        flock(&holder, FlockOperation::LockExclusive).unwrap();
        let begun = Instant::now();
        for _ in 0..1000 {
            assert!(lock_across_processes(open(), Across::Alone).is_none());
            assert!(lock_across_processes(open(), Across::Together).is_none());
        }
        // The first call tries for some time. The other calls give up at once.
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        flock(&holder, FlockOperation::Unlock).unwrap();
        let held = lock_across_processes(open(), Across::Alone);
        assert!(held.is_some());
        let other = tempfile::tempdir().unwrap();
        assert!(
            lock_across_processes(std::fs::File::open(other.path()).unwrap(), Across::Alone)
                .is_some()
        );
    }
}
