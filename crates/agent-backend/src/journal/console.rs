//! A journal for people: one line for each call.

use std::fmt::Write as _;
use std::io::Write;

use ab_core::error::printable;
use ab_core::journal::{JournalRecord, JournalWriter};
use jiff::Timestamp;

use super::sink::Sink;

/// Writes lines such as `12:01:07.123 ada write src/app.py ok 15 B 0.2 ms`.
#[derive(Debug)]
pub struct ConsoleWriter(Sink);

impl ConsoleWriter {
    pub fn stderr() -> Self {
        Self::to(std::io::stderr())
    }

    pub fn to(writer: impl Write + Send + 'static) -> Self {
        Self(Sink::new(writer))
    }

    /// Lines that could not be written.
    pub fn lost_lines(&self) -> u64 {
        self.0.lost()
    }
}

impl JournalWriter for ConsoleWriter {
    fn write(&self, record: &JournalRecord) {
        self.0.line(line(record));
    }
}

fn line(record: &JournalRecord) -> String {
    let time = Timestamp::try_from(record.at)
        .map(|at| at.strftime("%H:%M:%S%.3f").to_string())
        .unwrap_or_default();
    let mut line = format!("{time} {} {}", printable(&record.actor), record.verb);
    if let Some(workspace) = &record.workspace {
        let _ = write!(line, " [{}]", printable(workspace));
    }
    for part in [&record.command, &record.path].into_iter().flatten() {
        let _ = write!(line, " {}", printable(part));
    }
    if let Some(to) = &record.to {
        let _ = write!(line, " -> {}", printable(to));
    }
    match (&record.failure, record.exit_code) {
        (Some(failure), _) => {
            let code = failure.code.map_or("CANCELLED", |code| code.as_str());
            let _ = write!(line, " {code}: {}", printable(&failure.message));
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
