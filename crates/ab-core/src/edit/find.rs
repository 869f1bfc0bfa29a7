//! Finds a text in another one. `\n` and `\r\n` are treated as the same line break.

use std::borrow::Cow;
use std::ops::Range;

/// Searches for one text in another.
///
/// A match includes whole line breaks: `\nb` matches in `a\r\nb` from the `\r` on. A `\r` in the
/// needle that is not followed by `\n` is an ordinary character.
pub(super) struct Finder<'t> {
    text: &'t str,
    needle: Cow<'t, str>,
    /// Whether the search must treat `\r\n` as `\n`. If not, a plain search is enough.
    folds: bool,
}

impl<'t> Finder<'t> {
    /// Creates a finder. The needle must not be empty.
    pub(super) fn new(text: &'t str, needle: &'t str) -> Self {
        let needle = unix(needle);
        let folds = needle.contains('\n') && text.contains("\r\n");
        Self { text, needle, folds }
    }

    /// The non-overlapping matches from left to right.
    pub(super) fn spans(&self) -> Box<dyn Iterator<Item = Range<usize>> + '_> {
        if self.folds {
            return Box::new(self.scan(Overlap::Skip));
        }
        let plain = self.text.match_indices(&*self.needle);
        Box::new(plain.map(|(start, found)| start..start + found.len()))
    }

    /// All matches, including overlapping ones. Each byte of the text is read once.
    pub(super) fn overlapping(&self) -> impl Iterator<Item = Range<usize>> {
        self.scan(Overlap::Count)
    }

    /// Whether there is another match after the first one, overlapping or not.
    pub(super) fn again_after(&self, first: &Range<usize>) -> bool {
        if self.folds {
            return self.overlapping().nth(1).is_some();
        }
        let rest = &self.text[first.start..];
        let step = rest.chars().next().map_or(0, char::len_utf8);
        rest[step..].contains(&*self.needle)
    }

    fn scan(&self, overlap: Overlap) -> Scan<'_> {
        let needle = self.needle.as_bytes();
        // A needle that is longer than the text cannot match. Do not build its table, because the
        // table is even larger than the needle.
        let fits = !needle.is_empty() && needle.len() <= self.text.len();
        let text = if fits { self.text.as_bytes() } else { &[] };
        let units = Units { text, at: 0, folds: self.folds };
        Scan {
            needle,
            borders: if fits { borders(needle) } else { Vec::new() },
            overlap,
            head: units.clone(),
            tail: units,
            seen: 0,
            matched: 0,
        }
    }
}

/// The line ends of most lines of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineEnds {
    /// No line ends in `\r\n`.
    Lf,
    /// More lines end in `\r\n` than in `\n` alone.
    MostlyCrlf,
    /// The line ends are mixed without a majority of `\r\n`, or there are no line breaks.
    Unclear,
}

impl LineEnds {
    pub(super) fn of(text: &str) -> Self {
        let all = line_breaks(text);
        let crlf = text.matches("\r\n").count();
        match (crlf, all - crlf) {
            (0, 1..) => LineEnds::Lf,
            (crlf, lf) if crlf > lf => LineEnds::MostlyCrlf,
            _ => LineEnds::Unclear,
        }
    }
}

/// `text` with `\r\n` replaced by `\n`. Borrowed if it contains no `\r\n`.
pub(super) fn unix(text: &str) -> Cow<'_, str> {
    if text.contains("\r\n") {
        return Cow::Owned(text.replace("\r\n", "\n"));
    }
    Cow::Borrowed(text)
}

pub(super) fn line_breaks(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Overlap {
    Count,
    Skip,
}

/// The bytes of a text with their positions. If line breaks are folded, `\r\n` counts as a single
/// `\n`.
#[derive(Clone)]
struct Units<'t> {
    text: &'t [u8],
    at: usize,
    folds: bool,
}

impl Iterator for Units<'_> {
    type Item = (Range<usize>, u8);

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.at;
        let byte = *self.text.get(start)?;
        let pair = self.folds && byte == b'\r' && self.text.get(start + 1) == Some(&b'\n');
        self.at = if pair { start + 2 } else { start + 1 };
        Some((start..self.at, if pair { b'\n' } else { byte }))
    }
}

/// A Knuth-Morris-Pratt search. Takes linear time on any input, and does not copy the text.
struct Scan<'a> {
    needle: &'a [u8],
    borders: Vec<usize>,
    overlap: Overlap,
    head: Units<'a>,
    /// The position one needle before the head of the search. It gives the start of a match.
    tail: Units<'a>,
    seen: usize,
    matched: usize,
}

