//! A socket with a watch that detects whether its peer has disconnected.
//!
//! The connection ends if the peer reads nothing of its response. It also ends if the peer has
//! closed its sending side and the response makes no progress. The kernel reports that a peer has
//! closed its side even if some of the peer's data is still unread. There is one exception. If a
//! peer has sent more data than the kernel buffers, its close has not arrived yet. It is then
//! detected when the current call ends.

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

/// The socket of a connection. Writes fail if the peer reads nothing for too long.
#[derive(Debug)]
pub(crate) struct Watched {
    shared: Arc<Shared>,
    /// How long a peer may go without reading.
    time_limit: Duration,
    /// The timer, which runs while the peer reads nothing.
    stalled: Option<Pin<Box<Sleep>>>,
}

/// A second handle on the socket, which detects whether the peer has disconnected.
#[derive(Clone, Debug)]
pub(crate) struct Watch(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    socket: TcpStream,
    /// Number of bytes written to the socket so far.
    taken: AtomicU64,
    /// Whether the write timeout is switched off.
    patient: AtomicBool,
}

impl Watched {
    pub(crate) fn new(socket: TcpStream, time_limit: Duration) -> (Watched, Watch) {
        let (taken, patient) = (AtomicU64::new(0), AtomicBool::new(false));
        let shared = Arc::new(Shared { socket, taken, patient });
        (Watched { shared: shared.clone(), time_limit, stalled: None }, Watch(shared))
    }

    /// Registers the socket with the calling runtime, detaches the socket from its watch, and
    /// switches off the write timeout.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        let socket = self.shared.socket.as_fd().try_clone_to_owned()?;
        let socket = TcpStream::from_std(socket.into())?;
        let (taken, patient) = (AtomicU64::new(0), AtomicBool::new(true));
        self.shared = Arc::new(Shared { socket, taken, patient });
        self.stalled = None;
        Ok(())
    }

    /// Counts the bytes of a successful write. Otherwise fails if nothing could be written for
    /// `time_limit`.
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
        let time_limit = self.time_limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(time_limit)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) if !self.shared.patient.load(Ordering::Relaxed) => {
                let why = "the peer does not read";
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
    /// Waits until the peer has disconnected. This is the case if the connection was reset. It is
    /// also the case if the peer closed its sending side and the response then made no progress for
    /// `time_limit`.
    pub(crate) async fn deserted(&self, time_limit: Duration) {
        let socket = &self.0.socket;
        let closed = async {
            // The peer sends no urgent data, so only the close of its side wakes this task.
            let _ = socket.ready(Interest::PRIORITY).await;
            loop {
                let taken = self.0.taken.load(Ordering::Relaxed);
                sleep(time_limit).await;
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

    /// Switches off the write timeout. After an upgrade the new protocol has its own rules.
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
