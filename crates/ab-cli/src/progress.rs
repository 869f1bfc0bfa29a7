//! Shows the progress of a transfer to a person.
//!
//! Nothing is shown unless standard error is a terminal and the transfer takes a while.

use std::time::{Duration, Instant};

use crate::terminal::{Format, Terminal, talk};

/// Transfers that take less time show no progress.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The time between two updates.
const PACE: Duration = Duration::from_millis(200);
const CLEAR: &str = "\r\u{1b}[K";
const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

/// Whether progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Yes,
    No,
}

impl Wanted {
    /// Whether to show progress: only if the output is text, standard error is a terminal, and
    /// `quiet` is not set.
    pub(crate) fn by(quiet: bool, terminal: &Terminal) -> Wanted {
        let text = terminal.format() == Format::Text;
        if text && !quiet && terminal.is_heard() { Wanted::Yes } else { Wanted::No }
    }
}

#[derive(Debug)]
pub(crate) struct Progress {
    wanted: Wanted,
    total: Option<u64>,
    done: u64,
    begun: Instant,
    shown: Option<Instant>,
}

impl Progress {
    pub(crate) fn new(wanted: Wanted, total: Option<u64>) -> Progress {
        Progress { wanted, total, done: 0, begun: Instant::now(), shown: None }
    }

    pub(crate) fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        if self.wanted == Wanted::No {
            return;
        }
        let now = Instant::now();
        let since = self.shown.map_or(now - self.begun, |shown| now - shown);
        if since >= self.shown.map_or(TIMEOUT, |_| PACE) {
            self.shown = Some(now);
            talk(&format!("{CLEAR}{}", line(self.done, self.total, now - self.begun)));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            talk(CLEAR);
        }
    }
}

fn line(done: u64, total: Option<u64>, time: Duration) -> String {
    let rate = done as f64 / time.as_secs_f64().max(f64::EPSILON);
    let rate = size(rate as u64);
    match total.filter(|total| *total > 0) {
        Some(total) => {
            let percent = done.min(total).saturating_mul(100) / total;
            format!("{percent:>3}%  {} of {}  {rate}/s", size(done), size(total))
        }
        None => format!("{}  {rate}/s", size(done)),
    }
}

/// A number of bytes in the largest unit that fits, for people.
pub(crate) fn size(bytes: u64) -> String {
    let mut unit = 0;
    let mut rest = bytes as f64;
    while rest >= 1024.0 && unit + 1 < UNITS.len() {
        rest /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{bytes} B"),
        _ => format!("{rest:.1} {}", UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_much_how_fast_and_how_far() {
        let second = Duration::from_secs(1);
        for (done, total, expect) in [
            (0, None, "0 B  0 B/s"),
            (1536, None, "1.5 KiB  1.5 KiB/s"),
            (1 << 30, Some(2 << 30), " 50%  1.0 GiB of 2.0 GiB  1.0 GiB/s"),
            (10, Some(5), "100%  10 B of 5 B  10 B/s"),
            (7, Some(0), "7 B  7 B/s"),
        ] {
            assert_eq!(line(done, total, second), expect);
        }
        assert!(line(5, None, Duration::ZERO).starts_with("5 B"));
    }

    #[test]
    fn nothing_is_said_of_what_nobody_waits_for() {
        let mut progress = Progress::new(Wanted::Yes, Some(10));
        progress.advance(10);
        assert_eq!((progress.done, progress.shown), (10, None));
    }
}
