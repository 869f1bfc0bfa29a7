//! Selects lines of a text within limits, and makes a note about the remaining lines. Does no I/O.

use std::ops::ControlFlow;

use ab_core::line_range::{ExtractedLine, LineRange, LineRangeExtractor};

use crate::bounds::{DEFAULT_MAX_READ_LINES, MAX_SHOWN_LINE_BYTES};
use crate::quantity::{grouped, size};

/// Which lines of a text a caller wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    From(LineRange),
    Last(u64),
}

/// The lines of a file that are shown by default.
pub(crate) const FIRST_LINES: LineRange =
    LineRange { skip_lines: 0, max_lines: DEFAULT_MAX_READ_LINES };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    Without,
    With,
}

/// The selected lines, as they are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) text: String,
    /// The numbers of the first and the last line, counted from 1. Zero if there is no line.
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// The number of lines of the whole text, if they were counted.
    pub(crate) total: Option<u64>,
    /// Whether some of the wanted lines did not fit.
    pub(crate) full: bool,
    /// The number of lines that are truncated.
    pub(crate) cut: usize,
    /// Whether some bytes were not valid UTF-8.
    pub(crate) lossy: bool,
}

impl Window {
    /// Whether the window contains all lines of the text.
    pub(crate) fn whole(&self) -> bool {
        self.total.is_some_and(|total| self.first <= 1 && self.last == total)
    }
}

/// Selects lines of a complete text.
pub(crate) fn select(bytes: &[u8], wanted: Wanted, bound: usize, numbers: Numbers) -> Window {
    let range = match wanted {
        Wanted::From(range) => range,
        Wanted::Last(count) => {
            let ends = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
            let total = ends + u64::from(!bytes.is_empty() && !bytes.ends_with(b"\n"));
            LineRange { skip_lines: total.saturating_sub(count), max_lines: count }
        }
    };
    let mut window = WindowBuilder::new(range, bound, numbers);
    window.feed(bytes);
    window.finish_counted()
}

/// Selects lines of a text that arrives in pieces.
#[derive(Debug)]
pub(crate) struct WindowBuilder {
    picker: LineRangeExtractor,
    bound: usize,
    numbers: Numbers,
    window: Window,
}

impl WindowBuilder {
    pub(crate) fn new(range: LineRange, bound: usize, numbers: Numbers) -> Self {
        // Keep one byte more than the limit, to detect lines that are too long.
        let picker = LineRangeExtractor::new(range, MAX_SHOWN_LINE_BYTES + 1);
        Self { picker, bound, numbers, window: Window::default() }
    }

    pub(crate) fn feed(&mut self, piece: &[u8]) {
        let window = &mut self.window;
        self.picker.feed(piece, |line| window.take(line, self.bound, self.numbers));
    }

    /// Whether no further line would be shown, so that reading can stop.
    pub(crate) fn is_done(&self) -> bool {
        self.picker.is_past_range() || self.window.full
    }

    /// The window after the whole text was fed, with the number of lines.
    pub(crate) fn finish_counted(mut self) -> Window {
        let window = &mut self.window;
        let total =
            self.picker.finish_and_count(|line| window.take(line, self.bound, self.numbers));
        self.window.total = Some(total);
        self.window
    }

    /// The window after the whole text was fed, or after [`is_done`](Self::is_done) returned
    /// `true`.
    pub(crate) fn finish(self) -> Window {
        if self.is_done() {
            return self.window;
        }
        // The last line, which has no newline, may be the line that does not fit.
        let mut window = self.finish_counted();
        if window.full {
            window.total = None;
        }
        window
    }
}

impl Window {
    /// Adds a line, or stops if it does not fit.
    fn take(&mut self, line: ExtractedLine<'_>, bound: usize, numbers: Numbers) -> ControlFlow<()> {
        let shown = shown(line, numbers, self);
        if !self.text.is_empty() && self.text.len() + shown.len() > bound {
            self.full = true;
            return ControlFlow::Break(());
        }
        self.text.push_str(&shown);
        if self.first == 0 {
            self.first = line.number;
        }
        self.last = line.number;
        ControlFlow::Continue(())
    }
}

