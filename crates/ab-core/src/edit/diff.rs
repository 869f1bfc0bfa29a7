//! The unified diff of two texts, with limits on time and size.

use std::fmt::Write;
use std::ops::{AddAssign, Range};
use std::time::Duration;

use similar::{Algorithm, ChangeTag, DiffOp, DiffTag, TextDiff, group_diff_ops};

/// Number of unchanged lines that are shown around a change.
const CONTEXT: usize = 3;
/// After this time, the search accepts a diff that is longer than necessary. The diff is still
/// correct.
const SEARCH_TIME: Duration = Duration::from_millis(250);
/// Maximum number of bytes of a diff, not counting the note about truncation.
const MAX_BYTES: usize = 256 * 1024;
/// Maximum number of lines from the first change to the last one. Each of these lines uses memory
/// during the comparison.
const MAX_LINES: usize = 100_000;

/// A diff with the numbers of added and removed lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnifiedDiff {
    /// The diff. Empty if nothing changed.
    pub text: String,
    /// `None` if the diff was truncated or omitted. The last line of the diff says so.
    pub line_counts: Option<DiffLineCounts>,
}

/// The numbers of lines that a change adds and removes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiffLineCounts {
    pub added: u64,
    pub removed: u64,
}

impl AddAssign for DiffLineCounts {
    fn add_assign(&mut self, other: Self) {
        self.added += other.added;
        self.removed += other.removed;
    }
}

/// The change from `before` to `after` as a unified diff with three lines of context. Empty if
/// there is no change.
///
/// Lines end at `\n`. A `\r` before it is part of the line. A diff that is too long is truncated at
/// the end of a line, and a diff that covers too many lines is omitted. In both cases the last line
/// says so.
pub fn unified_diff(path: &str, before: &str, after: &str) -> UnifiedDiff {
    unified_diff_with_names(path, path, before, after)
}

/// Like [`unified_diff`], but with a separate name for each side.
pub(crate) fn unified_diff_with_names(
    from: &str,
    to: &str,
    before: &str,
    after: &str,
) -> UnifiedDiff {
    if before == after {
        return UnifiedDiff { text: String::new(), line_counts: Some(DiffLineCounts::default()) };
    }
    let mut out = format!("--- {}\n+++ {}\n", header_name(from), header_name(to));
    let window = Window::around_changes(before, after);
    let (Some(old), Some(new)) = (lines(window.old), lines(window.new)) else {
        let _ = writeln!(out, "\\ Diff left out: the change spans more than {MAX_LINES} lines");
        return UnifiedDiff { text: out, line_counts: None };
    };
    let diff = TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .timeout(SEARCH_TIME)
        .diff_slices(&old, &new);
    for hunk in group_diff_ops(diff.ops().to_vec(), CONTEXT) {
        if !write_hunk(&mut out, &hunk, &old, &new, window.skipped) {
            let _ = writeln!(out, "\\ Diff cut: it is longer than {} KiB", MAX_BYTES / 1024);
            return UnifiedDiff { text: out, line_counts: None };
        }
    }
    let mut changed = DiffLineCounts::default();
    for op in diff.ops().iter().filter(|op| op.tag() != DiffTag::Equal) {
        changed.added += op.new_range().len() as u64;
        changed.removed += op.old_range().len() as u64;
    }
    UnifiedDiff { text: out, line_counts: Some(changed) }
}

/// Quotes a path that contains control characters, so that it stays on one line.
fn header_name(path: &str) -> String {
    if path.contains(char::is_control) { format!("{path:?}") } else { path.to_owned() }
}

/// Splits a text into lines with their line ends. `None` if there are more than [`MAX_LINES`].
fn lines(text: &str) -> Option<Vec<&str>> {
    let lines: Vec<&str> = text.split_inclusive('\n').take(MAX_LINES + 1).collect();
    (lines.len() <= MAX_LINES).then_some(lines)
}

/// Writes one hunk, which is a group of changes with the lines around them. Returns `false` if it
/// did not fit.
fn write_hunk(
    out: &mut String,
    ops: &[DiffOp],
    old: &[&str],
    new: &[&str],
    skipped: usize,
) -> bool {
    let (Some(first), Some(last)) = (ops.first(), ops.last()) else {
        return true;
    };
    let removed = first.old_range().start..last.old_range().end;
    let added = first.new_range().start..last.new_range().end;
    let header = format!("@@ -{} +{} @@\n", place(removed, skipped), place(added, skipped));
    if !push(out, "", &header) {
        return false;
    }
    ops.iter().flat_map(|op| op.iter_changes(old, new)).all(|change| {
        let sign = match change.tag() {
            ChangeTag::Equal => " ",
            ChangeTag::Delete => "-",
            ChangeTag::Insert => "+",
        };
        push(out, sign, change.value())
    })
}

