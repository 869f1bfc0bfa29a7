//! The output of a detached process, kept for readers that come and go: in memory first, then on
//! disk, and then the oldest falls out.
//!
//! - One writer, any number of readers. A byte is found by its sequence number wherever it is kept,
//!   and is counted as lost where it is not.
//! - Both bounds hold whatever the sizes of the pieces are: each piece counts with what it costs
//!   beside its bytes.
//! - A disk that fails never fails the process: what it did not take is lost.
//! - Locks: `disk` before `memory`. `disk` is only taken on threads that may wait; neither is held
//!   across an await.

mod disk;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ab_core::process::{OutputChannel, OutputChunk};
use bytes::Bytes;
use tokio::sync::watch;

use crate::blocking;
use disk::{Block, Disk};

/// Memory for the output of one process.
pub(crate) const MEMORY: usize = 1024 * 1024;
/// Disk for what memory no longer holds.
pub(crate) const DISK: u64 = 64 * 1024 * 1024;

/// Longest piece; longer ones are kept as several.
const LONGEST_PIECE: usize = 64 * 1024;
/// Pieces of one channel that follow each other are joined up to this length.
const JOINED_PIECE: usize = 4 * 1024;
/// What a piece costs beside its bytes: its place in the queue and its allocations.
const PIECE_COST: usize = 128;
/// Memory is emptied by this part at once, so that not every push goes to the disk.
const BATCH: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) memory: usize,
    /// Zero means that no disk is used at all.
    pub(crate) disk: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { memory: MEMORY, disk: DISK }
    }
}

/// What a reader gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Piece(OutputChunk),
    /// The reader has seen all there is so far.
    Nothing,
    /// The reader has seen all there will be.
    End,
}

pub(crate) struct Spool {
    shared: Arc<Shared>,
    progress: watch::Sender<Progress>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    head: u64,
    finished: bool,
}

struct Shared {
    bounds: Bounds,
    disk: Mutex<Disk>,
    memory: Mutex<Memory>,
}

impl Spool {
    /// Output goes to files in `directory` when memory is full. They have no names, so nothing is
    /// left behind however the process ends.
    pub(crate) fn new(bounds: Bounds, directory: PathBuf) -> Spool {
        let disk = Mutex::new(Disk::new(directory, bounds.disk));
        let memory = Mutex::new(Memory::default());
        let (progress, _) = watch::channel(Progress::default());
        Spool { shared: Arc::new(Shared { bounds, disk, memory }), progress }
    }

    /// Appends to the output. Waits while the disk takes what memory has no room for; a push that
    /// is dropped while it waits has appended all, or the first part of what is longer than
    /// [`LONGEST_PIECE`].
    pub(crate) async fn push(&self, channel: OutputChannel, bytes: Bytes) {
        for piece in bytes.chunks(LONGEST_PIECE) {
            if !self.append(channel, piece) {
                continue;
            }
            if self.shared.bounds.disk > 0 {
                let shared = self.shared.clone();
                // What a thread that cannot be had does not write is lost below.
                let _ = blocking::run(move |_| {
                    shared.spill();
                    Ok(())
                })
                .await;
            }
            self.shared.memory().drop_to(self.shared.bounds.memory);
        }
    }

    /// Says that no more output comes.
    pub(crate) fn finish(&self) {
        let mut memory = self.shared.memory();
        memory.finished = true;
        self.publish(&memory);
    }

    /// The output from the byte `from` on: the rest of the piece that holds it, or else the oldest
    /// piece kept after it.
    pub(crate) async fn read(&self, from: u64) -> Read {
        let at_once = self.shared.memory().recall(from);
        if let Some(read) = at_once {
            return read;
        }
        let shared = self.shared.clone();
        match blocking::run(move |_| Ok(shared.look_up(from))).await {
            Ok(read) => read,
            Err(_) => self.shared.memory().kept(from),
        }
    }

    /// Waits until there is something past `seen`, or there will be nothing more.
    pub(crate) async fn changed(&self, seen: u64) {
        let mut progress = self.progress.subscribe();
        // Fails only when the sender is gone, which we hold.
        let _ = progress.wait_for(|now| now.head > seen || now.finished).await;
    }

    /// Bytes of memory that it holds now.
    pub(crate) fn held(&self) -> usize {
        self.shared.memory().used
    }

    /// The number of the byte that comes next.
    #[cfg(test)]
    pub(crate) fn head(&self) -> u64 {
        self.progress.borrow().head
    }

    /// Whether memory is now over its bound.
    fn append(&self, channel: OutputChannel, bytes: &[u8]) -> bool {
        let mut memory = self.shared.memory();
        memory.append(channel, bytes);
        self.publish(&memory);
        memory.used > self.shared.bounds.memory
    }

    /// Under the lock on `memory`, so that progress never goes back.
    fn publish(&self, memory: &Memory) {
        self.progress.send_replace(Progress { head: memory.head, finished: memory.finished });
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        let shared = self.shared.clone();
        // Giving back the space of a long file takes its time.
        blocking::leave(move || shared.disk().clear());
    }
}

impl std::fmt::Debug for Spool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spool").field("progress", &*self.progress.borrow()).finish_non_exhaustive()
    }
}

impl Shared {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the oldest pieces from memory to the disk. They leave memory only once they are on
    /// disk, so that readers always find them; the writer may go away meanwhile.
    fn spill(&self) {
        let mut disk = self.disk();
        let leaving = self.memory().overflow(self.bounds.memory);
        let Some(last) = leaving.last() else { return };
        let end = last.end();
        disk.append(&leaving);
        let mut memory = self.memory();
        memory.on_disk = disk.end();
        memory.drop_before(end);
    }

