//! The workspace that all servers serve.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

/// What `search_files` looks for: one file in a hundred.
pub(crate) const SEARCHED: &str = "**/file77.txt";
/// What `grep` looks for: one file in a hundred has it.
pub(crate) const NEEDLE: &str = "needle in a haystack";
pub(crate) const FILE: &str = "1k.txt";
pub(crate) const PICTURE: &str = "10m.png";

#[derive(Debug)]
pub(crate) struct Fixture {
    keep: TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Fixture {
        let fixture = Fixture { keep: tempfile::tempdir().unwrap() };
        let root = fixture.root();
        fs::write(root.join(FILE), line(1024)).unwrap();
        let bytes: Vec<u8> = (0..10 << 20).map(|n: u32| (n ^ (n >> 8)) as u8).collect();
        fs::write(root.join(PICTURE), bytes).unwrap();
        fill(&root.join("1000"), 10);
        fill(&root.join("10000"), 100);
        fixture
    }

    pub(crate) fn root(&self) -> &Path {
        self.keep.path()
    }
}

/// Directories of a hundred files each.
fn fill(directory: &Path, directories: usize) {
    for d in 0..directories {
        let directory = directory.join(format!("directory{d:02}"));
        fs::create_dir_all(&directory).unwrap();
        for f in 0..100 {
            let mut text = line(200).repeat(5);
            if f == 42 {
                text.push_str(NEEDLE);
                text.push('\n');
            }
            fs::write(directory.join(format!("file{f:02}.txt")), text).unwrap();
        }
    }
}

/// A line of this many bytes.
fn line(length: usize) -> String {
    let words = "the quick brown fox jumps over the lazy dog ".repeat(length / 44 + 1);
    format!("{}\n", &words[..length - 1])
}

/// Text of this many bytes, in lines of 64.
pub(crate) fn text(length: usize) -> String {
    line(64).repeat(length / 64)
}
