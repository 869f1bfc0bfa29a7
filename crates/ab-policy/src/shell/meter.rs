//! Counts the work for one command line, so that it can be limited.

use std::cell::Cell;

/// Maximum work for one command line. One unit is about one copied or examined byte. A command
/// costs hundreds of units. An ordinary script of one mebibyte takes a few million units.
pub(crate) const MAX_WORK: usize = 24_000_000;

/// The work done so far for a command line and everything nested in it.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    spent: Cell<usize>,
}

impl Meter {
    /// Adds work. Returns `false` if the limit is exceeded.
    pub(crate) fn spend(&self, units: usize) -> bool {
        self.spent.set(self.spent.get().saturating_add(units));
        self.spent.get() <= MAX_WORK
    }

    pub(crate) fn spent(&self) -> usize {
        self.spent.get()
    }
}