    /// Looks on the disk and then, while nothing can move between them, in memory.
    fn look_up(&self, from: u64) -> Read {
        let mut disk = self.disk();
        let block = disk.read(from);
        let mut memory = self.memory();
        match block {
            Some(mut block) => match block.next() {
                Some(record) => {
                    memory.ahead = Some(block);
                    Read::Piece(record.output(from))
                }
                None => memory.kept(from),
            },
            None => memory.kept(from),
        }
    }
}

/// A piece of output and the number of its first byte.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    start: u64,
    channel: OutputChannel,
    bytes: Bytes,
}

impl Record {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// The record as a reader who wanted `from` gets it.
    fn output(&self, from: u64) -> OutputChunk {
        let skipped = from.saturating_sub(self.start);
        let bytes = usize::try_from(skipped).ok().filter(|skip| *skip <= self.bytes.len());
        OutputChunk {
            offset: self.start + skipped,
            lost_bytes: self.start.saturating_sub(from),
            channel: self.channel,
            bytes: bytes.map(|skip| self.bytes.slice(skip..)).unwrap_or_default(),
        }
    }
}

#[derive(Default)]
struct Memory {
    /// Ascending, without overlap. The last is `tail` when that is not empty.
    pieces: VecDeque<Record>,
    /// The newest piece while it may still grow.
    tail: Option<Tail>,
    /// Bytes and costs of all pieces.
    used: usize,
    head: u64,
    finished: bool,
    /// The end of what the disk took; it may hold bytes before that.
    on_disk: u64,
    /// What follows the last piece that a reader got from the disk, so that reading on does not
    /// mean a read of the disk for every little piece.
    ahead: Option<Block>,
}

struct Tail {
    start: u64,
    channel: OutputChannel,
    bytes: Vec<u8>,
}

impl Memory {
    fn append(&mut self, channel: OutputChannel, bytes: &[u8]) {
        let start = self.head;
        self.head += bytes.len() as u64;
        self.used += bytes.len();
        match &mut self.tail {
            Some(tail)
                if tail.channel == channel && tail.bytes.len() + bytes.len() <= JOINED_PIECE =>
            {
                tail.bytes.extend_from_slice(bytes);
                return;
            }
            _ => self.seal(),
        }
        self.used += PIECE_COST;
        // Always a copy: a part of a larger buffer would keep all of that in memory.
        if bytes.len() < JOINED_PIECE {
            self.tail = Some(Tail { start, channel, bytes: bytes.to_vec() });
        } else {
            self.pieces.push_back(Record { start, channel, bytes: Bytes::copy_from_slice(bytes) });
        }
    }

    fn seal(&mut self) {
        if let Some(Tail { start, channel, bytes }) = self.tail.take() {
            // A box has no spare room.
            let bytes = Bytes::from(bytes.into_boxed_slice());
            self.pieces.push_back(Record { start, channel, bytes });
        }
    }

    /// The first byte in memory, or the head.
    fn start(&self) -> u64 {
        let first = self.pieces.front().map(|piece| piece.start);
        first.or(self.tail.as_ref().map(|tail| tail.start)).unwrap_or(self.head)
    }

    /// What can be answered without the disk.
    fn recall(&mut self, from: u64) -> Option<Read> {
        if from >= self.start() || from >= self.on_disk {
            return Some(self.kept(from));
        }
        let ahead = self.ahead.as_mut().filter(|ahead| ahead.start() == Some(from))?;
        ahead.next().map(|record| Read::Piece(record.output(from)))
    }

    /// The answer when memory is all there is.
    fn kept(&self, from: u64) -> Read {
        if from >= self.head {
            return if self.finished { Read::End } else { Read::Nothing };
        }
        let at = self.pieces.partition_point(|piece| piece.end() <= from);
        if let Some(piece) = self.pieces.get(at) {
            return Read::Piece(piece.output(from));
        }
        let (start, channel, bytes) = match &self.tail {
            Some(tail) => (tail.start, tail.channel, Bytes::copy_from_slice(&tail.bytes)),
            None => (self.head, OutputChannel::Stdout, Bytes::new()),
        };
        Read::Piece(Record { start, channel, bytes }.output(from))
    }

    /// The oldest pieces that have to leave, once the bound is passed.
    fn overflow(&mut self, bound: usize) -> Vec<Record> {
        if self.used <= bound {
            return Vec::new();
        }
        let target = bound - bound / BATCH;
        self.seal();
        let mut left = self.used;
        let leaves = |piece: &&Record| {
            let leaves = left > target;
            left = left.saturating_sub(cost(piece));
            leaves
        };
        self.pieces.iter().take_while(leaves).cloned().collect()
    }

    fn drop_before(&mut self, end: u64) {
        while self.pieces.front().is_some_and(|piece| piece.end() <= end) {
            self.drop_oldest();
        }
    }

    fn drop_to(&mut self, bound: usize) {
        if self.used > bound {
            self.seal();
        }
        while self.used > bound && !self.pieces.is_empty() {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(piece) = self.pieces.pop_front() {
            self.used = self.used.saturating_sub(cost(&piece));
        }
    }
}

fn cost(piece: &Record) -> usize {
    piece.bytes.len() + PIECE_COST
}

#[cfg(test)]
mod tests;
