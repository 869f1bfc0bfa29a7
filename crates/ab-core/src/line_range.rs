//! Extracts lines from a text that arrives in pieces, without keeping the whole text or a whole
//! long line in memory.

use std::ops::ControlFlow;

/// A range of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRange {
    /// Number of lines to skip.
    pub skip_lines: u64,
    /// Maximum number of lines to return.
    pub max_lines: u64,
}

impl LineRange {
    /// The number of the last line in the range, if the text has that many lines.
    pub fn last_line(self) -> u64 {
        self.skip_lines.saturating_add(self.max_lines)
    }
}

impl Default for LineRange {
    fn default() -> Self {
        Self { skip_lines: 0, max_lines: 2000 }
    }
}

/// A line that was extracted from a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtractedLine<'a> {
    /// The number of the line, counted from 1.
    pub number: u64,
    /// The line with its line end, truncated to the number of bytes that are kept.
    pub bytes: &'a [u8],
    /// The length of the whole line in bytes, including its line end.
    pub full_line_bytes: u64,
    /// Whether the line ends with a newline. This can be missing only in the last line of a text.
    pub has_newline: bool,
}

/// Extracts the lines of a range and counts all lines.
#[derive(Debug)]
pub struct LineRangeExtractor {
    range: LineRange,
    /// Maximum number of bytes that are kept of a line.
    line_bytes: usize,
    /// Number of complete lines so far.
    ended: u64,
    /// The kept bytes of the incomplete line, and its length so far.
    line: Vec<u8>,
    length: u64,
    /// Whether there is text after the range.
    past_range: bool,
    /// Whether the caller stopped early.
    stopped: bool,
}

impl LineRangeExtractor {
    pub fn new(range: LineRange, max_line_bytes: usize) -> Self {
        let (line, past_range, stopped) = (Vec::new(), false, false);
        Self { range, line_bytes: max_line_bytes, ended: 0, line, length: 0, past_range, stopped }
    }

    /// Adds the next piece of the text and calls `each` for every line of the range that ends in
    /// it. Lines after the range, and lines after `each` has returned `Break`, are only counted.
    pub fn feed(
        &mut self,
        piece: &[u8],
        mut each: impl FnMut(ExtractedLine<'_>) -> ControlFlow<()>,
    ) {
        let mut rest = piece;
        while !rest.is_empty() {
            if self.ended >= self.range.last_line() {
                self.past_range = true;
                return self.count(rest);
            }
            if self.stopped {
                return self.count(rest);
            }
            let newline = rest.iter().position(|byte| *byte == b'\n');
            let (part, after) = rest.split_at(newline.map_or(rest.len(), |at| at + 1));
            rest = after;
            self.length += part.len() as u64;
            match newline {
                Some(_) if self.line.is_empty() => {
                    let kept = &part[..part.len().min(self.line_bytes)];
                    self.end_line(kept, true, &mut each);
                }
                Some(_) => {
                    self.keep(part);
                    let line = std::mem::take(&mut self.line);
                    self.end_line(&line, true, &mut each);
                }
                None => self.keep(part),
            }
        }
    }

    /// Ends the text and its last line, which may have no newline. Returns the total number of
    /// lines.
    pub fn finish_and_count(
        mut self,
        mut each: impl FnMut(ExtractedLine<'_>) -> ControlFlow<()>,
    ) -> u64 {
        if self.length > 0 && !self.stopped && self.ended < self.range.last_line() {
            let line = std::mem::take(&mut self.line);
            self.end_line(&line, false, &mut each);
        }
        self.ended + u64::from(self.length > 0)
    }

    /// Whether there is text after the range.
    pub fn is_past_range(&self) -> bool {
        self.past_range
    }

    /// The number of bytes that are kept of the incomplete line.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.line.len()
    }

    fn keep(&mut self, part: &[u8]) {
        if self.ended >= self.range.skip_lines {
            let room = self.line_bytes.saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..part.len().min(room)]);
        }
    }

    fn end_line(
        &mut self,
        bytes: &[u8],
        has_newline: bool,
        each: &mut impl FnMut(ExtractedLine<'_>) -> ControlFlow<()>,
    ) {
        let length = std::mem::take(&mut self.length);
        self.ended += 1;
        if self.ended > self.range.skip_lines {
            let line =
                ExtractedLine { number: self.ended, bytes, full_line_bytes: length, has_newline };
            self.stopped = each(line).is_break();
        }
    }

    fn count(&mut self, rest: &[u8]) {
        self.ended += rest.iter().filter(|byte| **byte == b'\n').count() as u64;
        let after_newline = rest.iter().rev().take_while(|byte| **byte != b'\n').count() as u64;
        let whole = after_newline == rest.len() as u64;
        self.length = if whole { self.length + after_newline } else { after_newline };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The extracted lines as `number:kept bytes:length`, and the total number of lines.
    fn picked(text: &[u8], range: LineRange, line_bytes: usize, piece: usize) -> (String, u64) {
        let mut picker = LineRangeExtractor::new(range, line_bytes);
        let mut out = String::new();
        let mut each = |line: ExtractedLine<'_>| {
            assert_eq!(
                line.has_newline,
                line.full_line_bytes == 0 || text_has_newline(text, line.number)
            );
            out.push_str(&format!(
                "{}:{}:{} ",
                line.number,
                line.bytes.escape_ascii(),
                line.full_line_bytes
            ));
            ControlFlow::Continue(())
        };
        for piece in text.chunks(piece) {
            picker.feed(piece, &mut each);
        }
        let total = picker.finish_and_count(&mut each);
        (out, total)
    }

    fn text_has_newline(text: &[u8], number: u64) -> bool {
        text.iter().filter(|byte| **byte == b'\n').count() as u64 >= number
    }

    #[test]
    fn pieces_of_any_size_give_the_same_lines() {
        for (text, offset, limit, line_bytes, expect) in [
            ("a\nb\nc\n", 0, 2, 9, ("1:a\\n:2 2:b\\n:2 ", 3)),
            ("a\nb\nc", 1, 9, 9, ("2:b\\n:2 3:c:1 ", 3)),
            ("long line\nb", 0, 9, 3, ("1:lon:10 2:b:1 ", 2)),
            ("skipped\n\n\nx", 1, 2, 9, ("2:\\n:1 3:\\n:1 ", 4)),
            ("a\nb\n", 5, 1, 9, ("", 2)),
            ("a", 0, 0, 9, ("", 1)),
            ("", 0, 9, 9, ("", 0)),
        ] {
            for piece in [1, 2, 3, 100] {
                let range = LineRange { skip_lines: offset, max_lines: limit };
                let (lines, total) = picked(text.as_bytes(), range, line_bytes, piece);
                assert_eq!((lines.as_str(), total), expect, "{text:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn after_a_break_lines_are_only_counted() {
        let mut picker = LineRangeExtractor::new(LineRange { skip_lines: 0, max_lines: 9 }, 9);
        let mut taken = 0;
        let mut each = |_: ExtractedLine<'_>| {
            taken += 1;
            ControlFlow::Break(())
        };
        picker.feed(b"a\nb\nc\nd", &mut each);
        assert_eq!((picker.is_past_range(), picker.finish_and_count(&mut each)), (false, 4));
        assert_eq!(taken, 1);
    }
}
