//! Parses `text/event-stream`.

use ab_core::{Error, ErrorCode, ErrorKind, Result};

/// Maximum length of an event in bytes. Events of runs have at most 16 MiB.
const MAX_EVENT: usize = 17 * 1024 * 1024;

/// One event with data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SseMessage {
    pub(super) id: Option<String>,
    /// The value of the field `event`.
    pub(super) kind: Option<String>,
    pub(super) data: String,
}

/// Parses bytes into events. Comments and events without data are ignored.
#[derive(Debug, Default)]
pub(super) struct SseParser {
    /// The start of an incomplete line.
    line: Vec<u8>,
    /// Whether the last byte was a carriage return. A carriage return ends a line and may be
    /// followed by a newline.
    after_return: bool,
    id: Option<String>,
    kind: Option<String>,
    data: Option<String>,
}

impl SseParser {
    /// Adds bytes and returns the events that they complete.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] if an event is longer than 17 MiB.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<SseMessage>> {
        let mut messages = Vec::new();
        for byte in bytes {
            let is_second = *byte == b'\n' && self.after_return;
            self.after_return = *byte == b'\r';
            match byte {
                b'\n' if is_second => {}
                b'\n' | b'\r' => {
                    let line = std::mem::take(&mut self.line);
                    messages.extend(self.line(&String::from_utf8_lossy(&line)));
                }
                byte => self.line.push(*byte),
            }
            if self.line.len() + self.data.as_ref().map_or(0, String::len) > MAX_EVENT {
                let message = format!("the server sent an event of more than {MAX_EVENT} bytes");
                return Err(Error::new(ErrorCode::TooLarge, ErrorKind::TooLarge, message));
            }
        }
        Ok(messages)
    }

    fn line(&mut self, line: &str) -> Option<SseMessage> {
        if line.is_empty() {
            let (id, kind) = (self.id.take(), self.kind.take());
            return self.data.take().map(|data| SseMessage { id, kind, data });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.id = Some(value.to_owned()),
            "event" => self.kind = Some(value.to_owned()),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: Option<&str>, kind: Option<&str>, data: &str) -> SseMessage {
        let (id, kind) = (id.map(str::to_owned), kind.map(str::to_owned));
        SseMessage { id, kind, data: data.to_owned() }
    }

    #[test]
    fn events_are_parsed_however_the_bytes_are_cut() {
        let text = ":\n\nid: 1\ndata: {\"a\":1}\n\nevent: x\nid:2\r\ndata: a\r\ndata: b\r\n\r\n\
                    : beat\n\nid: 3\n\ndata:ü\r\rdata: lost";
        let expect = [
            message(Some("1"), None, "{\"a\":1}"),
            message(Some("2"), Some("x"), "a\nb"),
            message(None, None, "ü"),
        ];
        for size in [1, 2, 3, 7, text.len()] {
            let mut parser = SseParser::default();
            let mut found = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                found.extend(parser.push(piece).unwrap());
            }
            assert_eq!(found, expect, "in pieces of {size}");
        }
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut parser = SseParser::default();
        let block = vec![b'x'; 1024 * 1024];
        let refused = (0..20).find_map(|_| parser.push(&block).err());
        assert_eq!(refused.unwrap().kind(), ErrorKind::TooLarge);
    }
}
