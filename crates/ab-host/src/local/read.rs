//! Reads a whole file or a part of it. Uses only the page cache if that is sufficient.

use std::io::IoSliceMut;

use ab_core::metadata::{FileContent, FileKind};
use ab_core::options::ReadOptions;
use ab_core::{Error, ErrorKind, Result, WsPath};
use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};

use super::describe::{self, Described};
use super::{Shared, is_in_memory};
use crate::failure::Act;
use crate::jail::Final;

/// Maximum number of bytes that are copied on an async thread.
const INLINE_BYTES: u64 = 64 * 1024;
/// Number of bytes that are read at a time from a file whose reported size is zero.
const UNSIZED_BYTES: usize = 64 * 1024;

/// Returns the flags for reading. With `O_NONBLOCK`, a FIFO does not block us. With `O_NOCTTY`, a
/// terminal does not become our controlling terminal.
pub(super) fn read_flags() -> OFlags {
    OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY
}

/// Reads a file without waiting for a disk. Returns `None` if a blocking thread must read the file.
pub(super) fn from_cache(
    shared: &Shared,
    path: &WsPath,
    options: ReadOptions,
) -> Option<FileContent> {
    let file = shared.jail.open_cached(path, read_flags())?;
    let described = describe::handle(&file).ok()?;
    if described.stat.kind != FileKind::File || described.stat.size == 0 {
        return None;
    }
    let (start, length) = extent(options, described.stat.size);
    if length > INLINE_BYTES.min(options.max_bytes) {
        return None;
    }
    let bytes = read_cached(&file, start, length as usize)?;
    Some(FileContent { bytes, stat: described.stat })
}

/// Returns `length` bytes from `start`, or fewer at the end of the file. Returns `None` if the page
/// cache does not contain all of these bytes. A file on a tmpfs is always read. A tmpfs does not
/// support `RWF_NOWAIT`, but reading from it never waits.
pub(super) fn read_cached(file: &OwnedFd, start: u64, length: usize) -> Option<Bytes> {
    let mut buffer = vec![0; length];
    let mut filled = 0;
    while filled < length {
        let slices = &mut [IoSliceMut::new(&mut buffer[filled..])];
        match preadv2(file, slices, start + filled as u64, ReadWriteFlags::NOWAIT) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::OPNOTSUPP) if is_in_memory(file) => {
                return read_fully(file, start, length).ok();
            }
            Err(_) => return None,
        }
    }
    buffer.truncate(filled);
    Some(buffer.into())
}

pub(super) fn from_disk(
    shared: &Shared,
    act: Act<'_>,
    options: ReadOptions,
) -> Result<FileContent> {
    let file = shared.jail.open(act.path, read_flags(), Final::Follow);
    let file = file.map_err(|fault| act.failed(fault))?;
    let described = describe::handle(&file).map_err(|errno| act.failed(errno))?;
    check_regular(act, &described)?;
    let (start, length) = extent(options, described.stat.size);
    if length > options.max_bytes {
        return Err(too_large(act, length, options.max_bytes));
    }
    let bytes = match described.stat.size {
        0 if options.range.is_none() => read_unsized(&file, act, options.max_bytes)?,
        _ => read_fully(&file, start, length as usize).map_err(|errno| act.failed(errno))?,
    };
    Ok(FileContent { bytes, stat: described.stat })
}

/// Reads a file to its end. This is needed for files that the kernel generates, because they report
/// a size of zero although they are not empty.
fn read_unsized(file: &OwnedFd, act: Act<'_>, limit: u64) -> Result<Bytes> {
    let mut whole = Vec::new();
    loop {
        let start = whole.len() as u64;
        let piece = read_fully(file, start, UNSIZED_BYTES).map_err(|errno| act.failed(errno))?;
        whole.extend_from_slice(&piece);
        if whole.len() as u64 > limit {
            return Err(too_large(act, whole.len() as u64, limit));
        }
        if piece.len() < UNSIZED_BYTES {
            return Ok(whole.into());
        }
    }
}

pub(super) fn check_regular(act: Act<'_>, described: &Described) -> Result<()> {
    match described.stat.kind {
        FileKind::File => Ok(()),
        FileKind::Dir => Err(act.error(ErrorKind::IsADirectory, "is a directory")),
        FileKind::Symlink | FileKind::Other => {
            Err(act.error(ErrorKind::SpecialFile, "not a regular file"))
        }
    }
}

/// Reads `length` bytes, or fewer at the end of the file.
pub(super) fn read_fully(file: impl AsFd, start: u64, length: usize) -> Result<Bytes, Errno> {
    let mut buffer: Vec<u8> = Vec::new();
    buffer.try_reserve_exact(length).map_err(|_| Errno::NOMEM)?;
    while buffer.len() < length {
        let offset = start + buffer.len() as u64;
        match pread(&file, spare_capacity(&mut buffer), offset) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    buffer.truncate(length);
    Ok(buffer.into())
}

/// Returns the start and the length of the requested part of a file that has `size` bytes.
fn extent(options: ReadOptions, size: u64) -> (u64, u64) {
    match options.range {
        None => (0, size),
        Some(range) => {
            let start = range.start.min(size);
            (start, range.length.min(size - start))
        }
    }
}

fn too_large(act: Act<'_>, length: u64, limit: u64) -> Error {
    act.error(
        ErrorKind::TooLarge,
        &format!("the file has {length} bytes, but the limit is {limit}"),
    )
    .with_hint("read a range, or in chunks")
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, memfd_create};
    use rustix::io::pwrite;

    use super::*;

    #[test]
    fn what_is_nowhere_but_in_memory_takes_no_other_thread() {
        let file = memfd_create("read", MemfdFlags::CLOEXEC).unwrap();
        pwrite(&file, b"in memory", 0).unwrap();
        assert_eq!(read_cached(&file, 3, 100).unwrap(), "memory");
        assert_eq!(read_cached(&file, 3, 3).unwrap(), "mem");
        assert_eq!(read_cached(&file, 9, 3).unwrap(), "");
    }
}
