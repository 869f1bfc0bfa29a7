//! Text through the handle: whole, in windows of lines, in chunks, and by edits.

use bytes::Bytes;

use super::Backend;
use crate::call::Verb;
use crate::driver::File;
use crate::edit::{self, Edit, EditOptions, Edited};
use crate::error::{Error, Kind, Result};
use crate::options::{OpenOptions, ReadOptions, WriteMode, WriteOptions};
use crate::path::WsPath;

/// Bytes of one chunk when a file is read piece by piece.
pub const CHUNK_BYTES: usize = 256 * 1024;
/// Most bytes of text in one window of lines.
pub const WINDOW_BYTES: usize = 16 * 1024 * 1024;
/// How often an edit starts again because someone else wrote in between. Each round, somebody got
/// through, so this many writers at once still all succeed.
const EDIT_ROUNDS: usize = 1000;

/// Which lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRange {
    /// Lines to skip.
    pub offset: u64,
    /// Lines to return, at most.
    pub limit: u64,
}

impl Default for LineRange {
    fn default() -> Self {
        Self { offset: 0, limit: 2000 }
    }
}

/// Some lines of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextWindow {
    /// The lines with their line ends.
    pub text: String,
    /// Number of the first line, counted from 1; zero when there is none.
    pub first_line: u64,
    /// Number of the last line; zero when there is none.
    pub last_line: u64,
    /// Lines in the whole file, when its end was seen.
    pub total_lines: Option<u64>,
    /// The offset to go on from, unless the end was reached.
    pub next_offset: Option<u64>,
}

/// A file read piece by piece, so that its size does not matter.
#[derive(Debug)]
pub struct Chunks {
    file: Box<dyn File>,
    offset: u64,
    end: u64,
}

impl Chunks {
    /// The next piece, or nothing at the end. A file that grows meanwhile ends where it ended when
    /// it was opened.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let left = self.end - self.offset;
        if left == 0 {
            return Ok(None);
        }
        let length = usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        let bytes = self.file.read_at(self.offset, length).await?;
        if bytes.is_empty() {
            self.end = self.offset;
            return Ok(None);
        }
        self.offset += bytes.len() as u64;
        Ok(Some(bytes))
    }

    /// Bytes from start to end, as they were when the file was opened. Nothing for a file that
    /// does not know its own size.
    pub fn size(&self) -> Option<u64> {
        (self.end != u64::MAX).then_some(self.end)
    }
}

impl Backend {
    /// Reads a file as UTF-8.
    pub async fn read_text(&self, path: &str) -> Result<String> {
        let parsed = self.parse(Verb::Read, path)?;
        let content = self.driver().read(&parsed, ReadOptions::default()).await?;
        utf8(Verb::Read, &parsed, content.bytes)
    }

    /// Reads a file of any size in pieces.
    pub async fn chunks(&self, path: &str) -> Result<Chunks> {
        let file = self.open(path, OpenOptions::default()).await;
        let file = file.map_err(|error| error.with_verb(Verb::Read))?;
        // Files of the kernel's own making claim to be empty and are not.
        let end = match file.stat().await?.size {
            0 => u64::MAX,
            size => size,
        };
        Ok(Chunks { file, offset: 0, end })
    }

    /// Reads some lines of a text file of any size.
    pub async fn lines(&self, path: &str, range: LineRange) -> Result<TextWindow> {
        let parsed = self.parse(Verb::Read, path)?;
        let mut chunks = self.chunks(path).await?;
        let mut window = LineCollector::new(range);
        while let Some(chunk) = chunks.next().await? {
            window.feed(&chunk);
            if window.bytes.len() > WINDOW_BYTES {
                let message = format!("the lines hold more than {WINDOW_BYTES} bytes");
                return Err(Error::for_path(Verb::Read, &parsed, Kind::TooLarge, message)
                    .with_hint("ask for fewer lines, or for a range of bytes"));
            }
            if window.full {
                break;
            }
        }
        window.finish(&parsed)
    }

