//! Text through the handle: whole files, windows of lines, chunks, and edits.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::Backend;
use crate::call::Verb;
use crate::driver::File;
use crate::edit::{self, Edit, EditOptions, EditReport};
use crate::error::{Error, ErrorCause, ErrorKind, Result};
use crate::line_range::{ExtractedLine, LineRange, LineRangeExtractor};
use crate::options::{OpenOptions, ReadOptions, WriteMode, WriteOptions};
use crate::path::{PathInput, WsPath};

/// Size of one chunk when a file is read in pieces.
pub(crate) const FILE_CHUNK_BYTES: usize = 256 * 1024;
/// Maximum number of bytes of text in one window of lines.
pub(crate) const MAX_LINE_WINDOW_BYTES: usize = 16 * 1024 * 1024;
/// How often an edit is repeated if another writer changes the file during the edit. In each round
/// one writer succeeds, so this number of concurrent writers can all succeed.
const EDIT_ROUNDS: usize = 1000;

/// Some lines of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineWindow {
    /// The lines, including their line ends.
    pub text: String,
    /// The number of the first line, counted from 1. Zero if there are no lines.
    pub first_line: u64,
    /// The number of the last line. Zero if there are no lines.
    pub last_line: u64,
    /// The number of lines in the whole file, if its end was reached.
    pub total_lines: Option<u64>,
    /// The [`LineRange::skip_lines`] of the lines that follow. `None` if the end was reached.
    pub next_offset: Option<u64>,
}

/// Reads a file of any size in pieces.
#[derive(Debug)]
pub struct FileChunks {
    file: Box<dyn File>,
    offset: u64,
    end: u64,
}

impl FileChunks {
    /// Returns the next piece, or `None` at the end. The pieces end at the size that the file had
    /// when it was opened, even if the file grows during the read.
    pub async fn next(&mut self) -> Result<Option<Bytes>> {
        let left = self.end - self.offset;
        if left == 0 {
            return Ok(None);
        }
        let length =
            usize::try_from(left).map_or(FILE_CHUNK_BYTES, |left| left.min(FILE_CHUNK_BYTES));
        let bytes = self.file.read_at(self.offset, length).await?;
        if bytes.is_empty() {
            self.end = self.offset;
            return Ok(None);
        }
        self.offset += bytes.len() as u64;
        Ok(Some(bytes))
    }

    /// The size of the file when it was opened. `None` for a file that does not report its size.
    pub fn file_size(&self) -> Option<u64> {
        (self.end != u64::MAX).then_some(self.end)
    }
}

