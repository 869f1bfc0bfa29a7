//! Replaces text: makes several edits or none, keeps line ends, and produces a diff.
//!
//! No file is accessed here. [`apply_edits`] returns the new text, and [`unified_diff`] shows the
//! change.
//!
//! - A line break in the text to replace matches both `\n` and `\r\n`. A caller therefore does not
//!   need to know the line ends of a file. Bytes outside the match do not change.
//! - Line breaks of the new text become `\r\n` if most lines of the file end in `\r\n`, and `\n` if
//!   no line of the file ends in `\r\n`. In a file that mixes both without a majority of `\r\n`,
//!   and in a file without line breaks, they are not changed.

mod diff;
mod find;
mod hint;

use std::borrow::Cow;

use crate::call::Verb;
use crate::error::{Error, ErrorKind};
use crate::metadata::{FileVersion, Stat};
use crate::options::DEFAULT_MAX_READ_BYTES;
use crate::path::WsPath;

pub(crate) use diff::unified_diff_with_names;
pub use diff::{DiffLineCounts, UnifiedDiff, unified_diff};
use find::{Finder, LineEnds};

/// Maximum number of characters of the caller's text that an error message quotes.
const QUOTED: usize = 120;
/// Maximum number of line numbers that an error message lists.
const PLACES: usize = 5;

/// Replaces a text in a file by another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub old: String,
    pub new: String,
    pub occurrences: EditOccurrences,
}

impl Edit {
    /// Replaces `old` by `new`. `old` must occur exactly once.
    pub fn new(old: impl Into<String>, new: impl Into<String>) -> Self {
        Self { old: old.into(), new: new.into(), occurrences: EditOccurrences::Unique }
    }

    /// Changes the edit to replace every occurrence.
    pub fn replace_all(mut self) -> Self {
        self.occurrences = EditOccurrences::All;
        self
    }

    /// Changes the edit to replace only the first occurrence.
    pub fn replace_first(mut self) -> Self {
        self.occurrences = EditOccurrences::First;
        self
    }
}

/// Which occurrences an edit replaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EditOccurrences {
    /// The only occurrence. Overlapping occurrences count as several.
    #[default]
    Unique,
    /// All non-overlapping occurrences, from left to right.
    All,
    First,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EditOptions {
    /// Only report what would change, and write nothing.
    pub dry_run: bool,
    /// Fail unless the file currently has this version.
    pub expected_version: Option<FileVersion>,
}

/// The result of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditReport {
    /// The total number of occurrences that were replaced.
    pub replacement_count: usize,
    /// The change as a unified diff. See [`unified_diff`].
    pub diff: String,
    /// The numbers of added and removed lines. `None` if `diff` is truncated.
    pub line_counts: Option<DiffLineCounts>,
    /// The attributes of the file after the edit. `None` for a dry run.
    pub stat: Option<Stat>,
}

/// The text after all edits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditedText {
    pub text: String,
    /// The total number of occurrences that were replaced.
    pub replacement_count: usize,
}

/// The reason why the edits were not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditError {
    /// The number of the edit that failed, counted from 1. Zero if there were no edits.
    pub edit_number: usize,
    /// The number of edits in the request.
    pub edit_count: usize,
    /// `TextNotFound`, `TextNotUnique` or `Invalid`. `TooLarge` if the result would be too large.
    pub kind: ErrorKind,
    pub message: String,
    pub hint: Option<String>,
}

impl EditError {
    fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { edit_number: 1, edit_count: 1, kind, message: message.into(), hint: None }
    }

    fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    fn numbered(mut self, index: usize, of: usize) -> Self {
        (self.edit_number, self.edit_count) = (index + 1, of);
        self
    }

    /// Converts this error to the error of a write to `path`.
    pub fn into_error(self, path: &WsPath) -> Error {
        let message = match self.edit_count {
            0 | 1 => self.message,
            of => format!("edit {} of {of}: {}", self.edit_number, self.message),
        };
        let error = Error::for_path(Verb::Write, path, self.kind, message);
        match self.hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }
}

/// Makes the edits one after the other. Each edit applies to the result of the previous edit.
///
/// The result must not be larger than a single read can return. Without this limit, a few edits
/// that each double the text could use up all memory.
pub fn apply_edits(text: &str, edits: &[Edit]) -> Result<EditedText, EditError> {
    let limit = usize::try_from(DEFAULT_MAX_READ_BYTES).unwrap_or(usize::MAX);
    apply_within(limit.max(text.len()), text, edits)
}

