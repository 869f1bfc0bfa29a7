//! Which path an open file has now: renames take it along, and a file that was replaced or removed
//! has none. Versions go by paths, so that a handle and a name that mean the same file agree, and
//! others are left alone. Only what goes through this connection is known here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

#[derive(Debug, Default)]
pub(super) struct Whereabouts {
    open: Mutex<Vec<Weak<Whereabout>>>,
}

/// Where one open file is.
#[derive(Debug)]
pub(super) struct Whereabout {
    real: Mutex<String>,
}

impl Whereabout {
    pub(super) fn real(&self) -> String {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, String> {
        self.real.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Whereabouts {
    pub(super) fn opened(&self, real: String) -> Arc<Whereabout> {
        let whereabout = Arc::new(Whereabout { real: Mutex::new(real) });
        let mut open = self.lock();
        open.retain(|other| other.strong_count() > 0);
        open.push(Arc::downgrade(&whereabout));
        whereabout
    }

    /// Something else is at a path now, or nothing.
    pub(super) fn gone(&self, real: &str) {
        for other in self.living() {
            let mut at = other.lock();
            if below(&at, real).is_some() {
                // No path has such a name, and no other file either.
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

    fn living(&self) -> Vec<Arc<Whereabout>> {
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Whereabout>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is left of a path below another, with the slash in front; empty if they are the same.
fn below<'a>(path: &'a str, base: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(base)?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renames_take_files_along() {
        let all = Whereabouts::default();
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
