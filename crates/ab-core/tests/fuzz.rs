//! The properties that `cargo xtask fuzz` lets run for long.

use ab_core::ErrorKind;
use ab_core::edit::{Edit, EditOccurrences, apply_edits, unified_diff};
use ab_testkit::fuzz;
use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, prop_oneof};
use proptest::sample::select;
use proptest::test_runner::TestCaseResult;

use crate::paths;

#[test]
fn fuzz_path() {
    fuzz::check_property("fuzz_path", paths::raw_path(), |raw| paths::check_any(&raw));
}

/// Text in which little is rare: letters that repeat, line ends of both kinds, wide characters.
fn text(longest: usize) -> impl Strategy<Value = String> {
    let unit = select(vec!["a", "a", "b", "ä", " ", "$1", "\n", "\n", "\r\n"]);
    vec(unit, 0..longest).prop_map(|units| units.concat())
}

fn edit() -> impl Strategy<Value = Edit> {
    let which = select(vec![EditOccurrences::Unique, EditOccurrences::All, EditOccurrences::First]);
    (text(4), text(5), which).prop_map(|(old, new, which)| Edit { old, new, occurrences: which })
}

#[test]
fn fuzz_edit() {
    let wild = prop_oneof![3 => text(40), 1 => any::<String>()];
    let edits = vec(edit(), 0..4);
    fuzz::check_property("fuzz_edit", (wild, edits), |(text, edits)| {
        check_all(&text, &edits)?;
        for edit in &edits {
            check_one(&text, edit)?;
        }
        Ok(())
    });
}

fn unix(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// Several edits are what one after the other gives, and a diff says exactly what they did.
fn check_all(text: &str, edits: &[Edit]) -> TestCaseResult {
    let mut step_by_step = Ok(text.to_owned());
    let mut replaced = 0;
    for edit in edits {
        let Ok(so_far) = step_by_step else { break };
        step_by_step = apply_edits(&so_far, std::slice::from_ref(edit)).map(|applied| {
            replaced += applied.replacement_count;
            applied.text
        });
    }
    match (apply_edits(text, edits), step_by_step) {
        (Ok(applied), Ok(expect)) => {
            prop_assert!(!edits.is_empty());
            prop_assert_eq!((&applied.text, applied.replacement_count), (&expect, replaced));
            let diff = unified_diff("file", text, &applied.text).text;
            prop_assert_eq!(patched(text, &diff), applied.text, "by {}", diff);
        }
        (Err(problem), Ok(_)) if edits.is_empty() => {
            prop_assert_eq!(problem.kind, ErrorKind::Invalid)
        }
        (Err(problem), Err(_)) => {
            prop_assert!(
                problem.edit_number >= 1 && problem.edit_number <= edits.len(),
                "{:?}",
                problem
            );
            prop_assert_eq!(problem.edit_count, edits.len());
        }
        // Edits that make no sense are refused before the first is made.
        (Err(problem), Ok(_)) => prop_assert!(false, "all failed, each went: {:?}", problem),
        (Ok(_), Err(problem)) => prop_assert!(false, "all went, one failed: {:?}", problem),
    }
    Ok(())
}

/// One edit against a plain replacement, where line ends play no part; counts everywhere.
fn check_one(text: &str, edit: &Edit) -> TestCaseResult {
    let senseless = edit.old.is_empty() || unix(&edit.old) == unix(&edit.new);
    // Line ends count as one unit only where the text to replace has a line break.
    let (seen, needle) = match unix(&edit.old) {
        old if old.contains('\n') => (unix(text), old),
        old => (text.to_owned(), old),
    };
    let found = if senseless { 0 } else { overlapping(&seen, &needle) };
    match apply_edits(text, std::slice::from_ref(edit)) {
        Err(problem) if senseless => prop_assert_eq!(problem.kind, ErrorKind::Invalid),
        Err(problem) if found == 0 => prop_assert_eq!(problem.kind, ErrorKind::TextNotFound),
        Err(problem) => {
            prop_assert_eq!(
                (problem.kind, edit.occurrences),
                (ErrorKind::TextNotUnique, EditOccurrences::Unique)
            );
            let count = format!("found {found} times");
            prop_assert!(found > 1 && problem.message.contains(&count), "{:?}", problem);
        }
        Ok(applied) => {
            prop_assert!(!senseless && found > 0);
            // Line breaks of the new text become those of a file that has only one kind.
            let new = match (text.contains('\n'), text.contains('\r')) {
                (true, false) => unix(&edit.new),
                _ => edit.new.clone(),
            };
            let (expect, replaced) = match edit.occurrences {
                EditOccurrences::All => {
                    (seen.replace(&needle, &new), seen.matches(&*needle).count())
                }
                EditOccurrences::Unique | EditOccurrences::First => {
                    (seen.replacen(&needle, &new, 1), 1)
                }
            };
            prop_assert_eq!(applied.replacement_count, replaced);
            if !text.contains('\r') {
                prop_assert_eq!(applied.text, expect);
            } else if lone_returns(text) == 0 {
                prop_assert_eq!(unix(&applied.text), unix(&expect));
                let kept = breaks(text).1 > 0 || breaks(&applied.text).1 == 0;
                prop_assert!(kept, "line ends changed: {:?}", applied.text);
            }
        }
    }
    Ok(())
}

/// Line breaks of a text: with a return, and without.
fn breaks(text: &str) -> (usize, usize) {
    let with_return = text.matches("\r\n").count();
    (with_return, text.matches('\n').count() - with_return)
}

fn lone_returns(text: &str) -> usize {
    text.matches('\r').count() - breaks(text).0
}

/// Occurrences, those that overlap included.
fn overlapping(text: &str, needle: &str) -> usize {
    text.char_indices().filter(|(at, _)| text[*at..].starts_with(needle)).count()
}

/// Applies a unified diff by the book.
fn patched(before: &str, diff: &str) -> String {
    let old: Vec<&str> = before.split_inclusive('\n').collect();
    let (mut out, mut at) = (String::new(), 0);
    let mut lines = diff.split_inclusive('\n').skip(2).peekable();
    while let Some(line) = lines.next() {
        if let Some(hunk) = line.strip_prefix("@@ -") {
            let (start, count) = hunk_start(hunk);
            let first = if count == 0 { start } else { start - 1 };
            out.extend(old[at..first].iter().copied());
            at = first;
            continue;
        }
        let unfinished = lines.peek().is_some_and(|next| next.starts_with('\\'));
        let body = &line[1..];
        let body = if unfinished { body.strip_suffix('\n').unwrap_or(body) } else { body };
        match line.as_bytes()[0] {
            b' ' => {
                assert_eq!(old[at], body, "context does not fit");
                out.push_str(body);
                at += 1;
            }
            b'-' => {
                assert_eq!(old[at], body, "removed line does not fit");
                at += 1;
            }
            b'+' => out.push_str(body),
            b'\\' => {}
            other => panic!("no line of a diff begins with {other}"),
        }
    }
    out.extend(old[at..].iter().copied());
    out
}

/// Start and length of the old side of a hunk: `3,7 +3,8 @@` or `3 +3 @@`.
fn hunk_start(hunk: &str) -> (usize, usize) {
    let old = hunk.split(' ').next().unwrap();
    let (start, count) = old.split_once(',').unwrap_or((old, "1"));
    (start.parse().unwrap(), count.parse().unwrap())
}
