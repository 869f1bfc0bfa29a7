//! File versions for a server that has no versions.
//!
//! SFTP reports only sizes, and times in whole seconds. They cannot distinguish two writes in the
//! same second. Therefore every change through this connection stores a new number (a mark) for its
//! path. A version is a digest of the size, the time and the marks of all directories from the root
//! down. A change by another client is detected if it changes the size or the second. Versions are
//! valid for one connection only. On the next connection every file has a new version.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ab_core::metadata::FileVersion;
use aws_lc_rs::digest::{Context, SHA256};

use crate::sftp::SftpAttributes;

/// Maximum number of paths with marks. When another mark would exceed this number, all marks are
/// cleared and every file gets a new version.
const MOST: usize = 65_536;

#[derive(Debug)]
pub(super) struct Marks {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// A random value that is part of each version, so that it differs from versions of other
    /// connections, and from versions before the marks were cleared.
    epoch: [u8; 16],
    next: u64,
    of: HashMap<String, u64>,
}

impl Default for Marks {
    fn default() -> Self {
        let state = State { epoch: epoch(0), next: 1, of: HashMap::new() };
        Self { state: Mutex::new(state) }
    }
}

impl Marks {
    /// Gives a new version to the file at a path and everything below it.
    pub(super) fn change(&self, real: &str) {
        let mut state = self.lock();
        let mark = state.next;
        state.next += 1;
        if state.of.len() >= MOST && !state.of.contains_key(real) {
            state.of.clear();
            state.epoch = epoch(mark);
        }
        state.of.insert(real.to_owned(), mark);
    }

    /// The current version of the file at a path. `attributes` come from the server.
    pub(super) fn version(&self, real: &str, attributes: &SftpAttributes) -> FileVersion {
        let mut context = Context::new(&SHA256);
        let mut number = |value: u64| context.update(&value.to_be_bytes());
        number(attributes.size.unwrap_or(0));
        number(attributes.times.map_or(0, |times| times.1).into());
        number((attributes.mode.unwrap_or(0) & 0o170_000).into());
        let state = self.lock();
        // Include the path, because files that moved together with their directory have no marks of
        // their own.
        number(real.len() as u64);
        context.update(real.as_bytes());
        let mut number = |value: u64| context.update(&value.to_be_bytes());
        let ends = real.match_indices('/').map(|(end, _)| end).chain([real.len()]);
        for end in ends {
            if let Some(mark) = state.of.get(&real[..end]) {
                number(end as u64);
                number(*mark);
            }
        }
        context.update(&state.epoch);
        drop(state);
        let digest = context.finish();
        let mut value = [0; 16];
        value.copy_from_slice(&digest.as_ref()[..16]);
        FileVersion::new(u128::from_be_bytes(value))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn epoch(mark: u64) -> [u8; 16] {
    let mut epoch = [0; 16];
    if getrandom::fill(&mut epoch).is_err() {
        // Even if no random numbers are available, `mark` distinguishes this value from earlier
        // ones.
        epoch[..8].copy_from_slice(&mark.to_be_bytes());
    }
    epoch
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(size: u64, seconds: u32) -> SftpAttributes {
        SftpAttributes { size: Some(size), times: Some((0, seconds)), ..SftpAttributes::default() }
    }

    #[test]
    fn every_change_is_another_version() {
        let marks = Marks::default();
        let same = attributes(4, 1000);
        let before = marks.version("dir/file", &same);
        assert_eq!(marks.version("dir/file", &same), before);
        assert_ne!(marks.version("dir/file", &attributes(5, 1000)), before);
        assert_ne!(marks.version("dir/file", &attributes(4, 1001)), before);
        marks.change("dir/other");
        marks.change("dir/file/below");
        marks.change("di");
        assert_eq!(marks.version("dir/file", &same), before);
        let mut seen = vec![before];
        for changed in ["dir/file", "dir", "dir/file", "dir"] {
            marks.change(changed);
            let version = marks.version("dir/file", &same);
            assert!(!seen.contains(&version), "after {changed}");
            seen.push(version);
        }
    }

    #[test]
    fn memory_is_bounded_and_no_version_comes_back() {
        let marks = Marks::default();
        let same = attributes(4, 1000);
        let unmarked = marks.version("quiet", &same);
        for number in 0..MOST + 10 {
            marks.change(&format!("file{number}"));
        }
        assert!(marks.lock().of.len() <= MOST);
        assert_ne!(marks.version("quiet", &same), unmarked);
    }
}
