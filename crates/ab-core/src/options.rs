//! Options of driver calls. Every struct has a `Default` that is safe and bounded.

use std::time::SystemTime;

use crate::metadata::FileVersion;

/// Default limit of the bytes that one `read` returns.
pub const DEFAULT_MAX_READ_BYTES: u64 = 256 * 1024 * 1024;
/// Default limit of the entries that one `list` returns.
pub const DEFAULT_MAX_LIST_ENTRIES: usize = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkHandling {
    /// Describe the target of the link.
    Follow,
    /// Describe the link itself.
    NoFollow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatOptions {
    pub links: LinkHandling,
}

impl Default for StatOptions {
    fn default() -> Self {
        Self { links: LinkHandling::Follow }
    }
}

/// How much a listing reports about each entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryDetailLevel {
    /// Path and kind; the cheapest.
    Kind,
    /// The same as `stat` without following links.
    Stat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListOptions {
    /// Levels below the directory: 1 lists its children, `usize::MAX` everything.
    pub depth: usize,
    pub limit: usize,
    pub detail: EntryDetailLevel,
}

impl Default for ListOptions {
    fn default() -> Self {
        Self { depth: 1, limit: DEFAULT_MAX_LIST_ENTRIES, detail: EntryDetailLevel::Kind }
    }
}

/// A part of a file. A range past the end is cut at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    pub start: u64,
    pub length: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// `None` means the whole file.
    pub range: Option<ByteRange>,
    /// Larger content is refused, not cut.
    pub limit: u64,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self { range: None, limit: DEFAULT_MAX_READ_BYTES }
    }
}

/// What a write requires of its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteMode {
    #[default]
    CreateOrReplace,
    /// Fails if something exists.
    CreateNew,
    /// Fails if nothing exists.
    Replace,
    /// Leaves an existing file unchanged and returns its stat.
    CreateIfMissing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    pub mode: WriteMode,
    /// The version that the file must have. Any other is a conflict.
    pub expected_version: Option<FileVersion>,
    /// Permission bits of a new file. An existing file keeps its own.
    pub permissions: Option<u32>,
    pub durability: Durability,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Survives the end of the process.
    #[default]
    Process,
    /// Survives a power loss: file and directory are synced before the call returns.
    Power,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileAccess {
    #[default]
    Read,
    Write,
    ReadWrite,
}

impl FileAccess {
    pub fn can_write(self) -> bool {
        self != FileAccess::Read
    }

    pub fn can_read(self) -> bool {
        self != FileAccess::Write
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileCreationMode {
    /// The file must exist.
    #[default]
    Never,
    /// Create the file and its parents if it is missing.
    IfMissing,
    /// Create the file, and fail if something exists.
    MustBeNew,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExistingContentHandling {
    #[default]
    Keep,
    /// Start from an empty file.
    Truncate,
}

/// Where the writes of an open file go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WritePosition {
    /// At the offset of each write.
    #[default]
    AtOffset,
    /// At the current end of the file. The offset is ignored.
    End,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    pub access: FileAccess,
    pub create: FileCreationMode,
    pub existing: ExistingContentHandling,
    pub position: WritePosition,
    /// Permission bits of a new file.
    pub permissions: Option<u32>,
}

impl OpenOptions {
    /// Whether opening the file may change something, or allows the caller to do so later.
    pub fn may_modify(self) -> bool {
        self.access.can_write() || self.create != FileCreationMode::Never
    }
}

/// Attributes to change. Absent ones stay as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeChanges {
    /// Permission bits, at most `0o777`.
    pub mode: Option<u32>,
    pub modified: Option<SystemTime>,
    pub accessed: Option<SystemTime>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemoveDepth {
    /// Removes a file, a link, or an empty directory.
    #[default]
    NonRecursive,
    /// Removes a directory and everything in it.
    Recursive,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnMissingTarget {
    #[default]
    Fail,
    Ignore,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoveOptions {
    pub depth: RemoveDepth,
    pub missing: OnMissingTarget,
}

impl RemoveOptions {
    pub fn recursive() -> Self {
        Self { depth: RemoveDepth::Recursive, ..Self::default() }
    }

    pub fn missing_ok(mut self) -> Self {
        self.missing = OnMissingTarget::Ignore;
        self
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverwriteMode {
    /// An existing target is an error.
    #[default]
    Refuse,
    /// A file replaces a file, a directory an empty directory.
    Replace,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameOptions {
    pub overwrite: OverwriteMode,
}
