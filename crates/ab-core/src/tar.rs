//! Decodes tar archives piece by piece. Does no I/O.
//!
//! [`TarDecoder::feed`] takes bytes, and [`TarDecoder::next`] returns entries and their content.
//! The supported formats are ustar, pax and GNU, with long names. Sparse files, devices and FIFOs
//! are errors. The decoder checks names. They must not be absolute or contain `..`, and links must
//! not lead out of the archive. [`encode`] makes archives.

pub mod encode;

use std::collections::HashSet;
use std::fmt;

use bytes::{Buf, Bytes, BytesMut};

const BLOCK: usize = 512;
/// Maximum size in bytes of a long name or of pax records.
const MAX_EXTENSION: u64 = 64 * 1024;
/// Maximum total size in bytes of the names of all symbolic links of an archive. These names are
/// kept in memory until the end of the archive.
const MAX_LINK_NAMES: usize = 8 * 1024 * 1024;

/// An entry of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TarEntry {
    /// The relative path, without `.`, `..` or empty segments. Empty for the top directory.
    pub path: String,
    pub kind: TarEntryKind,
    /// The permission bits.
    pub mode: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TarEntryKind {
    File {
        size: u64,
    },
    Directory,
    /// A symbolic link with this target, which is inside the archive.
    Symlink {
        target: String,
    },
    /// Another name for an earlier file with this path.
    HardLink {
        path: String,
    },
}

/// The next part of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TarEvent {
    Entry(TarEntry),
    /// The next part of the current file's content.
    Data(Bytes),
}

/// The error for an archive that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TarError(String);

impl fmt::Display for TarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TarError {}

impl TarError {
    /// The error for an archive with more entries than its reader accepts.
    pub fn too_many_entries(limit: u64) -> TarError {
        TarError(format!("it has more than {limit} entries"))
    }
}

fn fails<T>(why: impl Into<String>) -> Result<T, TarError> {
    Err(TarError(why.into()))
}

/// Decodes an archive that arrives in pieces.
#[derive(Debug, Default)]
pub struct TarDecoder {
    input: BytesMut,
    state: TarState,
    /// What the extension headers that precede the next entry say about it.
    next_entry: Extensions,
    /// The paths of the links in the archive so far.
    links: HashSet<String>,
    /// The total size of the names of these links in bytes.
    link_name_bytes: usize,
    /// Whether a header was read.
    has_begun: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum TarState {
    #[default]
    Header,
    /// Inside the content of a file, or in the padding after it.
    Data {
        left: u64,
        padding: u64,
    },
    /// Inside an extension header for the next entry.
    Extension {
        kind: u8,
        size: u64,
    },
    Skip {
        left: u64,
    },
    End,
}

#[derive(Debug, Default)]
struct Extensions {
    path: Option<String>,
    link: Option<String>,
    size: Option<u64>,
}

impl TarDecoder {
    /// Adds bytes of the archive.
    pub fn feed(&mut self, bytes: &[u8]) {
        // Bytes after the end marker of the archive are ignored.
        if !matches!(self.state, TarState::End) {
            self.input.extend_from_slice(bytes);
        }
    }

