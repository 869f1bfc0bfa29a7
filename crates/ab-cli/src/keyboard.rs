//! Lines that the user types.

use std::io::{self, BufRead};
use std::thread;

use tokio::sync::mpsc;

/// Lines of standard input, read by a thread of its own: nothing waits for it when the process ends. The channel closes
/// at the end of the input.
pub(crate) fn lines() -> mpsc::Receiver<io::Result<String>> {
    let (sender, receiver) = mpsc::channel(1);
    let read = move || {
        for line in io::stdin().lock().lines() {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    };
    // Without a thread the channel closes: there is no input.
    drop(thread::Builder::new().name("keyboard".to_owned()).spawn(read));
    receiver
}
