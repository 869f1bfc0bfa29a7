//! One finding of tidy: its place, and what to do about it.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    path: String,
    line: Option<usize>,
    message: String,
}

impl Problem {
    /// A problem of a whole file.
    pub(crate) fn of_file(path: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem { path: path.into(), line: None, message: message.into() }
    }

    /// A problem on one line, counted from one.
    pub(crate) fn at(path: impl Into<String>, line: usize, message: impl Into<String>) -> Problem {
        Problem { path: path.into(), line: Some(line), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.message),
            None => write!(f, "{}: {}", self.path, self.message),
        }
    }
}

/// Fails the running test with the list if it is not empty.
#[track_caller]
pub(crate) fn expect_none(problems: &[Problem]) {
    let lines: Vec<String> = problems.iter().map(|problem| format!("  {problem}")).collect();
    assert!(lines.is_empty(), "{} to tidy up:\n{}", lines.len(), lines.join("\n"));
}

/// Fails the running test unless there is exactly one problem and it contains `message`.
#[track_caller]
pub(crate) fn expect_one(problems: &[Problem], message: &str) {
    let [problem] = problems else {
        panic!("expected one problem that says `{message}`, got {problems:#?}");
    };
    assert!(problem.to_string().contains(message), "`{problem}` does not say `{message}`");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_reads_like_a_compiler_message() {
        assert_eq!(Problem::at("a.rs", 3, "too long").to_string(), "a.rs:3: too long");
        assert_eq!(Problem::of_file("a.rs", "too long").to_string(), "a.rs: too long");
    }
}
