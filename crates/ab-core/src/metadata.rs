//! What drivers say about files: kinds, versions, listings, space.

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
    /// A FIFO, socket or device: listed, never opened.
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

/// A state of a file. Opaque: equal means nothing was written in between.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileVersion(u128);

impl FileVersion {
    pub fn new(value: u128) -> Self {
        Self(value)
    }

    /// The value, for a wire.
    pub fn to_be_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Reads what [`Display`](fmt::Display) wrote.
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
    /// Bytes; zero for directories.
    pub size: u64,
    pub modified: SystemTime,
    pub accessed: Option<SystemTime>,
    pub created: Option<SystemTime>,
    /// Permission bits (`0o777`), where the driver has them.
    pub mode: Option<u32>,
    pub version: FileVersion,
}

/// A file's bytes together with the state they were read in.
#[derive(Clone, Debug)]
pub struct FileContent {
    pub bytes: Bytes,
    pub stat: Stat,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// From the workspace root.
    pub path: WsPath,
    pub kind: FileKind,
    /// Present when the listing was asked for details.
    pub stat: Option<Stat>,
}

/// Why a bounded answer is not the whole one.
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

/// Something below a walk that could not be looked at. It does not stop the walk.
#[derive(Clone, Debug)]
pub struct WalkProblem {
    /// As near as it can be named.
    pub path: String,
    pub error: Error,
}

/// Entries in path order: a directory comes before what it holds.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    pub entries: Vec<DirEntry>,
    pub truncated: Option<TruncationCause>,
    pub problems: Vec<WalkProblem>,
}

/// Room in a workspace, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    pub total: u64,
    pub available: u64,
}

/// What a removal did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoveOutcome {
    /// Files, links and directories that are gone.
    pub count: u64,
}

/// What a rename did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenameOutcome {
    /// Whether nobody could see it half done.
    pub atomic: bool,
}
