//! The part of a spool that is on disk. It consists of records in a sequence of unnamed files. If
//! the limit is exceeded, the oldest file is dropped.
//!
//! - There is a gap where output could not be written. Nothing is stored about gaps, because each
//!   record contains its sequence number.
//! - The positions of records are stored only at intervals, so that many small records need little
//!   memory.
//! - The limit applies to the length of the files, including headers, and is checked before each
//!   write.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use ab_core::path::TEMP_FILE_PREFIX;
use ab_core::process::OutputChannel;
use bytes::Bytes;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{LONGEST_PIECE, Record};

/// Length of one file in bytes, unless the limit is small.
const SEGMENT: u64 = 8 * 1024 * 1024;
/// The limit is divided among at least this number of files, so that most of the output is kept
/// when one file is dropped.
const SEGMENTS: u64 = 8;
/// Maximum number of bytes of one write.
const WRITE: usize = 256 * 1024;
/// Distance in bytes between two stored positions of records.
const MARK: u64 = 64 * 1024;
/// Length of a record's header: sequence number, channel and length.
const HEADER: usize = 8 + 1 + 4;
/// Length of a block. A block that starts at a stored position always contains the next records up
/// to the following stored position, including the whole last record.
const BLOCK: usize = MARK as usize + HEADER + LONGEST_PIECE;

pub(super) struct Disk {
    directory: PathBuf,
    bound: u64,
    segments: VecDeque<Segment>,
    /// Total length of all segments in bytes.
    used: u64,
    /// The sequence number at the end of the newest record.
    end: u64,
}

struct Segment {
    file: File,
    length: u64,
    end: u64,
    marks: Vec<Mark>,
}

#[derive(Clone, Copy)]
struct Mark {
    sequence: u64,
    offset: u64,
}

impl Disk {
    pub(super) fn new(directory: PathBuf, bound: u64) -> Disk {
        Disk { directory, bound, segments: VecDeque::new(), used: 0, end: 0 }
    }

    /// Returns the sequence number at the end of the newest record, even if that record was
    /// dropped.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Writes `records`, which must follow all earlier records. Records that cannot be written are
    /// lost.
    pub(super) fn append(&mut self, records: &[Record]) {
        let mut rest = records;
        while !rest.is_empty() {
            let room =
                self.segments.back().map_or(0, |last| self.segment().saturating_sub(last.length));
            let room = usize::try_from(room).unwrap_or(usize::MAX);
            let (mut count, mut length) = fitting(rest, room.min(WRITE));
            let fresh = count == 0;
            if fresh {
                let whole = usize::try_from(self.segment()).unwrap_or(usize::MAX);
                (count, length) = fitting(rest, whole.min(WRITE));
            }
            // The record is longer than a segment, but it may still fit into the limit.
            if count == 0 {
                (count, length) = (1, HEADER + rest[0].bytes.len());
            }
            let (now, later) = rest.split_at(count);
            rest = later;
            if self.make_room(length as u64) {
                // Records that cannot be written are lost. The next write may succeed.
                let _ = self.write(now, length, fresh);
            }
        }
    }