    /// Returns the next event. `None` if more bytes are needed, or at the end of the archive.
    ///
    /// # Errors
    /// Fails if the archive is damaged or contains something that is not accepted.
    #[expect(
        clippy::should_implement_trait,
        reason = "it is no iterator: None may be followed by more"
    )]
    pub fn next(&mut self) -> Result<Option<TarEvent>, TarError> {
        loop {
            match self.state {
                TarState::End => return Ok(None),
                TarState::Skip { left: 0 } | TarState::Data { left: 0, padding: 0 } => {
                    self.state = TarState::Header;
                }
                TarState::Data { left: 0, padding } => {
                    self.state = TarState::Skip { left: padding }
                }
                TarState::Skip { left } => {
                    let Some(count) = self.available(left) else { return Ok(None) };
                    self.input.advance(count);
                    self.state = TarState::Skip { left: left - count as u64 };
                }
                TarState::Data { left, padding } => {
                    let Some(count) = self.available(left) else { return Ok(None) };
                    let data = self.input.split_to(count).freeze();
                    self.state = TarState::Data { left: left - count as u64, padding };
                    return Ok(Some(TarEvent::Data(data)));
                }
                TarState::Extension { kind, size } => {
                    let length = usize::try_from(size).unwrap_or(usize::MAX);
                    if self.input.len() < length {
                        return Ok(None);
                    }
                    let data = self.input.split_to(length);
                    self.extend(kind, &data)?;
                    self.state = TarState::Skip { left: padding(size) };
                }
                TarState::Header => {
                    if self.input.len() < BLOCK {
                        return Ok(None);
                    }
                    let block = self.input.split_to(BLOCK);
                    if let Some(entry) = self.header(&block)? {
                        return Ok(Some(TarEvent::Entry(entry)));
                    }
                }
            }
        }
    }

    /// Whether no bytes of the last file's content are missing.
    pub fn is_between_entries(&self) -> bool {
        !matches!(self.state, TarState::Data { left: 1.., .. })
    }

    /// Checks that the archive is complete. Must be called after the last bytes.
    ///
    /// # Errors
    ///
    /// Fails if there is no archive or if it is truncated.
    pub fn finish(&self) -> Result<(), TarError> {
        match self.state {
            TarState::End => Ok(()),
            TarState::Header if !self.has_begun && self.input.is_empty() => {
                fails("it is empty: an archive without files has an end marker of two zero blocks")
            }
            TarState::Header if !self.has_begun => {
                check_uncompressed(&self.input)?;
                fails("it is shorter than one header: this is not a tar archive, or it is cut off")
            }
            TarState::Header if self.input.is_empty() => {
                fails("it has no end marker of two zero blocks: it is cut off")
            }
            TarState::Skip { .. } | TarState::Data { left: 0, .. } => {
                fails("the last entry is not padded to a whole block: it is cut off")
            }
            TarState::Header | TarState::Data { .. } | TarState::Extension { .. } => {
                fails("it is cut off")
            }
        }
    }

    /// How many of the `left` bytes are available. `None` if no byte is available.
    fn available(&self, left: u64) -> Option<usize> {
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        Some(self.input.len().min(left)).filter(|count| *count > 0)
    }

    /// Reads a header. `None` if the header only describes the next entry, or is the end marker.
    fn header(&mut self, block: &[u8]) -> Result<Option<TarEntry>, TarError> {
        if block.iter().all(|byte| *byte == 0) {
            self.has_begun = true;
            self.state = TarState::End;
            self.input.clear();
            return Ok(None);
        }
        if !std::mem::replace(&mut self.has_begun, true) {
            check_uncompressed(block)?;
        }
        if number(&block[148..156])? != checksum(block) {
            return fails(
                "a header has a wrong checksum: this is not a tar archive, or it is damaged",
            );
        }
        let size = number(&block[124..136])?;
        let kind = block[156];
        if matches!(kind, b'x' | b'L' | b'K') {
            if size > MAX_EXTENSION {
                return fails(format!(
                    "an extended header has {size} bytes, more than {MAX_EXTENSION}"
                ));
            }
            self.state = TarState::Extension { kind, size };
            return Ok(None);
        }
        if kind == b'g' {
            self.state = TarState::Skip { left: padded(size)? };
            return Ok(None);
        }
        let extensions = std::mem::take(&mut self.next_entry);
        let size = extensions.size.unwrap_or(size);
        let name = match extensions.path {
            Some(name) => name,
            None => plain_name(block)?,
        };
        let link = match extensions.link {
            Some(link) => link,
            None => text(&block[157..257])?,
        };
        let path = clean(&name)?;
        let mode = u32::try_from(number(&block[100..108])? & 0o777).unwrap_or_default();
        let kind = match kind {
            // In old archives, a directory is marked only by a trailing slash.
            b'0' | 0 | b'7' if name.ends_with('/') => TarEntryKind::Directory,
            b'0' | 0 | b'7' => TarEntryKind::File { size },
            b'5' => TarEntryKind::Directory,
            b'2' => TarEntryKind::Symlink { target: checked_target(&path, link)? },
            b'1' => TarEntryKind::HardLink { path: clean(&link)? },
            b'3' | b'4' | b'6' => {
                return fails(format!("{path:?} is a device or FIFO, which is not accepted"));
            }
            b'S' => return fails(format!("{path:?} is a sparse file, which is not accepted")),
            other => {
                return fails(format!(
                    "{path:?} has the type {:?}, which is not accepted",
                    char::from(other)
                ));
            }
        };
        self.state = match kind {
            TarEntryKind::File { size } => TarState::Data { left: size, padding: padding(size) },
            TarEntryKind::Directory
            | TarEntryKind::Symlink { .. }
            | TarEntryKind::HardLink { .. } => TarState::Skip { left: padded(size)? },
        };
        if path.is_empty() && kind != TarEntryKind::Directory {
            return fails("an entry that is not a directory has no name");
        }
        let mut ancestors = path.match_indices('/').map(|(end, _)| &path[..end]);
        if ancestors.any(|ancestor| self.links.contains(ancestor)) {
            return fails(format!("{path:?} goes through a link of the archive"));
        }
        if matches!(kind, TarEntryKind::Symlink { .. }) && self.links.insert(path.clone()) {
            self.link_name_bytes += path.len();
            if self.link_name_bytes > MAX_LINK_NAMES {
                return fails(format!(
                    "the names of its symbolic links have more than {MAX_LINK_NAMES} bytes"
                ));
            }
        }
        Ok(Some(TarEntry { path, kind, mode }))
    }

    /// Stores what an extension header says about the next entry.
    fn extend(&mut self, kind: u8, data: &[u8]) -> Result<(), TarError> {
        match kind {
            b'L' => self.next_entry.path = Some(text(data)?),
            b'K' => self.next_entry.link = Some(text(data)?),
            _ => {
                for (key, value) in records(data)? {
                    match key {
                        "path" => self.next_entry.path = Some(value.to_owned()),
                        "linkpath" => self.next_entry.link = Some(value.to_owned()),
                        "size" => {
                            let size = value.parse();
                            let size = size.map_err(|_| TarError("invalid pax size".to_owned()))?;
                            self.next_entry.size = Some(size);
                        }
                        key if key.starts_with("GNU.sparse") => {
                            return fails("the archive has a sparse file, which is not accepted");
                        }
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }
}

/// The formats of compressed files, with the bytes at their start. The decoder does not decode
/// these formats.
const COMPRESSED: [(&[u8], &str); 4] = [
    (&[0x1f, 0x8b], "gzip"),
    (b"BZh", "bzip2"),
    (&[0xfd, b'7', b'z', b'X', b'Z'], "xz"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zstd"),
];

fn check_uncompressed(start: &[u8]) -> Result<(), TarError> {
    match COMPRESSED.iter().find(|(magic, _)| start.starts_with(magic)) {
        Some((_, name)) => {
            fails(format!("it is compressed with {name}: send the archive uncompressed"))
        }
        None => Ok(()),
    }
}

fn padding(size: u64) -> u64 {
    let block = BLOCK as u64;
    (block - size % block) % block
}

fn padded(size: u64) -> Result<u64, TarError> {
    size.checked_add(padding(size)).ok_or_else(|| TarError("an entry is too large".to_owned()))
}

/// The sum of all bytes of a header. The bytes of the checksum field count as spaces.
fn checksum(block: &[u8]) -> u64 {
    let sum = |bytes: &[u8]| bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    sum(&block[..148]) + 8 * u64::from(b' ') + sum(&block[156..])
}

/// Parses a number. It is octal text, or binary if the first bit is set.
fn number(field: &[u8]) -> Result<u64, TarError> {
    let invalid = || TarError("a header has an invalid number".to_owned());
    if field[0] & 0x80 != 0 {
        let (first, rest) = (field[0] & 0x7f, &field[1..]);
        return std::iter::once(&first).chain(rest).try_fold(0_u64, |value, byte| {
            let value = value.checked_mul(256).ok_or_else(invalid)?;
            Ok(value + u64::from(*byte))
        });
    }
    let text = std::str::from_utf8(field).map_err(|_| invalid())?;
    let text = text.trim_matches(|c| c == ' ' || c == '\0');
    if text.is_empty() { Ok(0) } else { u64::from_str_radix(text, 8).map_err(|_| invalid()) }
}

/// The text up to the first NUL.
fn text(field: &[u8]) -> Result<String, TarError> {
    let text = field.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = std::str::from_utf8(text);
    text.map(str::to_owned).map_err(|_| TarError("a name is not valid UTF-8".to_owned()))
}

fn plain_name(block: &[u8]) -> Result<String, TarError> {
    let name = text(&block[..100])?;
    if &block[257..263] != b"ustar\0" {
        return Ok(name);
    }
    let prefix = text(&block[345..500])?;
    Ok(if prefix.is_empty() { name } else { format!("{prefix}/{name}") })
}

/// Parses the records of a pax header. Each has the form `LENGTH KEY=VALUE\n`.
fn records(mut data: &[u8]) -> Result<Vec<(&str, &str)>, TarError> {
    let invalid = || TarError("invalid pax records".to_owned());
    let mut found = Vec::new();
    while !data.is_empty() {
        let space = data.iter().position(|byte| *byte == b' ').ok_or_else(invalid)?;
        let length = std::str::from_utf8(&data[..space]).map_err(|_| invalid())?;
        let length: usize = length.parse().map_err(|_| invalid())?;
        if length <= space + 1 || length > data.len() || data[length - 1] != b'\n' {
            return Err(invalid());
        }
        let record = &data[space + 1..length - 1];
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(invalid)?;
        let key = std::str::from_utf8(&record[..equals]).map_err(|_| invalid())?;
        // The values of other keys, such as attributes, may be binary.
        if let Ok(value) = std::str::from_utf8(&record[equals + 1..]) {
            found.push((key, value));
        } else if matches!(key, "path" | "linkpath" | "size") {
            return fails("a name is not valid UTF-8");
        }
        data = &data[length..];
    }
    Ok(found)
}

/// Checks that a name is relative, and removes `.` and empty segments.
fn clean(name: &str) -> Result<String, TarError> {
    if name.starts_with('/') || name.split('/').any(|segment| segment == "..") {
        return fails(format!("{name:?} leads out of the archive"));
    }
    if name.contains('\0') {
        return fails("a name contains a NUL byte");
    }
    let segments = name.split('/').filter(|segment| !segment.is_empty() && *segment != ".");
    Ok(segments.collect::<Vec<_>>().join("/"))
}

/// Checks that a link leads to a place inside the archive, judged by names, and returns its target.
fn checked_target(path: &str, target: String) -> Result<String, TarError> {
    let out = || TarError(format!("the link {path:?} leads out of the archive: {target:?}"));
    if target.is_empty() || target.starts_with('/') || target.contains('\0') {
        return Err(out());
    }
    // If a segment is itself a link, a following `..` would be the parent of the link's target.
    let segments = || target.split('/').filter(|segment| !matches!(*segment, "" | "."));
    let ups = segments().take_while(|segment| *segment == "..").count();
    let leaves = ups >= path.split('/').count();
    if leaves || segments().skip(ups).any(|segment| segment == "..") {
        return Err(out());
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with a correct checksum.
    fn header(name: &str, kind: u8, size: u64, link: &str) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[100..107].copy_from_slice(b"0000755");
        block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
        block[156] = kind;
        block[157..157 + link.len()].copy_from_slice(link.as_bytes());
        block[257..263].copy_from_slice(b"ustar\0");
        let sum = checksum(&block);
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        block
    }

    fn file(name: &str, content: &[u8]) -> Vec<u8> {
        let mut bytes = header(name, b'0', content.len() as u64, "");
        bytes.extend_from_slice(content);
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        bytes
    }

    /// Feeds an archive in pieces, and returns the entries with their content.
    fn read(archive: &[u8], piece: usize) -> Result<Vec<(TarEntry, Vec<u8>)>, TarError> {
        let mut decoder = TarDecoder::default();
        let mut entries: Vec<(TarEntry, Vec<u8>)> = Vec::new();
        for piece in archive.chunks(piece) {
            decoder.feed(piece);
            while let Some(event) = decoder.next()? {
                match event {
                    TarEvent::Entry(entry) => entries.push((entry, Vec::new())),
                    TarEvent::Data(data) => entries.last_mut().unwrap().1.extend_from_slice(&data),
                }
            }
        }
        decoder.finish().map(|()| entries)
    }

    #[test]
    fn entries_come_out_whatever_the_pieces() {
        let long = format!("{}/x", "d".repeat(120));
        let mut archive = header("./", b'5', 0, "");
        archive.extend(file("a/b.txt", b"hello"));
        archive.extend(header("././@LongLink", b'L', long.len() as u64 + 1, ""));
        archive.extend(file_content(format!("{long}\0").as_bytes()));
        archive.extend(file("short", &[7; 513]));
        archive.extend(header("a/link", b'2', 0, "b.txt"));
        archive.extend(header("hard", b'1', 0, "a/b.txt"));
        let record = "17 path=paxed/ü\n";
        assert_eq!(record.len(), 17);
        archive.extend(header("x", b'x', record.len() as u64, ""));
        archive.extend(file_content(record.as_bytes()));
        archive.extend(file("y", b""));
        archive.extend([0; 2 * BLOCK]);
        archive.extend(b"rest");
        let whole = read(&archive, usize::MAX).unwrap();
        let paths: Vec<&str> = whole.iter().map(|(entry, _)| entry.path.as_str()).collect();
        assert_eq!(paths, ["", "a/b.txt", &long, "a/link", "hard", "paxed/ü"]);
        assert_eq!(whole[1].1, b"hello");
        assert_eq!(whole[2].1, [7; 513]);
        assert_eq!(whole[3].0.kind, TarEntryKind::Symlink { target: "b.txt".to_owned() });
        assert_eq!(whole[4].0.kind, TarEntryKind::HardLink { path: "a/b.txt".to_owned() });
        assert_eq!(whole[1].0.mode, 0o755);
        for piece in [1, 7, 511, 512, 513] {
            assert_eq!(read(&archive, piece).unwrap(), whole, "{piece}");
        }
    }

    fn file_content(content: &[u8]) -> Vec<u8> {
        let mut bytes = content.to_vec();
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        bytes
    }

    #[test]
    fn ways_out_are_refused() {
        for (archive, says) in [
            (file("../x", b"1"), "leads out"),
            (file("/etc/x", b"1"), "leads out"),
            (file("a/../../x", b"1"), "leads out"),
            (header("l", b'2', 0, "/etc"), "leads out"),
            (header("l", b'2', 0, "../x"), "leads out"),
            (header("a/l", b'2', 0, "../../x"), "leads out"),
            (header("a/l", b'2', 0, "b/../../x"), "leads out"),
            (header("h", b'1', 0, "../x"), "leads out"),
            (header("n", b'3', 0, ""), "device"),
            (header("n", b'6', 0, ""), "FIFO"),
            (header("n", b'S', 0, ""), "sparse"),
            (header("n", b'Z', 0, ""), "type"),
            (header("x", b'x', MAX_EXTENSION + 1, ""), "extended header"),
            ([header("l", b'2', 0, "a"), file("l/x", b"1")].concat(), "through a link"),
            ([0x1f, 0x8b].into_iter().chain([0; BLOCK]).collect(), "compressed"),
            (b"\x1f\x8bshort".to_vec(), "compressed with gzip"),
            (b"BZh9".to_vec(), "compressed with bzip2"),
            (vec![b'x'; BLOCK], "number"),
            (Vec::new(), "empty"),
            (b"garbage".to_vec(), "not a tar archive"),
            (file("cut", b"hello")[..BLOCK + 2].to_vec(), "cut off"),
            (file("cut", b"hello")[..BLOCK / 2].to_vec(), "cut off"),
            (file("cut", b"hello")[..BLOCK + 5].to_vec(), "not padded"),
            (file("cut", b"hello"), "no end marker"),
            ([file("cut", b"hello"), vec![0; BLOCK - 1]].concat(), "cut off"),
        ] {
            let error = read(&archive, 100).unwrap_err().to_string();
            assert!(error.contains(says), "{says}: {error}");
        }
        let link = [header("a/l", b'2', 0, "../b"), vec![0; 2 * BLOCK]].concat();
        assert!(read(&link, 100).is_ok());
        assert_eq!(read(&[0; 2 * BLOCK], 100), Ok(Vec::new()));
        let mut damaged = file("a", b"1");
        damaged[0] = b'b';
        assert!(read(&damaged, 100).unwrap_err().to_string().contains("checksum"));
    }

    #[test]
    fn names_of_links_are_bounded() {
        let mut decoder = TarDecoder::default();
        let mut link = |number: usize| {
            let rest = format!(" path={}{number:05}\n", "n".repeat(60_000));
            let record = format!("{}{rest}", rest.len() + 5);
            decoder.feed(&header("x", b'x', record.len() as u64, ""));
            decoder.feed(&file_content(record.as_bytes()));
            decoder.feed(&header("x", b'2', 0, "target"));
            decoder.next()
        };
        let refused = (0..1000).find_map(|number| link(number).err()).unwrap();
        assert!(refused.to_string().contains("names of its symbolic links"), "{refused}");
        assert!(decoder.link_name_bytes < MAX_LINK_NAMES + 2 * 60_010);
    }

    #[test]
    fn sizes_may_be_binary() {
        let mut field = [0; 12];
        field[0] = 0x80;
        field[8..].copy_from_slice(&0x1234_5678_u32.to_be_bytes());
        assert_eq!(number(&field), Ok(0x1234_5678));
        assert!(number(&[0xff; 12]).is_err());
    }
}
