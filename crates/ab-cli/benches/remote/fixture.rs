//! Files for all servers, in memory where there is a place for that: disks are not what is measured.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

pub(crate) const SMALL: &str = "1k.txt";
pub(crate) const LARGE: &str = "10m.bin";
/// What OpenSSH's client gets and puts.
pub(crate) const HUGE: &str = "1g.bin";
pub(crate) const HUGE_SIZE: usize = 1 << 30;

const MEMORY: &str = "/dev/shm";

#[derive(Debug)]
pub(crate) struct Fixture {
    keep: TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Fixture {
        let keep = if Path::new(MEMORY).is_dir() {
            tempfile::tempdir_in(MEMORY)
        } else {
            tempfile::tempdir()
        };
        let fixture = Fixture { keep: keep.unwrap() };
        fs::create_dir(fixture.root()).unwrap();
        for (name, size) in [(SMALL, 1 << 10), (LARGE, 10 << 20), (HUGE, HUGE_SIZE)] {
            fs::write(fixture.root().join(name), noise(size)).unwrap();
        }
        fixture
    }

    /// What is served.
    pub(crate) fn root(&self) -> PathBuf {
        self.beside("workspace")
    }

    /// What is not: keys, and what clients have.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.keep.path().join(name)
    }
}

/// Letters without an order that matters.
fn noise(length: usize) -> Vec<u8> {
    let piece: Vec<u8> = (0..1 << 16)
        .map(|n: u32| b'a' + (n.wrapping_mul(2_654_435_761) >> 24) as u8 % 26)
        .collect();
    let mut bytes = piece.repeat(length.div_ceil(piece.len()));
    bytes.truncate(length);
    bytes
}
