//! A stream for a WebSocket handshake that returns only the head of the HTTP response.
//!
//! The code for the handshake reads all available bytes and does not return the bytes after the
//! head. The first WebSocket frames may directly follow the head. This stream holds them back, so
//! that they are not lost.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The start of a response that opens a WebSocket.
const SWITCHING: &[u8] = b"HTTP/1.1 101";

#[derive(Debug)]
pub(super) struct Threshold<S> {
    stream: S,
    /// The bytes of the head that have been received.
    head: Vec<u8>,
    /// Bytes received after the head.
    beyond: Vec<u8>,
}

impl<S> Threshold<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, head: Vec::new(), beyond: Vec::new() }
    }

    /// Returns the inner stream and the bytes that were received after the head.
    pub(super) fn cross(self) -> (S, Vec<u8>) {
        (self.stream, self.beyond)
    }

    /// Adds newly received bytes. Returns how many of them belong to the head.
    fn shown(&mut self, bytes: &[u8]) -> usize {
        self.head.extend_from_slice(bytes);
        let Some(end) = end(&self.head) else { return bytes.len() };
        self.beyond = self.head.split_off(end);
        bytes.len() - self.beyond.len()
    }
}

/// The position after a head that accepts a WebSocket. The head ends with the first empty line.
/// Empty lines before the status line are skipped. As in HTTP parsers, lines may end without a
/// carriage return.
fn end(answer: &[u8]) -> Option<usize> {
    let blank = answer.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let head = &answer[blank..];
    if !head.starts_with(SWITCHING) {
        return None;
    }
    let mut lines = head.split_inclusive(|byte| *byte == b'\n');
    let mut end = blank;
    loop {
        let line = lines.next()?;
        end += line.len();
        if matches!(line, b"\n" | b"\r\n") {
            return Some(end);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Threshold<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let start = buf.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        let shown = this.shown(&buf.filled()[start..]);
        buf.set_filled(start + shown);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Threshold<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds these pieces. Returns the bytes that a reader gets, and the bytes that are held back.
    fn shown(pieces: &[&[u8]]) -> (Vec<u8>, Vec<u8>) {
        let mut threshold = Threshold::new(());
        let mut shown = Vec::new();
        for piece in pieces {
            let length = threshold.shown(piece);
            shown.extend_from_slice(&piece[..length]);
        }
        (shown, threshold.cross().1)
    }

    #[test]
    fn a_head_is_shown_however_it_comes() {
        for head in [
            &b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"[..],
            b"HTTP/1.1 101 Switching Protocols\nUpgrade: websocket\n\n",
            b"\r\nHTTP/1.1 101\r\nUpgrade: websocket\n\r\n",
        ] {
            let beyond = b"\x82\x02\n\n";
            let answer = [head, beyond].concat();
            for cut in 0..answer.len() {
                let (one, two) = answer.split_at(cut);
                // When the head is complete, the handshake does not read further.
                let pieces = if cut >= head.len() { vec![one] } else { vec![one, two] };
                let (shown, hidden) = shown(&pieces);
                assert_eq!(shown, head, "cut at {cut}");
                assert!(beyond.starts_with(&hidden), "cut at {cut}");
            }
        }
    }

    #[test]
    fn other_answers_are_shown_with_their_body() {
        let page = b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>";
        assert_eq!(shown(&[page]), (page.to_vec(), Vec::new()));
    }
}
