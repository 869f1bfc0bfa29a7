//! Counts the work on one command line, so that it can be bounded.

use std::cell::Cell;

/// Maximum work on one command line. A unit is about one byte copied or examined; a command costs
/// hundreds. An ordinary script of one mebibyte takes a few million.
pub(crate) const MAX_WORK: usize = 24_000_000;

/// The work done so far on a command line and everything in it.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    spent: Cell<usize>,
}

impl Meter {
    /// Counts work. Returns whether the limit still allows more.
    pub(crate) fn spend(&self, units: usize) -> bool {
        self.spent.set(self.spent.get().saturating_add(units));
        self.spent.get() <= MAX_WORK
    }

    pub(crate) fn spent(&self) -> usize {
        self.spent.get()
    }
}
