//! Tracks the current path of each open file. A rename changes the path. A file that was replaced
//! or removed has no path. This is needed so that an open file has the same version as its path,
//! because file versions depend on paths. Only changes through this connection are tracked.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

#[derive(Debug, Default)]
pub(super) struct OpenFilePaths {
    open: Mutex<Vec<Weak<OpenFilePath>>>,
}

/// The current path of one open file.
#[derive(Debug)]
pub(super) struct OpenFilePath {
    real: Mutex<String>,
}

impl OpenFilePath {
    pub(super) fn real(&self) -> String {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, String> {
        self.real.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenFilePaths {
    pub(super) fn opened(&self, real: String) -> Arc<OpenFilePath> {
        let open_file_path = Arc::new(OpenFilePath { real: Mutex::new(real) });
        let mut open = self.lock();
        open.retain(|other| other.strong_count() > 0);
        open.push(Arc::downgrade(&open_file_path));
        open_file_path
    }

    /// Records that the file at a path was replaced or removed.
    pub(super) fn gone(&self, real: &str) {
        for other in self.living() {
            let mut at = other.lock();
            if below(&at, real).is_some() {
                // The file gets a name that no path has. Paths contain no NUL, and the address is
                // unique.
                *at = format!("\0{:p}", Arc::as_ptr(&other));
            }
        }
    }

    pub(super) fn moved(&self, from: &str, to: &str) {
        self.gone(to);
        for other in self.living() {
            let mut at = other.lock();
            if let Some(rest) = below(&at, from) {
                *at = format!("{to}{rest}");
            }
        }
    }

    fn living(&self) -> Vec<Arc<OpenFilePath>> {
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<OpenFilePath>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The rest of `path` below `base`, with its leading slash. Empty if they are equal.
fn below<'a>(path: &'a str, base: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(base)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renames_take_files_along() {
        let all = OpenFilePaths::default();
        let (file, other) = (all.opened("a/file".into()), all.opened("ab".into()));
        all.moved("a", "b/c");
        assert_eq!((file.real(), other.real()), ("b/c/file".into(), "ab".into()));
        all.moved("ab", "b/c/file");
        assert_eq!(other.real(), "b/c/file");
        assert!(file.real().starts_with('\0'));
        all.gone("b");
        assert!(other.real().starts_with('\0'));
        assert_ne!(file.real(), other.real());
    }
}
