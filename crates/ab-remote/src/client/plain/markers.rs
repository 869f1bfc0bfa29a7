//! Parses the markers in the output of a command. The shell code around the command prints them to
//! report its start, its process id and its exit status.
//!
//! A marker begins with a special byte and a random word. The command cannot know this word. Output
//! before the first marker comes from the login shell. The parser converts bytes to events and does
//! no I/O.

use bytes::{Bytes, BytesMut};

/// The first byte of every marker. The random word follows.
pub(super) const FIRST: u8 = 0x1e;
/// Maximum length in bytes of the text of a marker after its word.
const LONGEST: usize = 24;
/// Number of bytes of the login shell's own output that are kept for error messages.
const NOISE: usize = 2048;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The command is about to run. Contains its process ids, if the marker contains them.
    Began(Option<Identity>),
    /// There is no such program.
    NoProgram,
    Bytes(Bytes),
    /// The command has ended. Contains its exit status, if the marker contains it.
    Ended(Option<i32>),
}

/// The ids of the processes of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    /// The id of their process group.
    pub(super) group: u32,
    /// The process id of the command itself.
    pub(super) process: u32,
}

impl Identity {
    fn parse(text: &str) -> Option<Self> {
        let (group, process) = text.split_once(',')?;
        Some(Self { group: group.parse().ok()?, process: process.parse().ok()? })
    }
}

impl Event {
    /// The number of bytes of the command's output in the event.
    pub(super) fn len(&self) -> usize {
        match self {
            Event::Bytes(bytes) => bytes.len(),
            Event::Began(_) | Event::NoProgram | Event::Ended(_) => 0,
        }
    }
}

#[derive(Debug)]
pub(super) struct Markers {
    key: Vec<u8>,
    began: bool,
    held: BytesMut,
    noise: Vec<u8>,
}

impl Markers {
    pub(super) fn new(word: &str) -> Self {
        let key = [&[FIRST], word.as_bytes()].concat();
        Self { key, began: false, held: BytesMut::new(), noise: Vec::new() }
    }

    /// The output of the login shell before the command started.
    pub(super) fn noise(&self) -> String {
        String::from_utf8_lossy(&self.noise).into_owned()
    }

    pub(super) fn hear(&mut self, bytes: Bytes) -> Vec<Event> {
        let mut events = Vec::new();
        let mut left = if self.held.is_empty() {
            bytes
        } else {
            self.held.extend_from_slice(&bytes);
            std::mem::take(&mut self.held).freeze()
        };
        while !left.is_empty() {
            let (at, whole) = find(&left, &self.key);
            let before = left.split_to(at);
            self.pass(before, &mut events);
            if !whole {
                // The remaining bytes may be the start of a marker.
                self.held.extend_from_slice(&left);
                break;
            }
            let text = &left[self.key.len()..];
            match text.iter().take(LONGEST).position(|byte| *byte == b';') {
                Some(end) => {
                    events.extend(self.marker(&text[..end]));
                    let _ = left.split_to(self.key.len() + end + 1);
                }
                None if text.len() < LONGEST => {
                    self.held.extend_from_slice(&left);
                    break;
                }
                None => {
                    let odd = left.split_to(self.key.len());
                    self.pass(odd, &mut events);
                }
            }
        }
        events
    }

    fn pass(&mut self, bytes: Bytes, events: &mut Vec<Event>) {
        if bytes.is_empty() {
            return;
        }
        if self.began {
            events.push(Event::Bytes(bytes));
        } else {
            let room = NOISE.saturating_sub(self.noise.len());
            self.noise.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    fn marker(&mut self, text: &[u8]) -> Option<Event> {
        let (sign, value) = text.split_first()?;
        let value = std::str::from_utf8(value).ok()?;
        match sign {
            b'+' => {
                self.began = true;
                Some(Event::Began(Identity::parse(value)))
            }
            b'?' => Some(Event::NoProgram),
            b'-' => Some(Event::Ended(value.parse().ok())),
            _ => None,
        }
    }
}

/// The position of `key` in `text`, or of the start of an incomplete key at its end. Also returns
/// whether the key is complete.
fn find(text: &[u8], key: &[u8]) -> (usize, bool) {
    let mut start = 0;
    while let Some(found) = text[start..].iter().position(|byte| *byte == FIRST) {
        let at = start + found;
        let rest = &text[at..];
        if rest.starts_with(key) {
            return (at, true);
        }
        if key.starts_with(rest) {
            return (at, false);
        }
        start = at + 1;
    }
    (text.len(), false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str, piece: usize) -> Vec<Event> {
        let mut markers = Markers::new("word");
        let mut events: Vec<Event> = Vec::new();
        for piece in text.as_bytes().chunks(piece) {
            for event in markers.hear(Bytes::copy_from_slice(piece)) {
                match (events.last_mut(), event) {
                    (Some(Event::Bytes(all)), Event::Bytes(more)) => {
                        *all = [&all[..], &more[..]].concat().into();
                    }
                    (_, event) => events.push(event),
                }
            }
        }
        events
    }

    fn check(text: &str, expect: &[Event]) {
        for piece in [1, 2, 3, 7, 1000] {
            assert_eq!(told(text, piece), expect, "{text:?} in pieces of {piece}");
        }
    }

    #[test]
    fn markers_are_told_from_words() {
        let bytes = |text: &'static str| Event::Bytes(Bytes::from_static(text.as_bytes()));
        let began = Event::Began(Some(Identity { group: 42, process: 43 }));
        check(
            "noise\x1eword+42,43;out\x1eword-7;",
            &[began.clone(), bytes("out"), Event::Ended(Some(7))],
        );
        check("\x1eword+;\x1eword-;", &[Event::Began(None), Event::Ended(None)]);
        check("\x1eword?;", &[Event::NoProgram]);
        check("never began \x1ewor", &[]);
        check("\x1eword+42,43;a\x1eb\x1e\x1ewore", &[began.clone(), bytes("a\x1eb\x1e\x1ewore")]);
        check(
            "\x1eword+42,43;\x1eword-too long to be one of ours; it is",
            &[began, bytes("\x1eword-too long to be one of ours; it is")],
        );
    }
}
