//! One end of a WebSocket, after the handshake.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::frame::{Broken, Head, Kind, LONGEST_CONTROL, LONGEST_HEAD, Mask};

/// Longest message that is sent; some clients take no more than a mebibyte, and all spend less on
/// fewer messages.
pub const MAX_SENT_WEBSOCKET_MESSAGE_BYTES: usize = 128 * 1024;

/// Bytes that are read from the stream at once to find heads in them. More than this, and those that
/// a reader has room for, go straight to the reader.
const AHEAD: usize = 16 * 1024;
/// Bytes that are better copied behind their head than sent beside it.
const SMALL: usize = 4 * 1024;
/// Bytes that are copied and masked while they are near.
const BLOCK: usize = 4 * 1024;

/// Codes of a goodbye.
const NORMAL: u16 = 1000;
const BROKEN: u16 = 1002;
const FOREIGN: u16 = 1003;

/// Which end this is. What a client sends is masked, and nothing else is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// What an end said before it left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseFrame {
    pub code: Option<u16>,
    pub reason: String,
}

/// A WebSocket as a byte stream.
///
/// A frame that was begun is gone on with by the next write: whoever was told that only some of its
/// bytes were taken, or none yet, has to offer the others next, as `write_all` does.
pub struct WebSocketByteStream<S> {
    stream: S,
    side: Side,

    /// Bytes of the stream that nobody looked at.
    ahead: BytesMut,
    /// Payload of the frame that is read that has not been, and its mask.
    left: u64,
    mask: Option<Mask>,
    /// Whether a message goes on with the next data frame.
    unfinished: bool,
    ended: bool,
    /// What the peer left with.
    heard: Option<CloseFrame>,

    /// Bytes that go out before all others.
    waiting: BytesMut,
    /// Payload that the head that was sent last promised.
    promised: usize,
    /// The last ping, to be answered between two frames.
    ping: Option<Vec<u8>>,
    /// The goodbye, to be said between two frames.
    goodbye: Option<Vec<u8>>,
    parting: bool,
    unflushed: bool,
    /// Whoever waits for room. The stream knows only one who does, and a reader waits for it, too.
    writer: Option<Waker>,
}

impl<S> WebSocketByteStream<S> {
    /// The end that was connected to.
    pub fn server_side(stream: S) -> Self {
        Self::new(stream, Side::Server)
    }

    /// The end that connected.
    pub fn client_side(stream: S) -> Self {
        Self::new(stream, Side::Client)
    }

    fn new(stream: S, side: Side) -> Self {
        Self {
            stream,
            side,
            ahead: BytesMut::new(),
            left: 0,
            mask: None,
            unfinished: false,
            ended: false,
            heard: None,
            waiting: BytesMut::new(),
            promised: 0,
            ping: None,
            goodbye: None,
            parting: false,
            unflushed: false,
            writer: None,
        }
    }

    /// The same with bytes of the stream that came with the handshake.
    pub fn with_unread_bytes(mut self, bytes: &[u8]) -> Self {
        self.ahead.extend_from_slice(bytes);
        self
    }

    /// What the peer left with, if it said goodbye.
    pub fn close_frame(&self) -> Option<&CloseFrame> {
        self.heard.as_ref()
    }

    /// Says goodbye with the next flush, unless that was done. Nothing can be written any more.
    pub fn start_close(&mut self, code: u16, reason: &str) {
        if self.parting {
            return;
        }
        self.parting = true;
        let mut payload = code.to_be_bytes().to_vec();
        let length = reason.floor_char_boundary(LONGEST_CONTROL - payload.len());
        payload.extend_from_slice(&reason.as_bytes()[..length]);
        self.goodbye = Some(payload);
    }

    fn broken(&mut self, code: u16, what: &'static str) -> io::Error {
        self.ended = true;
        self.start_close(code, what);
        io::Error::new(io::ErrorKind::InvalidData, what)
    }

    /// Takes the next head, or a whole control frame, from what was read ahead, if all of it is
    /// there.
    fn next_frame(&mut self) -> io::Result<bool> {
        let (head, length) = match Head::read(&self.ahead) {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(false),
            Err(Broken(what)) => return Err(self.broken(BROKEN, what)),
        };
        if head.mask.is_some() != (self.side == Side::Server) {
            let what = "clients mask what they send, and only they do";
            return Err(self.broken(BROKEN, what));
        }
        if head.kind.is_control() {
            let payload = head.length as usize;
            if self.ahead.len() < length + payload {
                return Ok(false);
            }
            self.ahead.advance(length);
            let mut payload = self.ahead.split_to(payload).to_vec();
            if let Some(mut mask) = head.mask {
                mask.apply(&mut payload);
            }
            self.control(head.kind, payload);
            return Ok(true);
        }
        self.ahead.advance(length);
        match (head.kind, self.unfinished) {
            (Kind::Text, _) => return Err(self.broken(FOREIGN, "a message that is not binary")),
            (Kind::More, false) => return Err(self.broken(BROKEN, "more of no message")),
            (Kind::Binary, true) => {
                return Err(self.broken(BROKEN, "a message begins inside another"));
            }
            _ => {}
        }
        self.unfinished = !head.last;
        (self.left, self.mask) = (head.length, head.mask);
        Ok(true)
    }

