//! Some lines of a text, within bounds, and what to say about the others. Pure.

use std::ops::ControlFlow;

use crate::bounds::SHOWN_LINE_BYTES;
use crate::quantity::{grouped, size};

/// Which lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Skips some, then takes some.
    From {
        skip: u64,
        limit: u64,
    },
    Last(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    Without,
    With,
}

/// Lines as they are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) text: String,
    /// Number of the first and last line, from 1; zero when there is none.
    pub(crate) first: u64,
    pub(crate) last: u64,
    /// Lines of the whole text, where they were counted.
    pub(crate) total: Option<u64>,
    /// Whether lines that were wanted did not fit.
    pub(crate) full: bool,
    /// Lines that are shown in part.
    pub(crate) cut: usize,
    /// Whether some bytes were no text.
    pub(crate) lossy: bool,
}

impl Window {
    /// Whether this is all there is.
    pub(crate) fn whole(&self) -> bool {
        self.total.is_some_and(|total| self.first <= 1 && self.last == total)
    }
}

/// Picks lines out of a whole text.
pub(crate) fn select(bytes: &[u8], wanted: Wanted, bound: usize, numbers: Numbers) -> Window {
    let ends = bytes.iter().filter(|byte| **byte == b'\n').count() as u64;
    let total = ends + u64::from(!bytes.is_empty() && !bytes.ends_with(b"\n"));
    let (skip, limit) = match wanted {
        Wanted::From { skip, limit } => (skip, limit),
        Wanted::Last(count) => (total.saturating_sub(count), count),
    };
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let wanted_lines = lines
        .skip(usize::try_from(skip).unwrap_or(usize::MAX))
        .take(usize::try_from(limit).unwrap_or(usize::MAX));
    let mut window = gathered(wanted_lines, skip, bound, numbers);
    window.total = Some(total);
    window
}

/// Lines of a text that comes in pieces and is never held whole: no line of it either, however long.
#[derive(Debug)]
pub(crate) struct Passing {
    skip: u64,
    limit: u64,
    bound: usize,
    numbers: Numbers,
    window: Window,
    /// Whether there were lines beyond those that were wanted.
    more: bool,
    /// Lines that have ended.
    passed: u64,
    /// As much of the line that has not as is shown, and all its bytes.
    line: Vec<u8>,
    length: u64,
}

impl Passing {
    pub(crate) fn new(skip: u64, limit: u64, bound: usize, numbers: Numbers) -> Passing {
        let (window, line) = (Window::default(), Vec::new());
        Passing { skip, limit, bound, numbers, window, more: false, passed: 0, line, length: 0 }
    }

    /// Breaks when no more is wanted.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> ControlFlow<()> {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            if self.passed >= self.skip.saturating_add(self.limit) {
                self.more = true;
                return ControlFlow::Break(());
            }
            self.length += part.len() as u64;
            if self.passed >= self.skip {
                // One more than is shown says that it was cut.
                let room = (SHOWN_LINE_BYTES + 1).saturating_sub(self.line.len());
                self.line.extend_from_slice(&part[..part.len().min(room)]);
            }
            if part.ends_with(b"\n") {
                self.end_line(End::Newline)?;
            }
        }
        ControlFlow::Continue(())
    }

    /// All that was wanted, when nothing more comes.
    pub(crate) fn finish(mut self) -> Window {
        if self.length > 0 && !self.more && !self.window.full {
            let _ = self.end_line(End::Text);
        }
        if !self.more && !self.window.full {
            self.window.total = Some(self.passed);
        }
        self.window
    }

    fn end_line(&mut self, end: End) -> ControlFlow<()> {
        let (line, length) = (std::mem::take(&mut self.line), std::mem::take(&mut self.length));
        let number = self.passed + 1;
        if self.passed >= self.skip {
            let shown = shown((&line, length, end), number, self.numbers, &mut self.window);
            if !self.window.text.is_empty() && self.window.text.len() + shown.len() > self.bound {
                self.window.full = true;
                return ControlFlow::Break(());
            }
            self.window.text.push_str(&shown);
            (self.window.first, self.window.last) = (self.skip + 1, number);
        }
        self.passed = number;
        ControlFlow::Continue(())
    }
}

