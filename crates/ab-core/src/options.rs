//! Options of driver calls. The `Default` of every struct is safe and bounded.

use std::time::SystemTime;

use crate::metadata::FileVersion;

/// Default of the maximum number of bytes that a `read` returns.
pub const DEFAULT_MAX_READ_BYTES: u64 = 256 * 1024 * 1024;
/// Default of the maximum number of entries that a `list` returns.
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
    /// Path and kind. This is the cheapest level.
    Kind,
    /// The attributes that `stat` returns without following links.
    Stat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListOptions {
    /// The number of levels below the directory: 1 lists its children, and `usize::MAX` lists
    /// everything.
    pub depth: usize,
    pub limit: usize,
    pub detail: EntryDetailLevel,
}

impl Default for ListOptions {
    fn default() -> Self {
        Self { depth: 1, limit: DEFAULT_MAX_LIST_ENTRIES, detail: EntryDetailLevel::Kind }
    }
}

/// A part of a file. A range that extends beyond the end is truncated at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    pub start: u64,
    pub length: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// The part to read. `None` for the whole file.
    pub range: Option<ByteRange>,
    /// Maximum number of bytes. If the file or range is larger, the read fails.
    pub limit: u64,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self { range: None, limit: DEFAULT_MAX_READ_BYTES }
    }
}

/// Whether the target of a write must exist or must not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteMode {
    #[default]
    CreateOrReplace,
    /// Fails if the path exists.
    CreateNew,
    /// Fails if the path does not exist.
    Replace,
    /// Leaves an existing file unchanged and returns its attributes.
    CreateIfMissing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    pub mode: WriteMode,
    /// The version that the file must have. A different version is a conflict.
    pub expected_version: Option<FileVersion>,
    /// The permission bits of a new file. An existing file keeps its permission bits.
    pub permissions: Option<u32>,
    pub durability: Durability,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The content survives the end of this process, but perhaps not a power loss.
    #[default]
    Process,
    /// The content survives a power loss: the file and its directory are synced before the call
    /// returns.
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
    /// Do not create the file. It must exist.
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

/// The position of writes to an open file.
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
    /// Whether opening may create the file, or returns a handle that can write.
    pub fn may_modify(self) -> bool {
        self.access.can_write() || self.create != FileCreationMode::Never
    }
}

/// Attributes to change. Absent ones are not changed.
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
    /// An existing target causes an error.
    #[default]
    Refuse,
    /// A file replaces an existing file, and a directory replaces an empty directory.
    Replace,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameOptions {
    pub overwrite: OverwriteMode,
}
