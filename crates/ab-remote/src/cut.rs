//! A stream that can be ended from outside: whoever reads finds the end, whoever writes an error.
//!
//! russh runs a connection in a task that it keeps to itself. Taking its stream away is how that
//! task is ended for sure.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[derive(Debug, Default)]
struct Shared {
    cut: AtomicBool,
    reader: AtomicWaker,
    writer: AtomicWaker,
}

/// Ends its stream, at the latest when it is dropped.
#[derive(Debug)]
pub(crate) struct Scissors(Arc<Shared>);

impl Scissors {
    pub(crate) fn cut(&self) {
        self.0.cut.store(true, Ordering::Release);
        self.0.reader.wake();
        self.0.writer.wake();
    }
}

impl Drop for Scissors {
    fn drop(&mut self) {
        self.cut();
    }
}

/// The stream itself.
#[derive(Debug)]
pub(crate) struct Cuttable<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> Cuttable<S> {
    pub(crate) fn new(inner: S) -> (Self, Scissors) {
        let shared = Arc::<Shared>::default();
        (Self { inner, shared: shared.clone() }, Scissors(shared))
    }

    fn is_cut(&self) -> bool {
        self.shared.cut.load(Ordering::Acquire)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Cuttable<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.shared.reader.register(cx.waker());
        if self.is_cut() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Cuttable<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.shared.writer.register(cx.waker());
        if self.is_cut() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.writer.register(cx.waker());
        if self.is_cut() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.writer.register(cx.waker());
        if self.is_cut() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