    fn control(&mut self, kind: Kind, payload: Vec<u8>) {
        match kind {
            Kind::Ping => self.ping = Some(payload),
            Kind::Close => {
                self.ended = true;
                let (code, reason) = match payload.split_first_chunk() {
                    Some((code, reason)) => (Some(u16::from_be_bytes(*code)), reason),
                    None => (None, &[][..]),
                };
                let reason = String::from_utf8_lossy(reason).into_owned();
                self.heard = Some(CloseFrame { code, reason });
                // As it came, but for the reason, and for codes that nobody may send.
                self.start_close(
                    match code {
                        None => NORMAL,
                        Some(code @ (1000..=1003 | 1007..=1014 | 3000..=4999)) => code,
                        Some(_) => BROKEN,
                    },
                    "",
                );
            }
            _ => {}
        }
    }

    /// Puts a frame behind what waits.
    fn frame(&mut self, kind: Kind, payload: &[u8]) {
        let mut mask = (self.side == Side::Client).then(fresh_mask);
        let mut head = Vec::with_capacity(LONGEST_HEAD);
        Head { last: true, kind, length: payload.len() as u64, mask }.write(&mut head);
        self.waiting.reserve(head.len() + payload.len());
        self.waiting.extend_from_slice(&head);
        let Some(mask) = &mut mask else { return self.waiting.extend_from_slice(payload) };
        for block in payload.chunks(BLOCK) {
            let start = self.waiting.len();
            self.waiting.extend_from_slice(block);
            mask.apply(&mut self.waiting[start..]);
        }
    }
}

/// Keys only have to be such that nobody can choose what is seen on the wire.
fn fresh_mask() -> Mask {
    let mut key = [0; 4];
    // Without randomness there would be no SSH either.
    let _ = getrandom::fill(&mut key);
    Mask(key)
}

impl<S: AsyncRead + Unpin> WebSocketByteStream<S> {
    /// Waits until a message with something in it has begun. False if there will be none.
    pub async fn wait_for_message(&mut self) -> io::Result<bool> {
        poll_fn(|cx| self.poll_message(cx)).await
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            if self.ended {
                return Poll::Ready(Ok(false));
            }
            if self.left > 0 {
                return Poll::Ready(Ok(true));
            }
            if !self.next_frame()? {
                ready!(self.poll_ahead(cx));
            }
        }
    }

    /// Reads on. A stream that ends or fails without a goodbye is at its end.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.ahead.reserve(AHEAD.saturating_sub(self.ahead.len()).max(1));
        let read = {
            let reading = std::pin::pin!(self.stream.read_buf(&mut self.ahead));
            reading.poll(cx)
        };
        match read {
            Poll::Ready(Ok(0) | Err(_)) => self.ended = true,
            Poll::Ready(Ok(_)) => {}
            Poll::Pending => {
                if self.ahead.is_empty() {
                    // An idle connection keeps no room for what it may hear.
                    self.ahead = BytesMut::new();
                }
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    /// Reads payload, of which there is some.
    fn poll_payload(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<()> {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(buf.remaining());
        if self.ahead.is_empty() && wanted < AHEAD {
            ready!(self.poll_ahead(cx));
            if self.ended {
                return Poll::Ready(());
            }
        }
        let start = buf.filled().len();
        if self.ahead.is_empty() {
            // Whoever reads with a buffer of its own gives one that is initialized.
            let mut part = ReadBuf::new(buf.initialize_unfilled_to(wanted));
            let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part));
            let length = part.filled().len();
            self.ended |= read.is_err() || length == 0;
            buf.advance(length);
        } else {
            let length = wanted.min(self.ahead.len());
            buf.put_slice(&self.ahead[..length]);
            self.ahead.advance(length);
        }
        let payload = &mut buf.filled_mut()[start..];
        self.left -= payload.len() as u64;
        if let Some(mask) = &mut self.mask {
            mask.apply(payload);
        }
        Poll::Ready(())
    }
}