fn apply_within(limit: usize, text: &str, edits: &[Edit]) -> Result<EditedText, EditError> {
    if edits.is_empty() {
        let problem = EditError::new(ErrorKind::Invalid, "the list of edits is empty");
        return Err(EditError { edit_number: 0, edit_count: 0, ..problem });
    }
    for (index, edit) in edits.iter().enumerate() {
        check(edit).map_err(|problem| problem.numbered(index, edits.len()))?;
    }
    let mut done = EditedText { text: String::new(), replacement_count: 0 };
    let mut current = text;
    for (index, edit) in edits.iter().enumerate() {
        let next = replace(current, edit, limit)
            .map_err(|problem| problem.numbered(index, edits.len()))?;
        done = EditedText {
            text: next.text,
            replacement_count: done.replacement_count + next.replacement_count,
        };
        current = &done.text;
    }
    Ok(done)
}

/// Refuses edits that would be invalid for every text.
fn check(edit: &Edit) -> Result<(), EditError> {
    let invalid = |message: &str| EditError::new(ErrorKind::Invalid, message);
    if edit.old.is_empty() {
        return Err(invalid("the text to replace is empty")
            .with_hint("give the text to replace; to fill an empty file, write the whole file"));
    }
    if edit.old == edit.new {
        return Err(invalid("the old and the new text are the same")
            .with_hint("remove this edit, or give another new text"));
    }
    if find::unix(&edit.old) == find::unix(&edit.new) {
        return Err(invalid("the old and the new text differ only in line ends, which edits keep")
            .with_hint("to change the line ends of a file, write the whole file"));
    }
    Ok(())
}

fn replace(text: &str, edit: &Edit, limit: usize) -> Result<EditedText, EditError> {
    let finder = Finder::new(text, &edit.old);
    let Some(first) = finder.spans().next() else {
        return Err(no_match(text, edit));
    };
    if edit.occurrences == EditOccurrences::Unique && finder.again_after(&first) {
        return Err(ambiguous(text, &finder));
    }
    let most = if edit.occurrences == EditOccurrences::All { usize::MAX } else { 1 };
    let new = fitted(&edit.new, text);
    let mut done = EditedText { text: String::new(), replacement_count: 0 };
    let mut kept = 0;
    for span in finder.spans().take(most) {
        done.text.push_str(&text[kept..span.start]);
        done.text.push_str(&new);
        done.replacement_count += 1;
        kept = span.end;
        if done.text.len() > limit {
            return Err(too_large(limit));
        }
    }
    done.text.push_str(&text[kept..]);
    if done.text.len() > limit {
        return Err(too_large(limit));
    }
    Ok(done)
}

/// Converts the line breaks of `new` to those of `text`.
fn fitted<'n>(new: &'n str, text: &str) -> Cow<'n, str> {
    if !new.contains('\n') {
        return Cow::Borrowed(new);
    }
    match LineEnds::of(text) {
        LineEnds::MostlyCrlf => Cow::Owned(find::unix(new).replace('\n', "\r\n")),
        LineEnds::Lf => find::unix(new),
        LineEnds::Unclear => Cow::Borrowed(new),
    }
}

fn no_match(text: &str, edit: &Edit) -> EditError {
    let message = format!("the text to replace was not found: {}", quote(&edit.old));
    EditError::new(ErrorKind::TextNotFound, message).with_hint(hint::near_miss(text, edit))
}

fn too_large(limit: usize) -> EditError {
    EditError::new(ErrorKind::TooLarge, format!("the result would be larger than {limit} bytes"))
}

fn ambiguous(text: &str, finder: &Finder<'_>) -> EditError {
    let mut count = 0;
    let mut lines: Vec<usize> = Vec::new();
    let mut more = false;
    let (mut line, mut counted) = (1, 0);
    for span in finder.overlapping() {
        count += 1;
        line += find::line_breaks(&text[counted..span.start]);
        counted = span.start;
        if lines.last() == Some(&line) {
            continue;
        }
        match lines.len() {
            PLACES => more = true,
            _ => lines.push(line),
        }
    }
    let first = if more { "first " } else { "" };
    let message = format!("the text to replace is found {count} times, {first}{}", at(&lines));
    EditError::new(ErrorKind::TextNotUnique, message).with_hint(
        "include more lines around it until it matches only once, or replace all occurrences",
    )
}

