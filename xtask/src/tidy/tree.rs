//! The files of this repository, committed or not yet committed.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::workspace;

#[derive(Debug)]
pub(crate) struct Tree {
    root: PathBuf,
    paths: BTreeSet<String>,
}

impl Tree {
    /// Lists the repository that this crate belongs to.
    pub(crate) fn load() -> Tree {
        let root = workspace::root();
        // A checkout in a container often belongs to another user, and git would refuse to read it.
        let output = Command::new("git")
            .args(["-c", "safe.directory=*", "ls-files", "-z"])
            .args(["--cached", "--others", "--exclude-standard"])
            .current_dir(&root)
            .output()
            .expect("run git ls-files");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "run git ls-files: {complaint}");
        let list = String::from_utf8(output.stdout).expect("paths of the repository are UTF-8");
        // The index still lists files that were deleted but not committed.
        let is_file =
            |path: &&str| fs::symlink_metadata(root.join(path)).is_ok_and(|found| found.is_file());
        let paths = list.split_terminator('\0').filter(is_file).map(str::to_owned).collect();
        Tree { root, paths }
    }

    pub(crate) fn paths(&self) -> &BTreeSet<String> {
        &self.paths
    }

    /// The text of a listed file; `None` if it is not listed or not text.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        if !self.paths.contains(path) {
            return None;
        }
        let bytes = fs::read(self.root.join(path)).ok()?;
        if bytes.contains(&0) {
            return None;
        }
        String::from_utf8(bytes).ok()
    }

    /// All text files with their text.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, String)> {
        self.paths.iter().filter_map(|path| Some((path.as_str(), self.text(path)?)))
    }

    /// All Rust files with their text.
    pub(crate) fn sources(&self) -> impl Iterator<Item = (&str, String)> {
        self.texts().filter(|(path, _)| path.ends_with(".rs"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_holds_this_file_and_no_build_output() {
        let tree = Tree::load();
        assert!(tree.text("xtask/src/tidy/tree.rs").unwrap().starts_with("//! The files"));
        assert!(tree.sources().all(|(path, _)| !path.starts_with("target/")));
        assert_eq!(tree.text("no/such/file"), None);
    }
}
