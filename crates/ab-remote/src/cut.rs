//! A stream that another task can end. Readers then get EOF, and writers get an error.
//!
//! russh runs a connection in its own task, which cannot be cancelled. Ending the stream reliably
//! ends this task. Before the key exchange, a disconnect message can be written before the stream
//! ends.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[derive(Debug, Default)]
struct Shared {
    cut: AtomicBool,
    last_message: OnceLock<Bytes>,
    reader: AtomicWaker,
    writer: AtomicWaker,
}

/// Ends a [`Cuttable`] stream. Dropping this value also ends the stream.
#[derive(Debug)]
pub(crate) struct StreamCutter(Arc<Shared>);

impl StreamCutter {
    pub(crate) fn cut(&self) {
        self.0.cut.store(true, Ordering::Release);
        self.0.reader.wake();
        self.0.writer.wake();
    }

    /// Makes the next read write `last_message` to the peer, and then report EOF.
    pub(crate) fn part(&self, last_message: Bytes) {
        // Only the first message is sent.
        let _ = self.0.last_message.set(last_message);
        self.0.reader.wake();
    }
}

impl Drop for StreamCutter {
    fn drop(&mut self) {
        self.cut();
    }
}

/// A stream that its [`StreamCutter`] can end.
#[derive(Debug)]
pub(crate) struct Cuttable<S> {
    inner: S,
    shared: Arc<Shared>,
    /// The bytes of the last message that are still to be written. `None` before the first of them
    /// is written.
    unwritten: Option<Bytes>,
}

impl<S> Cuttable<S> {
    pub(crate) fn new(inner: S) -> (Self, StreamCutter) {
        let shared = Arc::<Shared>::default();
        (Self { inner, shared: shared.clone(), unwritten: None }, StreamCutter(shared))
    }

    fn is_cut(&self) -> bool {
        self.shared.cut.load(Ordering::Acquire)
    }
}

impl<S: AsyncWrite + Unpin> Cuttable<S> {
    /// Writes the last message to the peer and shuts the stream down.
    fn poll_last_message(&mut self, cx: &mut Context<'_>, words: &Bytes) -> Poll<io::Result<()>> {
        let rest = self.unwritten.get_or_insert_with(|| words.clone());
        while !rest.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(cx, rest))?;
            rest.advance(written.max(1).min(rest.len()));
        }
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Cuttable<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.shared.reader.register(cx.waker());
        if self.is_cut() {
            return Poll::Ready(Ok(()));
        }
        if let Some(words) = self.shared.last_message.get().cloned() {
            return self.poll_last_message(cx, &words);
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
