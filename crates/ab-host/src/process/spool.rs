//! Keeps the output of a detached process for readers that may come and go. The newest output is
//! kept in memory, and older output on disk. If it exceeds both limits, the oldest output is
//! dropped.
//!
//! - There is one writer and any number of readers. A byte is found by its sequence number, in memory
//!   or on disk. Bytes that are no longer kept are counted as lost.
//! - Both limits hold for pieces of any size, because the overhead of each piece is counted too.
//! - A disk failure never makes the process fail. Output that could not be written is lost.
//! - Lock order: `disk` before `memory`. `disk` is only locked on blocking threads. Neither lock is
//!   held across an await.

mod disk;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ab_core::process::{OutputChannel, OutputChunk};
use bytes::Bytes;
use tokio::sync::watch;

use crate::blocking;
use disk::{Block, Disk};

/// Default memory for the output of one process, in bytes.
pub(crate) const MEMORY: usize = 1024 * 1024;
/// Default disk space for output that memory no longer holds, in bytes.
pub(crate) const DISK: u64 = 64 * 1024 * 1024;

/// Maximum length of a piece in bytes. Longer pieces are split.
const LONGEST_PIECE: usize = 64 * 1024;
/// Consecutive pieces of one channel are joined up to this length in bytes.
const JOINED_PIECE: usize = 4 * 1024;
/// The overhead of a piece in bytes: its place in the queue and its allocations.
const PIECE_COST: usize = 128;
/// When memory is full, this fraction of it (one eighth) is moved to disk at once, because a
/// smaller part would cause a write to disk with every push.
const BATCH: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) memory: usize,
    /// Maximum number of bytes on disk. With zero, nothing is kept on disk.
    pub(crate) disk: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { memory: MEMORY, disk: DISK }
    }
}

/// What a reader of the output gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Piece(OutputChunk),
    /// There is no output after the reader's position yet.
    Nothing,
    /// The reader has received all output, and no more will come.
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
    /// Creates an empty spool. When memory is full, output goes to unnamed files in `directory`. No
    /// file is left behind, no matter how the process ends.
    pub(crate) fn new(bounds: Bounds, directory: PathBuf) -> Spool {
        let disk = Mutex::new(Disk::new(directory, bounds.disk));
        let memory = Mutex::new(Memory::default());
        let (progress, _) = watch::channel(Progress::default());
        Spool { shared: Arc::new(Shared { bounds, disk, memory }), progress }
    }

    /// Appends to the output. Waits while output is moved from memory to disk. If the future is
    /// dropped while it waits, `bytes` has been appended. If `bytes` is longer than
    /// [`LONGEST_PIECE`], possibly only its first part has been appended.
    pub(crate) async fn push(&self, channel: OutputChannel, bytes: Bytes) {
        for piece in bytes.chunks(LONGEST_PIECE) {
            if !self.append(channel, piece) {
                continue;
            }
            if self.shared.bounds.disk > 0 {
                let shared = self.shared.clone();
                // If no thread is available, output is dropped below instead of moved to disk.
                let _ = blocking::run(move |_| {
                    shared.spill();
                    Ok(())
                })
                .await;
            }
            self.shared.memory().drop_to(self.shared.bounds.memory);
        }
    }

    /// Marks the end of the output.
    pub(crate) fn finish(&self) {
        let mut memory = self.shared.memory();
        memory.finished = true;
        self.publish(&memory);
    }

    /// Returns the rest of the piece that contains the byte `from`. If this piece is no longer
    /// kept, returns the oldest later piece that is kept.
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

    /// Waits until there is output after `seen`, or until the output has ended.
    pub(crate) async fn changed(&self, seen: u64) {
        let mut progress = self.progress.subscribe();
        // This cannot fail, because it fails only if the sender is gone, and we hold the sender.
        let _ = progress.wait_for(|now| now.head > seen || now.finished).await;
    }

    /// Returns the number of bytes of memory that are in use.
    pub(crate) fn held(&self) -> usize {
        self.shared.memory().used
    }

    /// Returns the sequence number of the next byte.
    #[cfg(test)]
    pub(crate) fn head(&self) -> u64 {
        self.progress.borrow().head
    }

    /// Appends in memory. Returns whether memory now exceeds its limit.
    fn append(&self, channel: OutputChannel, bytes: &[u8]) -> bool {
        let mut memory = self.shared.memory();
        memory.append(channel, bytes);
        self.publish(&memory);
        memory.used > self.shared.bounds.memory
    }

    /// Publishes the progress. The caller must hold the lock on `memory`, so that the progress
    /// never goes back.
    fn publish(&self, memory: &Memory) {
        self.progress.send_replace(Progress { head: memory.head, finished: memory.finished });
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        let shared = self.shared.clone();
        // Freeing the disk space of a long file may block.
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

    /// Moves the oldest pieces from memory to disk. The pieces are removed from memory only after
    /// they were written to disk. So readers always find them, even if the writer is dropped during
    /// the move.
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

    /// Searches for output on disk and then in memory. Nothing is moved between the two while
    /// `disk` is locked.
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

/// A piece of output and the sequence number of its first byte.
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

    /// Returns the part of the record that a reader at position `from` gets.
    fn output(&self, from: u64) -> OutputChunk {
        let skipped = from.saturating_sub(self.start);
        let bytes = usize::try_from(skipped).ok().filter(|skip| *skip <= self.bytes.len());
        OutputChunk {
            offset: self.start + skipped,
            lost_bytes_before: self.start.saturating_sub(from),
            channel: self.channel,
            bytes: bytes.map(|skip| self.bytes.slice(skip..)).unwrap_or_default(),
        }
    }
}

#[derive(Default)]
struct Memory {
    /// The pieces in ascending order, without overlap. `tail` comes after them.
    pieces: VecDeque<Record>,
    /// The newest piece, as long as it may still grow.
    tail: Option<Tail>,
    /// Number of bytes of all pieces, including their overhead.
    used: usize,
    head: u64,
    finished: bool,
    /// The sequence number up to which output was written to disk.
    on_disk: u64,
    /// The records after the last piece that a reader got from disk. They are kept so that a reader
    /// of many small pieces does not cause a disk read for each piece.
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
        // Always copy the bytes, because a slice of a larger buffer would keep the whole buffer in
        // memory.
        if bytes.len() < JOINED_PIECE {
            self.tail = Some(Tail { start, channel, bytes: bytes.to_vec() });
        } else {
            self.pieces.push_back(Record { start, channel, bytes: Bytes::copy_from_slice(bytes) });
        }
    }

    fn seal(&mut self) {
        if let Some(Tail { start, channel, bytes }) = self.tail.take() {
            // Use a boxed slice, because it has no unused capacity.
            let bytes = Bytes::from(bytes.into_boxed_slice());
            self.pieces.push_back(Record { start, channel, bytes });
        }
    }

    /// Returns the sequence number of the first byte in memory. If there is none, returns the head.
    fn start(&self) -> u64 {
        let first = self.pieces.front().map(|piece| piece.start);
        first.or(self.tail.as_ref().map(|tail| tail.start)).unwrap_or(self.head)
    }

    /// Answers a read that does not need the disk. Returns `None` if the disk is needed.
    fn recall(&mut self, from: u64) -> Option<Read> {
        if from >= self.start() || from >= self.on_disk {
            return Some(self.kept(from));
        }
        let ahead = self.ahead.as_mut().filter(|ahead| ahead.start() == Some(from))?;
        ahead.next().map(|record| Read::Piece(record.output(from)))
    }

    /// Answers a read only from the output in memory.
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

    /// Returns the oldest pieces, which must leave memory because memory exceeds its limit.
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
