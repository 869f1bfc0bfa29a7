//! Encodes the headers of a tar archive. Does no I/O.
//!
//! An archive contains three things for each entry: the [`encode_entry_header`], the content, and
//! the [`padding_length`]. After the last entry it contains [`END_OF_ARCHIVE`]. The format is
//! ustar. Names that ustar cannot represent are written in pax records.

use super::{BLOCK, TarEntry, TarEntryKind, TarError, checksum, fails};

/// The end marker of an archive.
pub const END_OF_ARCHIVE: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

/// Maximum length in bytes of a name in a header. Longer names are written in pax records.
const NAME: usize = 100;
/// The largest size that fits in the octal digits of a header.
const MAX_OCTAL: u64 = 0o777_7777_7777;

/// The header of an entry. If the names of the entry require it, an extended header precedes this
/// header.
///
/// # Errors
///
/// Fails for a hard link and for a file that is larger than 8 GiB.
pub fn encode_entry_header(entry: &TarEntry) -> Result<Vec<u8>, TarError> {
    let (kind, size, link) = match &entry.kind {
        TarEntryKind::File { size } => (b'0', *size, ""),
        TarEntryKind::Directory => (b'5', 0, ""),
        TarEntryKind::Symlink { target } => (b'2', 0, target.as_str()),
        TarEntryKind::HardLink { path } => {
            return fails(format!("{path:?} is a hard link, which is not encoded"));
        }
    };
    if size > MAX_OCTAL {
        return fails(format!("{:?} has {size} bytes, more than {MAX_OCTAL}", entry.path));
    }
    let mut records = String::new();
    for (key, value) in [("path", entry.path.as_str()), ("linkpath", link)] {
        if value.len() > NAME {
            records.push_str(&record(key, value));
        }
    }
    let mut bytes = Vec::with_capacity(BLOCK);
    if !records.is_empty() {
        bytes.extend(block("pax", 0o644, b'x', records.len() as u64, ""));
        bytes.extend(records.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    }
    bytes.extend(block(&entry.path, entry.mode & 0o777, kind, size, link));
    Ok(bytes)
}

/// The number of zero bytes after the content of a file of `size` bytes.
pub fn padding_length(size: u64) -> usize {
    // The value is less than the size of a block.
    super::padding(size) as usize
}

fn block(name: &str, mode: u32, kind: u8, size: u64, link: &str) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, text: &[u8]| block[at..at + text.len()].copy_from_slice(text);
    put(0, &name.as_bytes()[..name.len().min(NAME)]);
    put(100, format!("{mode:07o}").as_bytes());
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, format!("{size:011o}").as_bytes());
    put(136, b"00000000000");
    put(156, &[kind]);
    put(157, &link.as_bytes()[..link.len().min(NAME)]);
    put(257, b"ustar\x0000");
    let sum = checksum(&block);
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// A pax record. The length at its start includes the digits of the length itself.
fn record(key: &str, value: &str) -> String {
    let rest = key.len() + value.len() + 3;
    let mut length = rest;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    format!("{length} {key}={value}\n")
}

#[cfg(test)]
mod tests {
    use super::super::{TarDecoder, TarEvent};
    use super::*;

    fn entry(path: &str, kind: TarEntryKind) -> TarEntry {
        TarEntry { path: path.to_owned(), kind, mode: 0o755 }
    }

    #[test]
    fn decoder_reads_what_the_encoder_wrote() {
        let long = format!("{}/file", "\u{fc}".repeat(90));
        let symlink = |target: &str| TarEntryKind::Symlink { target: target.to_owned() };
        let entries = [
            entry("a", TarEntryKind::Directory),
            entry("a/b", TarEntryKind::File { size: 5 }),
            entry("empty", TarEntryKind::File { size: 0 }),
            entry(&long, TarEntryKind::File { size: 512 }),
            entry("link", symlink("a/b")),
            entry(&"l".repeat(120), symlink(&"t".repeat(120))),
            entry(&"n".repeat(98), TarEntryKind::File { size: 513 }),
        ];
        let mut archive = Vec::new();
        for entry in &entries {
            archive.extend(encode_entry_header(entry).unwrap());
            if let TarEntryKind::File { size } = entry.kind {
                archive.extend(vec![b'x'; size as usize]);
                archive.extend(vec![0; padding_length(size)]);
            }
        }
        archive.extend(END_OF_ARCHIVE);
        let mut decoder = TarDecoder::default();
        decoder.feed(&archive);
        let mut decoded = Vec::new();
        while let Some(event) = decoder.next().unwrap() {
            if let TarEvent::Entry(entry) = event {
                decoded.push(entry);
            }
        }
        decoder.finish().unwrap();
        assert_eq!(decoded, entries);
        for (key, length) in [("path", 92), ("linkpath", 86), ("path", 990)] {
            let record = record(key, &"x".repeat(length));
            let (digits, _) = record.split_once(' ').unwrap();
            assert_eq!(digits.parse::<usize>().unwrap(), record.len(), "{key} {length}");
        }
    }

    #[test]
    fn entries_that_cannot_be_written_are_refused() {
        let large = entry("a", TarEntryKind::File { size: MAX_OCTAL + 1 });
        assert!(encode_entry_header(&large).unwrap_err().to_string().contains("more than"));
        let link = entry("a", TarEntryKind::HardLink { path: "b".to_owned() });
        assert!(encode_entry_header(&link).unwrap_err().to_string().contains("hard link"));
    }
}
