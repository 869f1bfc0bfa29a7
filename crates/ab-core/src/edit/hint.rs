//! Hints for a text that was not found. Searches for similar text with a limited amount of work.
//!
//! Every search here takes time linear in the text, which is truncated to [`MAX_TEXT`]. A hint
//! states facts about the file, so it is useful even if the guess behind it is wrong.

use super::find::{Finder, line_breaks};
use super::{Edit, quote};

/// Maximum number of bytes of the file that are searched.
const MAX_TEXT: usize = 4 * 1024 * 1024;
/// Maximum number of lines of the text to replace that are compared with the file.
const MAX_LINES: usize = 2000;
/// Maximum number of places in the file that are examined because the first line matches there.
const MAX_PLACES: usize = 64;
/// Minimum number of characters of a new text that is unlikely to be in the file by accident.
const TELLING: usize = 24;
/// Minimum number of characters of a text that is worth a hint if it is found.
const TRIVIAL: usize = 4;

const READ_AGAIN: &str = "read the file again and copy the text exactly";

/// Explains in one sentence why `edit.old` is not found in `text`, and what the caller can do.
pub(super) fn near_miss(text: &str, edit: &Edit) -> String {
    let text = &text[..text.floor_char_boundary(MAX_TEXT)];
    if text.is_empty() {
        return "the file is empty: write its text instead".to_owned();
    }
    let old = edit.old.as_str();
    if old.len() > MAX_TEXT || old.trim().is_empty() {
        return READ_AGAIN.to_owned();
    }
    // If the edit changes only case or white space, any match of the new text shows that the edit
    // was already made.
    let telling = if same_letters(old, &edit.new) { TRIVIAL } else { TELLING };
    already_made(text, edit, telling)
        .or_else(|| other_end(text, old))
        .or_else(|| other_look(text, old))
        .or_else(|| line_numbers(text, old))
        .or_else(|| escapes(text, old))
        .or_else(|| other_lines(text, old))
        .or_else(|| already_made(text, edit, TRIVIAL))
        .unwrap_or_else(|| READ_AGAIN.to_owned())
}

/// Detects that the edit was probably already made, because the new text is in the file and the old
/// one is not.
fn already_made(text: &str, edit: &Edit, least: usize) -> Option<String> {
    let new = edit.new.trim_end();
    if new.chars().count() < least || edit.old.contains(new) {
        return None;
    }
    let line = line_of(text, new)?;
    Some(format!("the new text is already at line {line}: if the edit was made before, drop it"))
}

fn other_end(text: &str, old: &str) -> Option<String> {
    let line = line_of(text, old.trim_end())?;
    Some(format!("without the white space at its end it is at line {line}: leave that out"))
}

/// Removes one kind of difference from a line, such as its indentation. Two texts match if all
/// their lines are equal after this.
type Fold = fn(&str, &mut String);

/// The kinds of differences, ordered from the smallest to the largest. The first one that produces
/// a match is the best explanation. The number is the minimum number of characters of a meaningful
/// match.
const FOLDS: [(Fold, usize, &str); 5] = [
    (without_end, 1, "white space at the end of the line"),
    (without_indent, 1, "indentation"),
    (with_plain_marks, 1, "quotes, dashes or spaces, plain against typographic"),
    (without_case, 1, "upper and lower case"),
    (bare, 8, "white space, case or punctuation marks"),
];

fn other_look(text: &str, old: &str) -> Option<String> {
    FOLDS.iter().find_map(|(fold, least, what)| {
        let start = line_folded(text, old, *fold, *least)?;
        let (line, actual) = first_difference(text, start, from_first_line(old));
        let actual = quote(actual);
        Some(format!("line {line} differs in {what}: it is {actual}; copy it as it stands"))
    })
}