    /// Returns the records from the first one that ends after `from`. A segment that cannot be read
    /// is dropped.
    pub(super) fn read(&mut self, from: u64) -> Option<Block> {
        loop {
            let at = self.segments.partition_point(|segment| segment.end <= from);
            match self.segments.get(at)?.read(from) {
                Ok(block) => return Some(block),
                Err(_) => {
                    let broken = self.segments.remove(at)?;
                    self.used -= broken.length;
                }
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.segments.clear();
        self.used = 0;
    }

    fn segment(&self) -> u64 {
        SEGMENT.min(self.bound / SEGMENTS)
    }

    /// Drops the oldest segments until `length` more bytes fit. Returns false if they can never
    /// fit.
    fn make_room(&mut self, length: u64) -> bool {
        while self.used + length > self.bound {
            match self.segments.pop_front() {
                Some(oldest) => self.used -= oldest.length,
                None => return false,
            }
        }
        true
    }

    fn write(&mut self, records: &[Record], length: usize, fresh: bool) -> Result<(), Errno> {
        if fresh || self.segments.is_empty() {
            let file = unnamed(&self.directory)?;
            self.segments.push_back(Segment { file, length: 0, end: 0, marks: Vec::new() });
        }
        let Some(segment) = self.segments.back_mut() else { return Ok(()) };
        let written = segment.write(records, length);
        if segment.length == 0 {
            self.segments.pop_back();
        }
        self.used += written?;
        self.end = records.last().map_or(self.end, Record::end);
        Ok(())
    }
}

/// Returns how many of `records` fit into `room`, and their length on disk.
fn fitting(records: &[Record], room: usize) -> (usize, usize) {
    let mut length = 0;
    for (count, record) in records.iter().enumerate() {
        let longer = length + HEADER + record.bytes.len();
        if longer > room {
            return (count, length);
        }
        length = longer;
    }
    (records.len(), length)
}

impl Segment {
    /// Writes records to the end of the segment. If this fails, the segment is unchanged, and the
    /// next write goes to the same position.
    fn write(&mut self, records: &[Record], length: usize) -> Result<u64, Errno> {
        let mut buffer = Vec::with_capacity(length);
        let mut marks = Vec::new();
        let mut marked = self.marks.last().map(|mark| mark.offset);
        for record in records {
            let offset = self.length + buffer.len() as u64;
            if marked.is_none_or(|marked| offset - marked >= MARK) {
                marks.push(Mark { sequence: record.start, offset });
                marked = Some(offset);
            }
            encode(record, &mut buffer);
        }
        self.file.write_all_at(&buffer, self.length).map_err(|error| errno(&error))?;
        self.length += buffer.len() as u64;
        self.end = records.last().map_or(self.end, Record::end);
        self.marks.append(&mut marks);
        Ok(buffer.len() as u64)
    }

    fn read(&self, from: u64) -> Result<Block, Errno> {
        let after = self.marks.partition_point(|mark| mark.sequence <= from);
        let mark = self.marks.get(after.saturating_sub(1)).ok_or(Errno::IO)?;
        let mut block = self.block(mark.offset)?;
        while let Some(record) = block.peek() {
            if record.end() > from {
                // Let the block start at this record. It then also contains the following records,
                // which the reader will need next.
                return match block.at {
                    0 => Ok(block),
                    at => self.block(mark.offset + at as u64),
                };
            }
            block.skip();
        }
        Err(Errno::IO)
    }

    fn block(&self, offset: u64) -> Result<Block, Errno> {
        let length = usize::try_from(self.length - offset).unwrap_or(BLOCK).min(BLOCK);
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset).map_err(|error| errno(&error))?;
        Ok(Block { bytes, at: 0 })
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// A part of a segment. It starts with a record. The last record in it may be incomplete.
pub(super) struct Block {
    bytes: Vec<u8>,
    at: usize,
}

impl Block {
    /// Returns the sequence number of the next record.
    pub(super) fn start(&self) -> Option<u64> {
        self.peek().map(|head| head.start)
    }

    pub(super) fn next(&mut self) -> Option<Record> {
        let head = self.peek()?;
        let bytes = self.bytes.get(self.at + HEADER..self.at + HEADER + head.length)?;
        // The bytes are copied, because a reader may keep them for a long time.
        let bytes = Bytes::copy_from_slice(bytes);
        self.skip();
        Some(Record { start: head.start, channel: head.channel, bytes })
    }

    /// Returns the header of the next record, if the block contains the whole record.
    fn peek(&self) -> Option<Head> {
        let (head, rest) = self.bytes.get(self.at..)?.split_first_chunk::<HEADER>()?;
        let (start, head) = head.split_first_chunk::<8>()?;
        let (channel, length) = head.split_first()?;
        let length = u32::from_le_bytes(*length.first_chunk()?) as usize;
        let channel = if *channel == 0 { OutputChannel::Stdout } else { OutputChannel::Stderr };
        let whole = length <= rest.len();
        whole.then_some(Head { start: u64::from_le_bytes(*start), channel, length })
    }

    fn skip(&mut self) {
        if let Some(head) = self.peek() {
            self.at += HEADER + head.length;
        }
    }
}

struct Head {
    start: u64,
    channel: OutputChannel,
    length: usize,
}

impl Head {
    fn end(&self) -> u64 {
        self.start + self.length as u64
    }
}

fn encode(record: &Record, out: &mut Vec<u8>) {
    out.extend_from_slice(&record.start.to_le_bytes());
    out.push(match record.channel {
        OutputChannel::Stdout => 0,
        OutputChannel::Stderr => 1,
    });
    let length = u32::try_from(record.bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&record.bytes);
}

/// Creates an unnamed file in `directory`. The kernel removes the file when it is closed or when
/// this process ends.
fn unnamed(directory: &Path) -> Result<File, Errno> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(directory, flags | OFlags::TMPFILE, mode) {
        // File systems and kernels that do not support unnamed files return these errors.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {}
        made => return made.map(File::from),
    }
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let place = directory.join(format!("{TEMP_FILE_PREFIX}spool-{}-{number}", process::id()));
    let file = rustix::fs::open(&place, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
    rustix::fs::unlink(&place)?;
    Ok(File::from(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(start: u64, length: usize) -> Record {
        let bytes: Vec<u8> = (0..length as u64).map(|n| (start + n) as u8).collect();
        Record { start, channel: OutputChannel::Stderr, bytes: bytes.into() }
    }

    #[test]
    fn records_are_found_by_sequence() {
        let directory = tempfile::tempdir().unwrap();
        let mut disk = Disk::new(directory.path().into(), 1 << 20);
        let records: Vec<Record> = (0..5_000).map(|n| record(n * 20, 20)).collect();
        disk.append(&records);
        assert_eq!(disk.end(), 100_000);
        assert!(disk.segments.len() > 1, "{} segments", disk.segments.len());
        for from in (0..100_000).step_by(333) {
            let mut block = disk.read(from).unwrap();
            assert_eq!(block.start(), Some(from / 20 * 20));
            assert_eq!(block.next(), Some(record(from / 20 * 20, 20)));
        }
        assert!(disk.read(100_000).is_none());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn holes_are_stepped_over() {
        let directory = tempfile::tempdir().unwrap();
        let mut disk = Disk::new(directory.path().into(), 1 << 20);
        disk.append(&[record(0, 10)]);
        disk.append(&[record(50, 10)]);
        assert_eq!(disk.read(10).unwrap().next(), Some(record(50, 10)));
        assert_eq!(disk.read(9).unwrap().next(), Some(record(0, 10)));
    }

    #[test]
    fn the_oldest_goes_and_the_bound_holds() {
        let directory = tempfile::tempdir().unwrap();
        for bound in [1, 100, 1_000, 4_096, 70_000] {
            let mut disk = Disk::new(directory.path().into(), bound);
            let mut start = 0;
            for length in [1, 50, 900, 10, 0, 3_000, 7, 65_536, 20, 20, 20] {
                disk.append(&[record(start, length)]);
                start += length as u64;
                assert!(disk.used <= bound);
                let lengths: u64 = disk.segments.iter().map(|each| each.length).sum();
                assert_eq!(disk.used, lengths);
            }
            let newest = disk.read(start - 1).map(|mut block| block.next().unwrap());
            assert_eq!(newest, (bound >= 100).then(|| record(start - 20, 20)), "{bound}");
        }
    }

    #[test]
    fn what_cannot_be_written_is_not_kept() {
        let directory = tempfile::tempdir().unwrap();
        let mut disk = Disk::new(directory.path().join("gone"), 1 << 20);
        disk.append(&[record(0, 10), record(10, 10)]);
        assert!(disk.read(0).is_none());
        assert_eq!((disk.used, disk.end()), (0, 0));
    }
}
