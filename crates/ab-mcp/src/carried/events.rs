//! A parser of server-sent events, which returns the data of each event, in order.

/// The parser, with the bytes of an event that is not complete yet.
#[derive(Debug)]
pub(super) struct Events {
    line: Vec<u8>,
    data: Vec<u8>,
    bound: usize,
}

impl Events {
    /// Creates a parser. An event may have at most `bound` bytes.
    pub(super) fn new(bound: usize) -> Events {
        Events { line: Vec::new(), data: Vec::new(), bound }
    }

    /// Adds bytes and returns the data of every event that they complete.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
        let mut complete = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + self.data.len() + piece.len() > self.bound {
                return Err("an event is too large");
            }
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                complete.extend(self.end_line());
            }
        }
        Ok(complete)
    }

    fn end_line(&mut self) -> Option<Vec<u8>> {
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            let data = std::mem::take(&mut self.data);
            return (!data.is_empty()).then_some(data);
        }
        if let Some(data) = line.strip_prefix(b"data:") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_do_not_depend_on_the_pieces() {
        let text =
            b": hello\nid: 1\r\ndata: one\r\n\r\ndata:two\ndata: three\n\nevent: x\n\ndata: cut";
        for size in [1, 2, 7, 100] {
            let mut events = Events::new(100);
            let mut heard = Vec::new();
            for piece in text.chunks(size) {
                heard.extend(events.feed(piece).unwrap());
            }
            assert_eq!(heard, [b"one".to_vec(), b"two\nthree".to_vec()]);
        }
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut events = Events::new(1000);
        let fed: Result<Vec<_>, _> = (0..1000).map(|_| events.feed(b"data: x\n")).collect();
        assert_eq!(fed.unwrap_err(), "an event is too large");
    }
}
