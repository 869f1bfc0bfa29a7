//! The operations of a sequence. Each is one call, printed so that a person can repeat it.

use std::fmt;

use ab_core::edit::{Edit, EditOccurrences};
use ab_core::options::{
    ByteRange, ExistingContentHandling, FileCreationMode, ListOptions, OnMissingTarget,
    OpenOptions, OverwriteMode, ReadOptions, RemoveDepth, RemoveOptions, WriteMode,
};

use super::answer::Shown;

/// One call on a workspace, or on one of its open files.
#[derive(Clone, Debug)]
pub enum WorkspaceOperation {
    Stat(String),
    Exists(String),
    List(String, ListOptions),
    Read(String, ReadOptions),
    ReadMany(Vec<String>),
    /// Names of every kind that match one of the [`SAMPLE_GLOBS`].
    Glob {
        root: String,
        pattern: &'static str,
        limit: usize,
    },
    /// How many lines of each file contain a text.
    Grep {
        root: String,
        text: &'static str,
    },
    Write {
        path: String,
        bytes: Vec<u8>,
        mode: WriteMode,
        expect: ExpectedVersion,
        permissions: Option<u32>,
    },
    Touch(String),
    Edit {
        path: String,
        edits: Vec<Edit>,
        expect: ExpectedVersion,
        dry_run: bool,
    },
    SetMode(String, u32),
    Mkdir(String),
    Remove(String, RemoveOptions),
    Rename {
        from: String,
        to: String,
        overwrite: OverwriteMode,
    },
    /// Opens a file in a slot. If this succeeds, the file that was open in the slot is closed.
    Open {
        slot: OpenFileSlot,
        path: String,
        options: OpenOptions,
    },
    ReadAt {
        slot: OpenFileSlot,
        offset: u64,
        length: usize,
    },
    WriteAt {
        slot: OpenFileSlot,
        offset: u64,
        bytes: Vec<u8>,
    },
    SetLen {
        slot: OpenFileSlot,
        length: u64,
    },
    /// Describes the open file.
    Describe(OpenFileSlot),
}

/// All names, one name at any depth, the end of a name, and the names in one directory.
pub const SAMPLE_GLOBS: &[&str] = &["**", "a", "*b", "a/*"];

/// The index of one of the [`MAX_OPEN_FILES`] open files.
pub type OpenFileSlot = usize;

/// Most files that a sequence holds open at a time.
pub const MAX_OPEN_FILES: usize = 2;

/// The version that a change expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedVersion {
    /// No expectation.
    Any,
    /// The current version. If there is no file, a version that never existed.
    Current,
    /// The latest seen version that is not the current version.
    Stale,
    /// A version that never existed.
    NeverExisted,
}

impl WorkspaceOperation {
    /// The path whose version matters, for operations that expect one.
    pub(super) fn expecting(&self) -> Option<&str> {
        match self {
            WorkspaceOperation::Write { path, .. } | WorkspaceOperation::Edit { path, .. } => {
                Some(path)
            }
            _ => None,
        }
    }
}

impl fmt::Display for WorkspaceOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkspaceOperation::Stat(path) => write!(f, "stat {path:?}"),
            WorkspaceOperation::Exists(path) => write!(f, "exists {path:?}"),
            WorkspaceOperation::List(path, options) => {
                write!(f, "list {path:?}")?;
                bounded(f, "depth", options.max_depth)?;
                bounded(f, "limit", options.max_entries)?;
                write!(f, ", detail {:?}", options.detail)
            }
            WorkspaceOperation::Read(path, ReadOptions { range, max_bytes: limit }) => {
                write!(f, "read {path:?}")?;
                if let Some(ByteRange { start, length }) = range {
                    write!(f, ", {length} bytes at {start}")?;
                }
                let limit = usize::try_from(*limit).unwrap_or(usize::MAX);
                bounded(f, "limit", limit)
            }
            WorkspaceOperation::ReadMany(paths) => write!(f, "read_many {paths:?}"),
            WorkspaceOperation::Glob { root, pattern, limit } => {
                write!(f, "glob {pattern:?} below {root:?}")?;
                bounded(f, "limit", *limit)
            }
            WorkspaceOperation::Grep { root, text } => write!(f, "grep {text:?} below {root:?}"),
            WorkspaceOperation::Write { path, bytes, mode, expect, permissions } => {
                write!(f, "write {path:?} {}", Shown(bytes))?;
                if *mode != WriteMode::CreateOrReplace {
                    write!(f, ", {mode:?}")?;
                }
                write!(f, "{expect}")?;
                permitted(f, *permissions)
            }
            WorkspaceOperation::Touch(path) => write!(f, "touch {path:?}"),
            WorkspaceOperation::Edit { path, edits, expect, dry_run } => {
                write!(f, "edit {path:?}")?;
                for Edit { old, new, occurrences: which } in edits {
                    let which = match which {
                        EditOccurrences::Unique => "",
                        EditOccurrences::All => "every ",
                        EditOccurrences::First => "the first ",
                    };
                    write!(f, ", {which}{old:?} becomes {new:?}")?;
                }
                write!(f, "{expect}{}", if *dry_run { ", dry run" } else { "" })
            }
            WorkspaceOperation::SetMode(path, mode) => write!(f, "set_mode {path:?} {mode:o}"),
            WorkspaceOperation::Mkdir(path) => write!(f, "mkdir {path:?}"),
            WorkspaceOperation::Remove(path, RemoveOptions { depth: reach, missing }) => {
                let reach = if *reach == RemoveDepth::Recursive { ", recursive" } else { "" };
                let missing = if *missing == OnMissingTarget::Ignore { ", missing ok" } else { "" };
                write!(f, "rm {path:?}{reach}{missing}")
            }
            WorkspaceOperation::Rename { from, to, overwrite } => {
                write!(f, "rename {from:?} to {to:?}, {overwrite:?}")
            }
            WorkspaceOperation::Open { slot, path, options } => {
                write!(f, "open {path:?} as file {slot}, {:?}", options.access)?;
                if options.create != FileCreationMode::Never {
                    write!(f, ", create {:?}", options.create)?;
                }
                if options.existing == ExistingContentHandling::Truncate {
                    f.write_str(", truncate")?;
                }
                permitted(f, options.permissions)
            }
            WorkspaceOperation::ReadAt { slot, offset, length } => {
                write!(f, "file {slot}: read {length} bytes at {offset}")
            }
            WorkspaceOperation::WriteAt { slot, offset, bytes } => {
                write!(f, "file {slot}: write {} at {offset}", Shown(bytes))
            }
            WorkspaceOperation::SetLen { slot, length } => {
                write!(f, "file {slot}: set length {length}")
            }
            WorkspaceOperation::Describe(slot) => write!(f, "file {slot}: stat"),
        }
    }
}

impl fmt::Display for ExpectedVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ExpectedVersion::Any => "",
            ExpectedVersion::Current => ", expecting what is there",
            ExpectedVersion::Stale => ", expecting a former version",
            ExpectedVersion::NeverExisted => ", expecting another version",
        })
    }
}

fn bounded(f: &mut fmt::Formatter<'_>, name: &str, value: usize) -> fmt::Result {
    match value {
        0..1000 => write!(f, ", {name} {value}"),
        _ => Ok(()),
    }
}

fn permitted(f: &mut fmt::Formatter<'_>, permissions: Option<u32>) -> fmt::Result {
    match permissions {
        Some(mode) => write!(f, ", permissions {mode:o}"),
        None => Ok(()),
    }
}