fn line_numbers(text: &str, old: &str) -> Option<String> {
    let stripped: Option<Vec<&str>> = old.trim().lines().map(without_number).collect();
    let line = line_folded(text, &stripped?.join("\n"), without_indent, 1)?;
    Some(format!("without the line numbers it is at line {line}: leave them out"))
}

fn escapes(text: &str, old: &str) -> Option<String> {
    let plain = unescaped(old)?;
    let line = line_of(text, plain.trim())?;
    Some(format!(
        "with its backslash escapes resolved it is at line {line}: send line breaks, tabs and \
         quotes as they are"
    ))
}

/// Handles the case that the first lines match but a later line does not.
fn other_lines(text: &str, old: &str) -> Option<String> {
    let wanted: Vec<&str> = old.trim().lines().take(MAX_LINES).map(str::trim).collect();
    let (first, following) = wanted.split_first()?;
    if following.is_empty() {
        return None;
    }
    let (line, fitting) = best_start(text, first, following)?;
    if fitting == 0 && first.chars().count() < TRIVIAL {
        return None;
    }
    let expected = following.get(fitting)?;
    let fits = match fitting {
        0 => format!("line {line} fits"),
        _ => format!("lines {line} to {} fit", line + fitting),
    };
    let next = line + fitting + 1;
    Some(match text.lines().nth(next - 1) {
        Some(actual) => format!(
            "{fits}, but line {next} is {} and not {}; read the file from there",
            quote(actual.trim()),
            quote(expected)
        ),
        // The file may continue after the part that was searched.
        None if text.len() + char::MAX.len_utf8() > MAX_TEXT => return None,
        None => format!("{fits}, but the file ends there; give only the lines that it has"),
    })
}

/// Searches the lines at which `first` matches for the best start, after which the largest number
/// of lines match too. Returns this line and the number of matching lines.
fn best_start(text: &str, first: &str, following: &[&str]) -> Option<(usize, usize)> {
    let mut best: Option<(usize, usize)> = None;
    let mut offset = 0;
    let mut places = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        offset += line.len();
        if !line.trim_end().ends_with(first) {
            continue;
        }
        let lines = text[offset..].lines().zip(following);
        let fitting = lines.take_while(|(line, wanted)| line.trim() == **wanted).count();
        if best.is_none_or(|(_, most)| fitting > most) {
            best = Some((index + 1, fitting));
        }
        places += 1;
        if places == MAX_PLACES {
            break;
        }
    }
    best
}

/// The number of the line at which `needle` is found exactly. Line ends may differ.
fn line_of(text: &str, needle: &str) -> Option<usize> {
    if needle.is_empty() {
        return None;
    }
    let span = Finder::new(text, needle).spans().next()?;
    Some(line_breaks(&text[..span.start]) + 1)
}

/// The number of the line at which `needle` is found after `fold` has removed one kind of
/// difference from both texts.
fn line_folded(text: &str, needle: &str, fold: Fold, least: usize) -> Option<usize> {
    let needle = folded(needle.trim(), fold);
    let needle = needle.trim();
    if needle.chars().count() < least {
        return None;
    }
    let text = folded(text, fold);
    let start = text.find(needle)?;
    Some(line_breaks(&text[..start]) + 1)
}

/// Applies `fold` to each line, so that line numbers stay the same.
fn folded(text: &str, fold: Fold) -> String {
    let mut out = String::with_capacity(text.len() + 1);
    for line in text.lines() {
        fold(line, &mut out);
        out.push('\n');
    }
    out
}

fn without_end(line: &str, out: &mut String) {
    out.push_str(line.trim_end());
}

fn without_indent(line: &str, out: &mut String) {
    out.push_str(line.trim());
}

fn with_plain_marks(line: &str, out: &mut String) {
    for c in line.chars() {
        match c {
            '‘' | '’' | '‚' | '‛' | '′' | '´' => out.push('\''),
            '“' | '”' | '„' | '‟' | '″' | '«' | '»' => out.push('"'),
            '\u{2010}'..='\u{2015}' | '\u{2212}' => out.push('-'),
            '…' => out.push_str("..."),
            '\u{a0}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{3000}' => out.push(' '),
            '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' => {}
            _ => out.push(c),
        }
    }
}

