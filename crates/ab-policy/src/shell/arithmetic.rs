//! Parses arithmetic expressions: finds their end, and parses the expansions inside.

use super::parser::{Parsed, Parser};
use super::tree::Word;

impl Parser<'_> {
    /// The position of the `))` that ends the arithmetic expression. `start` is the start of its
    /// text. `None` if the parentheses belong to nested commands instead.
    pub(super) fn arithmetic_end(&self, start: usize) -> Option<usize> {
        let (end, looked_at) = self.arithmetic_close(start);
        // If this exceeds the limit, parsing the next word reports it.
        self.meter.spend(looked_at.saturating_sub(start));
        end
    }

    /// Like [`arithmetic_end`](Self::arithmetic_end), but also returns the position up to which the
    /// text was examined.
    fn arithmetic_close(&self, start: usize) -> (Option<usize>, usize) {
        let bytes = self.text.as_bytes();
        let mut open = 0usize;
        let mut at = start;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'\\' => at += 1,
                b'(' => open += 1,
                b')' if open > 0 => open -= 1,
                b')' => return ((bytes.get(at + 1) == Some(&b')')).then_some(at), at),
                b'\'' | b'"' | b'`' => {
                    let Some(close) = bytes[at + 1..].iter().position(|b| b == byte) else {
                        return (None, bytes.len());
                    };
                    at += close + 1;
                }
                _ => {}
            }
            at += 1;
        }
        (None, at)
    }

    /// Parses the text between `start` and `end` as a word. Parsing continues after the closing
    /// parentheses.
    pub(super) fn arithmetic_word(&mut self, start: usize, end: usize) -> Parsed<Word> {
        self.at = start;
        let parts = self.enclosed(b')', Some(b'('))?;
        if self.at != end + 1 {
            return Err(self.syntax("arithmetic that ends twice"));
        }
        self.expect(b')')?;
        Ok(Word { parts, source: self.text[start..end].to_owned() })
    }
}
