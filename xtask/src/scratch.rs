//! A temporary directory that is removed when the value is dropped.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Creates a new empty directory in the system's directory for temporary files.
    pub(crate) fn new(name: &str) -> Result<Scratch> {
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        let path = env::temp_dir().join(format!("{name}-{}-{nanos}", process::id()));
        fs::create_dir(&path).with_context(|| format!("create directory {}", path.display()))?;
        Ok(Scratch { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.path) {
            eprintln!("xtask: remove directory {}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scratch_takes_its_content_along() {
        let scratch = Scratch::new("xtask-scratch").unwrap();
        let path = scratch.path().to_owned();
        fs::create_dir(path.join("deep")).unwrap();
        fs::write(path.join("deep/file"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
