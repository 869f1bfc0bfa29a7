//! The result of an operation, in a form that is the same for the model and for every backend.
//!
//! Times and versions are left out, because they differ between backends. The [state](State) behind
//! a version is checked separately.

use std::fmt;

use ab_core::{ErrorKind, FileKind};

/// A result with the state of its file, if it has one.
#[derive(Clone, Debug)]
pub(super) struct Reply<S> {
    pub(super) answer: Answer,
    pub(super) state: Option<S>,
}

impl<S> Reply<S> {
    pub(super) fn new(answer: Answer) -> Self {
        Self { answer, state: None }
    }

    pub(super) fn at(answer: Answer, state: Option<S>) -> Self {
        Self { answer, state }
    }
}

/// The model's version: increases with every change of every file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(pub(super) u64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Done,
    Exists(bool),
    Removed(u64),
    Edited {
        replaced: usize,
    },
    Bytes(Vec<u8>),
    Content(Vec<u8>, Facts),
    Facts(Facts),
    Listing {
        entries: Vec<Listed>,
        cut: bool,
        problems: usize,
    },
    /// Files with the number of their matching lines, in order.
    Lines {
        counts: Vec<(String, u64)>,
        searched: u64,
        binary: u64,
        problems: usize,
    },
    Many(Vec<Answer>),
    /// The slot had no open file.
    NoFile,
    Failed(Refusal),
}

impl Answer {
    pub(super) fn is_failure(&self) -> bool {
        matches!(self, Answer::Failed(_) | Answer::NoFile)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) kind: FileKind,
    pub(super) size: u64,
    /// For files only, since modes of directories are not specified.
    pub(super) mode: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) path: String,
    pub(super) kind: FileKind,
    /// Present if the listing was requested with details.
    pub(super) facts: Option<Facts>,
}

/// Why an operation was refused, and the path in the error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) kind: ErrorKind,
    pub(super) path: Option<String>,
}

/// Bytes as text on one line.
pub(super) struct Shown<'a>(pub(super) &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Done => f.write_str("done"),
            Answer::Exists(yes) => write!(f, "{yes}"),
            Answer::Removed(count) => write!(f, "removed {count}"),
            Answer::Edited { replaced } => write!(f, "replaced {replaced}"),
            Answer::Bytes(bytes) => write!(f, "{}", Shown(bytes)),
            Answer::Content(bytes, facts) => write!(f, "{} of {facts}", Shown(bytes)),
            Answer::Facts(facts) => write!(f, "{facts}"),
            Answer::Listing { entries, cut, problems } => {
                f.write_str("[")?;
                for (at, entry) in entries.iter().enumerate() {
                    let comma = if at > 0 { ", " } else { "" };
                    write!(f, "{comma}{entry}")?;
                }
                f.write_str(if *cut { ", cut]" } else { "]" })?;
                if *problems > 0 {
                    write!(f, " with {problems} problems")?;
                }
                Ok(())
            }
            Answer::Lines { counts, searched, binary, problems } => {
                write!(f, "{counts:?}, {searched} searched, {binary} binary, {problems} problems")
            }
            Answer::Many(answers) => {
                for (at, answer) in answers.iter().enumerate() {
                    let comma = if at > 0 { "; " } else { "" };
                    write!(f, "{comma}{answer}")?;
                }
                Ok(())
            }
            Answer::NoFile => f.write_str("no open file"),
            Answer::Failed(refusal) => write!(f, "{refusal}"),
        }
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes", self.kind, self.size)?;
        match self.mode {
            Some(mode) => write!(f, " mode {mode:o}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.facts {
            Some(facts) => write!(f, "{}: {facts}", self.path),
            None => write!(f, "{}: {}", self.path, self.kind),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.path {
            Some(path) => write!(f, "{:?} on {path:?}", self.kind),
            None => write!(f, "{:?} without a path", self.kind),
        }
    }
}