    /// Replaces text in a file: all edits or none, each on the result of the one before.
    ///
    /// With no expected version, an edit that finds the file changed under it starts again, so that
    /// concurrent edits lose nothing.
    pub async fn edit(&self, path: &str, edits: &[Edit], options: EditOptions) -> Result<Edited> {
        let parsed = self.parse(Verb::Write, path)?;
        let mut rounds = 0;
        loop {
            let content = self.driver().read(&parsed, ReadOptions::default()).await?;
            if options.expect.is_some_and(|expected| expected != content.stat.version) {
                let message = "the file is not the expected version";
                return Err(Error::for_path(Verb::Write, &parsed, Kind::Conflict, message));
            }
            let before = utf8(Verb::Write, &parsed, content.bytes)?;
            let applied =
                edit::apply(&before, edits).map_err(|problem| problem.into_error(&parsed))?;
            let done = |stat| {
                let diff = edit::unified_diff(&parsed.to_string(), &before, &applied.text);
                Edited { replaced: applied.replaced, diff: diff.text, lines: diff.lines, stat }
            };
            if options.dry_run {
                return Ok(done(None));
            }
            let write = WriteOptions {
                mode: WriteMode::Replace,
                expect: Some(content.stat.version),
                ..WriteOptions::default()
            };
            match self.driver().write(&parsed, applied.text.clone().into(), write).await {
                Ok(stat) => return Ok(done(Some(stat))),
                Err(error)
                    if error.kind() == Kind::Conflict
                        && options.expect.is_none()
                        && rounds < EDIT_ROUNDS =>
                {
                    rounds += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn utf8(verb: Verb, path: &WsPath, bytes: Bytes) -> Result<String> {
    String::from_utf8(bytes.into()).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let message = format!("not UTF-8 text: byte {at} does not fit");
        Error::for_path(verb, path, Kind::Invalid, message).with_hint("read it as bytes")
    })
}

/// Picks lines out of chunks.
struct LineCollector {
    range: LineRange,
    /// Lines that ended so far.
    ended: u64,
    /// Whether bytes came after the last line end.
    partial: bool,
    bytes: Vec<u8>,
    full: bool,
}

impl LineCollector {
    fn new(range: LineRange) -> Self {
        Self { range, ended: 0, partial: false, bytes: Vec::new(), full: false }
    }

    fn last_wanted(&self) -> u64 {
        self.range.offset.saturating_add(self.range.limit)
    }

    fn feed(&mut self, chunk: &[u8]) {
        for line in chunk.split_inclusive(|byte| *byte == b'\n') {
            if self.ended >= self.last_wanted() {
                self.full = true;
                return;
            }
            if self.ended >= self.range.offset {
                self.bytes.extend_from_slice(line);
            }
            let ends = line.ends_with(b"\n");
            self.ended += u64::from(ends);
            self.partial = !ends;
        }
    }

    fn finish(self, path: &WsPath) -> Result<TextWindow> {
        let seen = self.ended + u64::from(self.partial);
        let last = seen.min(self.last_wanted());
        let empty = last <= self.range.offset;
        let text = utf8(Verb::Read, path, self.bytes.into())?;
        Ok(TextWindow {
            text,
            first_line: if empty { 0 } else { self.range.offset + 1 },
            last_line: if empty { 0 } else { last },
            total_lines: (!self.full).then_some(seen),
            next_offset: self.full.then_some(last),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(text: &str, offset: u64, limit: u64, chunk: usize) -> TextWindow {
        let mut collector = LineCollector::new(LineRange { offset, limit });
        for piece in text.as_bytes().chunks(chunk) {
            collector.feed(piece);
            if collector.full {
                break;
            }
        }
        collector.finish(&WsPath::root()).unwrap()
    }

    #[test]
    fn windows_are_consistent() {
        for chunk in [1, 2, 3, 100] {
            for (text, offset, limit, expect) in [
                ("a\nb\nc\n", 0, 2, ("a\nb\n", 1, 2, None, Some(2))),
                ("a\nb\nc\n", 2, 2, ("c\n", 3, 3, Some(3), None)),
                ("a\nb\nc", 0, 3, ("a\nb\nc", 1, 3, Some(3), None)),
                ("a\nb\nc", 1, 1, ("b\n", 2, 2, None, Some(2))),
                ("a\nb", 5, 1, ("", 0, 0, Some(2), None)),
                ("", 0, 10, ("", 0, 0, Some(0), None)),
                ("\n", 0, 10, ("\n", 1, 1, Some(1), None)),
                ("a\n", 0, 0, ("", 0, 0, None, Some(0))),
                ("ä\r\nö\r\n", 1, 1, ("ö\r\n", 2, 2, Some(2), None)),
            ] {
                let got = window(text, offset, limit, chunk);
                assert_eq!(
                    (
                        got.text.as_str(),
                        got.first_line,
                        got.last_line,
                        got.total_lines,
                        got.next_offset
                    ),
                    expect,
                    "{text:?} from {offset}, {limit} lines, in chunks of {chunk}"
                );
            }
        }
    }
}