/// Adds a line. Returns `false` if the diff would become too long.
fn push(out: &mut String, sign: &str, line: &str) -> bool {
    let rest = if line.ends_with('\n') { "" } else { "\n\\ No newline at end of file\n" };
    let fits = out.len() + sign.len() + line.len() + rest.len() <= MAX_BYTES;
    if fits {
        out.extend([sign, line, rest]);
    }
    fits
}

/// The line numbers of a hunk header, such as `3,2` for two lines that start at line 3. An empty
/// range is written with the number of the line before it.
fn place(range: Range<usize>, skipped: usize) -> String {
    let start = range.start + skipped;
    match range.len() {
        0 => format!("{start},0"),
        1 => format!("{}", start + 1),
        length => format!("{},{length}", start + 1),
    }
}

/// The lines of two texts that contain all changes and their context. Only these lines are compared
/// by the diff algorithm. The other lines are compared byte by byte. In most edits this is most of
/// the file.
struct Window<'t> {
    old: &'t str,
    new: &'t str,
    /// Number of lines before the window.
    skipped: usize,
}

impl<'t> Window<'t> {
    fn around_changes(before: &'t str, after: &'t str) -> Self {
        let (old, new) = (before.as_bytes(), after.as_bytes());
        let changed = line_start(old, common_prefix(old, new));
        let start = (0..CONTEXT).fold(changed, |at, _| line_start(old, at.saturating_sub(1)));
        // The first line of the common suffix may be the end of a line that has changed.
        let same = common_suffix(&old[changed..], &new[changed..]);
        let tail = &old[old.len() - same..];
        let kept: usize =
            tail.split_inclusive(|byte| *byte == b'\n').take(CONTEXT + 1).map(<[u8]>::len).sum();
        let dropped = same - kept;
        Self {
            old: &before[start..before.len() - dropped],
            new: &after[start..after.len() - dropped],
            skipped: super::find::line_breaks(&before[..start]),
        }
    }
}

/// The start of the line that contains `at`.
fn line_start(text: &[u8], at: usize) -> usize {
    text[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
}

/// Number of bytes that are compared at a time.
const BLOCK: usize = 4096;

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let blocks = a.chunks_exact(BLOCK).zip(b.chunks_exact(BLOCK));
    let start = blocks.take_while(|(a, b)| a == b).count() * BLOCK;
    start + a[start..].iter().zip(&b[start..]).take_while(|(a, b)| a == b).count()
}

