//! Locks on names of directories, so that writers of one file in this process take turns.
//!
//! Writers in other processes are kept out by a lock on the directory itself.
//!
//! A lock is found by the directory's inode and the name, so two ways to one file meet. The set is
//! shared by all drivers of the process: two of them may hold the same directory.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, openat};
use rustix::io::Errno;

const STRIPES: usize = 1024;

static LOCKS: [Mutex<()>; STRIPES] = [const { Mutex::new(()) }; STRIPES];

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
/// the directory cannot be locked, they are only told apart by version.
pub(crate) fn lock_across_processes(dir: impl AsFd, across: Across) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let handle = openat(dir, ".", flags, Mode::empty()).ok()?;
    let operation = match across {
        Across::Together => FlockOperation::LockShared,
        Across::Alone => FlockOperation::LockExclusive,
    };
    flock(&handle, operation).ok()?;
    Some(handle)
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
