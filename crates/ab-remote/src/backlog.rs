//! A stream with a write buffer. A write waits only if the buffer is full.
//!
//! russh reads and writes in one loop: while it waits to write, it does not read. If both ends wait
//! to write, neither end reads, and the connection deadlocks. This cannot happen if one of the ends
//! always reads. This end always reads if its buffer holds all data that it may send. The windows
//! that a client grants limit this data, so the buffer has about their size.
//!
//! Buffered data is sent when the stream is read. The loop of russh reads whenever it has nothing
//! else to do. The first flush before such a read is ignored. The loop flushes after the first of
//! several messages. If this message were sent alone, it would wake a peer that waits for all of
//! them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum number of bytes that wait for the socket. If more bytes wait, the writer waits. The
/// value is twice the window of common clients.
pub(crate) const MAX_BACKLOG: usize = 4 * 1024 * 1024;

/// Number of bytes that are collected before they are written to the inner stream.
const GATHERED: usize = 128 * 1024;
/// Fewer buffered bytes than this are written together with the next write, and not alone.
const SMALL: usize = 4 * 1024;

#[derive(Debug)]
pub(crate) struct Backlog<S> {
    inner: S,
    waiting: BytesMut,
    /// Maximum number of bytes in `waiting`.
    limit: usize,
    /// Whether the inner stream may contain written bytes that were not flushed.
    unflushed: bool,
    /// Whether a flush was requested and ignored.
    postponed: bool,
}

impl<S> Backlog<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self::with_limit(inner, MAX_BACKLOG)
    }

    pub(crate) fn with_limit(inner: S, limit: usize) -> Self {
        Self { inner, waiting: BytesMut::new(), limit, unflushed: false, postponed: false }
    }
}

impl<S: AsyncWrite + Unpin> Backlog<S> {
    /// Writes all buffered bytes and flushes the inner stream.
    fn poll_empty(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.waiting.is_empty() {
            let sent = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.waiting))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.waiting.advance(sent);
            self.unflushed = true;
        }
        self.postponed = false;
        // Free the buffer, so that an idle connection uses no memory for it.
        self.waiting = BytesMut::new();
        if self.unflushed {
            ready!(Pin::new(&mut self.inner).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Backlog<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // A peer that accepts no more bytes may still send some, so continue to read.
        let _ = this.poll_empty(cx);
        Pin::new(&mut this.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Backlog<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let gathered = this.waiting.len();
        let room = GATHERED.min(this.limit).saturating_sub(gathered);
        if room > 0 && (gathered > 0 || bytes.len() < SMALL) {
            let taken = bytes.len().min(room);
            this.waiting.extend_from_slice(&bytes[..taken]);
            if taken == room
                && let Poll::Ready(Err(error)) = this.poll_empty(cx)
            {
                return Poll::Ready(Err(error));
            }
            return Poll::Ready(Ok(taken));
        }
        if !this.waiting.is_empty()
            && let Poll::Ready(Err(error)) = this.poll_empty(cx)
        {
            return Poll::Ready(Err(error));
        }
        if this.waiting.is_empty()
            && let Poll::Ready(sent) = Pin::new(&mut this.inner).poll_write(cx, bytes)
        {
            this.unflushed = true;
            return Poll::Ready(sent);
        }
        let room = this.limit - this.waiting.len();
        if room == 0 {
            return Poll::Pending;
        }
        let taken = bytes.len().min(room);
        this.waiting.extend_from_slice(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.postponed && this.waiting.len() < GATHERED {
            this.postponed = true;
            return Poll::Ready(Ok(()));
        }
        match this.poll_empty(cx) {
            // The write continues when the stream is read the next time.
            Poll::Pending => Poll::Ready(Ok(())),
            done => done,
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_empty(cx))?;
        Pin::new(&mut this.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn what_is_said_in_one_breath_goes_together() {
        let (near, mut far) = duplex(1024 * 1024);
        let mut stream = Backlog::new(near);
        let mut heard = [0; 64];
        stream.write_all(b"one").await.unwrap();
        stream.flush().await.unwrap();
        assert!(futures_util::FutureExt::now_or_never(far.read(&mut heard)).is_none());
        stream.write_all(b" two").await.unwrap();
        // A second flush sends the bytes, even if the writer never reads.
        stream.flush().await.unwrap();
        assert_eq!(far.read(&mut heard).await.unwrap(), 7);
        stream.write_all(b"three").await.unwrap();
        stream.flush().await.unwrap();
        assert!(futures_util::FutureExt::now_or_never(stream.read(&mut [0])).is_none());
        assert_eq!(far.read(&mut heard).await.unwrap(), 5);
        // The buffered small write and a large write are sent together, without a flush.
        let mut large = vec![0; 2 * GATHERED];
        stream.write_all(b"four").await.unwrap();
        stream.write_all(&large).await.unwrap();
        far.read_exact(&mut large).await.unwrap();
        assert!(large.starts_with(b"four"));
    }

    #[tokio::test]
    async fn a_writer_waits_only_when_the_buffer_is_full() {
        let (near, mut far) = duplex(1000);
        let mut stream = Backlog::new(near);
        let bytes: Vec<u8> = (0..MAX_BACKLOG + 1000).map(|n| (n % 251) as u8).collect();
        stream.write_all(&bytes).await.unwrap();
        stream.flush().await.unwrap();
        assert!(futures_util::FutureExt::now_or_never(stream.write(b"x")).is_none());
        let reading = async {
            let mut read = vec![0; bytes.len()];
            far.read_exact(&mut read).await.unwrap();
            far.write_all(b"heard").await.unwrap();
            assert!(read == bytes);
        };
        // Reading sends the rest of the buffer.
        let mut answer = [0; 5];
        let (_, heard) = tokio::join!(reading, stream.read_exact(&mut answer));
        assert_eq!((heard.unwrap(), &answer), (5, b"heard"));
        assert_eq!(stream.waiting.capacity(), 0);
        stream.write_all(b"bye").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        far.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"bye");
    }
}