/// The text of a line as it is shown. `line` has only the start of a long line.
fn shown(line: ExtractedLine<'_>, numbers: Numbers, window: &mut Window) -> String {
    let ExtractedLine { number, bytes, full_line_bytes: length, has_newline } = line;
    let kept = &bytes[..bytes.len().min(MAX_SHOWN_LINE_BYTES)];
    let text = String::from_utf8_lossy(kept);
    let mut out = match numbers {
        Numbers::Without => String::with_capacity(text.len()),
        Numbers::With => format!("{number:>6}\t"),
    };
    if kept.len() as u64 == length {
        window.lossy |= matches!(text, std::borrow::Cow::Owned(_));
        out.push_str(&text);
        return out;
    }
    window.cut += 1;
    // The end of the kept bytes may be inside a character. This is not an error in the file.
    out.push_str(text.trim_end_matches('\u{fffd}'));
    out.push_str(&format!(" [line cut: {} in all]", size(length)));
    if has_newline {
        out.push('\n');
    }
    out
}

/// What the note below the selected lines depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) size: u64,
    /// How the caller chose the lines.
    pub(crate) chosen: Chosen,
}

/// How the caller selected the lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    /// The caller did not select lines.
    Nothing,
    /// By a number of lines from the start or the end. The caller knows that there are other lines.
    Ends,
    /// By offset or limit. The caller reads the file page by page.
    Range { skip: u64 },
}

