//! Output of a command while it runs: small pieces are joined and stored in the log of the run.
//!
//! The event of the operation has the whole output. The pieces stored here are a prefix of that
//! output, so a reader can show both without repeating anything.

use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ab_core::process::OutputChannel;
use serde_json::json;
use tokio::sync::Notify;

use crate::perform::MAX_OUTPUT_BYTES;
use crate::run_log::RunLog;

/// How long output is collected before it is stored as one record.
const JOINED_FOR: Duration = Duration::from_millis(200);
/// Maximum number of bytes in one record.
const MAX_PIECE_BYTES: usize = 64 * 1024;

/// The output of one operation that is not stored yet.
#[derive(Default)]
pub(crate) struct LiveOutput {
    channels: Mutex<[PendingText; 2]>,
    arrived: Notify,
}

impl LiveOutput {
    /// Buffers output until it is published. Output beyond the limit of the event is dropped.
    pub(crate) fn add(&self, channel: OutputChannel, bytes: &[u8]) {
        self.lock()[index(channel)].add(bytes);
        self.arrived.notify_one();
    }

    /// Stores output as it arrives. The caller drops the future when the operation has ended.
    /// Output that was not stored by then is in the event.
    pub(crate) async fn publish(&self, log: &RunLog, operation_id: &str) -> Infallible {
        loop {
            self.arrived.notified().await;
            tokio::time::sleep(JOINED_FOR).await;
            for (channel, name) in
                [(OutputChannel::Stdout, "stdout"), (OutputChannel::Stderr, "stderr")]
            {
                while let Some(text) = self.take(channel) {
                    let json =
                        json!({ "operationId": operation_id, "channel": name, "text": text });
                    if !log.add_output(json.to_string()).await {
                        return std::future::pending().await;
                    }
                }
            }
        }
    }

    fn take(&self, channel: OutputChannel) -> Option<String> {
        self.lock()[index(channel)].take()
    }

    fn lock(&self) -> MutexGuard<'_, [PendingText; 2]> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn index(channel: OutputChannel) -> usize {
    match channel {
        OutputChannel::Stdout => 0,
        OutputChannel::Stderr => 1,
    }
}

/// Bytes of one channel that are not converted to text yet.
#[derive(Default)]
struct PendingText {
    bytes: Vec<u8>,
    /// Total number of bytes that were added so far.
    total: usize,
}

impl PendingText {
    fn add(&mut self, bytes: &[u8]) {
        let room = MAX_OUTPUT_BYTES - self.total;
        let bytes = &bytes[..bytes.len().min(room)];
        self.bytes.extend_from_slice(bytes);
        self.total += bytes.len();
    }

    /// Takes the next piece of text. An incomplete character at the end stays in the buffer.
    fn take(&mut self) -> Option<String> {
        let piece = &self.bytes[..self.bytes.len().min(MAX_PIECE_BYTES)];
        let length = whole_characters(piece);
        if length == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&piece[..length]).into_owned();
        self.bytes.drain(..length);
        Some(text)
    }
}

/// The length of `bytes` without an incomplete UTF-8 character at its end.
fn whole_characters(bytes: &[u8]) -> usize {
    let last = bytes.len().saturating_sub(3)..bytes.len();
    let Some(start) = last.rev().find(|at| !(0x80..0xC0).contains(&bytes[*at])) else {
        return bytes.len();
    };
    let needed = match bytes[start] {
        0xF0.. => 4,
        0xE0.. => 3,
        0xC0.. => 2,
        _ => 1,
    };
    if bytes.len() - start < needed { start } else { bytes.len() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_are_a_prefix_of_the_whole_text(
            pieces in prop::collection::vec(
                prop_oneof![
                    prop::collection::vec(any::<u8>(), 0..8),
                    "[aü€😀]{0,4}".prop_map(String::into_bytes),
                ],
                0..12,
            ),
            cut in 1usize..7,
        ) {
            let whole: Vec<u8> = pieces.concat();
            let expect = String::from_utf8_lossy(&whole).into_owned();
            let mut pending = PendingText::default();
            let mut text = String::new();
            for piece in whole.chunks(cut) {
                pending.add(piece);
                text.extend(std::iter::from_fn(|| pending.take()));
            }
            prop_assert!(expect.starts_with(&text), "{expect:?} {text:?}");
            prop_assert!(whole.len() - pending.bytes.len() >= whole.len().saturating_sub(3));
        }
    }

    #[test]
    fn no_more_is_kept_than_the_event_has() {
        let mut pending = PendingText::default();
        for _ in 0..3 {
            pending.add(&vec![b'x'; MAX_OUTPUT_BYTES / 2]);
        }
        let text: String = std::iter::from_fn(|| pending.take()).collect();
        assert_eq!(text.len(), MAX_OUTPUT_BYTES);
    }
}
