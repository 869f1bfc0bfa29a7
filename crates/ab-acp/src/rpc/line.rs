//! Reads lines of limited length from a byte stream.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, BufReader};

/// Reads lines. If a read is cancelled, the bytes of the unfinished line are kept.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    input: BufReader<R>,
    partial: Vec<u8>,
    limit: usize,
    /// Whether bytes after the last newline count as a line.
    has_unterminated_line: bool,
}

/// The result of [`Lines::next`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line without its line ending.
    Whole(Vec<u8>),
    /// A line that is longer than the limit. The rest of it was not read.
    TooLong,
    /// The stream ended. Bytes after the last newline are ignored, unless `with_unterminated_line`
    /// was called.
    End,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(crate) fn new(input: R, limit: usize) -> Lines<R> {
        let input = BufReader::new(input);
        Lines { input, partial: Vec::new(), limit, has_unterminated_line: false }
    }

    /// Makes the reader return bytes after the last newline as a line too.
    pub(crate) fn with_unterminated_line(self) -> Lines<R> {
        Lines { has_unterminated_line: true, ..self }
    }

    pub(crate) async fn next(&mut self) -> io::Result<Line> {
        loop {
            let (used, ended) = match fill(&mut self.input).await? {
                [] if self.has_unterminated_line && !self.partial.is_empty() => (0, true),
                [] => return Ok(Line::End),
                bytes => match bytes.iter().position(|&byte| byte == b'\n') {
                    Some(end) => {
                        self.partial.extend_from_slice(&bytes[..end]);
                        (end + 1, true)
                    }
                    None => {
                        self.partial.extend_from_slice(bytes);
                        (bytes.len(), false)
                    }
                },
            };
            self.input.consume(used);
            if self.partial.len() > self.limit {
                return Ok(Line::TooLong);
            }
            if ended {
                let mut line = std::mem::take(&mut self.partial);
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(Line::Whole(line));
            }
        }
    }
}

async fn fill<R: AsyncBufRead + Unpin>(input: &mut R) -> io::Result<&[u8]> {
    input.fill_buf().await
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(bytes: &[u8], limit: usize) -> Vec<Line> {
        let mut lines = Lines::new(bytes, limit);
        let mut found = Vec::new();
        loop {
            let line = lines.next().await.unwrap();
            let last = line != Line::Whole(Vec::new()) && !matches!(line, Line::Whole(_));
            found.push(line);
            if last {
                return found;
            }
        }
    }

    fn whole(text: &str) -> Line {
        Line::Whole(text.as_bytes().to_vec())
    }

    #[tokio::test]
    async fn lines_end_with_lf_or_crlf() {
        assert_eq!(lines(b"a\nb\r\n\n", 9).await, [whole("a"), whole("b"), whole(""), Line::End]);
    }

    #[tokio::test]
    async fn unfinished_last_line_is_dropped() {
        assert_eq!(lines(b"a\n{\"half\"", 9).await, [whole("a"), Line::End]);
        assert_eq!(lines(b"", 9).await, [Line::End]);
    }

    #[tokio::test]
    async fn long_lines_are_cut_off() {
        assert_eq!(lines(b"12345\n", 5).await, [whole("12345"), Line::End]);
        assert_eq!(lines(b"ok\n123456\n", 5).await, [whole("ok"), Line::TooLong]);
        assert_eq!(lines(&[b'x'; 100_000], 5).await, [Line::TooLong]);
    }
}
