//! An output that fails after a number of lines, like a program that crashes at that point.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;
use tokio_util::sync::CancellationToken;

/// Forwards bytes until the last allowed line has been written. After that every write fails.
#[derive(Debug)]
pub(super) struct CountedOutput<W> {
    inner: W,
    /// Number of lines that may still be written. `None` for no limit.
    left: Option<u64>,
    /// Cancelled after the last allowed line has been written.
    spent: CancellationToken,
}

impl<W> CountedOutput<W> {
    pub(super) fn new(inner: W, lines: Option<u64>, spent: CancellationToken) -> Self {
        if lines == Some(0) {
            spent.cancel();
        }
        CountedOutput { inner, left: lines, spent }
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for CountedOutput<W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Some(left) = self.left else {
            return Pin::new(&mut self.inner).poll_write(context, bytes);
        };
        if left == 0 {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        // Write at most one line at a time, so that lines can be counted.
        let end = bytes.iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |at| at + 1);
        let written = Pin::new(&mut self.inner).poll_write(context, &bytes[..end]);
        if let Poll::Ready(Ok(count)) = written
            && bytes[..count].last() == Some(&b'\n')
        {
            self.left = Some(left - 1);
            if left == 1 {
                self.spent.cancel();
            }
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn writes_end_with_the_last_line() {
        let spent = CancellationToken::new();
        let mut output = CountedOutput::new(Vec::new(), Some(2), spent.clone());
        output.write_all(b"one\n").await.unwrap();
        assert!(!spent.is_cancelled());
        output.write_all(b"two\nthree\n").await.unwrap_err();
        assert!(spent.is_cancelled());
        assert_eq!(output.inner, b"one\ntwo\n");
    }
}
