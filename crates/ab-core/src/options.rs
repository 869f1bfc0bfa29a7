//! What callers may ask of a driver. Every options struct has a `Default` that is safe and bounded.

use std::time::SystemTime;

use crate::metadata::FileVersion;

/// Most bytes that one `read` returns unless the caller says otherwise.
pub const DEFAULT_MAX_READ_BYTES: u64 = 256 * 1024 * 1024;
/// Most entries that one `list` returns unless the caller says otherwise.
pub const DEFAULT_MAX_LIST_ENTRIES: usize = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkHandling {
    /// Describe what the link leads to.
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

/// How much a listing says about each entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryDetailLevel {
    /// Path and kind; cheapest.
    Kind,
    /// Everything that `stat` without following would say.
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

/// Part of a file. A range past the end is cut at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    pub start: u64,
    pub length: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOptions {
    /// The whole file when absent.
    pub range: Option<ByteRange>,
    /// More than this is refused, not cut.
    pub limit: u64,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self { range: None, limit: DEFAULT_MAX_READ_BYTES }
    }
}

/// What must hold of the target before a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteMode {
    #[default]
    CreateOrReplace,
    /// Fails when something is there.
    CreateNew,
    /// Fails when nothing is there.
    Replace,
    /// Leaves what is there alone and says so by its stat.
    CreateIfMissing,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    pub mode: WriteMode,
    /// The version that must still be there; anything else is a conflict.
    pub expected_version: Option<FileVersion>,
    /// Permission bits of a new file; an existing file keeps its own.
    pub permissions: Option<u32>,
    pub durability: Durability,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Survives the end of the process.
    #[default]
    Process,
    /// Survives loss of power: file and directory are synced before the call returns.
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
    /// The file must be there.
    #[default]
    Never,
    /// Make it, with its parents, when it is missing.
    IfMissing,
    /// Make it; fail when something is there.
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
    /// To the offset that comes with them.
    #[default]
    AtOffset,
    /// To the end as it is then, whatever their offset.
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
    /// Whether opening alone may change something, or lets its holder do so.
    pub fn may_modify(self) -> bool {
        self.access.can_write() || self.create != FileCreationMode::Never
    }
}

/// Attributes to change; absent ones stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeChanges {
    /// Permission bits, at most `0o777`.
    pub mode: Option<u32>,
    pub modified: Option<SystemTime>,
    pub accessed: Option<SystemTime>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemoveDepth {
    /// A file, a link, or an empty directory.
    #[default]
    NonRecursive,
    /// A directory and everything in it.
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
    /// Something at the target is an error.
    #[default]
    Refuse,
    /// A file replaces a file, a directory an empty directory.
    Replace,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameOptions {
    pub overwrite: OverwriteMode,
}
