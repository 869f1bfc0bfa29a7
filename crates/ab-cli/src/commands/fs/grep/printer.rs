//! Prints matches as lines of text: with headings and colours for people, and in the format of grep
//! for pipes.

use std::fmt::Display;

use ab_core::WsPath;
use ab_core::search::{CaseSensitivity, PatternSyntax, SearchLineRole, SearchMatch};
use anstyle::{AnsiColor, Style};

use crate::failure::Failure;
use crate::terminal::Terminal;

const PATH: Style = AnsiColor::Magenta.on_default();
const NUMBER: Style = AnsiColor::Green.on_default();
const HIT: Style = AnsiColor::Red.on_default().bold();
const ASIDE: Style = Style::new().dimmed();

/// The separator between lines that are not adjacent.
const GAP: &str = "--";
/// Maximum length of a text that is highlighted. The limit is necessary because the search takes
/// time in proportion to the length of the text for each character of a line.
const MAX_NEEDLE_BYTES: usize = 256;

/// Text to highlight where it occurs. Matches of regular expressions are not highlighted.
#[derive(Debug)]
pub(super) struct Needle<'p> {
    text: &'p str,
    case: CaseSensitivity,
}

impl<'p> Needle<'p> {
    pub(super) fn of(
        pattern: &'p str,
        syntax: PatternSyntax,
        case: CaseSensitivity,
    ) -> Option<Needle<'p>> {
        let fits =
            syntax == PatternSyntax::Literal && (1..=MAX_NEEDLE_BYTES).contains(&pattern.len());
        fits.then_some(Needle { text: pattern, case })
    }

    /// Splits the line into pieces. Every second piece is an occurrence of the text.
    fn pieces<'t>(&self, line: &'t str) -> Vec<&'t str> {
        let mut pieces = Vec::new();
        let (mut start, mut at) = (0, 0);
        while let Some(c) = line[at..].chars().next() {
            match self.length_at(&line[at..]) {
                Some(length) => {
                    pieces.extend([&line[start..at], &line[at..at + length]]);
                    at += length;
                    start = at;
                }
                None => at += c.len_utf8(),
            }
        }
        pieces.push(&line[start..]);
        pieces
    }

    /// The length in bytes of the occurrence at the start of `text`. `None` if there is no
    /// occurrence.
    fn length_at(&self, text: &str) -> Option<usize> {
        let mut rest = text.chars();
        for wanted in self.text.chars() {
            let c = rest.next()?;
            let same = match self.case {
                CaseSensitivity::Sensitive => c == wanted,
                CaseSensitivity::Insensitive => {
                    c == wanted || c.to_lowercase().eq(wanted.to_lowercase())
                }
            };
            if !same {
                return None;
            }
        }
        Some(text.len() - rest.as_str().len())
    }
}

/// Prints one match after the other.
#[derive(Debug)]
pub(super) struct Printer<'p> {
    needle: Option<Needle<'p>>,
    /// Whether the user asked for context lines.
    around: bool,
    last: Option<(WsPath, u64)>,
}

impl<'p> Printer<'p> {
    pub(super) fn new(needle: Option<Needle<'p>>, around: bool) -> Printer<'p> {
        Printer { needle, around, last: None }
    }

    pub(super) fn print(
        &mut self,
        found: &SearchMatch,
        terminal: &mut Terminal,
    ) -> Result<(), Failure> {
        match found {
            SearchMatch::Name(entry) => terminal.line(&shown_path(&entry.path, terminal)),
            SearchMatch::File { path } => terminal.line(&shown_path(path, terminal)),
            SearchMatch::Count { path, matching_lines: lines } => {
                let path = shown_path(path, terminal);
                terminal.line(&format!("{path}:{}", shown_number(lines, terminal)))
            }
            SearchMatch::Line { path, line_number: line, text, full_line_bytes: cut, role } => {
                self.separate(path, *line, terminal)?;
                let text = self.shown_text(text, *cut, *role, terminal);
                let number = shown_number(line, terminal);
                let sign = match role {
                    SearchLineRole::Match => ':',
                    SearchLineRole::Context => '-',
                };
                self.last = Some((path.clone(), *line));
                if terminal.is_watched() {
                    return terminal.line(&format!("{number}{sign}{text}"));
                }
                terminal.line(&format!("{path}{sign}{number}{sign}{text}"))
            }
        }
    }

    /// Prints the separator if this line does not follow the last one directly.
    fn separate(&self, path: &WsPath, line: u64, terminal: &mut Terminal) -> Result<(), Failure> {
        let same_file = self.last.as_ref().is_some_and(|(last, _)| last == path);
        let follows = same_file && self.last.as_ref().is_some_and(|(_, last)| last + 1 == line);
        if terminal.is_watched() && !same_file {
            if self.last.is_some() {
                terminal.line("")?;
            }
            return terminal.line(&shown_path(path, terminal));
        }
        if self.around && self.last.is_some() && !follows {
            return terminal.line(GAP);
        }
        Ok(())
    }

    fn shown_text(
        &self,
        text: &str,
        cut: Option<u64>,
        role: SearchLineRole,
        terminal: &Terminal,
    ) -> String {
        let mut shown = match (&self.needle, role) {
            (Some(needle), SearchLineRole::Match) if terminal.is_watched() => {
                let styles = [Style::new(), HIT].into_iter().cycle();
                let pieces = needle.pieces(text).into_iter().zip(styles);
                pieces
                    .map(|(piece, style)| terminal.painted(style, &terminal.shown(piece)))
                    .collect()
            }
            _ => terminal.shown(text).into_owned(),
        };
        if let (Some(bytes), true) = (cut, terminal.is_watched()) {
            let aside = format!(" [cut: the line has {bytes} bytes]");
            shown.push_str(&terminal.painted(ASIDE, &aside));
        }
        shown
    }
}

fn shown_path(path: &WsPath, terminal: &Terminal) -> String {
    terminal.painted(PATH, &terminal.shown(&path.to_string()))
}

fn shown_number(number: impl Display, terminal: &Terminal) -> String {
    terminal.painted(NUMBER, &number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, case: CaseSensitivity, line: &str, expect: &[&str]) {
        let needle = Needle::of(pattern, PatternSyntax::Literal, case).unwrap();
        assert_eq!(needle.pieces(line), expect, "{pattern:?} in {line:?}");
    }

    #[test]
    fn occurrences_are_every_second_piece() {
        check("b", CaseSensitivity::Sensitive, "abcb", &["a", "b", "c", "b", ""]);
        check("aa", CaseSensitivity::Sensitive, "aaa", &["", "aa", "a"]);
        check("x", CaseSensitivity::Sensitive, "abc", &["abc"]);
        check("x", CaseSensitivity::Sensitive, "", &[""]);
        check("grün", CaseSensitivity::Insensitive, "so GRÜN!", &["so ", "GRÜN", "!"]);
        check("ab", CaseSensitivity::Insensitive, "äAB", &["ä", "AB", ""]);
        check("abc", CaseSensitivity::Sensitive, "ab", &["ab"]);
    }

    #[test]
    fn only_short_literals_are_highlighted() {
        let long = "x".repeat(MAX_NEEDLE_BYTES + 1);
        assert!(Needle::of(&long, PatternSyntax::Literal, CaseSensitivity::Sensitive).is_none());
        assert!(
            Needle::of(&long[1..], PatternSyntax::Literal, CaseSensitivity::Sensitive).is_some()
        );
        assert!(Needle::of("x.", PatternSyntax::Regex, CaseSensitivity::Sensitive).is_none());
    }
}
