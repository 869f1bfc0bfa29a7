//! Writes whole lines of a journal to a writer and counts failures.

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

pub(super) struct Sink {
    writer: Mutex<Box<dyn Write + Send>>,
    lost: AtomicU64,
}

impl Sink {
    pub(super) fn new(writer: impl Write + Send + 'static) -> Self {
        Self { writer: Mutex::new(Box::new(writer)), lost: AtomicU64::new(0) }
    }

    /// Writes one line with a single write. A line that cannot be written is only counted, because
    /// a journal must not make the call fail that it records.
    pub(super) fn line(&self, mut line: String) {
        line.push('\n');
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.write_all(line.as_bytes()).and_then(|()| writer.flush()).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("lost", &self.lost()).finish_non_exhaustive()
    }
}
