//! Locks on names of directories, so that writers of one file in this process take turns.
//!
//! Writers in other processes of ours are kept out by a lock on the directory itself. A command can
//! hold that lock too, for as long as it likes, so it is asked for during [`PATIENCE`] and no longer:
//! after that, writers of several processes are told apart by version only.
//!
//! A lock is found by the directory's inode and the name, so two ways to one file meet. The set is
//! shared by all drivers of the process: two of them may hold the same directory.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, openat};
use rustix::io::Errno;

const STRIPES: usize = 1024;

static LOCKS: [Mutex<()>; STRIPES] = [const { Mutex::new(()) }; STRIPES];

/// How long a writer asks for a directory that another process holds. Our own processes hold one
/// while they write a file.
const PATIENCE: Duration = Duration::from_millis(50);
/// How often it asks.
const PAUSE: Duration = Duration::from_millis(1);
/// How long nobody asks for a directory that was held for longer than the patience of a writer.
const DISTRUST: Duration = Duration::from_secs(10);
/// Directories that are remembered as held.
const MAX_DISTRUSTED: usize = 1024;

/// Directories by device and inode that somebody else holds for long, and until when they are left
/// alone.
static DISTRUSTED: LazyLock<Mutex<HashMap<(u64, u64), Instant>>> = LazyLock::new(Mutex::default);

pub(crate) type Held = MutexGuard<'static, ()>;

/// Waits for the lock on one name.
pub(crate) fn lock(dir: impl AsFd, name: &str) -> Result<Held, Errno> {
    Ok(take(index(dir, name)?))
}

/// Waits for the locks on two names, in an order that cannot deadlock.
pub(crate) fn lock_two(
    first: (impl AsFd, &str),
    second: (impl AsFd, &str),
) -> Result<(Held, Option<Held>), Errno> {
    let (a, b) = (index(first.0, first.1)?, index(second.0, second.1)?);
    let low = take(a.min(b));
    let high = (a != b).then(|| take(a.max(b)));
    Ok((low, high))
}

/// With whom a writer shares a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Across {
    /// With other writers that check nothing first.
    Together,
    /// With nobody, because what it checked must still hold when it writes.
    Alone,
}

/// Keeps writers in other processes of ours out of a directory, until the handle is dropped. Where
/// the directory cannot be locked, or somebody else holds it, they are only told apart by version.
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
        if now.duration_since(begun) >= PATIENCE {
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
        // The first asks for a while; the others know.
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
