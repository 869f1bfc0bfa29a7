//! The standard input and output of this process as asynchronous streams, without an extra thread
//! if possible.
//!
//! For a pipe or a socket, the runtime waits for readiness and needs no thread. For other kinds,
//! such as a file or a terminal, tokio uses threads.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::FileType;
use rustix::time::Timespec;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Stdin, Stdout};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::{Receiver, Sender};

#[derive(Debug)]
pub(crate) enum Input {
    Pipe(Receiver),
    Socket(UnixStream),
    Other(Stdin),
}

#[derive(Debug)]
pub(crate) enum Output {
    Pipe(Sender),
    Socket(UnixStream),
    Other(Stdout),
}

pub(crate) fn streams() -> (Input, Output) {
    let input = input(io::stdin().as_fd()).unwrap_or_else(|_| Input::Other(tokio::io::stdin()));
    let output =
        output(io::stdout().as_fd()).unwrap_or_else(|_| Output::Other(tokio::io::stdout()));
    (input, output)
}

/// Waits until no process can read standard output any more. If standard output is neither a pipe
/// nor a socket, this waits forever.
pub(crate) async fn output_closed() {
    let closed = async {
        match output(io::stdout().as_fd())? {
            // A pipe without a reader has an error.
            Output::Pipe(stream) => stream.ready(Interest::ERROR).await.map(drop),
            // A socket whose other end is closed is readable.
            Output::Socket(stream) => loop {
                stream.ready(Interest::READABLE).await?;
                if is_hung_up(&stream)? {
                    return Ok(());
                }
                // Wait for the next change.
                let changed = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
                let _ = stream.try_io(Interest::READABLE, changed);
            },
            Output::Other(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    };
    if closed.await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn is_hung_up(stream: impl AsFd) -> io::Result<bool> {
    let mut polled = [PollFd::new(&stream, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec::default()))?;
    Ok(polled[0].revents().contains(PollFlags::HUP))
}

fn input(stream: BorrowedFd<'_>) -> io::Result<Input> {
    Ok(match kind(stream)? {
        FileType::Fifo => Input::Pipe(Receiver::from_owned_fd(own(stream)?)?),
        FileType::Socket => Input::Socket(socket(own(stream)?)?),
        _ => return Err(io::ErrorKind::Unsupported.into()),
    })
}

fn output(stream: BorrowedFd<'_>) -> io::Result<Output> {
    Ok(match kind(stream)? {
        FileType::Fifo => Output::Pipe(Sender::from_owned_fd(own(stream)?)?),
        FileType::Socket => Output::Socket(socket(own(stream)?)?),
        _ => return Err(io::ErrorKind::Unsupported.into()),
    })
}

fn kind(stream: BorrowedFd<'_>) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(stream)?.st_mode))
}

fn own(stream: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    stream.try_clone_to_owned()
}

fn socket(stream: OwnedFd) -> io::Result<UnixStream> {
    let stream = std::os::unix::net::UnixStream::from(stream);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

impl AsyncRead for Input {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Input::Pipe(stream) => Pin::new(stream).poll_read(context, into),
            Input::Socket(stream) => Pin::new(stream).poll_read(context, into),
            Input::Other(stream) => Pin::new(stream).poll_read(context, into),
        }
    }
}

impl AsyncWrite for Output {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Output::Pipe(stream) => Pin::new(stream).poll_write(context, bytes),
            Output::Socket(stream) => Pin::new(stream).poll_write(context, bytes),
            Output::Other(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Output::Pipe(stream) => Pin::new(stream).poll_flush(context),
            Output::Socket(stream) => Pin::new(stream).poll_flush(context),
            Output::Other(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Output::Pipe(stream) => Pin::new(stream).poll_shutdown(context),
            Output::Socket(stream) => Pin::new(stream).poll_shutdown(context),
            Output::Other(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
