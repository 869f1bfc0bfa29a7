//! Room that is kept for a full disk: a file in the data directory that is made shorter when a
//! change must be stored and there is no other room.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const NAME: &str = "reserve";
const PRIVATE_FILE: u32 = 0o600;
/// The size of the file. The changes that end one session need about a tenth of it.
const SIZE: u64 = 1024 * 1024;
/// How much is given back at once. Another process can take the room before it is used.
const PART: u64 = SIZE / 4;
/// How much is occupied at once. If less is free, it stays free.
const STEP: usize = 64 * 1024;
/// How long to wait before another attempt to occupy what is missing.
const RETRY: Duration = Duration::from_secs(1);

/// The reserved room of a data directory.
#[derive(Debug)]
pub(crate) struct DiskReserve {
    path: PathBuf,
    bytes: u64,
    /// When the last attempt to fill the reserve was made.
    filled: Option<Instant>,
}

impl DiskReserve {
    /// Gives back all room of the directory, for the start of a server. [`fill`](Self::fill)
    /// occupies it again.
    pub(crate) fn released(data_dir: &Path) -> Self {
        let reserve = Self { path: data_dir.join(NAME), bytes: 0, filled: None };
        // The file may be missing. If it cannot be made shorter, its room is of no use.
        let _ = reserve.resize(0);
        reserve
    }

    /// Gives back a part of the room. Returns `false` if there is none left.
    pub(crate) fn release(&mut self) -> bool {
        if self.bytes == 0 {
            return false;
        }
        let less = self.bytes.saturating_sub(PART);
        if let Err(error) = self.resize(less) {
            tracing::warn!(%error, "cannot use the room that is reserved for a full disk");
            self.bytes = 0;
            return false;
        }
        self.bytes = less;
        true
    }

    /// Occupies the room that is missing, as far as the disk has it. Does nothing if the last
    /// attempt was a moment ago.
    pub(crate) fn fill(&mut self) {
        let is_early = self.filled.is_some_and(|at| at.elapsed() < RETRY);
        if self.bytes < SIZE && !is_early {
            self.filled = Some(Instant::now());
            if let Err(error) = self.extend() {
                tracing::debug!(%error, bytes = self.bytes, "the disk has no room to reserve");
            }
        }
    }

    fn extend(&mut self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.create(true).append(true).mode(PRIVATE_FILE).open(&self.path)?;
        // A file system that compresses its files must not store less than this.
        let mut step = vec![0; STEP];
        getrandom::fill(&mut step).map_err(io::Error::other)?;
        file.set_len(self.bytes)?;
        while self.bytes < SIZE {
            if let Err(error) = file.write_all(&step) {
                file.set_len(self.bytes)?;
                return Err(error);
            }
            self.bytes += STEP as u64;
        }
        Ok(())
    }

    fn resize(&self, bytes: u64) -> io::Result<()> {
        let file: File = OpenOptions::new().write(true).open(&self.path)?;
        file.set_len(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn reserve_is_given_back_in_parts_and_occupied_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = || fs::metadata(dir.path().join(NAME)).unwrap();
        let mut reserve = DiskReserve::released(dir.path());
        assert!(!reserve.release(), "there is none yet");
        reserve.fill();
        assert_eq!((file().len(), file().permissions().mode() & 0o777), (SIZE, PRIVATE_FILE));
        let mut parts = 0;
        while reserve.release() {
            parts += 1;
        }
        assert_eq!((parts, file().len()), (4, 0));
        reserve.fill();
        assert_eq!(file().len(), 0, "the last attempt was a moment ago");
        let mut reserve = DiskReserve::released(dir.path());
        reserve.fill();
        assert_eq!(file().len(), SIZE);
    }
}
