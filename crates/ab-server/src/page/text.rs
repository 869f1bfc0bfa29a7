//! Prepares text of agents and repositories for the page. Makes characters visible that could
//! deceive a reader. Terminal escape sequences are removed from output, but shown in the text of an
//! approval.

use std::borrow::Cow;
use std::fmt::Write;

use ab_core::error::is_bidi_control;

/// Maximum number of bytes of one text on the page. The API returns the complete text.
const SHOWN_BYTES: usize = 16 * 1024;

/// Maximum number of bytes of a title. The whole text is below it.
pub(super) const TITLE_BYTES: usize = 160;

/// A text without terminal escape sequences, truncated to the limit. May have several lines.
pub(super) fn clean(text: &str) -> Cow<'_, str> {
    let (kept, left_out) = cut(text, SHOWN_BYTES);
    let shown = if kept.chars().all(is_plain) { Cow::Borrowed(kept) } else { replaced(kept) };
    if left_out == 0 {
        return shown;
    }
    Cow::Owned(format!("{shown}… ({left_out} more bytes)"))
}

/// The complete text of an approval. Nothing is removed. Every control character except tabs and
/// line ends is shown as an escape such as `\r` or `\u{1b}`.
pub(super) fn exact(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_plain(c) {
            shown.push(c);
        } else {
            shown.extend(c.escape_default());
        }
    }
    Cow::Owned(shown)
}

/// The first line that is not blank.
pub(super) fn first_line(text: &str) -> Cow<'_, str> {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    clean(line)
}

/// The beginning of a text, at most `most` bytes, and the number of bytes that follow.
pub(super) fn cut(text: &str, most: usize) -> (&str, usize) {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    (&text[..end], text.len() - end)
}

fn is_plain(c: char) -> bool {
    matches!(c, '\n' | '\t') || !(c.is_control() || is_bidi_control(c))
}

fn replaced(text: &str) -> Cow<'static, str> {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => skip_escape(&mut rest),
            '\r' if rest.peek() == Some(&'\n') => {}
            // As on a terminal, the text after a carriage return replaces the line.
            '\r' => shown.truncate(shown.rfind('\n').map_or(0, |at| at + 1)),
            c if is_plain(c) => shown.push(c),
            // Writing to a string cannot fail.
            c => drop(write!(shown, "\\u{{{:x}}}", u32::from(c))),
        }
    }
    Cow::Owned(shown)
}

/// Skips the rest of an escape sequence: a CSI sequence, a string such as OSC, or a single
/// character.
fn skip_escape(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match rest.next() {
        Some('[') => while rest.next().is_some_and(|c| !('\u{40}'..='\u{7e}').contains(&c)) {},
        Some(']' | 'P' | 'X' | '^' | '_') => {
            while let Some(c) = rest.next_if(|c| *c != '\n') {
                if c == '\u{7}' {
                    return;
                }
                if c == '\u{1b}' {
                    rest.next_if_eq(&'\\');
                    return;
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_vanish_and_deceiving_characters_are_visible() {
        for (text, shown) in [
            ("plain\n\ttext ü 👩‍💻", "plain\n\ttext ü 👩‍💻"),
            ("\u{1b}[31;1mred\u{1b}[0m", "red"),
            ("\u{1b}]8;;http://x\u{7}link\u{1b}]8;;\u{1b}\\", "link"),
            ("a\u{1b}]unfinished\nb", "a\nb"),
            ("10 %\r50 %\r100 %\nend\r\n", "100 %\nend\n"),
            ("bell\u{7}\u{0}", "bell\\u{7}\\u{0}"),
            ("if \u{202e}evil\u{2066}", "if \\u{202e}evil\\u{2066}"),
            ("\u{1b}", ""),
            ("\u{1b}[", ""),
        ] {
            assert_eq!(clean(text), shown, "{text:?}");
        }
    }

    #[test]
    fn the_text_of_an_approval_is_shown_in_full() {
        for (text, shown) in [
            ("plain\n\ttext ü", "plain\n\ttext ü"),
            ("rm -rf precious # \rls -la", "rm -rf precious # \\rls -la"),
            ("rm -rf a # \u{1b}[2K\u{1b}[1Gls", "rm -rf a # \\u{1b}[2K\\u{1b}[1Gls"),
            ("\u{1b}]8;;http://x\u{7}link", "\\u{1b}]8;;http://x\\u{7}link"),
            ("a\r\nb\u{8}\u{9b}2K", "a\\r\nb\\u{8}\\u{9b}2K"),
            ("if \u{202e}evil\u{2066}", "if \\u{202e}evil\\u{2066}"),
        ] {
            assert_eq!(exact(text), shown, "{text:?}");
        }
        let long = format!("echo {}; rm -r x", " ".repeat(2 * SHOWN_BYTES));
        assert_eq!(exact(&long), long);
    }

    #[test]
    fn long_texts_are_cut_at_a_character() {
        let text = "ü".repeat(SHOWN_BYTES);
        let shown = clean(&text);
        assert!(shown.len() < SHOWN_BYTES + 40);
        assert!(shown.ends_with(&format!("… ({} more bytes)", text.len() - SHOWN_BYTES)));
    }

    #[test]
    fn first_lines_have_words() {
        assert_eq!(first_line("\n  fix it\nnow"), "fix it");
        assert_eq!(first_line(" \n"), "");
    }
}
