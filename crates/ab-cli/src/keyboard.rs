//! Reads lines that the user types.

use std::io::{self, BufRead};
use std::thread;
use std::time::Instant;

use tokio::sync::mpsc;

/// Maximum number of lines that are buffered.
const WAITING_LINES: usize = 64;

/// Drops what was typed at the terminal and not read yet. Other input is kept.
pub(crate) fn discard_typed() {
    // This fails if the input is not a terminal.
    let _ = rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
}

/// Reads standard input line by line.
pub(crate) struct Keyboard {
    lines: mpsc::Receiver<(Instant, io::Result<String>)>,
    /// Lines that were read before this time are dropped.
    not_before: Instant,
}

impl Keyboard {
    /// Starts a thread that reads lines. The process does not wait for the thread when it exits.
    pub(crate) fn open() -> Self {
        // Lines that are typed before the first prompt are not dropped.
        let not_before = Instant::now();
        let (sender, lines) = mpsc::channel(WAITING_LINES);
        let read = move || {
            for line in io::stdin().lock().lines() {
                if sender.blocking_send((Instant::now(), line)).is_err() {
                    return;
                }
            }
        };
        // If the thread cannot be started, the channel closes and there is no input.
        drop(thread::Builder::new().name("keyboard".to_owned()).spawn(read));
        Self { lines, not_before }
    }

    /// Drops everything that was typed so far. Call this before a question is shown, because input
    /// from before the question is not an answer to it.
    pub(crate) fn forget(&mut self) {
        discard_typed();
        self.not_before = Instant::now();
    }

    /// Waits for the next line. `None` at EOF.
    pub(crate) async fn next(&mut self) -> Option<io::Result<String>> {
        loop {
            match self.lines.recv().await {
                Some((at, _)) if at < self.not_before => {}
                Some((_, line)) => return Some(line),
                None => return None,
            }
        }
    }
}
