//! Lines that the user types.

use std::io::{self, BufRead};
use std::thread;
use std::time::Instant;

use tokio::sync::mpsc;

/// Lines that may wait for their reader.
const WAITING_LINES: usize = 64;

/// Standard input, line by line.
pub(crate) struct Keyboard {
    lines: mpsc::Receiver<(Instant, io::Result<String>)>,
    /// Lines that were read before are dropped.
    not_before: Instant,
}

impl Keyboard {
    /// The lines are read by a thread of its own: nothing waits for it when the process ends.
    pub(crate) fn open() -> Self {
        // What is typed ahead of a first prompt counts.
        let not_before = Instant::now();
        let (sender, lines) = mpsc::channel(WAITING_LINES);
        let read = move || {
            for line in io::stdin().lock().lines() {
                if sender.blocking_send((Instant::now(), line)).is_err() {
                    return;
                }
            }
        };
        // Without a thread the channel closes: there is no input.
        drop(thread::Builder::new().name("keyboard".to_owned()).spawn(read));
        Self { lines, not_before }
    }

    /// Drops what was typed until now. Called before a question is shown: what was typed without having seen it is no
    /// answer to it.
    pub(crate) fn forget(&mut self) {
        // Fails where the input is no terminal.
        let _ = rustix::termios::tcflush(io::stdin(), rustix::termios::QueueSelector::IFlush);
        self.not_before = Instant::now();
    }

    /// The next line; none at the end of the input.
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
