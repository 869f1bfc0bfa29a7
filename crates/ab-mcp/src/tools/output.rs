//! Limits the output of a command: keeps its start and its end, and counts the bytes in between.

use std::collections::VecDeque;

use crate::quantity::grouped;

/// The start and the end of a command's output on one channel, standard output or standard error.
#[derive(Debug)]
pub(crate) struct Kept {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total: u64,
    /// Maximum number of bytes that are kept of the start, and also of the end.
    half: usize,
}

impl Kept {
    pub(crate) fn new(bound: usize) -> Kept {
        Kept { head: Vec::new(), tail: VecDeque::new(), total: 0, half: bound / 2 }
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.half - self.head.len();
        let (first, rest) = bytes.split_at(bytes.len().min(room));
        self.head.extend_from_slice(first);
        // Only the last bytes of a large piece can belong to the end that is kept.
        let rest = &rest[rest.len().saturating_sub(self.half)..];
        let over = (self.tail.len() + rest.len()).saturating_sub(self.half);
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn cut(&self) -> bool {
        self.total > (self.head.len() + self.tail.len()) as u64
    }

    /// The output as text, with a marker where bytes are omitted.
    pub(crate) fn text(self) -> String {
        let left_out = self.total - (self.head.len() + self.tail.len()) as u64;
        let tail: Vec<u8> = self.tail.into();
        if left_out == 0 {
            return String::from_utf8_lossy(&[self.head, tail].concat()).into_owned();
        }
        let (head, tail) = (String::from_utf8_lossy(&self.head), String::from_utf8_lossy(&tail));
        let (head, tail) = (head.trim_end_matches('\u{fffd}'), tail.trim_start_matches('\u{fffd}'));
        format!("{head}\n[… {} bytes left out …]\n{tail}", grouped(left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_kept() {
        for chunk in [1, 2, 3, 7, 100] {
            let mut kept = Kept::new(8);
            for piece in b"abcdefghijkl".chunks(chunk) {
                kept.add(piece);
            }
            assert!(kept.cut());
            assert_eq!(kept.text(), "abcd\n[… 4 bytes left out …]\nijkl", "{chunk}");
        }
        let mut kept = Kept::new(8);
        kept.add("ä".repeat(4).as_bytes());
        assert_eq!((kept.cut(), kept.text()), (false, "ä".repeat(4)));
    }
}