/// Lists line numbers: `at line 4`, `at lines 4 and 9`, `at lines 4, 9 and 12`.
fn at(lines: &[usize]) -> String {
    let named: Vec<String> = lines.iter().map(usize::to_string).collect();
    match named.split_last() {
        None => String::new(),
        Some((only, [])) => format!("at line {only}"),
        Some((last, rest)) => format!("at lines {} and {last}", rest.join(", ")),
    }
}

/// Quotes the beginning of `text` on one line. Invisible characters are escaped.
fn quote(text: &str) -> String {
    let mut chars = text.chars();
    let mut quoted = String::from("'");
    for c in chars.by_ref().take(QUOTED) {
        match c {
            // Quotation marks are not escaped, because an agent would copy the backslash.
            '\'' | '"' => quoted.push(c),
            _ => quoted.extend(c.escape_debug()),
        }
    }
    if chars.next().is_some() {
        quoted.push('…');
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;
    use crate::error::ErrorCode;

    fn check(text: &str, edits: &[Edit], expect: Result<(&str, usize), &str>) {
        let got = apply_edits(text, edits);
        let got = got.as_ref().map(|done| (done.text.as_str(), done.replacement_count));
        assert_eq!(got.map_err(|problem| problem.message.as_str()), expect, "{text:?} {edits:?}");
    }

    fn one(old: &str, new: &str) -> [Edit; 1] {
        [Edit::new(old, new)]
    }

    #[test]
    fn replaces_what_was_asked() {
        check("one two", &one("two", "three"), Ok(("one three", 1)));
        check("one two", &one(" two", ""), Ok(("one", 1)));
        check("a.a.a", &[Edit::new("a", "b").replace_all()], Ok(("b.b.b", 3)));
        check("a.a.a", &[Edit::new("a", "b").replace_first()], Ok(("b.a.a", 1)));
        check("aaa", &[Edit::new("aa", "b").replace_all()], Ok(("ba", 1)));
        check("aaa", &[Edit::new("aa", "b").replace_first()], Ok(("ba", 1)));
        check("größer 日本 👩", &one("日本", "é"), Ok(("größer é 👩", 1)));
        check("\u{feff}a\n", &one("a", "b"), Ok(("\u{feff}b\n", 1)));
        check("a", &[Edit::new("a", "aa").replace_all()], Ok(("aa", 1)));
    }

    #[test]
    fn new_text_is_just_text() {
        for new in ["$&", "$1", "$$", "$`$'", "\\n", "\\0", "%s", "{}", "^.*$"] {
            check("x=old;", &one("old", new), Ok((&format!("x={new};"), 1)));
        }
        check("a.c abc", &one("a.c", "[$&]"), Ok(("[$&] abc", 1)));
    }

    #[test]
    fn line_ends_are_kept() {
        let crlf = "a\r\nb\r\nc\r\n";
        let mixed = "a\r\nb\nc\r\n";
        let leaning = "a\r\nb\nc\n";
        for (text, old, new, expect) in [
            (crlf, "a\nb", "x\ny", "x\r\ny\r\nc\r\n"),
            (crlf, "a\r\nb", "x\ny", "x\r\ny\r\nc\r\n"),
            (crlf, "a\r\nb", "x\r\ny\nz", "x\r\ny\r\nz\r\nc\r\n"),
            (crlf, "b", "b1\nb2", "a\r\nb1\r\nb2\r\nc\r\n"),
            (crlf, "b\n", "", "a\r\nc\r\n"),
            (crlf, "\nb", "", "a\r\nc\r\n"),
            (crlf, "b\r", "b", "a\r\nb\nc\r\n"),
            (mixed, "a\nb\nc", "x", "x\r\n"),
            (mixed, "b\n", "b\nb\n", "a\r\nb\r\nb\r\nc\r\n"),
            (mixed, "c", "d", "a\r\nb\nd\r\n"),
            (leaning, "c\n", "d\ne\n", "a\r\nb\nd\ne\n"),
            (leaning, "c\n", "d\r\ne\r\n", "a\r\nb\nd\r\ne\r\n"),
            ("a\nb\nc\n", "a\r\nb", "x\r\ny", "x\ny\nc\n"),
            ("a\nb\nc\n", "a\nb", "x\ny", "x\ny\nc\n"),
            ("a\nb\nc\n", "b", "x\r\ny", "a\nx\ny\nc\n"),
            ("abc", "b", "x\r\ny", "ax\r\nyc"),
            ("a\rb\n", "a\rb", "c\rd", "c\rd\n"),
        ] {
            check(text, &one(old, new), Ok((expect, 1)));
        }
        let all = [Edit::new("\r", "").replace_all()];
        check(crlf, &all, Ok(("a\nb\nc\n", 3)));
    }

    #[test]
    fn edits_build_on_each_other() {
        let chain = [Edit::new("a", "b"), Edit::new("b", "c"), Edit::new("c", "d").replace_all()];
        check("a", &chain, Ok(("d", 3)));
        check(
            "a\nx\n",
            &[Edit::new("x", "a\na"), Edit::new("a", "b").replace_all()],
            Ok(("b\nb\nb\n", 4)),
        );
        let text = "a b";
        let failing = [Edit::new("a", "x"), Edit::new("a", "y")];
        let problem = apply_edits(text, &failing).unwrap_err();
        assert_eq!(
            (problem.edit_number, problem.edit_count, problem.kind),
            (2, 2, ErrorKind::TextNotFound)
        );
    }

    #[test]
    fn senseless_edits_are_refused_before_anything_else() {
        check("a", &[], Err("the list of edits is empty"));
        check("a", &one("", "x"), Err("the text to replace is empty"));
        check("a", &one("a", "a"), Err("the old and the new text are the same"));
        let line_ends = "the old and the new text differ only in line ends, which edits keep";
        check("a\r\n", &one("a\r\n", "a\n"), Err(line_ends));
        let later = [Edit::new("gone", "x"), Edit::new("", "x")];
        let problem = apply_edits("a", &later).unwrap_err();
        assert_eq!((problem.edit_number, problem.kind), (2, ErrorKind::Invalid));
    }

    #[test]
    fn ambiguity_is_counted_and_placed() {
        let found = "the text to replace is found ";
        for (text, old, expect) in [
            ("a a", "a", "2 times, at line 1"),
            ("aaa", "aa", "2 times, at line 1"),
            ("x\na\n\na", "a", "2 times, at lines 2 and 4"),
            ("a\r\nb\r\na\nb", "a\nb", "2 times, at lines 1 and 3"),
            ("\n\n\n", "\n\n", "2 times, at lines 1 and 2"),
            ("a\na\na", "a", "3 times, at lines 1, 2 and 3"),
            ("a\na\na\na\na", "a", "5 times, at lines 1, 2, 3, 4 and 5"),
            ("a\na\na\na\naa", "a", "6 times, at lines 1, 2, 3, 4 and 5"),
            ("a\na\na\na\na\na", "a", "6 times, first at lines 1, 2, 3, 4 and 5"),
        ] {
            check(text, &one(old, "x"), Err(&format!("{found}{expect}")));
        }
        assert_eq!(apply_edits("aa", &one("a", "b")).unwrap_err().kind, ErrorKind::TextNotUnique);
    }

    #[test]
    fn missing_text_is_quoted_on_one_line() {
        let missing = "the text to replace was not found: ";
        for (old, quoted) in [
            ("x", "'x'".to_owned()),
            ("say \"it's\"\n\tnow", "'say \"it's\"\\n\\tnow'".to_owned()),
            ("\u{200b}\u{1b}", "'\\u{200b}\\u{1b}'".to_owned()),
            (&"ö".repeat(120), format!("'{}'", "ö".repeat(120))),
            (&"ö".repeat(121), format!("'{}…'", "ö".repeat(120))),
        ] {
            check("abc", &one(old, "y"), Err(&format!("{missing}{quoted}")));
        }
    }

    #[test]
    fn a_problem_becomes_an_error_with_a_hint() {
        let path = crate::path::PathParser::lenient().parse("src/a.rs").unwrap();
        let error = apply_edits("Foo\n", &one("foo", "x")).unwrap_err().into_error(&path);
        assert_eq!(error.to_string(), "write 'src/a.rs': the text to replace was not found: 'foo'");
        assert_eq!((error.code(), error.kind()), (ErrorCode::WriteFailed, ErrorKind::TextNotFound));
        assert!(error.hint().is_some_and(|hint| hint.contains("upper and lower case")));
        let several = [Edit::new("Foo", "a a"), Edit::new("a", "b")];
        let error = apply_edits("Foo\n", &several).unwrap_err().into_error(&path);
        assert_eq!(
            error.to_string(),
            "write 'src/a.rs': edit 2 of 2: the text to replace is found 2 times, at line 1"
        );
        assert_eq!(
            (error.code(), error.kind()),
            (ErrorCode::WriteFailed, ErrorKind::TextNotUnique)
        );
        let error = apply_edits("a", &[]).unwrap_err().into_error(&path);
        assert_eq!(error.to_string(), "write 'src/a.rs': the list of edits is empty");
    }

    #[test]
    fn growth_is_bounded() {
        let doubling = vec![Edit::new("a", "aa").replace_all(); 64];
        let problem = apply_within(1024, "a", &doubling).unwrap_err();
        assert_eq!((problem.kind, problem.edit_number), (ErrorKind::TooLarge, 11));
        assert_eq!(problem.message, "the result would be larger than 1024 bytes");
        assert_eq!(apply_within(1024, "a", &doubling[..10]).unwrap().text.len(), 1024);
    }

    #[test]
    fn large_texts_are_edited() {
        let line = "the quick brown fox\r\n";
        let text = line.repeat(10 * 1024 * 1024 / line.len()) + "the last line\r\n";
        let done = apply_edits(&text, &one("fox\nthe last line\n", "dog\nthe end\n")).unwrap();
        assert!(done.text.ends_with("fox\r\nthe quick brown dog\r\nthe end\r\n"));
        let diff = unified_diff("f", &text, &done.text).text;
        assert_eq!(diff.lines().count(), 10);
        let done = apply_edits(&text, &[Edit::new("quick", "slow").replace_all()]).unwrap();
        assert_eq!(done.replacement_count, text.matches("quick").count());
    }

    /// Splits a text in the same way as the finder: into characters and line breaks of either kind.
    fn units(text: &str) -> Vec<String> {
        let mut units: Vec<String> = Vec::new();
        for c in text.chars() {
            match units.last_mut() {
                Some(last) if c == '\n' && last == "\r" => last.push(c),
                _ => units.push(c.to_string()),
            }
        }
        units
    }

    /// Replaces all occurrences with a slow and simple algorithm, to compare results with.
    fn model(text: &str, old: &str, new: &str) -> (String, usize) {
        let plain = |unit: &String| unit.replace("\r\n", "\n");
        let (text, old) = (units(text), units(old));
        let wanted: Vec<String> = old.iter().map(plain).collect();
        let (mut out, mut at, mut replaced) = (String::new(), 0, 0);
        while at < text.len() {
            let window: Vec<String> = text[at..].iter().take(old.len()).map(plain).collect();
            if window == wanted {
                out.push_str(new);
                replaced += 1;
                at += old.len();
            } else {
                out.push_str(&text[at]);
                at += 1;
            }
        }
        (out, replaced)
    }

    fn text_of(pieces: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
        proptest::collection::vec(select(pieces), 1..40)
    }

    /// A non-empty part of `pieces`.
    fn stretch(pieces: &[&str], start: usize, length: usize) -> String {
        let start = start % pieces.len();
        let end = (start + length).min(pieces.len());
        pieces[start..end].concat()
    }

    proptest! {
        #[test]
        fn plain_text_is_edited_as_the_standard_library_would(
            pieces in text_of(&["a", "b", "ab", "\n", "é", "$"]),
            start in 0usize..40,
            length in 1usize..6,
        ) {
            let text = pieces.concat();
            let old = stretch(&pieces, start, length);
            let new = "$1x";
            let all = apply_edits(&text, &[Edit::new(&old, new).replace_all()]).unwrap();
            prop_assert_eq!(all.text, text.replace(&old, new));
            prop_assert_eq!(all.replacement_count, text.matches(&old).count());
            let first = apply_edits(&text, &[Edit::new(&old, new).replace_first()]).unwrap();
            prop_assert_eq!(&first.text, &text.replacen(&old, new, 1));
            let count = (0..text.len())
                .filter(|at| text.is_char_boundary(*at) && text[*at..].starts_with(&old))
                .count();
            match apply_edits(&text, &[Edit::new(&old, new)]) {
                Ok(unique) => prop_assert_eq!((unique.text, 1), (first.text, count)),
                Err(problem) => {
                    prop_assert_eq!(problem.kind, ErrorKind::TextNotUnique);
                    let found = format!("found {count} times");
                    prop_assert!(problem.message.contains(&found), "{}", problem.message);
                }
            }
        }

        #[test]
        fn nothing_outside_a_match_changes(
            pieces in text_of(&["a", "b", "é", "\n", "\r\n"]),
            start in 0usize..40,
            length in 1usize..6,
            unix_needle in any::<bool>(),
        ) {
            let text = pieces.concat();
            let old = stretch(&pieces, start, length);
            let old = if unix_needle { old.replace("\r\n", "\n") } else { old };
            let done = apply_edits(&text, &[Edit::new(&old, "X").replace_all()]).unwrap();
            prop_assert_eq!((done.text, done.replacement_count), model(&text, &old, "X"));
        }
    }
}
