//! Adds the files of repositories that lie inside a session's tree (nested repositories).
//!
//! Git adds a nested repository as a link to a commit, without its files. The files would be lost,
//! because this commit is not part of the delivery. This module adds the files as plain files
//! instead. Submodules that the base commit already has remain links.

use std::collections::BTreeSet;

use ab_core::ErrorKind;

use super::{Inside, Repository};
use crate::error::{Result, SnapshotError};

/// Maximum number of nested repositories in one tree.
const MAX_NESTED: usize = 1000;
/// Lists `.git` below the top directory. Before `find` enters a directory, it makes it readable.
#[rustfmt::skip]
const FIND: [&str; 32] = [
    "find", ".",
    "(", "-type", "d", "!", "-perm", "-u=rx", "-exec", "chmod", "u+rx", "{}", ";", ")", ",",
    "(", "-type", "f", "!", "-perm", "-u=r", "-exec", "chmod", "u+r", "{}", "+", ")", ",",
    "-path", "./*/.git", "-prune", "-print0",
];
/// Maximum number of bytes of paths in the arguments of one command.
const MAX_ARGUMENTS: usize = 64 * 1024;

impl Inside<'_> {
    /// Adds everything in the tree to the index. Returns the directories of nested repositories
    /// whose files were added as plain files.
    pub(super) async fn add_all(&self, repository: Repository) -> Result<Vec<String>> {
        let nested = self.nested(repository).await?;
        if nested.is_empty() {
            self.git(repository, &["add", "--all"]).await?;
            return Ok(nested);
        }
        let others: Vec<String> =
            nested.iter().map(|directory| format!(":(exclude,literal){directory}")).collect();
        let mut words = vec!["add", "--all", "--", "."];
        words.extend(others.iter().map(String::as_str));
        self.git(repository, &words).await?;
        for directory in &nested {
            self.add_files(repository, directory).await?;
        }
        Ok(nested)
    }

    /// Returns the directories of nested repositories, outer ones first. Ignored directories and
    /// submodules of the base commit are left out. Makes files and directories readable for their
    /// owner, because git fails if it cannot read a file that it adds.
    async fn nested(&self, repository: Repository) -> Result<Vec<String>> {
        let found = self.program(repository, &FIND).await?;
        let mut nested: BTreeSet<String> = directories_of(&found).collect();
        if nested.is_empty() {
            return Ok(Vec::new());
        }
        if nested.len() > MAX_NESTED {
            let message = format!("the tree contains more than {MAX_NESTED} git repositories");
            return Err(SnapshotError::failed(ErrorKind::TooLarge, message));
        }
        for directories in chunks(&nested.clone()) {
            let ignored = ["git", "-c", "core.quotePath=false", "check-ignore", "--"];
            let ignored = self.program_or_empty(repository, &ignored, &directories).await?;
            let base = ["git", "ls-tree", "-z", self.base.as_str(), "--"];
            let submodules = self.program_or_empty(repository, &base, &directories).await?;
            let submodules = submodules.split('\0').filter_map(|line| {
                let (entry, path) = line.split_once('\t')?;
                entry.starts_with("160000 ").then_some(path)
            });
            for path in ignored.lines().chain(submodules) {
                nested.remove(path.trim_start_matches("./"));
            }
        }
        Ok(nested.into_iter().collect())
    }

    /// Adds the files that a nested repository tracks or does not ignore. Removes files from the
    /// index that no longer exist.
    async fn add_files(&self, repository: Repository, directory: &str) -> Result<()> {
        let listed = self
            .git_of_nested(
                directory,
                &["ls-files", "--cached", "--others", "--exclude-standard", "-z"],
            )
            .await?;
        let here = listed.split('\0').filter(|path| !path.is_empty() && !path.ends_with('/'));
        let mut files: BTreeSet<String> = here.map(|path| format!("{directory}/{path}")).collect();
        let below = format!(":(literal){directory}");
        let known = self.git(repository, &["ls-files", "-z", "--", &below]).await?;
        files.extend(known.split('\0').filter(|path| !path.is_empty()).map(str::to_owned));
        // The agent may have committed the link itself. Remove it from the index.
        if files.remove(directory) {
            self.git(repository, &["update-index", "--force-remove", "--", directory]).await?;
        }
        for files in chunks(&files) {
            let mut words = vec!["update-index", "--add", "--remove", "--"];
            words.extend(files.iter().copied());
            self.git(repository, &words).await?;
        }
        Ok(())
    }
}

/// Returns the directories that contain the `.git` entries that `find` printed.
fn directories_of(found: &str) -> impl Iterator<Item = String> {
    let parents = found.split('\0').filter_map(|path| path.strip_suffix("/.git"));
    parents.map(|path| path.strip_prefix("./").unwrap_or(path).to_owned())
}

/// Splits the paths into lists that fit into the arguments of one command.
fn chunks(paths: &BTreeSet<String>) -> Vec<Vec<&str>> {
    let mut chunks: Vec<Vec<&str>> = Vec::new();
    let mut bytes = MAX_ARGUMENTS;
    for path in paths {
        bytes += path.len() + 1;
        if bytes > MAX_ARGUMENTS {
            chunks.push(Vec::new());
            bytes = path.len() + 1;
        }
        if let Some(last) = chunks.last_mut() {
            last.push(path);
        }
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_divided_by_their_length() {
        let long = "x".repeat(MAX_ARGUMENTS / 2);
        let paths: BTreeSet<String> = ["a", "b", "c"].map(|name| format!("{name}{long}")).into();
        assert_eq!(chunks(&paths).iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1]);
        assert_eq!(chunks(&["a".to_owned(), "b".to_owned()].into()), [["a", "b"]]);
        assert!(chunks(&BTreeSet::new()).is_empty());
    }

    #[test]
    fn directories_are_relative_to_the_tree() {
        let found: Vec<String> = directories_of("./sub/.git\0./a/b c/.git\0").collect();
        assert_eq!(found, ["sub", "a/b c"]);
    }
}