impl<S: AsyncWrite + Unpin> WebSocketByteStream<S> {
    /// Sends what waits, with what is to be said between frames if this is such a moment.
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while !self.waiting.is_empty() {
                let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.waiting))?;
                self.sent(sent)?;
                self.waiting.advance(sent);
            }
            if self.side == Side::Server {
                // There are many of them, and most are idle.
                self.waiting = BytesMut::new();
            }
            if self.promised > 0 {
                return Poll::Ready(Ok(()));
            }
            if let Some(payload) = self.ping.take() {
                self.frame(Kind::Pong, &payload);
            } else if let Some(payload) = self.goodbye.take() {
                self.frame(Kind::Close, &payload);
            } else {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn sent(&mut self, length: usize) -> io::Result<()> {
        match length {
            0 => Err(io::ErrorKind::WriteZero.into()),
            _ => {
                self.unflushed = true;
                Ok(())
            }
        }
    }

    /// Sends a head and as much payload behind it as there is room for.
    fn poll_begin(&mut self, cx: &mut Context<'_>, payload: &[u8]) -> Poll<io::Result<usize>> {
        let mut head = Vec::with_capacity(LONGEST_HEAD);
        let length = payload.len();
        Head { last: true, kind: Kind::Binary, length: length as u64, mask: None }.write(&mut head);
        let both = [IoSlice::new(&head), IoSlice::new(payload)];
        let sent = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, &both))?;
        self.sent(sent)?;
        let taken = sent.saturating_sub(head.len());
        self.waiting.extend_from_slice(&head[sent - taken..]);
        self.promised = length - taken;
        Poll::Ready(Ok(taken))
    }

    /// Goes on with the frame that was begun.
    fn poll_promised(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let bytes = &bytes[..bytes.len().min(self.promised)];
        let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        self.sent(sent)?;
        self.promised -= sent;
        Poll::Ready(Ok(sent))
    }

    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_waiting(cx))?;
        if self.unflushed {
            ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocketByteStream<S> {
    /// Sends what waits while somebody reads, and tells whoever waited for that.
    fn send_beside_reading(&mut self, cx: &mut Context<'_>) {
        // Also when that has to wait: what is there can be read meanwhile, and the waker is set. An
        // error is for whoever writes.
        if self.poll_sent(cx).is_ready()
            && let Some(writer) = self.writer.take()
            && !writer.will_wake(cx.waker())
        {
            writer.wake();
        }
    }

    fn poll_offer(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        loop {
            ready!(self.poll_waiting(cx))?;
            if self.promised > 0 {
                return self.poll_promised(cx, bytes);
            }
            if self.parting {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            let bytes = &bytes[..bytes.len().min(MAX_SENT_WEBSOCKET_MESSAGE_BYTES)];
            if self.side == Side::Client || bytes.len() < SMALL {
                self.frame(Kind::Binary, bytes);
                // What the stream does not take now waits for it here.
                return match self.poll_waiting(cx) {
                    Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                    _ => Poll::Ready(Ok(bytes.len())),
                };
            }
            match ready!(self.poll_begin(cx, bytes))? {
                0 => {}
                taken => return Poll::Ready(Ok(taken)),
            }
        }
    }

    /// The same, and remembers who waits.
    fn awaited<T>(&mut self, cx: &Context<'_>, poll: Poll<T>) -> Poll<T> {
        self.writer = poll.is_pending().then(|| cx.waker().clone());
        poll
    }

    /// Hears the peer out, whatever it says: a goodbye is lost where a stream is dropped with bytes
    /// that nobody has read.
    pub fn poll_discard_input(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut unheard = [0; 1024];
        while self.heard.is_none() {
            let mut unheard = ReadBuf::new(&mut unheard);
            let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut unheard));
            if read.is_err() || unheard.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WebSocketByteStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.send_beside_reading(cx);
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let message = this.poll_message(cx);
        if this.ping.is_some() || this.goodbye.is_some() {
            this.send_beside_reading(cx);
        }
        if ready!(message)? {
            ready!(this.poll_payload(cx, buf));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WebSocketByteStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let taken = this.poll_offer(cx, bytes);
        this.awaited(cx, taken)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let sent = this.poll_sent(cx);
        this.awaited(cx, sent)
    }

    /// Says goodbye. Who answers and then leaves is the peer.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.start_close(NORMAL, "");
        let sent = this.poll_sent(cx);
        // A peer that is gone needs no goodbye.
        this.awaited(cx, sent).map(|_| Ok(()))
    }
}

impl<S> fmt::Debug for WebSocketByteStream<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketByteStream")
            .field("side", &self.side)
            .field("left", &self.left)
            .field("promised", &self.promised)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
