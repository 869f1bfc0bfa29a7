//! A byte stream over a WebSocket, whoever implements that: messages in, bytes out, and back.
//!
//! - Messages that go out are binary and at most [`MAX_FRAME`] long.
//! - Whoever reads has what it wrote before sent first: SSH's two ends both speak, then both
//!   listen, and a message that waits in a buffer would keep them listening for ever.
//! - A peer that is gone without a word is the end of the stream, not an error.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::{Sink, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Longest message that is sent; some clients take no more than a mebibyte. Clients spend less on
/// fewer messages, but a connection may keep the room for one as long as it lives.
pub const MAX_FRAME: usize = 128 * 1024;

/// What a message is to a byte stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    Bytes(Bytes),
    /// Nothing, such as a ping.
    Nothing,
    /// The peer says goodbye.
    End,
    /// What no peer of ours sends, such as text.
    Foreign,
}

/// How messages of some implementation are made and read.
#[derive(Clone, Copy, Debug)]
pub struct Codec<M> {
    pub pack: fn(Bytes) -> M,
    pub unpack: fn(M) -> Payload,
}

/// Makes the message that a stream ends with.
type Goodbye<M> = Box<dyn FnOnce() -> M + Send>;

/// A WebSocket as a byte stream.
pub struct FrameStream<T, M> {
    socket: T,
    codec: Codec<M>,
    goodbye: Option<Goodbye<M>>,
    unread: Bytes,
    /// Something was written that may not be sent yet.
    unsent: bool,
    ended: bool,
}

impl<T, M> FrameStream<T, M> {
    pub fn new(socket: T, codec: Codec<M>) -> Self {
        let (unread, unsent, ended) = (Bytes::new(), false, false);
        Self { socket, codec, goodbye: None, unread, unsent, ended }
    }

    /// The same with bytes that were already received, to be read before all others.
    pub fn with_unread(mut self, bytes: Bytes) -> Self {
        self.unread = bytes;
        self
    }

    /// The same with a message to be sent before the socket is closed, made when it is.
    pub fn with_goodbye(mut self, goodbye: impl FnOnce() -> M + Send + 'static) -> Self {
        self.goodbye = Some(Box::new(goodbye));
        self
    }
}

impl<T, M> fmt::Debug for FrameStream<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameStream")
            .field("unread", &self.unread.len())
            .field("unsent", &self.unsent)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl<T, M, E> FrameStream<T, M>
where
    T: Sink<M, Error = E> + Unpin,
    M: Unpin,
{
    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.unsent {
            let sent = ready!(Pin::new(&mut self.socket).poll_flush(cx));
            self.unsent = false;
            sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        }
        Poll::Ready(Ok(()))
    }
}

impl<T, M, E> AsyncRead for FrameStream<T, M>
where
    T: Stream<Item = Result<M, E>> + Sink<M, Error = E> + Unpin,
    M: Unpin,
{
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // Also when that has to wait: what is there can be read meanwhile, and the waker is set.
        let _ = this.poll_sent(cx);
        loop {
            if !this.unread.is_empty() {
                let length = this.unread.len().min(buf.remaining());
                buf.put_slice(&this.unread[..length]);
                this.unread.advance(length);
                return Poll::Ready(Ok(()));
            }
            if this.ended {
                return Poll::Ready(Ok(()));
            }
            let message = ready!(Pin::new(&mut this.socket).poll_next(cx));
            match message.map(|message| message.map(this.codec.unpack)) {
                Some(Ok(Payload::Bytes(bytes))) => this.unread = bytes,
                Some(Ok(Payload::Nothing)) => {}
                Some(Ok(Payload::End)) | Some(Err(_)) | None => this.ended = true,
                Some(Ok(Payload::Foreign)) => {
                    this.ended = true;
                    let message = "a message that is not binary";
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, message)));
                }
            }
        }
    }
}

impl<T, M, E> AsyncWrite for FrameStream<T, M>
where
    T: Stream<Item = Result<M, E>> + Sink<M, Error = E> + Unpin,
    M: Unpin,
{
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let broken = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        ready!(Pin::new(&mut this.socket).poll_ready(cx)).map_err(broken)?;
        let length = bytes.len().min(MAX_FRAME);
        let message = (this.codec.pack)(Bytes::copy_from_slice(&bytes[..length]));
        Pin::new(&mut this.socket).start_send(message).map_err(broken)?;
        this.unsent = true;
        Poll::Ready(Ok(length))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_sent(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // A peer that is gone needs no goodbye.
        if this.goodbye.is_some()
            && ready!(Pin::new(&mut this.socket).poll_ready(cx)).is_ok()
            && let Some(goodbye) = this.goodbye.take()
        {
            let _ = Pin::new(&mut this.socket).start_send(goodbye());
        }
        let _ = ready!(Pin::new(&mut this.socket).poll_close(cx));
        Poll::Ready(Ok(()))
    }
}