impl Backend {
    /// Reads a file as UTF-8.
    pub async fn read_text<'p>(&self, path: impl Into<PathInput<'p>>) -> Result<String> {
        let parsed = self.parse(Verb::Read, path)?;
        let content = self.driver().read(&parsed, ReadOptions::default()).await?;
        utf8(Verb::Read, &parsed, content.bytes)
    }

    /// Reads a file of any size in pieces.
    pub async fn read_chunks<'p>(&self, path: impl Into<PathInput<'p>>) -> Result<FileChunks> {
        let file = self.open(path, OpenOptions::default()).await;
        let file = file.map_err(|error| error.with_verb(Verb::Read))?;
        // Some files of the kernel, such as those in `/proc`, report the size zero although they
        // have content.
        let end = match file.stat().await?.size {
            0 => u64::MAX,
            size => size,
        };
        Ok(FileChunks { file, offset: 0, end })
    }

    /// Reads some lines of a text file of any size.
    pub async fn read_lines<'p>(
        &self,
        path: impl Into<PathInput<'p>>,
        range: LineRange,
    ) -> Result<LineWindow> {
        let parsed = self.parse(Verb::Read, path)?;
        let mut chunks = self.read_chunks(&parsed).await?;
        let mut window = WindowText::new(range);
        while let Some(chunk) = chunks.next().await? {
            window.feed(&chunk);
            if window.held_bytes() > MAX_LINE_WINDOW_BYTES {
                let message = format!("the lines have more than {MAX_LINE_WINDOW_BYTES} bytes");
                return Err(Error::for_path(Verb::Read, &parsed, ErrorKind::TooLarge, message)
                    .with_hint("ask for fewer lines, or for a range of bytes"));
            }
            if window.picker.is_past_range() {
                break;
            }
        }
        window.finish(&parsed)
    }

    /// Replaces text in a file. Either all edits are made or none. Each edit applies to the result
    /// of the previous one.
    ///
    /// Without an expected version, the edit is repeated if the file changes during the edit.
    /// Concurrent edits therefore do not overwrite each other.
    pub async fn edit<'p>(
        &self,
        path: impl Into<PathInput<'p>>,
        edits: &[Edit],
        options: EditOptions,
    ) -> Result<EditReport> {
        let parsed = self.parse(Verb::Write, path)?;
        let mut rounds = 0;
        loop {
            let content = self.driver().read(&parsed, ReadOptions::default()).await?;
            if options.expected_version.is_some_and(|expected| expected != content.stat.version) {
                let message = "the file does not have the expected version";
                return Err(Error::for_path(Verb::Write, &parsed, ErrorKind::Conflict, message));
            }
            let before = utf8(Verb::Write, &parsed, content.bytes)?;
            let applied =
                edit::apply_edits(&before, edits).map_err(|problem| problem.into_error(&parsed))?;
            let done = |stat| {
                let diff = edit::unified_diff(&parsed.to_string(), &before, &applied.text);
                EditReport {
                    replacement_count: applied.replacement_count,
                    diff: diff.text,
                    line_counts: diff.line_counts,
                    stat,
                }
            };
            if options.dry_run {
                return Ok(done(None));
            }
            let write = WriteOptions {
                mode: WriteMode::Replace,
                expected_version: Some(content.stat.version),
                ..WriteOptions::default()
            };
            match self.driver().write(&parsed, applied.text.clone().into(), write).await {
                Ok(stat) => return Ok(done(Some(stat))),
                Err(error)
                    if error.kind() == ErrorKind::Conflict
                        && options.expected_version.is_none()
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
        let message = format!("the file is not UTF-8 text: byte {at} is invalid");
        Error::for_path(verb, path, ErrorKind::Invalid, message)
            .with_cause(ErrorCause::NotUtf8)
            .with_hint("read it as bytes")
    })
}

/// Collects the lines of a range with their line ends.
struct WindowText {
    range: LineRange,
    picker: LineRangeExtractor,
    bytes: Vec<u8>,
    last_line: u64,
}

impl WindowText {
    fn new(range: LineRange) -> Self {
        // Keep one byte more than fits in a window, to detect that a line is too long.
        let picker = LineRangeExtractor::new(range, MAX_LINE_WINDOW_BYTES + 1);
        Self { range, picker, bytes: Vec::new(), last_line: 0 }
    }

    fn feed(&mut self, chunk: &[u8]) {
        self.picker.feed(chunk, appending(&mut self.bytes, &mut self.last_line));
    }

    fn held_bytes(&self) -> usize {
        self.bytes.len() + self.picker.pending_bytes()
    }

    fn finish(mut self, path: &WsPath) -> Result<LineWindow> {
        let past_range = self.picker.is_past_range();
        let seen = self.picker.finish_and_count(appending(&mut self.bytes, &mut self.last_line));
        let text = utf8(Verb::Read, path, self.bytes.into())?;
        Ok(LineWindow {
            text,
            first_line: if self.last_line == 0 { 0 } else { self.range.skip_lines + 1 },
            last_line: self.last_line,
            total_lines: (!past_range).then_some(seen),
            next_offset: past_range.then_some(self.range.last_line()),
        })
    }
}

fn appending(
    bytes: &mut Vec<u8>,
    last_line: &mut u64,
) -> impl FnMut(ExtractedLine<'_>) -> ControlFlow<()> {
    |line| {
        bytes.extend_from_slice(line.bytes);
        *last_line = line.number;
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(text: &str, offset: u64, limit: u64, chunk: usize) -> LineWindow {
        let mut window = WindowText::new(LineRange { skip_lines: offset, max_lines: limit });
        for piece in text.as_bytes().chunks(chunk) {
            window.feed(piece);
            if window.picker.is_past_range() {
                break;
            }
        }
        window.finish(&WsPath::root()).unwrap()
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
