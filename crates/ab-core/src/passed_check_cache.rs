//! A cache of texts that have passed a check.
//!
//! The result of the check must depend only on the checked texts. The cache is useful because
//! agents run the same command many times, and parsing a command line is one of the slowest steps
//! before the start of a command.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of entries.
const KEPT: usize = 32;
/// Maximum number of bytes of one entry.
const LONGEST: usize = 16 * 1024;

/// Texts that have passed a check. Each entry is a list of texts. Refusals are not cached, because
/// they contain an error.
#[derive(Debug, Default)]
pub struct PassedCheckCache {
    kept: Mutex<VecDeque<Box<[Box<str>]>>>,
}

impl PassedCheckCache {
    /// Whether exactly these texts passed and are still cached.
    pub fn has_passed<'a>(&self, texts: impl Iterator<Item = &'a str> + Clone) -> bool {
        self.lock().iter().any(|kept| kept.iter().map(|text| &**text).eq(texts.clone()))
    }

    /// Records that these texts passed.
    pub fn add_passed<'a>(&self, texts: impl Iterator<Item = &'a str> + Clone) {
        if texts.clone().map(str::len).sum::<usize>() > LONGEST {
            return;
        }
        let texts = texts.map(Box::from).collect();
        let mut kept = self.lock();
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(texts);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Box<[Box<str>]>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_texts_in_the_same_order_have_passed() {
        let passed = PassedCheckCache::default();
        passed.add_passed(["ls", "a"].into_iter());
        assert!(passed.has_passed(["ls", "a"].into_iter()));
        for others in [&["ls"][..], &["a", "ls"], &["lsa"], &["ls", "a", ""], &["l", "sa"], &[]] {
            assert!(!passed.has_passed(others.iter().copied()), "{others:?}");
        }
    }

    #[test]
    fn the_oldest_is_forgotten_and_the_long_never_known() {
        let passed = PassedCheckCache::default();
        let lines: Vec<String> = (0..=KEPT).map(|n| format!("echo {n}")).collect();
        for line in &lines {
            passed.add_passed([line.as_str()].into_iter());
        }
        let known = |line: &String| passed.has_passed([line.as_str()].into_iter());
        assert!(!known(&lines[0]));
        assert!(lines[1..].iter().all(known));
        let long = "x".repeat(LONGEST + 1);
        passed.add_passed([long.as_str()].into_iter());
        assert!(!known(&long));
        assert!(known(&lines[1]));
    }
}
