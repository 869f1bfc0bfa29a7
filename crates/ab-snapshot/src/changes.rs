//! The changes of a session, as git reports them in our own repository.

use std::fmt;
use std::path::PathBuf;

use ab_core::ErrorKind;

use crate::error::{GitTaskField, Result, SnapshotError};

/// The full id of a commit: 40 or 64 lowercase hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CommitId(String);

impl CommitId {
    /// Parses the value of `repo.commit`.
    pub fn parse(text: &str) -> Result<CommitId> {
        Self::read(text).ok_or_else(|| {
            let shown: String = text.chars().take(80).collect();
            let message = format!("invalid commit {shown:?}: must be 40 or 64 hexadecimal digits");
            SnapshotError::field(GitTaskField::RepoCommit, ErrorKind::Invalid, message)
        })
    }

    pub(crate) fn read(text: &str) -> Option<CommitId> {
        let digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let full = matches!(text.len(), 40 | 64) && text.bytes().all(digit);
        full.then(|| CommitId(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn object_format(&self) -> &'static str {
        match self.0.len() {
            64 => "sha256",
            _ => "sha1",
        }
    }

    /// Returns the all-zero id, with which `git update-ref` requires that a reference does not
    /// exist yet.
    pub(crate) fn zero(&self) -> String {
        "0".repeat(self.0.len())
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One changed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChange {
    pub path: String,
    /// The numbers of added and removed lines. `None` for a binary file.
    pub line_counts: Option<ChangedLineCounts>,
    /// Whether the path is a separate repository. Its files are not part of the change.
    pub nested_repository: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangedLineCounts {
    pub added: u64,
    pub removed: u64,
}

/// All changes between the commit that a session started from and the session's last commit.
#[derive(Clone, Debug)]
pub struct SessionChanges {
    pub base: CommitId,
    pub head: CommitId,
    /// The changed files, sorted by path. At most 10,000 files are listed.
    pub files: Vec<FileChange>,
    /// Number of all changed files, including those that are not listed above.
    pub files_changed: u64,
    /// Whether there are more changes than could be counted.
    pub files_truncated: bool,
    pub lines_added: u64,
    pub lines_removed: u64,
    /// The change as a unified diff for people to read, at most 2 MiB.
    pub diff: String,
    /// Whether the complete diff is longer than `diff`.
    pub diff_truncated: bool,
    /// The change as input for `git apply`, including binary files. A file whose lines are not
    /// UTF-8 is included as a binary file. `None` if the patch would be longer than 32 MiB.
    pub patch: Option<String>,
    /// Why the session's repository could not be used. In this case the session's files became one
    /// commit on top of the base. `None` if the repository could be used.
    pub history_lost_reason: Option<String>,
    /// Untracked files and directories that are not part of the result although the repository does
    /// not ignore them, such as `node_modules/`. Only the first ones are listed.
    pub left_out_paths: Vec<String>,
    /// Our own repository that holds the session's commits.
    pub(crate) repository: PathBuf,
}

/// Maximum number of files in [`SessionChanges::files`].
pub(crate) const MAX_FILES: usize = 10_000;

/// The files and totals that `git diff-tree -z --raw --numstat` reports.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct DiffStat {
    pub(crate) files: Vec<FileChange>,
    pub(crate) count: u64,
    pub(crate) added: u64,
    pub(crate) removed: u64,
}

impl DiffStat {
    pub(crate) fn parse(output: &[u8]) -> DiffStat {
        const GITLINK: &str = "160000";
        let text = String::from_utf8_lossy(output);
        let mut stat = DiffStat::default();
        let mut nested = std::collections::BTreeSet::new();
        let mut fields = text.split('\0');
        while let Some(field) = fields.next() {
            if let Some(raw) = field.strip_prefix(':') {
                let path = fields.next().unwrap_or_default();
                if raw.split(' ').take(2).any(|mode| mode == GITLINK) {
                    nested.insert(path.to_owned());
                }
                continue;
            }
            let mut columns = field.splitn(3, '\t');
            let (Some(added), Some(removed), Some(path)) =
                (columns.next(), columns.next(), columns.next())
            else {
                continue;
            };
            let lines = match (added.parse(), removed.parse()) {
                (Ok(added), Ok(removed)) => Some(ChangedLineCounts { added, removed }),
                _ => None,
            };
            stat.count += 1;
            stat.added += lines.unwrap_or_default().added;
            stat.removed += lines.unwrap_or_default().removed;
            if stat.files.len() < MAX_FILES {
                let nested_repository = nested.contains(path);
                stat.files.push(FileChange {
                    path: path.to_owned(),
                    line_counts: lines,
                    nested_repository,
                });
            }
        }
        stat
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_of_text_binary_and_nested_repositories() {
        let output = ":100644 100644 a b M\0src/a b.rs\0:000000 160000 0 c A\0sub\0\
                      3\t1\tsrc/a b.rs\0-\t-\tlogo.png\0\
                      1\t0\tsub\0";
        let stat = DiffStat::parse(output.as_bytes());
        assert_eq!((stat.count, stat.added, stat.removed), (3, 4, 1));
        assert_eq!(stat.files[0].path, "src/a b.rs");
        assert_eq!(stat.files[1].line_counts, None);
        assert!(stat.files[2].nested_repository && !stat.files[0].nested_repository);
        assert_eq!(DiffStat::parse(b""), DiffStat::default());
    }

    #[test]
    fn commits_are_full_ids() {
        assert!(CommitId::parse(&"a".repeat(40)).is_ok());
        for text in ["", "HEAD", "abc123", &"A".repeat(40), &"g".repeat(40), "--help"] {
            let error = CommitId::parse(text).unwrap_err();
            assert_eq!(error.field, Some(GitTaskField::RepoCommit), "{text}");
        }
    }
}