/// A note that says how to get the rest. `None` if there is no rest, or if the caller already knows
/// about it.
pub(crate) fn note(window: &Window, shape: Shape) -> Option<String> {
    let mut notes = Vec::new();
    if let Chosen::Range { skip } = shape.chosen
        && window.last == 0
        && skip > 0
    {
        let lines = window.total.map_or("fewer".to_owned(), grouped);
        notes.push(format!(
            "offset {} is past the end: the file has {lines} lines",
            grouped(skip + 1)
        ));
    } else if window.last == 0 && window.full {
        notes.push(format!("only the last lines that fit, of a file of {}", size(shape.size)));
    } else if window.last == 0 {
        // An empty file needs no note.
    } else if !(window.whole() || shape.chosen == Chosen::Ends && !window.full) {
        let of = match window.total {
            Some(total) => format!("of {} ({})", grouped(total), size(shape.size)),
            None => format!("of a file of {}", size(shape.size)),
        };
        let range = if window.first == window.last {
            format!("line {}", grouped(window.first))
        } else {
            format!("lines {}-{}", grouped(window.first), grouped(window.last))
        };
        let rest = if window.total.is_some_and(|total| window.last >= total) {
            String::new()
        } else {
            format!("; go on with offset {}", window.last + 1)
        };
        notes.push(format!("{range} {of}{rest}"));
    }
    if window.cut > 0 {
        notes.push("long lines were cut; grep finds text in them".to_owned());
    }
    if window.lossy {
        notes.push("bytes that are not UTF-8 are shown as \u{fffd}".to_owned());
    }
    (!notes.is_empty()).then(|| notes.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8], wanted: Wanted, bound: usize) -> (String, u64, u64, bool) {
        let window = select(text, wanted, bound, Numbers::Without);
        (window.text, window.first, window.last, window.full)
    }

    #[test]
    fn lines_are_picked_by_number() {
        let from = |offset, limit| Wanted::From(LineRange { skip_lines: offset, max_lines: limit });
        for (text, wanted, expect) in [
            ("a\nb\nc\n", from(0, 2), ("a\nb\n", 1, 2)),
            ("a\nb\nc", from(1, 9), ("b\nc", 2, 3)),
            ("a\nb\nc", Wanted::Last(2), ("b\nc", 2, 3)),
            ("a\nb\nc\n", Wanted::Last(1), ("c\n", 3, 3)),
            ("a\n", Wanted::Last(5), ("a\n", 1, 1)),
            ("", from(0, 5), ("", 0, 0)),
            ("a\n", from(7, 5), ("", 0, 0)),
        ] {
            let (got, first, last, full) = all(text.as_bytes(), wanted, 1000);
            assert_eq!((got.as_str(), first, last, full), (expect.0, expect.1, expect.2, false));
        }
    }

    #[test]
    fn whole_lines_fit_or_do_not() {
        let wanted = Wanted::From(LineRange { skip_lines: 0, max_lines: 100 });
        assert_eq!(all(b"aaa\nbbb\nccc\n", wanted, 8), ("aaa\nbbb\n".to_owned(), 1, 2, true));
        let long = [b"x".repeat(MAX_SHOWN_LINE_BYTES + 1), b"\ny\n".to_vec()].concat();
        let window = select(&long, wanted, 1_000_000, Numbers::Without);
        assert!(
            window.text.ends_with(" [line cut: 19.53 KB in all]\ny\n"),
            "{}",
            &window.text[MAX_SHOWN_LINE_BYTES..]
        );
        assert_eq!((window.cut, window.lossy), (1, false));
    }

    #[test]
    fn in_pieces_it_is_the_same() {
        let long = "y".repeat(MAX_SHOWN_LINE_BYTES + 5);
        let text = format!("a\nb\n{long}\nc\nd");
        for piece in [1, 3, 1000, 1_000_000] {
            for (offset, limit, bound) in
                [(0, 9, 1_000_000), (1, 2, 1_000_000), (3, 9, 100), (0, 9, 5), (9, 9, 100)]
            {
                let range = LineRange { skip_lines: offset, max_lines: limit };
                let mut builder = WindowBuilder::new(range, bound, Numbers::With);
                for piece in text.as_bytes().chunks(piece) {
                    builder.feed(piece);
                    if builder.is_done() {
                        break;
                    }
                }
                let mut window = builder.finish();
                let expect = select(text.as_bytes(), Wanted::From(range), bound, Numbers::With);
                if window.total.is_none() {
                    // In this case the rest of the text was not read.
                    window.total = expect.total;
                }
                assert_eq!(window, expect, "{piece} {range:?} {bound}");
            }
        }
    }

    #[test]
    fn numbers_and_foreign_bytes() {
        let window = select(b"a\n\xff\n", Wanted::Last(2), 1000, Numbers::With);
        assert_eq!(window.text, "     1\ta\n     2\t\u{fffd}\n");
        assert!(window.lossy);
    }

    #[test]
    fn notes_say_how_to_go_on() {
        let window = |first, last, total| Window { first, last, total, ..Window::default() };
        let shape = |chosen| Shape { size: 2048, chosen };
        for (window, chosen, expect) in [
            (window(1, 3, Some(3)), Chosen::Nothing, None),
            (window(0, 0, Some(0)), Chosen::Nothing, None),
            (window(1, 2, Some(3)), Chosen::Ends, None),
            (
                window(1, 2, Some(3)),
                Chosen::Nothing,
                Some("lines 1-2 of 3 (2.00 KB); go on with offset 3"),
            ),
            (window(3, 3, Some(3)), Chosen::Range { skip: 2 }, Some("line 3 of 3 (2.00 KB)")),
            (
                window(1, 2, None),
                Chosen::Nothing,
                Some("lines 1-2 of a file of 2.00 KB; go on with offset 3"),
            ),
            (
                window(0, 0, Some(3)),
                Chosen::Range { skip: 9 },
                Some("offset 10 is past the end: the file has 3 lines"),
            ),
        ] {
            assert_eq!(note(&window, shape(chosen)).as_deref(), expect);
        }
    }
}
