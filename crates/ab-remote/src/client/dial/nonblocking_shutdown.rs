//! A stream whose shutdown never waits.
//!
//! russh shuts its stream down before it reports that the connection has ended. If the peer no
//! longer reads, waiting for the shutdown would delay this report forever. Therefore this stream
//! drops data that cannot be written at once.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[derive(Debug)]
pub(super) struct NonblockingShutdown<S>(pub(super) S);

impl<S: AsyncRead + Unpin> AsyncRead for NonblockingShutdown<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for NonblockingShutdown<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Ignore whether the shutdown is complete. Data that the peer does not accept now is lost.
        let _ = Pin::new(&mut self.0).poll_shutdown(cx);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;
    use crate::backlog::Backlog;

    #[test]
    fn leaving_does_not_wait_for_room() {
        let (near, _far) = duplex(4);
        let mut stream = NonblockingShutdown(Backlog::new(near));
        stream.write_all(b"more than fits").now_or_never().unwrap().unwrap();
        stream.shutdown().now_or_never().unwrap().unwrap();
    }

    #[tokio::test]
    async fn what_can_be_said_is_said() {
        let (near, mut far) = duplex(64);
        let mut stream = NonblockingShutdown(Backlog::new(near));
        stream.write_all(b"goodbye").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut heard = String::new();
        far.read_to_string(&mut heard).await.unwrap();
        assert_eq!(heard, "goodbye");
    }
}
