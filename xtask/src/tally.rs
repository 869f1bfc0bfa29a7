//! Test counts, read from the summary lines that nextest and libtest print.

use std::fmt;
use std::ops::AddAssign;

/// The number of tests that passed, and that failed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
}

impl Tally {
    /// The counts of one summary line; `None` for any other line.
    pub(crate) fn of(line: &str) -> Option<Tally> {
        let counts = nextest_counts(line).or_else(|| libtest_counts(line))?;
        let mut tally = Tally::default();
        for part in counts.split([',', ';']) {
            let Some((number, what)) = part.trim().split_once(' ') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match what {
                "passed" => tally.passed += number,
                "failed" | "exec failed" | "timed out" => tally.failed += number,
                _ => {}
            }
        }
        Some(tally)
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// Whether `line` is the summary line of libtest.
pub(crate) fn is_libtest(line: &str) -> bool {
    libtest_counts(line).is_some()
}

/// Whether `line` is the summary line of nextest.
pub(crate) fn is_nextest(line: &str) -> bool {
    nextest_counts(line).is_some()
}

/// `text` without terminal colours.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\u{1b}' {
            plain.push(c);
            continue;
        }
        // A sequence of the form `ESC [ ... letter`. Any other escape sequence has one character.
        if rest.next() == Some('[') {
            rest.by_ref().find(|c| ('\u{40}'..='\u{7e}').contains(c));
        }
    }
    plain
}

/// `Summary [   0.2s] 7 tests run: 5 passed (1 slow), 1 failed, 1 timed out, 3 skipped`
fn nextest_counts(line: &str) -> Option<String> {
    let rest = line.trim_start().strip_prefix("Summary [")?;
    let (_, rest) = rest.split_once(']')?;
    let (_, counts) = rest.split_once(" run: ")?;
    Some(without_parentheses(counts))
}

/// `test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out`
fn libtest_counts(line: &str) -> Option<String> {
    let rest = line.strip_prefix("test result: ")?;
    let (_, counts) = rest.split_once(". ")?;
    Some(counts.to_owned())
}

/// Nextest adds explanations with numbers in parentheses.
fn without_parentheses(counts: &str) -> String {
    let mut kept = String::new();
    let mut depth = 0_usize;
    for c in counts.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => kept.push(c),
            _ => {}
        }
    }
    kept.replace(" ,", ",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, passed: u64, failed: u64) {
        assert_eq!(Tally::of(line), Some(Tally { passed, failed }), "{line}");
    }

    #[test]
    fn nextest_lines_count() {
        check("     Summary [   0.012s] 5 tests run: 5 passed, 0 skipped", 5, 0);
        check(" Summary [  90.0s] 4 tests run: 4 passed (1 slow, 2 flaky), 19 skipped", 4, 0);
        check("Summary [1s] 7/9 tests run: 4 passed, 1 failed, 2 timed out, 1 skipped", 4, 3);
        check("Summary [1s] 1 test run: 0 passed, 1 exec failed, 0 skipped", 0, 1);
        check("Summary [1s] 2 tests run: 1 passed, 1 failed (1 due to being leaky)", 1, 1);
        assert!(is_nextest("Summary [1s] 1 test run: 1 passed, 0 skipped"));
    }

    #[test]
    fn libtest_lines_count() {
        let line = "test result: FAILED. 3 passed; 2 failed; 1 ignored; 0 measured; 4 filtered out";
        check(line, 3, 2);
        assert!(is_libtest(line) && !is_nextest(line));
        // The output of a failed test is indented by the runner.
        assert!(!is_libtest(&format!("    {line}")));
    }

    #[test]
    fn other_lines_do_not() {
        for line in ["", "Summary of the run", "5 passed", "running 3 tests", "Summary [1s] bye"] {
            assert_eq!(Tally::of(line), None, "{line}");
        }
    }

    #[test]
    fn tallies_add_up_and_read_plainly() {
        let mut tally = Tally { passed: 1, failed: 0 };
        tally += Tally { passed: 2, failed: 3 };
        assert_eq!(tally.to_string(), "3 passed, 3 failed");
    }

    #[test]
    fn colours_are_taken_off() {
        assert_eq!(plain("\u{1b}[32;1m  Summary\u{1b}[0m [1s]"), "  Summary [1s]");
    }
}
