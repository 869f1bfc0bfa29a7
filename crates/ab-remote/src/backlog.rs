//! A stream whose writer does not wait while there is room in a buffer.
//!
//! russh reads and writes in one loop: while it waits to write, it does not read. Two ends that both
//! have much to say would wait for each other for ever. What a client is sent is bounded by the
//! windows it granted, so a buffer of about that size keeps this end listening. It is enough that
//! one of the two always listens.
//!
//! The buffer is emptied whenever the stream is read, written or flushed; the loop reads whenever it
//! does nothing else.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that wait for the socket; beyond them the writer waits. Twice what common clients grant.
pub(crate) const MAX_BACKLOG: usize = 4 * 1024 * 1024;

#[derive(Debug)]
pub(crate) struct Backlog<S> {
    inner: S,
    waiting: BytesMut,
    /// Bytes that may wait.
    limit: usize,
    /// What was written may be in a buffer of the stream itself.
    unflushed: bool,
}

impl<S> Backlog<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self::with_limit(inner, MAX_BACKLOG)
    }

    pub(crate) fn with_limit(inner: S, limit: usize) -> Self {
        Self { inner, waiting: BytesMut::new(), limit, unflushed: false }
    }
}

impl<S: AsyncWrite + Unpin> Backlog<S> {
    /// Sends what waits, and all that the stream keeps.
    fn poll_empty(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.waiting.is_empty() {
            let sent = ready!(Pin::new(&mut self.inner).poll_write(cx, &self.waiting))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.waiting.advance(sent);
            self.unflushed = true;
        }
        // An idle connection keeps no memory for what it once had to say.
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
        // Whoever cannot be written to any more may still have something to say.
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
        match self.get_mut().poll_empty(cx) {
            // The next read goes on with it.
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
        // Reading is what sends the rest.
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