fn common_suffix(a: &[u8], b: &[u8]) -> usize {
    let blocks = a.rchunks_exact(BLOCK).zip(b.rchunks_exact(BLOCK));
    let end = blocks.take_while(|(a, b)| a == b).count() * BLOCK;
    let (a, b) = (&a[..a.len() - end], &b[..b.len() - end]);
    end + a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(before: &str, after: &str, expect: &str) {
        assert_eq!(unified_diff("f", before, after).text, expect, "{before:?} to {after:?}");
    }

    #[test]
    fn small_diffs() {
        check("", "", "");
        check("a\n", "a\n", "");
        check("a\n", "b\n", "--- f\n+++ f\n@@ -1 +1 @@\n-a\n+b\n");
        check("", "a\n", "--- f\n+++ f\n@@ -0,0 +1 @@\n+a\n");
        check("a\nb\n", "", "--- f\n+++ f\n@@ -1,2 +0,0 @@\n-a\n-b\n");
        check(
            "1\n2\n3\n4\n5\n6\n7\n8\n9\n",
            "1\n2\n3\n4\nfive\n6\n7\n8\n9\n",
            "--- f\n+++ f\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n",
        );
        check("a\nb\n", "a\nx\nb\n", "--- f\n+++ f\n@@ -1,2 +1,3 @@\n a\n+x\n b\n");
    }

    #[test]
    fn line_ends_show() {
        check("a\r\n", "b\r\n", "--- f\n+++ f\n@@ -1 +1 @@\n-a\r\n+b\r\n");
        check("a\rb\n", "a\rc\n", "--- f\n+++ f\n@@ -1 +1 @@\n-a\rb\n+a\rc\n");
        check(
            "a\nb",
            "a\nb\n",
            "--- f\n+++ f\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n",
        );
        check(
            "a\nb",
            "x\nb",
            "--- f\n+++ f\n@@ -1,2 +1,2 @@\n-a\n+x\n b\n\\ No newline at end of file\n",
        );
    }

    #[test]
    fn distant_changes_get_a_hunk_each() {
        let before: String = (1..=40).map(|n| format!("{n}\n")).collect();
        let after = before.replace("\n5\n", "\nfive\n").replace("\n30\n", "\nthirty\n");
        let diff = unified_diff("f", &before, &after).text;
        let hunks: Vec<&str> = diff.lines().filter(|line| line.starts_with("@@")).collect();
        assert_eq!(hunks, ["@@ -2,7 +2,7 @@", "@@ -27,7 +27,7 @@"]);
    }

    #[test]
    fn a_path_cannot_forge_lines() {
        let diff = unified_diff("a\n+++ b", "1\n", "2\n").text;
        assert!(diff.starts_with("--- \"a\\n+++ b\"\n+++ \"a\\n+++ b\"\n@@ "), "{diff}");
        assert!(unified_diff("ä b", "1", "2").text.starts_with("--- ä b\n"));
    }

    #[test]
    fn long_diffs_are_cut_at_a_line() {
        let before: String = (0..100_000).map(|n| format!("line {n}\n")).collect();
        let diff = unified_diff("f", &before, &before.replace("line", "row")).text;
        assert!(diff.len() < MAX_BYTES + 100);
        assert!(diff.ends_with("\n\\ Diff cut: it is longer than 256 KiB\n"));
        let line = "x".repeat(MAX_BYTES);
        let diff = unified_diff("f", &line, "").text;
        assert_eq!(diff.lines().last(), Some("\\ Diff cut: it is longer than 256 KiB"));
    }

    #[test]
    fn a_change_over_too_many_lines_is_left_out() {
        let middle = "\n".repeat(MAX_LINES + 1);
        let diff = unified_diff("f", &format!("a{middle}b"), &format!("c{middle}d")).text;
        let expect = "--- f\n+++ f\n\\ Diff left out: the change spans more than 100000 lines\n";
        assert_eq!(diff, expect);
    }

    /// Applies a diff in the same way as `patch`.
    fn patched(before: &str, diff: &str) -> String {
        let mut old = before.split_inclusive('\n');
        let mut taken = 0;
        let mut out = String::new();
        for line in diff.split_inclusive('\n').skip(2) {
            if let Some(header) = line.strip_prefix("@@ -") {
                let (place, _) = header.split_once(' ').unwrap();
                let (start, length) = place.split_once(',').unwrap_or((place, "1"));
                let start: usize = start.parse().unwrap();
                let before_hunk = if length == "0" { start } else { start - 1 };
                out.extend(old.by_ref().take(before_hunk - taken));
                taken = before_hunk;
                continue;
            }
            let (sign, text) = line.split_at(1);
            if sign == "\\" {
                // The line above has no newline. This can only be the last line of one side, so the
                // added line counts.
                continue;
            }
            if sign != "+" {
                let expected = old.next().unwrap();
                assert_eq!(expected.trim_end_matches('\n'), text.trim_end_matches('\n'));
                taken += 1;
            }
            if sign != "-" {
                out.push_str(text);
            }
        }
        out.extend(old);
        out
    }

    proptest! {
        #[test]
        fn a_diff_turns_one_text_into_the_other(
            before in "[ab\n]{0,60}",
            middle in "[ab\n]{0,8}",
            cut in 0usize..60,
            drop in 0usize..8,
        ) {
            let from = cut.min(before.len());
            let to = (from + drop).min(before.len());
            let after = format!("{}{middle}{}", &before[..from], &before[to..]);
            let got = patched(&before, &unified_diff("f", &before, &after).text);
            prop_assert_eq!(got.trim_end_matches('\n'), after.trim_end_matches('\n'));
        }
    }

    #[test]
    fn sides_have_names_of_their_own() {
        let named = |from: &str, to: &str| unified_diff_with_names(from, to, "a\n", "b\n").text;
        assert_eq!(named("x", "y/z"), "--- x\n+++ y/z\n@@ -1 +1 @@\n-a\n+b\n");
        assert!(named("a\n+++ b", "c").starts_with("--- \"a\\n+++ b\"\n+++ c\n@@"));
        assert_eq!(unified_diff_with_names("x", "y", "", "").text, "");
    }

    #[test]
    fn lines_are_counted_where_all_are_shown() {
        let count = |before: &str, after: &str| unified_diff("f", before, after).line_counts;
        assert_eq!(count("-- a\nb\n", "++ c\n"), Some(DiffLineCounts { added: 1, removed: 2 }));
        assert_eq!(count("", "a"), Some(DiffLineCounts { added: 1, removed: 0 }));
        assert_eq!(count("a", "a"), Some(DiffLineCounts::default()));
        let far = format!("a\n{}b\n", "same\n".repeat(50));
        let both = far.replace("a\n", "c\n").replace("b\n", "d\ne\n");
        assert_eq!(count(&far, &both), Some(DiffLineCounts { added: 3, removed: 2 }));
        assert_eq!(count(&"x\n".repeat(200_000), ""), None);
    }
}
