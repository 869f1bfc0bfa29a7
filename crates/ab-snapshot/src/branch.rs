//! Branch names, which are checked by git's rules before they are passed to git.

use std::fmt;

use ab_core::ErrorKind;

use crate::error::{GitTaskField, Result, SnapshotError};

/// Maximum length of a branch name in bytes. The name must fit into a file name together with a
/// suffix that git adds.
const LONGEST: usize = 200;
/// Characters that git does not allow in a branch name, in addition to control characters.
const FORBIDDEN: &[char] = &[' ', '~', '^', ':', '?', '*', '[', '\\'];

/// The name of a branch without `refs/heads/`. Git cannot mistake the name for an option or for
/// another kind of revision.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BranchName(String);

impl BranchName {
    /// Parses a branch name.
    ///
    /// # Errors
    /// Fails if `git check-ref-format --branch` does not accept the name unchanged, if the name
    /// begins with `refs/`, or if it is longer than 200 bytes. The error names `field`.
    pub fn parse(name: &str, field: GitTaskField) -> Result<BranchName> {
        match problem(name) {
            None => Ok(BranchName(name.to_owned())),
            Some(problem) => {
                let shown: String = name.chars().take(LONGEST).collect();
                let message = format!("invalid branch name {shown:?}: {problem}");
                Err(SnapshotError::field(field, ErrorKind::Invalid, message))
            }
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the branch names that are prefixes of this one, for example `a` for `a/b`. Git
    /// cannot have both branches.
    pub(crate) fn around(&self) -> impl Iterator<Item = &str> {
        self.0.match_indices('/').map(|(at, _)| &self.0[..at])
    }

    pub(crate) fn reference(&self) -> String {
        format!("refs/heads/{}", self.0)
    }
}

impl fmt::Display for BranchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn problem(name: &str) -> Option<&'static str> {
    let has = |c: char| c.is_control() || FORBIDDEN.contains(&c);
    if name.is_empty() {
        return Some("it is empty");
    }
    if name.len() > LONGEST {
        return Some("it is longer than 200 bytes");
    }
    if name.chars().any(has) {
        return Some("it contains a space, a control character or one of ~^:?*[\\");
    }
    if name.starts_with('-') {
        return Some("it begins with -");
    }
    if name.starts_with("refs/") || name == "HEAD" || name == "@" {
        return Some("it is reserved by git");
    }
    if name.contains("..") || name.contains("@{") {
        return Some("it contains .. or @{");
    }
    let bad = |part: &str| part.is_empty() || part.starts_with('.') || part.ends_with(".lock");
    if name.split('/').any(bad) || name.ends_with('.') {
        return Some("a part of it is empty, begins or ends with a dot, or ends with .lock");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_git_accepts_pass() {
        let longest = "x".repeat(LONGEST);
        for name in ["main", "agent/refactor", "feature/#12+b", "ünïcode", "a.b", "v1@2", &longest]
        {
            let parsed = BranchName::parse(name, GitTaskField::RepoBranch);
            assert_eq!(parsed.unwrap().as_str(), name);
        }
    }

    #[test]
    fn other_names_are_refused() {
        let long = "x".repeat(LONGEST + 1);
        for name in [
            "",
            " ",
            "two words",
            "-b",
            "--upload-pack=x",
            "a..b",
            "../x",
            "a/../b",
            "/a",
            "a/",
            "a//b",
            ".a",
            "a/.b",
            "a.lock",
            "a.lock/b",
            "a.",
            "@",
            "HEAD",
            "a@{1}",
            "a~1",
            "a^",
            "a:b",
            "a?",
            "a*",
            "a[",
            "a\\b",
            "a\nb",
            "a\0b",
            "refs/heads/x",
            "refs/heads/../../x",
            &long,
        ] {
            let error = BranchName::parse(name, GitTaskField::TargetBranch).unwrap_err();
            assert_eq!(error.field, Some(GitTaskField::TargetBranch), "{name:?}");
            assert!(error.to_string().starts_with("delivery.targetBranch: invalid"), "{error}");
        }
    }
}
