//! Locks on names of directories, so that writers of one file in this process take turns.
//!
//! A lock is found by the directory's inode and the name, so two ways to one file meet. The set is
//! shared by all drivers of the process: two of them may hold the same directory.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fd::AsFd;
use rustix::fs::fstat;
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

fn take(index: usize) -> Held {
    LOCKS[index].lock().unwrap_or_else(PoisonError::into_inner)
}

fn index(dir: impl AsFd, name: &str) -> Result<usize, Errno> {
    let stat = fstat(dir)?;
    let mut hasher = DefaultHasher::new();
    (stat.st_dev, stat.st_ino, name).hash(&mut hasher);
    Ok((hasher.finish() % STRIPES as u64) as usize)
}
