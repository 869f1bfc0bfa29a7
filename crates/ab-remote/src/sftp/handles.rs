//! The open files and directories of a client, and their limits.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec;

use ab_core::WsPath;
use ab_core::driver::File;
use ab_core::metadata::DirEntry;
use bytes::Bytes;
use tokio::sync::{Mutex as AsyncMutex, Semaphore, SemaphorePermit};

use super::budget::SharedBudget;
use super::staging::{Stage, StagingShare};
use super::status::{FAILURE, Refusal};

/// Maximum number of files and directories that one connection may have open.
pub(super) const MAX_HANDLES: usize = 1000;
/// Maximum number of directory entries that one connection may have requested and not yet read.
pub(super) const MAX_LISTED: usize = 200_000;
/// Maximum number of bytes of answers that one connection may have requested and not yet read.
pub(super) const MAX_ANSWERS: usize = crate::wire::call::MAX_CALL_REPLY_BYTES;

/// Maximum number of concurrent listings of one connection. The limit is needed because the size of
/// a listing is known only when it is complete.
const MAX_LISTINGS: usize = 2;
/// Maximum number of concurrent searches of one connection. The limit is needed because the size of
/// a result is known only when the search is complete.
const MAX_SEARCHES: usize = 4;

/// What all channels of a connection together may still open, list and request before a limit is
/// reached.
#[derive(Debug)]
pub(crate) struct Allowance {
    handles: AtomicUsize,
    listed: AtomicUsize,
    answers: AtomicUsize,
    listings: Semaphore,
    searches: Semaphore,
    shared_budget: SharedBudget,
    /// The memory that this connection may use for content of files that arrives in several
    /// packets.
    pub(super) staging: StagingShare,
}

impl Default for Allowance {
    fn default() -> Self {
        let (handles, listed, answers) = Default::default();
        let (listings, searches) = (Semaphore::new(MAX_LISTINGS), Semaphore::new(MAX_SEARCHES));
        let (shared_budget, staging) = Default::default();
        Self { handles, listed, answers, listings, searches, shared_budget, staging }
    }
}

/// An amount that counts towards a limit of a connection. It no longer counts when this value is
/// dropped.
#[derive(Debug)]
pub(super) struct Share {
    allowance: Arc<Allowance>,
    what: What,
    amount: usize,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Handles,
    Listed,
    Answers,
}

impl Allowance {
    fn counter(&self, what: What) -> &AtomicUsize {
        match what {
            What::Handles => &self.handles,
            What::Listed => &self.listed,
            What::Answers => &self.answers,
        }
    }

    fn share(self: &Arc<Self>, what: What, amount: usize, most: usize) -> Option<Share> {
        let taken =
            self.counter(what).fetch_update(Ordering::AcqRel, Ordering::Acquire, |so_far| {
                so_far.checked_add(amount).filter(|sum| *sum <= most)
            });
        taken.ok()?;
        Some(Share { allowance: self.clone(), what, amount })
    }

    /// The number of bytes that the requests of all channels of the connection together may use.
    pub(super) fn shared_budget(&self) -> &SharedBudget {
        &self.shared_budget
    }

    /// Waits for a permit to list a directory. The caller holds it until the size of the listing
    /// counts towards the limit.
    pub(super) async fn listing(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        turn(&self.listings).await
    }

    /// Waits for a permit to search. The caller holds it until the size of the result counts
    /// towards the limit.
    pub(super) async fn search(&self) -> Result<SemaphorePermit<'_>, Refusal> {
        turn(&self.searches).await
    }

    pub(super) fn handle(self: &Arc<Self>) -> Result<Share, Refusal> {
        self.share(What::Handles, 1, MAX_HANDLES).ok_or_else(|| {
            Refusal::new(FAILURE, format!("more than {MAX_HANDLES} files and directories are open"))
        })
    }

    pub(super) fn answer(self: &Arc<Self>, bytes: usize) -> Result<Share, Refusal> {
        self.share(What::Answers, bytes, MAX_ANSWERS).ok_or_else(|| {
            Refusal::new(FAILURE, format!("more than {MAX_ANSWERS} bytes of answers wait"))
        })
    }

    pub(super) fn entries(self: &Arc<Self>, count: usize) -> Result<Share, Refusal> {
        self.share(What::Listed, count, MAX_LISTED).ok_or_else(|| {
            let message = format!("more than {MAX_LISTED} directory entries wait to be read");
            Refusal::new(FAILURE, message)
        })
    }
}

async fn turn(turns: &Semaphore) -> Result<SemaphorePermit<'_>, Refusal> {
    // The semaphores are never closed.
    turns.acquire().await.map_err(|_| Refusal::new(FAILURE, "the connection ended"))
}

impl Drop for Share {
    fn drop(&mut self) {
        self.allowance.counter(self.what).fetch_sub(self.amount, Ordering::AcqRel);
    }
}

/// What a client has open: a file, a directory, or bytes that are sent in several packets.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) path: WsPath,
    pub(super) open: Open,
    pub(super) _share: Share,
}

#[derive(Debug)]
pub(super) enum Open {
    File {
        file: Box<dyn File>,
        appends: bool,
    },
    Directory(AsyncMutex<Directory>),
    /// The content of a file that arrives in several packets, before it is written.
    Staged(Stage),
    /// The bytes of a long answer that the client has not requested yet.
    Answer(Mutex<Bytes>),
}

/// How much of a directory was read.
#[derive(Debug)]
pub(super) enum Directory {
    Unread,
    Reading {
        entries: vec::IntoIter<DirEntry>,
        /// The names that are not UTF-8.
        strangers: vec::IntoIter<String>,
        cut: bool,
        _share: Share,
    },
    Done,
}

/// The handles of one channel, by number.
#[derive(Debug, Default)]
pub(super) struct Handles {
    open: Mutex<HashMap<u32, Arc<Handle>>>,
    next: AtomicU32,
}

impl Handles {
    pub(super) fn add(&self, handle: Handle) -> u32 {
        let mut open = self.lock();
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if let std::collections::hash_map::Entry::Vacant(place) = open.entry(number) {
                place.insert(Arc::new(handle));
                return number;
            }
        }
    }

    pub(super) fn get(&self, handle: &[u8]) -> Option<Arc<Handle>> {
        self.lock().get(&number(handle)?).cloned()
    }

    pub(super) fn remove(&self, handle: &[u8]) -> Option<Arc<Handle>> {
        self.lock().remove(&number(handle)?)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, Arc<Handle>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Decodes the number of a handle from a packet.
pub(super) fn number(handle: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(handle.try_into().ok()?))
}
