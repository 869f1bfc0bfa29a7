//! Text for events: truncates text to fit, and splits bytes into lines.

/// Maximum number of bytes of one text in an event. An event has at most 64 KiB, and one byte of
/// text can take six bytes in JSON.
pub(super) const MAX_TEXT: usize = 8 * 1024;

/// Truncates a text and appends a note about how much was left out.
pub(super) fn cut(text: &str) -> String {
    if text.len() <= MAX_TEXT {
        return text.to_owned();
    }
    let end = boundary(text, MAX_TEXT);
    format!("{}\n… ({} more bytes)", &text[..end], text.len() - end)
}

/// The largest character boundary that is not greater than `most`.
pub(super) fn boundary(text: &str, most: usize) -> usize {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    end
}

/// Splits bytes into lines. A line that is too long for an event is split.
#[derive(Debug, Default)]
pub(super) struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Adds bytes and returns the lines that they complete. Empty lines are skipped.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for byte in bytes {
            if *byte == b'\n' || self.rest.len() >= MAX_TEXT {
                lines.extend(self.finish());
            }
            if *byte != b'\n' {
                self.rest.push(*byte);
            }
        }
        lines
    }

    /// Returns the remaining bytes as the last line, if they have no line ending.
    pub(super) fn finish(&mut self) -> Option<String> {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.rest)).trim_end().to_owned();
        (!line.is_empty()).then_some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_lines() {
        let mut lines = Lines::default();
        assert_eq!(lines.push(b"a\r\n\nb"), ["a"]);
        assert_eq!(lines.push(b"c\n"), ["bc"]);
        assert_eq!(lines.finish(), None);
        let long = lines.push(&vec![b'x'; 2 * MAX_TEXT + 1]);
        assert_eq!(long.iter().map(String::len).collect::<Vec<_>>(), [MAX_TEXT, MAX_TEXT]);
        assert_eq!(lines.finish().as_deref(), Some("x"));
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        let text = format!("x{}", "ä".repeat(MAX_TEXT));
        let left_out = text.len() - (MAX_TEXT - 1);
        assert!(cut(&text).ends_with(&format!("ä\n… ({left_out} more bytes)")));
    }
}