/// How a line ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Newline,
    /// With the text itself.
    Text,
}

/// Lines that follow `skip` others.
fn gathered<'a>(
    lines: impl Iterator<Item = &'a [u8]>,
    skip: u64,
    bound: usize,
    numbers: Numbers,
) -> Window {
    let mut window = Window::default();
    let mut last = skip;
    for line in lines {
        let end = if line.ends_with(b"\n") { End::Newline } else { End::Text };
        let shown = shown((line, line.len() as u64, end), last + 1, numbers, &mut window);
        if !window.text.is_empty() && window.text.len() + shown.len() > bound {
            window.full = true;
            break;
        }
        window.text.push_str(&shown);
        last += 1;
    }
    if last > skip {
        (window.first, window.last) = (skip + 1, last);
    }
    window
}

/// A line as it is shown; of one that is long only the beginning has to be there.
fn shown(
    (line, length, end): (&[u8], u64, End),
    number: u64,
    numbers: Numbers,
    window: &mut Window,
) -> String {
    let kept = &line[..line.len().min(SHOWN_LINE_BYTES)];
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
    // A character that the cut split is not the file's fault.
    out.push_str(text.trim_end_matches('\u{fffd}'));
    out.push_str(&format!(" [line cut: {} in all]", size(length)));
    if end == End::Newline {
        out.push('\n');
    }
    out
}

/// What a file and its window are, for the note below the window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) size: u64,
    /// Whether more lines would have been shown, had there been room.
    pub(crate) chosen: Chosen,
}

/// How the caller chose its lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    /// Not at all.
    Nothing,
    /// By their number from the start or the end: it knows that there are others.
    Ends,
    /// By offset or limit: it goes through the file.
    Range { skip: u64 },
}

/// How to get the rest, when there is a rest worth telling of.
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
        // An empty file is what it is.
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
        let from = |skip, limit| Wanted::From { skip, limit };
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
        let wanted = Wanted::From { skip: 0, limit: 100 };
        assert_eq!(all(b"aaa\nbbb\nccc\n", wanted, 8), ("aaa\nbbb\n".to_owned(), 1, 2, true));
        let long = [b"x".repeat(SHOWN_LINE_BYTES + 1), b"\ny\n".to_vec()].concat();
        let window = select(&long, wanted, 1_000_000, Numbers::Without);
        assert!(
            window.text.ends_with(" [line cut: 19.53 KB in all]\ny\n"),
            "{}",
            &window.text[SHOWN_LINE_BYTES..]
        );
        assert_eq!((window.cut, window.lossy), (1, false));
    }

    #[test]
    fn in_pieces_it_is_the_same() {
        let long = "y".repeat(SHOWN_LINE_BYTES + 5);
        let text = format!("a\nb\n{long}\nc\nd");
        for piece in [1, 3, 1000, 1_000_000] {
            for (skip, limit, bound) in
                [(0, 9, 1_000_000), (1, 2, 1_000_000), (3, 9, 100), (0, 9, 5), (9, 9, 100)]
            {
                let mut passing = Passing::new(skip, limit, bound, Numbers::With);
                for piece in text.as_bytes().chunks(piece) {
                    if passing.feed(piece).is_break() {
                        break;
                    }
                }
                let mut window = passing.finish();
                let wanted = Wanted::From { skip, limit };
                let expect = select(text.as_bytes(), wanted, bound, Numbers::With);
                if window.total.is_none() {
                    // It did not look at the rest.
                    window.total = expect.total;
                }
                assert_eq!(window, expect, "{piece} {skip} {limit} {bound}");
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
