//! A stream that fails if its peer stops reading, or if its peer keeps the connection open after it
//! was closed.
//!
//! A client may be silent for any time. But a client that does not read its answers, or keeps its
//! side open after the connection was closed, only occupies memory and a connection slot.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long a peer may leave pending data unread.
pub(crate) const UNREAD: Duration = Duration::from_secs(300);
/// How long a peer may keep its side open after the connection was closed.
const LEAVING: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct StallTimeoutStream<S> {
    inner: S,
    /// The timer after which the stream fails. Set only while the stream waits for the peer.
    end: Option<Pin<Box<Sleep>>>,
    leaving: bool,
}

impl<S> StallTimeoutStream<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, end: None, leaving: false }
    }

    /// Whether the timer has expired. If not, registers the waker for that time.
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        self.end.as_mut().is_some_and(|end| end.as_mut().poll(cx).is_ready())
    }

    /// Starts the timer if the peer has not accepted data in this write, and stops the timer
    /// otherwise.
    fn heed<T>(&mut self, cx: &mut Context<'_>, taken: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if self.leaving {
            return taken;
        }
        if taken.is_ready() {
            self.end = None;
            return taken;
        }
        self.end.get_or_insert_with(|| Box::pin(sleep(UNREAD)));
        if self.is_over(cx) {
            Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
        } else {
            Poll::Pending
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallTimeoutStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.is_over(cx) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut this.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallTimeoutStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write(cx, bytes);
        this.heed(cx, written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.inner).poll_flush(cx);
        this.heed(cx, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.leaving {
            this.leaving = true;
            this.end = Some(Box::pin(sleep(LEAVING)));
        }
        if this.is_over(cx) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut this.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_is_borne_and_an_unread_answer_is_not() {
        let (near, mut far) = duplex(10);
        let mut stream = StallTimeoutStream::new(near);
        let begun = Instant::now();
        let mut byte = [0];
        let speaking = async {
            sleep(UNREAD * 100).await;
            far.write_all(b"x").await.unwrap();
        };
        let (read, ()) = tokio::join!(stream.read(&mut byte), speaking);
        assert_eq!((read.unwrap(), begun.elapsed()), (1, UNREAD * 100));

        // A peer that reads slowly is tolerated too.
        let mut taken = [0; 10];
        let reading = async {
            for _ in 0..3 {
                sleep(UNREAD * 2 / 3).await;
                far.read_exact(&mut taken).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(stream.write_all(&[7; 40]), reading);
        written.unwrap();
        let begun = Instant::now();
        let error = stream.write_all(b"more").await.unwrap_err();
        assert_eq!((error.kind(), begun.elapsed()), (io::ErrorKind::TimedOut, UNREAD));
        assert_eq!(stream.read(&mut byte).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_is_told_to_go_has_to() {
        let (near, _far) = duplex(10);
        let mut stream = StallTimeoutStream::new(near);
        stream.shutdown().await.unwrap();
        let begun = Instant::now();
        let error = stream.read(&mut [0]).await.unwrap_err();
        assert_eq!((error.kind(), begun.elapsed()), (io::ErrorKind::TimedOut, LEAVING));
    }
}