fn without_case(line: &str, out: &mut String) {
    out.extend(line.chars().flat_map(char::to_lowercase));
}

/// Removes all the differences of [`FOLDS`], and also the white space within the line.
fn bare(line: &str, out: &mut String) {
    let mut plain = String::with_capacity(line.len());
    with_plain_marks(line, &mut plain);
    out.extend(plain.chars().filter(|c| !c.is_whitespace()).flat_map(char::to_lowercase));
}

fn same_letters(a: &str, b: &str) -> bool {
    let letters = |text: &str| {
        let mut out = String::with_capacity(text.len());
        bare(text, &mut out);
        out
    };
    letters(a) == letters(b)
}

/// `old` without blank lines at its start and white space at its end.
fn from_first_line(old: &str) -> &str {
    let blank = &old[..old.len() - old.trim_start().len()];
    let start = blank.rfind('\n').map_or(0, |end| end + 1);
    old[start..].trim_end()
}

/// The first line of the file, counted from line `start`, that differs from `needle`. The needle
/// may begin and end within a line.
fn first_difference<'t>(text: &'t str, start: usize, needle: &str) -> (usize, &'t str) {
    let lines = || text.lines().skip(start - 1);
    let mut wanted = needle.lines().peekable();
    for (index, line) in lines().enumerate() {
        let Some(want) = wanted.next() else { break };
        let same = match (index == 0, wanted.peek().is_none()) {
            (true, true) => line.contains(want),
            (true, false) => line.ends_with(want),
            (false, true) => line.starts_with(want),
            (false, false) => line == want,
        };
        if !same {
            return (start + index, line);
        }
    }
    (start, lines().next().unwrap_or_default())
}

/// A line without the line number that a listing adds. `None` if it has no such number.
fn without_number(line: &str) -> Option<&str> {
    let numbered = line.trim_start();
    let rest = numbered.trim_start_matches(|c: char| c.is_ascii_digit());
    let rest_begins = rest.starts_with(['\t', '|', ':', '→']);
    (rest.len() < numbered.len() && rest_begins)
        .then(|| rest.trim_start_matches(['\t', '|', ':', '→']))
}

