//! A socket that is watched from beside whoever speaks through it.
//!
//! A peer that takes nothing of what it is sent ends the connection, and so does one that has closed
//! its end and waits for nothing. That a peer has closed is seen at once, whatever of it is still
//! unread: the kernel tells, not the bytes. Only a peer that sent more than the kernel keeps, so that
//! its end is not here yet, is found out when its call ends.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// The socket, for the one that speaks through it.
#[derive(Debug)]
pub(crate) struct Watched {
    shared: Arc<Shared>,
    /// How long a peer may take nothing.
    patience: Duration,
    /// Runs while it takes nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

/// The same socket, for the one that watches.
#[derive(Clone, Debug)]
pub(crate) struct Watch(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    socket: TcpStream,
    /// Bytes that the peer's side took so far.
    taken: AtomicU64,
    /// Whether a peer that takes nothing may go on doing so.
    patient: AtomicBool,
}

impl Watched {
    pub(crate) fn new(socket: TcpStream, patience: Duration) -> (Watched, Watch) {
        let (taken, patient) = (AtomicU64::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { socket, taken, patient });
        (Watched { shared: shared.clone(), patience, stalled: None }, Watch(shared))
    }

    /// From here on it is waited for by the runtime that calls, nobody watches it, and the peer may
    /// take its time.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        let socket = self.shared.socket.as_fd().try_clone_to_owned()?;
        let socket = TcpStream::from_std(socket.into())?;
        let (taken, patient) = (AtomicU64::new(0), AtomicBool::new(true));
        self.shared = Arc::new(Shared { socket, taken, patient });
        self.stalled = None;
        Ok(())
    }

    /// Counts what was taken, or the time in which nothing was.
    fn judged(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = written {
            self.stalled = None;
            if let Ok(count) = &written {
                self.shared.taken.fetch_add(*count as u64, Ordering::Relaxed);
            }
            return Poll::Ready(written);
        }
        let patience = self.patience;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(patience)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) if !self.shared.patient.load(Ordering::Relaxed) => {
                let why = "the peer does not take what it is sent";
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
            }
            Poll::Ready(()) | Poll::Pending => Poll::Pending,
        }
    }

    fn poll_with(
        &mut self,
        context: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let written = loop {
            match self.shared.socket.poll_write_ready(context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                Poll::Pending => break Poll::Pending,
            }
            match write(&self.shared.socket) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => break Poll::Ready(written),
            }
        };
        self.judged(context, written)
    }
}

impl Watch {
    /// Waits until there is nobody to answer: the connection was reset, or the peer has closed its
    /// end and then took nothing for a while, although what it had asked might have been answered.
    pub(crate) async fn deserted(&self, patience: Duration) {
        let socket = &self.0.socket;
        let closed = async {
            // It carries no urgent data, so that only its end can wake this one.
            let _ = socket.ready(Interest::PRIORITY).await;
            loop {
                let taken = self.0.taken.load(Ordering::Relaxed);
                sleep(patience).await;
                if self.0.taken.load(Ordering::Relaxed) == taken {
                    return;
                }
            }
        };
        tokio::select! {
            _ = socket.ready(Interest::ERROR) => {}
            () = closed => {}
        }
    }

    /// From here on the peer may take its time: what it speaks has rules of its own.
    pub(crate) fn let_go(&self) {
        self.0.patient.store(true, Ordering::Relaxed);
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.shared.socket.poll_read_ready(context))?;
            match self.shared.socket.try_read_buf(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(drop)),
            }
        }
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_with(context, |socket| socket.try_write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_with(context, |socket| socket.try_write_vectored(pieces))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&self.shared.socket).shutdown(Shutdown::Write))
    }
}
