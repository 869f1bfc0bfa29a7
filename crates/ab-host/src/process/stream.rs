//! Our ends of pipes and terminals. They are read and written without a thread of their own.

use std::io;
use std::os::fd::OwnedFd;

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::fs::OFlags;
use rustix::pipe::PipeFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::readiness::watch;

/// Maximum number of bytes of one read.
pub(crate) const BLOCK: usize = 256 * 1024;
/// Maximum number of bytes of one read, as long as no read has filled its block. This number is
/// small because most commands print little.
const FIRST_BLOCK: usize = 8 * 1024;
/// Size, in bytes, of a pipe that carries much output. It is large so that a fast writer does not
/// have to wait.
const PIPE_SIZE: usize = 1024 * 1024;
/// A read of at least this length keeps its block. The bytes of a shorter read are copied out of
/// the block.
const WORTH_KEEPING: usize = BLOCK / 2;

/// Creates a pipe for output. Our end is nonblocking, and the child's end blocks.
pub(crate) fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&ours, OFlags::NONBLOCK)?;
    Ok((ours, theirs))
}

/// Creates a pipe for input. Our end is nonblocking, and the child's end blocks.
pub(crate) fn input_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (theirs, ours) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    rustix::fs::fcntl_setfl(&ours, OFlags::NONBLOCK)?;
    Ok((ours, theirs))
}

/// Returns the read end of a pipe that contains `bytes` and then ends.
pub(crate) fn filled_pipe(bytes: &[u8]) -> io::Result<OwnedFd> {
    let (theirs, ours) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    if bytes.len() > 60 * 1024 {
        // The pipe may be too small for the bytes, and nothing reads from it yet.
        rustix::pipe::fcntl_setpipe_size(&ours, bytes.len() + 4096)?;
    }
    no_waiting(&ours)?;
    match rustix::io::write(&ours, bytes)? {
        written if written == bytes.len() => Ok(theirs),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

pub(crate) fn no_waiting(handle: &OwnedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(handle)?;
    Ok(rustix::fs::fcntl_setfl(handle, flags | OFlags::NONBLOCK)?)
}

/// Our end of a pipe or a terminal, for reading.
#[derive(Debug)]
pub(crate) struct ReadEnd {
    handle: AsyncFd<OwnedFd>,
    block: Vec<u8>,
    /// Maximum number of bytes of the next read.
    size: usize,
}

impl ReadEnd {
    pub(crate) fn new(handle: OwnedFd) -> io::Result<Self> {
        let handle = watch(handle, Interest::READABLE)?;
        Ok(Self { handle, block: Vec::new(), size: FIRST_BLOCK })
    }

    /// Enlarges the block and the pipe for a command that prints more than a little.
    fn widen(&mut self) {
        self.size = BLOCK;
        // Ignore an error. The kernel refuses this for terminals and for users with many pipes. A
        // pipe with the default size is only slower.
        let _ = rustix::pipe::fcntl_setpipe_size(&self.handle, PIPE_SIZE);
    }

    /// Waits for bytes and returns them. The result is empty at the end of the pipe. If the future
    /// is cancelled, no bytes are lost.
    pub(crate) async fn read(&mut self) -> io::Result<Bytes> {
        loop {
            let mut ready = self.handle.readable().await?;
            self.block.clear();
            self.block.reserve_exact(self.size);
            let block = &mut self.block;
            let read = ready.try_io(|handle| {
                rustix::io::retry_on_intr(|| {
                    rustix::io::read(handle, spare_capacity(block)).map(|_| ())
                })
                .map_err(io::Error::from)
            });
            match read {
                Err(_would_wait) => {}
                Ok(Ok(())) if block.len() >= WORTH_KEEPING => {
                    return Ok(Bytes::from(std::mem::take(block)));
                }
                Ok(Ok(())) => {
                    let bytes = Bytes::copy_from_slice(block);
                    if bytes.len() >= FIRST_BLOCK && self.size < BLOCK {
                        self.widen();
                    }
                    return Ok(bytes);
                }
                // A terminal reports this error when all processes at its other end are gone.
                Ok(Err(error)) if error.raw_os_error() == Some(libc::EIO) => {
                    return Ok(Bytes::new());
                }
                Ok(Err(error)) => return Err(error),
            }
        }
    }
}

/// Our end of a pipe or a terminal, for writing. The end is registered with the runtime only when a
/// write would block, because most commands get no input.
#[derive(Debug)]
pub(crate) enum WriteEnd {
    Unwatched(OwnedFd),
    Watched(AsyncFd<OwnedFd>),
}

impl WriteEnd {
    pub(crate) fn new(handle: OwnedFd) -> Self {
        Self::Unwatched(handle)
    }

    pub(crate) async fn write_all(self, mut bytes: &[u8]) -> io::Result<Self> {
        let handle = match self {
            Self::Watched(handle) => handle,
            Self::Unwatched(handle) => {
                while !bytes.is_empty() {
                    match write(&handle, bytes) {
                        Ok(written) => bytes = &bytes[written..],
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) => return Err(error),
                    }
                }
                if bytes.is_empty() {
                    return Ok(Self::Unwatched(handle));
                }
                watch(handle, Interest::WRITABLE)?
            }
        };
        while !bytes.is_empty() {
            let mut ready = handle.writable().await?;
            match ready.try_io(|handle| write(handle.get_ref(), bytes)) {
                Err(_would_wait) => {}
                Ok(written) => bytes = &bytes[written?..],
            }
        }
        Ok(Self::Watched(handle))
    }
}

fn write(handle: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(|| rustix::io::write(handle, bytes))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn input_waits_for_room_and_knows_when_nobody_reads() {
        let (ours, theirs) = input_pipe().unwrap();
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| n as u8).collect();
        let mut output = {
            no_waiting(&theirs).unwrap();
            ReadEnd::new(theirs).unwrap()
        };
        let writing = async {
            let input = WriteEnd::new(ours).write_all(b"first").await.unwrap();
            assert!(matches!(input, WriteEnd::Unwatched(_)));
            let input = input.write_all(&bytes).await.unwrap();
            assert!(matches!(input, WriteEnd::Watched(_)));
            input.write_all(b"last").await.unwrap();
        };
        let reading = async {
            let mut read = Vec::new();
            loop {
                match output.read().await.unwrap() {
                    piece if piece.is_empty() => return read,
                    piece => read.extend_from_slice(&piece),
                }
            }
        };
        let ((), read) = tokio::join!(writing, reading);
        assert!(read == [b"first", &bytes[..], b"last"].concat());
        let (ours, theirs) = input_pipe().unwrap();
        drop(theirs);
        let unread = WriteEnd::new(ours).write_all(b"nobody").await.unwrap_err();
        assert_eq!(unread.kind(), io::ErrorKind::BrokenPipe);
    }
}
