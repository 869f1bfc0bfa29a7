//! A journal for people: one line for each call.

use std::fmt::Write as _;
use std::io::Write;

use ab_core::error::escape_unprintable;
use ab_core::journal::{JournalRecord, JournalWriter};
use jiff::Timestamp;

use super::sink::Sink;

/// Writes lines such as `12:01:07.123 ada write src/app.py ok 15 B 0.2 ms`.
#[derive(Debug)]
pub struct ConsoleJournalWriter(Sink);

impl ConsoleJournalWriter {
    pub fn stderr() -> Self {
        Self::new(std::io::stderr())
    }

    pub fn new(writer: impl Write + Send + 'static) -> Self {
        Self(Sink::new(writer))
    }

    /// The number of lines that could not be written.
    pub fn lost_line_count(&self) -> u64 {
        self.0.lost()
    }
}

impl JournalWriter for ConsoleJournalWriter {
    fn write(&self, record: &JournalRecord) {
        self.0.line(line(record));
    }
}

fn line(record: &JournalRecord) -> String {
    let time = Timestamp::try_from(record.at)
        .map(|at| at.strftime("%H:%M:%S%.3f").to_string())
        .unwrap_or_default();
    let mut line = format!("{time} {} {}", escape_unprintable(&record.actor), record.verb);
    if let Some(workspace) = &record.workspace {
        let _ = write!(line, " [{}]", escape_unprintable(workspace));
    }
    for part in [&record.command, &record.path].into_iter().flatten() {
        let _ = write!(line, " {}", escape_unprintable(part));
    }
    if let Some(to) = &record.to {
        let _ = write!(line, " -> {}", escape_unprintable(to));
    }
    match (&record.failure, record.exit_code) {
        (Some(failure), _) => {
            let code = failure.code.map_or("CANCELLED", |code| code.as_str());
            let _ = write!(line, " {code}: {}", escape_unprintable(&failure.message));
        }
        (None, Some(code)) => {
            let _ = write!(line, " exit {code}");
        }
        (None, None) => line.push_str(" ok"),
    }
    if record.bytes > 0 {
        let _ = write!(line, " {} B", record.bytes);
    }
    let _ = write!(line, " {:.1} ms", record.duration.as_secs_f64() * 1000.0);
    line
}