/// The text with the escapes `\n`, `\t`, `\"`, `\'` and `\\` replaced by the characters. `None` if
/// it contains no such escape.
fn unescaped(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut found = false;
    while let Some(c) = chars.next() {
        let plain = match (c, chars.peek()) {
            ('\\', Some('n')) => '\n',
            ('\\', Some('t')) => '\t',
            ('\\', Some(c @ ('"' | '\'' | '\\'))) => *c,
            _ => {
                out.push(c);
                continue;
            }
        };
        chars.next();
        out.push(plain);
        found = true;
    }
    found.then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, old: &str, new: &str, expect: &str) {
        assert_eq!(near_miss(text, &Edit::new(old, new)), expect, "{old:?} in {text:?}");
    }

    #[test]
    fn white_space_is_told_apart() {
        let end = "without the white space at its end it is at line 2: leave that out";
        check("a\nlast line", "last line\n", "x", end);
        check("a\r\nlast\r\nline", "last\nline\n\n", "x", end);
        check("a\nlast line\n", "last line  \n", "x", end);
        check(
            "a\nb  \nc\n",
            "a\nb\nc\n",
            "x",
            "line 2 differs in white space at the end of the line: it is 'b  '; copy it as it \
             stands",
        );
        check(
            "fn f() {\n\tone();\n\ttwo();\n}\n",
            "    one();\n    two();\n",
            "x",
            "line 2 differs in indentation: it is '\\tone();'; copy it as it stands",
        );
        check(
            "if a:\r\n  b\r\n   c\r\n",
            "if a:\n  b\n  c\n",
            "x",
            "line 3 differs in indentation: it is '   c'; copy it as it stands",
        );
    }

    #[test]
    fn marks_and_case_are_told_apart() {
        check(
            "say \u{201c}hi\u{201d} \u{2013} now\n",
            "say \"hi\" - now",
            "x",
            "line 1 differs in quotes, dashes or spaces, plain against typographic: it is \
             'say \u{201c}hi\u{201d} \u{2013} now'; copy it as it stands",
        );
        check(
            "a\u{a0}b",
            "a b",
            "x",
            "line 1 differs in quotes, dashes or spaces, plain against typographic: it is \
             'a\\u{a0}b'; copy it as it stands",
        );
        check(
            "x\nGroße Straße\n",
            "große straße",
            "x",
            "line 2 differs in upper and lower case: it is 'Große Straße'; copy it as it stands",
        );
        check(
            "call( first, Second )\n",
            "call(first,second)",
            "x",
            "line 1 differs in white space, case or punctuation marks: it is \
             'call( first, Second )'; copy it as it stands",
        );
        check("proxy", "x y", "z", READ_AGAIN);
    }

    #[test]
    fn the_first_line_that_differs_is_named() {
        check(
            "{\n  a();\n  b();\n  c();\n}\n",
            "  a();\n  b();\n  d();\n",
            "x",
            "lines 2 to 3 fit, but line 4 is 'c();' and not 'd();'; read the file from there",
        );
        check(
            "start:\none\nstart:\ntwo\nthree\n",
            "start:\ntwo\nfour\n",
            "x",
            "lines 3 to 4 fit, but line 5 is 'three' and not 'four'; read the file from there",
        );
        check(
            "import a\n",
            "import a\nimport b\n",
            "x",
            "line 1 fits, but the file ends there; give only the lines that it has",
        );
        check("}\nx\n", "}\ny\n", "z", READ_AGAIN);
    }

    #[test]
    fn an_edit_made_before_is_recognised() {
        let made = "the new text is already at line 2: if the edit was made before, drop it";
        check("a\nlet total = sum(prices);\n", "let x = 1;", "let total = sum(prices);", made);
        check(
            "a\nFoo\n",
            "foo",
            "Food",
            "line 2 differs in upper and lower case: it is 'Foo'; copy it as it stands",
        );
        check("a\nName\n", "name", "Name", made);
        check("a\n    indented\n", "\tindented", "    indented", made);
        check("a\nshort\n", "gone", "short", made);
        check("a\n} // end\n", "gone", "}", READ_AGAIN);
    }

    #[test]
    fn what_tools_add_is_recognised() {
        check(
            "fn f() {\n    go();\n}\n",
            "     1\tfn f() {\n     2\t    go();\n",
            "x",
            "without the line numbers it is at line 1: leave them out",
        );
        check(
            "one\n\tsay(\"hi\")\nend",
            "one\\n\\tsay(\\\"hi\\\")",
            "x",
            "with its backslash escapes resolved it is at line 1: send line breaks, tabs and \
             quotes as they are",
        );
    }

    #[test]
    fn without_a_near_miss_the_advice_is_to_read() {
        check("", "a", "b", "the file is empty: write its text instead");
        check("abc", "xyz", "b", READ_AGAIN);
        check("abc", " \n ", "b", READ_AGAIN);
        check("abc", &"x".repeat(MAX_TEXT + 1), "b", READ_AGAIN);
    }

    #[test]
    fn large_and_repetitive_input_is_no_trouble() {
        let text = "ä\n".repeat(MAX_TEXT / 2);
        let old = format!("{}b\n", "ä\n".repeat(100_000));
        let hint = near_miss(&text, &Edit::new(old, "x"));
        assert_eq!(hint, READ_AGAIN);
    }
}
