//! The ends of pipes and terminals that we hold: read and written without a thread of their own.

use std::io;
use std::os::fd::OwnedFd;

use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::fs::OFlags;
use rustix::pipe::PipeFlags;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::readiness::watch;

/// Bytes that one read takes at most.
pub(crate) const BLOCK: usize = 256 * 1024;
/// A pipe that holds as much as this lets a fast writer run on.
const PIPE_SIZE: usize = 1024 * 1024;
/// Reads at least this long keep their block; shorter ones are copied out of it.
const WORTH_KEEPING: usize = BLOCK / 2;

/// A pipe for output: our end does not wait, the child's does.
pub(crate) fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    // Refused to users who hold many pipes; the usual size is only slower.
    let _ = rustix::pipe::fcntl_setpipe_size(&ours, PIPE_SIZE);
    no_waiting(&ours)?;
    Ok((ours, theirs))
}

/// A pipe for input: our end does not wait, the child's does.
pub(crate) fn input_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (theirs, ours) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    no_waiting(&ours)?;
    Ok((ours, theirs))
}

/// The reading end of a pipe that holds `bytes` and nothing more.
pub(crate) fn filled_pipe(bytes: &[u8]) -> io::Result<OwnedFd> {
    let (theirs, ours) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    if bytes.len() > 60 * 1024 {
        // It might not fit, and nobody reads yet.
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

/// Our end of a pipe or a terminal.
#[derive(Debug)]
pub(crate) struct Stream {
    handle: AsyncFd<OwnedFd>,
    block: Vec<u8>,
}

impl Stream {
    pub(crate) fn reading(handle: OwnedFd) -> io::Result<Self> {
        Self::new(handle, Interest::READABLE)
    }

    pub(crate) fn writing(handle: OwnedFd) -> io::Result<Self> {
        Self::new(handle, Interest::WRITABLE)
    }

    fn new(handle: OwnedFd, interest: Interest) -> io::Result<Self> {
        Ok(Self { handle: watch(handle, interest)?, block: Vec::new() })
    }

    /// What has come; nothing at the end. May be cancelled without losing anything.
    pub(crate) async fn read(&mut self) -> io::Result<Bytes> {
        loop {
            let mut ready = self.handle.readable().await?;
            self.block.clear();
            self.block.reserve_exact(BLOCK);
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
                Ok(Ok(())) => return Ok(Bytes::copy_from_slice(block)),
                // How a terminal says that everybody on its other end has gone.
                Ok(Err(error)) if error.raw_os_error() == Some(libc::EIO) => {
                    return Ok(Bytes::new());
                }
                Ok(Err(error)) => return Err(error),
            }
        }
    }

    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut ready = self.handle.writable().await?;
            let written = ready.try_io(|handle| {
                rustix::io::retry_on_intr(|| rustix::io::write(handle, bytes))
                    .map_err(io::Error::from)
            });
            match written {
                Err(_would_wait) => {}
                Ok(written) => bytes = &bytes[written?..],
            }
        }
        Ok(())
    }
}
