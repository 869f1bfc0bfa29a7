//! A connection after an HTTP upgrade. It can be served by any tokio runtime.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::Bytes;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

use crate::watched::Watched;

/// A connection after an HTTP upgrade, such as to a WebSocket.
#[derive(Debug)]
pub(crate) struct Beyond {
    /// Bytes that the peer sent together with its request or right after it.
    early: Bytes,
    stream: Stream,
}

#[derive(Debug)]
enum Stream {
    Plain(Watched),
    Encrypted(Box<TlsStream<Watched>>),
    /// A stream of another type than this server's own connections.
    Foreign(TokioIo<Upgraded>),
}

impl Beyond {
    pub(crate) fn new(upgraded: Upgraded) -> Beyond {
        let encrypted = match upgraded.downcast::<TokioIo<Watched>>() {
            Ok(parts) => {
                let stream = Stream::Plain(parts.io.into_inner());
                return Beyond { early: parts.read_buf, stream };
            }
            Err(other) => other.downcast::<TokioIo<TlsStream<Watched>>>(),
        };
        match encrypted {
            Ok(parts) => {
                let stream = Stream::Encrypted(Box::new(parts.io.into_inner()));
                Beyond { early: parts.read_buf, stream }
            }
            Err(other) => {
                Beyond { early: Bytes::new(), stream: Stream::Foreign(TokioIo::new(other)) }
            }
        }
    }

    /// Moves the connection to the runtime of the calling thread.
    pub(crate) fn settle(&mut self) -> io::Result<()> {
        match &mut self.stream {
            Stream::Plain(socket) => socket.settle(),
            Stream::Encrypted(stream) => stream.get_mut().0.settle(),
            // A stream of another type cannot be moved. It works in any runtime, but more slowly.
            Stream::Foreign(_) => Ok(()),
        }
    }

    fn stream(&mut self) -> Pin<&mut dyn Both> {
        match &mut self.stream {
            Stream::Plain(socket) => Pin::new(socket),
            Stream::Encrypted(stream) => Pin::new(&mut **stream),
            Stream::Foreign(stream) => Pin::new(stream),
        }
    }
}

trait Both: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Both for S {}

impl AsyncRead for Beyond {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.early.is_empty() {
            let count = self.early.len().min(into.remaining());
            into.put_slice(&self.early.split_to(count));
            return Poll::Ready(Ok(()));
        }
        self.stream().poll_read(context, into)
    }
}

impl AsyncWrite for Beyond {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(socket) => socket.is_write_vectored(),
            Stream::Encrypted(stream) => stream.is_write_vectored(),
            Stream::Foreign(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(context)
    }
}
