//! The sample repository: a small project with one commit, for a first task.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The name of the branch with the one commit.
pub(super) const BRANCH: &str = "main";

/// The files of the repository: name, mode and content of each.
const FILES: &[(&str, u32, &str)] = &[
    ("README.md", 0o644, include_str!("sample/README.md")),
    ("words", 0o755, include_str!("sample/words")),
    ("test.sh", 0o755, include_str!("sample/test.sh")),
];

/// Makes the repository unless it exists. A repository that a task has changed is kept.
pub(super) fn make(directory: &Path) -> Result<()> {
    if directory.exists() {
        return Ok(());
    }
    // Make the repository under another name and rename it at the end, so that an interrupt leaves
    // no incomplete repository.
    let unfinished = directory.with_extension("unfinished");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished)
            .with_context(|| format!("remove {}", unfinished.display()))?;
    }
    fs::create_dir_all(&unfinished).with_context(|| format!("create {}", unfinished.display()))?;
    for (name, mode, content) in FILES {
        let path = unfinished.join(name);
        fs::write(&path, content)
            .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(*mode)))
            .with_context(|| format!("write {}", path.display()))?;
    }
    git(&unfinished, &["init", "--quiet", "--initial-branch", BRANCH])?;
    git(&unfinished, &["add", "--all"])?;
    git(&unfinished, &["commit", "--quiet", "--message", "Count words"])?;
    fs::rename(&unfinished, directory).with_context(|| format!("create {}", directory.display()))
}

/// The branches of the repository.
pub(super) fn branches(directory: &Path) -> Result<Vec<String>> {
    let listed = git(directory, &["for-each-ref", "--format=%(refname:short)", "refs/heads"])?;
    Ok(listed.lines().map(str::to_owned).collect())
}

/// Runs git without the user's settings, which may sign commits or run hooks.
pub(super) fn git(directory: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .current_dir(directory)
        .args(["-c", "user.name=Sample", "-c", "user.email=sample@example.com"])
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .context("start git, which sessions need too")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {}", arguments.join(" "), errors.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn the_sample_has_one_commit_and_passes_its_tests() {
        let scratch = Scratch::new("xtask-sample").unwrap();
        let sample = scratch.path().join("sample");
        make(&sample).unwrap();
        assert_eq!(branches(&sample).unwrap(), [BRANCH]);
        assert_eq!(git(&sample, &["rev-list", "--count", "HEAD"]).unwrap(), "1\n");
        assert_eq!(git(&sample, &["status", "--porcelain"]).unwrap(), "");
        let tested = Command::new("sh").arg(sample.join("test.sh")).output().unwrap();
        assert_eq!(tested.stdout, b"all tests pass\n", "{tested:?}");
    }

    #[test]
    fn a_sample_that_is_there_is_kept() {
        let scratch = Scratch::new("xtask-sample").unwrap();
        let sample = scratch.path().join("sample");
        make(&sample).unwrap();
        fs::write(sample.join("README.md"), "changed").unwrap();
        make(&sample).unwrap();
        assert_eq!(fs::read(sample.join("README.md")).unwrap(), b"changed");
    }

    #[test]
    fn git_errors_are_told() {
        let scratch = Scratch::new("xtask-sample").unwrap();
        let error = git(scratch.path(), &["rev-parse", "HEAD"]).unwrap_err();
        assert!(error.to_string().contains("not a git repository"), "{error}");
    }
}
