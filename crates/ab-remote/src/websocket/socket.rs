//! One end of a WebSocket after the handshake.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::frame::{Broken, Head, Kind, LONGEST_CONTROL, LONGEST_HEAD, Mask};

/// Maximum length of a message that is sent. Some clients accept at most one mebibyte. Below that,
/// fewer and longer messages are cheaper.
pub const MAX_SENT_WEBSOCKET_MESSAGE_BYTES: usize = 128 * 1024;

/// Number of bytes that are read from the stream at a time to find frame headers. Larger payloads
/// are read directly into the buffer of the reader.
const AHEAD: usize = 16 * 1024;
/// Payloads that are smaller than this are copied behind their frame header and sent together with
/// it.
const SMALL: usize = 4 * 1024;
/// Number of bytes that are copied and masked at a time, while they are in the processor's cache.
const BLOCK: usize = 4 * 1024;

/// The close codes of RFC 6455 that are sent here.
const NORMAL: u16 = 1000;
const BROKEN: u16 = 1002;
const FOREIGN: u16 = 1003;

/// Whether this is the client or the server. Only clients mask their frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// The contents of a close frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseFrame {
    pub code: Option<u16>,
    pub reason: String,
}

/// A WebSocket as a byte stream.
///
/// After a partial or pending write, the next write must continue with the same bytes, as
/// `write_all` does. This is required because the next write continues a frame whose header was
/// already sent.
pub struct WebSocketByteStream<S> {
    stream: S,
    side: Side,

    /// Bytes that were read from the stream and have not been parsed yet.
    ahead: BytesMut,
    /// The number of unread payload bytes of the current frame, and their mask.
    left: u64,
    mask: Option<Mask>,
    /// Whether the next data frame continues a message.
    unfinished: bool,
    ended: bool,
    /// The close frame that the peer has sent.
    heard: Option<CloseFrame>,

    /// Encoded frames that must be sent before anything else.
    waiting: BytesMut,
    /// The number of payload bytes that the last frame header has announced and that have not been
    /// sent yet.
    promised: usize,
    /// The payload of the last ping. It is answered between two frames.
    ping: Option<Vec<u8>>,
    /// The payload of this side's close frame, which is sent between two frames.
    close_payload: Option<Vec<u8>>,
    unwritten: bool,
    unflushed: bool,
    /// The waker of the task that waits to write. The stream itself keeps only one waker, and this
    /// may be the waker of a reader.
    writer: Option<Waker>,
}

impl<S> WebSocketByteStream<S> {
    /// The server's end of a WebSocket.
    pub fn new_server(stream: S) -> Self {
        Self::new(stream, Side::Server)
    }

    /// The client's end of a WebSocket.
    pub fn new_client(stream: S) -> Self {
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
            close_payload: None,
            unwritten: false,
            unflushed: false,
            writer: None,
        }
    }

    /// Adds bytes of the stream that arrived together with the handshake.
    pub(crate) fn with_unread_bytes(mut self, bytes: &[u8]) -> Self {
        self.ahead.extend_from_slice(bytes);
        self
    }

    /// The close frame of the peer, if it has sent one.
    pub fn close_frame(&self) -> Option<&CloseFrame> {
        self.heard.as_ref()
    }

    /// Queues a close frame, which is sent with the next flush. Does nothing if one was already
    /// sent. Later writes fail.
    pub fn start_close(&mut self, code: u16, reason: &str) {
        if self.unwritten {
            return;
        }
        self.unwritten = true;
        let mut payload = code.to_be_bytes().to_vec();
        let length = reason.floor_char_boundary(LONGEST_CONTROL - payload.len());
        payload.extend_from_slice(&reason.as_bytes()[..length]);
        self.close_payload = Some(payload);
    }

    fn broken(&mut self, code: u16, what: &'static str) -> io::Error {
        self.ended = true;
        self.start_close(code, what);
        io::Error::new(io::ErrorKind::InvalidData, what)
    }

    /// Takes the next frame header or the next complete control frame from the buffered bytes.
    /// Returns `false` if it is incomplete.
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
                // Answer with the same code, but without the reason. Invalid codes are not
                // repeated.
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

    /// Appends a complete frame to the bytes that are waiting to be sent.
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

/// A new masking key. It only needs to be unpredictable.
fn fresh_mask() -> Mask {
    let mut key = [0; 4];
    // Ignore an error, because SSH fails without random numbers anyway.
    let _ = getrandom::fill(&mut key);
    Mask(key)
}

impl<S: AsyncRead + Unpin> WebSocketByteStream<S> {
    /// Waits until a message with payload begins. Returns `false` if no such message will arrive.
    pub(crate) async fn wait_for_message(&mut self) -> io::Result<bool> {
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

    /// Reads more bytes into the buffer. If the stream ends or fails without a close frame, this
    /// counts as EOF.
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
                    // Free the buffer, so that an idle connection uses no memory for it.
                    self.ahead = BytesMut::new();
                }
                return Poll::Pending;
            }
        }
        Poll::Ready(())
    }

    /// Reads payload. There must be unread payload in the current frame.
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
            // Initializing the buffer usually costs nothing, because most readers pass buffers that
            // are already initialized.
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
    /// Sends the waiting bytes. Between two frames it also sends pending control frames.
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while !self.waiting.is_empty() {
                let sent = ready!(Pin::new(&mut self.stream).poll_write(cx, &self.waiting))?;
                self.sent(sent)?;
                self.waiting.advance(sent);
            }
            if self.side == Side::Server {
                // Free the buffer, because a server has many connections and most of them are idle.
                self.waiting = BytesMut::new();
            }
            if self.promised > 0 {
                return Poll::Ready(Ok(()));
            }
            if let Some(payload) = self.ping.take() {
                self.frame(Kind::Pong, &payload);
            } else if let Some(payload) = self.close_payload.take() {
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

    /// Sends a frame header and as much of its payload as the stream accepts.
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

    /// Sends more payload of the frame whose header was sent before.
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
    /// Sends waiting bytes during a read. When all are sent, wakes the writer that waits for this.
    fn send_beside_reading(&mut self, cx: &mut Context<'_>) {
        // Reading continues even if the write is pending. The pending write has set the waker. The
        // writer gets its errors.
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
            if self.unwritten {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            let bytes = &bytes[..bytes.len().min(MAX_SENT_WEBSOCKET_MESSAGE_BYTES)];
            if self.side == Side::Client || bytes.len() < SMALL {
                self.frame(Kind::Binary, bytes);
                // Bytes that the stream does not accept now are sent by later calls.
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

    /// If a write is pending, stores the waker of its task.
    fn awaited<T>(&mut self, cx: &Context<'_>, poll: Poll<T>) -> Poll<T> {
        self.writer = poll.is_pending().then(|| cx.waker().clone());
        poll
    }

    /// Reads and discards the input of the peer. If a socket is closed while there are unread
    /// bytes, the close frame is lost.
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
        if this.ping.is_some() || this.close_payload.is_some() {
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

    /// Sends a close frame. The peer answers the frame and closes the connection.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.start_close(NORMAL, "");
        let sent = this.poll_sent(cx);
        // An error means that the peer has disconnected.
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
