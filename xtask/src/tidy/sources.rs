//! Rules for every Rust file: a `//!` header, a maximum length, and no unfinished code.

use super::code;
use super::problem::Problem;

/// Longer files have more than one job. Tests are not counted.
const LONGEST: usize = 800;

/// Placeholders for code, and ignored tests.
const UNFINISHED: &[&str] = &["todo!", "unimplemented!", "#[ignore", "dbg!("];

/// Marks for later work, which must be tracked elsewhere. They are assembled here because the rule
/// also looks at strings.
const MARKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];

/// Checks that the first line is the file's documentation.
fn opening(path: &str, text: &str) -> Vec<Problem> {
    let first = text.lines().next().unwrap_or_default();
    match first.strip_prefix("//!") {
        Some(job) if !job.trim().is_empty() => Vec::new(),
        _ => vec![Problem::at(path, 1, "open the file with `//!` and its one job")],
    }
}

fn length(path: &str, text: &str) -> Vec<Problem> {
    let lines = lines_without_tests(text);
    if lines <= LONGEST {
        return Vec::new();
    }
    let message = format!("{lines} lines without tests are more than {LONGEST}: split by meaning");
    vec![Problem::of_file(path, message)]
}

/// The number of lines before the test module at the end of the file.
fn lines_without_tests(text: &str) -> usize {
    let code = code::blanked(text);
    let lines: Vec<&str> = code.lines().map(str::trim_end).collect();
    let total = lines.len();
    let is_test_gate =
        |line: &&str| line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test");
    let Some(start) = lines.iter().rposition(is_test_gate) else { return total };
    let mut after = lines[start + 1..].iter().skip_while(|line| line.starts_with("#["));
    if after.next() != Some(&"mod tests {") {
        return total;
    }
    let mut after = after.skip_while(|&&line| line != "}").skip(1);
    if after.all(|line| line.is_empty()) { start } else { total }
}

fn half_done(path: &str, text: &str) -> Vec<Problem> {
    let code = code::blanked(text);
    let mut problems = Vec::new();
    for (number, (line, text)) in code.lines().zip(text.lines()).enumerate() {
        for unfinished in UNFINISHED.iter().filter(|unfinished| holds(line, unfinished)) {
            problems.push(Problem::at(path, number + 1, format!("finish this: `{unfinished}`")));
        }
        for mark in MARKS.iter().filter(|mark| holds_word(text, mark)) {
            let message = format!("track this elsewhere, not by the mark {mark}");
            problems.push(Problem::at(path, number + 1, message));
        }
    }
    problems
}

/// Whether `needle` occurs, but not as the end of a longer word.
fn holds(line: &str, needle: &str) -> bool {
    line.match_indices(needle).any(|(at, _)| !line[..at].ends_with(is_word))
}

fn holds_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(is_word) && !line[at + word.len()..].starts_with(is_word)
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::super::problem::{expect_none, expect_one};
    use super::super::tree::Tree;
    use super::*;

    #[track_caller]
    fn the_tree_obeys(rule: fn(&str, &str) -> Vec<Problem>) {
        let problems: Vec<Problem> =
            Tree::load().sources().flat_map(|(path, text)| rule(path, &text)).collect();
        expect_none(&problems);
    }

    #[test]
    fn every_file_opens_with_its_job() {
        the_tree_obeys(opening);
    }

    #[test]
    fn every_file_has_a_readable_length() {
        the_tree_obeys(length);
    }

    #[test]
    fn nothing_is_half_done() {
        the_tree_obeys(half_done);
    }

    #[test]
    fn an_opening_names_the_job() {
        expect_none(&opening("a.rs", "//! Reads a plan.\n\nfn read() {}\n"));
        for text in ["", "fn read() {}\n", "\n//! Late.\n", "//!\n", "// Not documentation.\n"] {
            expect_one(&opening("a.rs", text), "a.rs:1: open the file");
        }
    }

    #[test]
    fn a_long_file_fails_but_not_for_its_tests() {
        let body = "fn f() {}\n".repeat(800);
        let tests = "#[cfg(test)]\nmod tests {\n    fn g() {}\n}\n".to_owned();
        expect_none(&length("a.rs", &body));
        expect_none(&length("a.rs", &format!("{body}{tests}")));
        let gated = tests.replace("(test)", "(all(test, unix))");
        expect_none(&length("a.rs", &format!("{body}{gated}")));
        expect_one(&length("a.rs", &format!("fn g() {{}}\n{body}")), "801 lines");
        expect_one(&length("a.rs", &format!("{body}{tests}fn g() {{}}\n")), "805 lines");
    }

    #[test]
    fn a_brace_in_a_string_does_not_end_the_tests() {
        let text = "fn f() {}\n#[cfg(test)]\nmod tests {\n    const A: &str = \"\n}\n\";\n}\n";
        assert_eq!(lines_without_tests(text), 1);
    }

    #[test]
    fn half_done_code_fails() {
        let text = format!("fn f() {{ {}!() }}", "todo");
        expect_one(&half_done("a.rs", &text), "a.rs:1: finish this");
        expect_one(&half_done("a.rs", "#[test]\n#[ignore = \"slow\"]\nfn f() {}"), "a.rs:2");
        expect_one(&half_done("a.rs", &format!("fn f() {{}} // {}: later", MARKS[0])), "elsewhere");
    }

    #[test]
    fn words_that_only_look_half_done_pass() {
        expect_none(&half_done("a.rs", "// mastodon\nlet to_do = \"todo!\"; my_dbg!(x);"));
        expect_none(&half_done("a.rs", &format!("const A{}: u8 = 1;", MARKS[2])));
    }
}
