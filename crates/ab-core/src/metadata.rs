//! Metadata that drivers report: kinds of files, versions, listings, and disk space.

use std::fmt;
use std::time::SystemTime;

use bytes::Bytes;

use crate::error::Error;
use crate::path::WsPath;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    File,
    Dir,
    Symlink,
    /// A FIFO, a socket or a device. It is listed, but it cannot be opened.
    Other,
}

impl FileKind {
    pub fn as_str(self) -> &'static str {
        match self {
            FileKind::File => "file",
            FileKind::Dir => "directory",
            FileKind::Symlink => "symlink",
            FileKind::Other => "other",
        }
    }

    pub fn is_file(self) -> bool {
        self == FileKind::File
    }

    pub fn is_dir(self) -> bool {
        self == FileKind::Dir
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Identifies a state of a file. The value is opaque. If two versions are equal, nothing was
/// written in between.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileVersion(u128);

impl FileVersion {
    pub fn new(value: u128) -> Self {
        Self(value)
    }

    /// The value as bytes, for transfer over a connection.
    pub fn to_be_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Parses the text that [`Display`](fmt::Display) writes.
    pub fn parse(text: &str) -> Option<Self> {
        let valid = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        valid.then(|| u128::from_str_radix(text, 16).ok().map(Self)).flatten()
    }
}

impl fmt::Display for FileVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for FileVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub kind: FileKind,
    /// The size in bytes. Zero for directories.
    pub size: u64,
    pub modified: SystemTime,
    pub accessed: Option<SystemTime>,
    pub created: Option<SystemTime>,
    /// The permission bits (`0o777`), if the driver supports them.
    pub mode: Option<u32>,
    pub version: FileVersion,
}

/// The bytes of a file, and its attributes at the time of the read.
#[derive(Clone, Debug)]
pub struct FileContent {
    pub bytes: Bytes,
    pub stat: Stat,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The path relative to the root of the workspace.
    pub path: WsPath,
    pub kind: FileKind,
    /// The attributes. Present if the listing was requested with details.
    pub stat: Option<Stat>,
}

/// The limit that truncated a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TruncationCause {
    Count,
    Bytes,
    Time,
}

impl TruncationCause {
    pub fn as_str(self) -> &'static str {
        match self {
            TruncationCause::Count => "count",
            TruncationCause::Bytes => "bytes",
            TruncationCause::Time => "time",
        }
    }
}

/// A path that could not be read during a walk. The walk continues after it.
#[derive(Clone, Debug)]
pub struct WalkProblem {
    /// The path, as precisely as it is known.
    pub path: String,
    pub error: Error,
}

/// The result of listing a directory, in path order. A directory comes before its entries.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    pub entries: Vec<DirEntry>,
    pub truncated: Option<TruncationCause>,
    pub problems: Vec<WalkProblem>,
}

/// Disk space of a workspace, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    pub total: u64,
    pub available: u64,
}

/// The result of a removal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoveOutcome {
    /// The number of files, links and directories that were removed.
    pub count: u64,
}

/// The result of a rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenameOutcome {
    /// Whether the rename was a single step, so that readers cannot have seen an intermediate
    /// state.
    pub atomic: bool,
}