impl Iterator for Scan<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (unit, byte) = self.head.next()?;
            self.seen += 1;
            let full = self.seen >= self.needle.len();
            let start = if full { self.tail.next()?.0.start } else { 0 };
            self.matched = advance(self.needle, &self.borders, self.matched, byte);
            if self.matched == self.needle.len() {
                self.matched = match self.overlap {
                    Overlap::Count => self.borders[self.matched - 1],
                    Overlap::Skip => 0,
                };
                return Some(start..unit.end);
            }
        }
    }
}

/// For each prefix of the needle, the length of its longest border. A border is a shorter prefix
/// that is also a suffix.
fn borders(needle: &[u8]) -> Vec<usize> {
    let mut borders = vec![0; needle.len()];
    let mut length = 0;
    for index in 1..needle.len() {
        length = advance(needle, &borders, length, needle[index]);
        borders[index] = length;
    }
    borders
}

/// The number of bytes of the needle that match after the text's next byte.
fn advance(needle: &[u8], borders: &[usize], mut matched: usize, byte: u8) -> usize {
    while matched > 0 && needle[matched] != byte {
        matched = borders[matched - 1];
    }
    if needle[matched] == byte { matched + 1 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, needle: &str, apart: &[(usize, usize)], count: usize) {
        let finder = Finder::new(text, needle);
        let spans: Vec<_> = finder.spans().collect();
        let ends: Vec<_> = spans.iter().map(|span| (span.start, span.end)).collect();
        assert_eq!(ends, apart, "{needle:?} in {text:?}");
        assert_eq!(finder.overlapping().count(), count, "{needle:?} in {text:?}, overlapping");
        if let Some(first) = spans.first() {
            assert_eq!(finder.again_after(first), count > 1, "{needle:?} again in {text:?}");
        }
    }

    #[test]
    fn finds_and_counts() {
        check("", "a", &[], 0);
        check("ab", "abc", &[], 0);
        check("abcabc", "abc", &[(0, 3), (3, 6)], 2);
        check("aaa", "aa", &[(0, 2)], 2);
        check("aaaa", "aa", &[(0, 2), (2, 4)], 3);
        check("abababa", "aba", &[(0, 3), (4, 7)], 3);
        check("öäöäö", "öäö", &[(0, 6)], 2);
        check("aabaaab", "aaab", &[(3, 7)], 1);
    }

    #[test]
    fn a_line_break_is_one_whatever_its_kind() {
        check("a\r\nb", "a\nb", &[(0, 4)], 1);
        check("a\nb", "a\r\nb", &[(0, 3)], 1);
        check("a\r\nb\na\nb", "a\nb", &[(0, 4), (5, 8)], 2);
        check("a\r\nb", "\nb", &[(1, 4)], 1);
        check("a\r\nb", "a\n", &[(0, 3)], 1);
        check("\r\n\r\n\r\n", "\n\n", &[(0, 4)], 2);
        check("a\r\nb", "a", &[(0, 1)], 1);
    }

    #[test]
    fn a_lone_carriage_return_is_a_character() {
        check("a\r\nb\r\n", "\r", &[(1, 2), (4, 5)], 2);
        check("a\rb", "a\nb", &[], 0);
        check("a\rb\r\n", "a\rb\n", &[(0, 5)], 1);
        check("a\r\r\n", "\r\r\n", &[(1, 4)], 1);
    }

    #[test]
    fn line_ends_are_judged() {
        for (text, expect) in [
            ("", LineEnds::Unclear),
            ("a", LineEnds::Unclear),
            ("a\n", LineEnds::Lf),
            ("a\rb\n", LineEnds::Lf),
            ("a\r\n", LineEnds::MostlyCrlf),
            ("a\r\nb\r\nc\n", LineEnds::MostlyCrlf),
            ("a\r\nb\n", LineEnds::Unclear),
            ("a\r\nb\nc\n", LineEnds::Unclear),
        ] {
            assert_eq!(LineEnds::of(text), expect, "{text:?}");
        }
    }

    #[test]
    fn repetition_is_counted_in_one_pass() {
        let text = "a".repeat(2_000_000);
        let needle = &text[..1_000_000];
        assert_eq!(Finder::new(&text, needle).overlapping().count(), 1_000_001);
    }
}
