//! Texts that passed a check lately.
//!
//! For checks that look at nothing but the texts they are given, and so need not look twice: the same
//! command is run again and again, and to read its line takes longer than most of what comes between
//! a request and the start.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many are remembered.
const KEPT: usize = 32;
/// Bytes of one that is remembered, at most.
const LONGEST: usize = 16 * 1024;

/// What passed, each of it some texts in their order. Only what passed is remembered: a refusal has
/// more to say than no.
#[derive(Debug, Default)]
pub struct PassedCheckCache {
    kept: Mutex<VecDeque<Box<[Box<str>]>>>,
}

impl PassedCheckCache {
    /// Whether exactly these passed, and not too many others since.
    pub fn contains<'a>(&self, texts: impl Iterator<Item = &'a str> + Clone) -> bool {
        self.lock().iter().any(|kept| kept.iter().map(|text| &**text).eq(texts.clone()))
    }

    /// These have passed.
    pub fn insert<'a>(&self, texts: impl Iterator<Item = &'a str> + Clone) {
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
        passed.insert(["ls", "a"].into_iter());
        assert!(passed.contains(["ls", "a"].into_iter()));
        for others in [&["ls"][..], &["a", "ls"], &["lsa"], &["ls", "a", ""], &["l", "sa"], &[]] {
            assert!(!passed.contains(others.iter().copied()), "{others:?}");
        }
    }

    #[test]
    fn the_oldest_is_forgotten_and_the_long_never_known() {
        let passed = PassedCheckCache::default();
        let lines: Vec<String> = (0..=KEPT).map(|n| format!("echo {n}")).collect();
        for line in &lines {
            passed.insert([line.as_str()].into_iter());
        }
        let known = |line: &String| passed.contains([line.as_str()].into_iter());
        assert!(!known(&lines[0]));
        assert!(lines[1..].iter().all(known));
        let long = "x".repeat(LONGEST + 1);
        passed.insert([long.as_str()].into_iter());
        assert!(!known(&long));
        assert!(known(&lines[1]));
    }
}
