//! Random sequences over a few names, so that operations often meet at the same paths.
//!
//! Every choice has its simplest form first, because failing sequences shrink to the first form.

use std::fmt;

use ab_core::edit::{Edit, EditOccurrences};
use ab_core::options::{
    ByteRange, DEFAULT_MAX_LIST_ENTRIES, DEFAULT_MAX_READ_BYTES, EntryDetailLevel,
    ExistingContentHandling, FileAccess, FileCreationMode, ListOptions, OnMissingTarget,
    OpenOptions, OverwriteMode, ReadOptions, RemoveDepth, RemoveOptions, WriteMode,
};
use ab_core::search::DEFAULT_MAX_SEARCH_MATCHES;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::operation::{ExpectedVersion, OpenFileSlot, SAMPLE_GLOBS, WorkspaceOperation};

/// Most operations of one sequence.
pub const MAX_SEQUENCE_OPERATIONS: usize = 40;

/// Sequences of any operations.
pub fn any_operation_sequence() -> impl Strategy<Value = Vec<WorkspaceOperation>> {
    vec(any_operation(), 1..=MAX_SEQUENCE_OPERATIONS)
}

/// Any operation.
pub fn any_operation() -> impl Strategy<Value = WorkspaceOperation> {
    prop_oneof![
        10 => write(),
        5 => path().prop_map(WorkspaceOperation::Mkdir),
        3 => path().prop_map(WorkspaceOperation::Touch),
        6 => (path(), removal()).prop_map(|(path, options)| WorkspaceOperation::Remove(path, options)),
        8 => rename(),
        4 => (path(), reading()).prop_map(|(path, options)| WorkspaceOperation::Read(path, options)),
        1 => vec(path(), 0..4).prop_map(WorkspaceOperation::ReadMany),
        4 => (root(), listing()).prop_map(|(path, options)| WorkspaceOperation::List(path, options)),
        2 => glob(),
        2 => (searched(), select(&["a", "b", "ab"][..]))
            .prop_map(|(root, text)| WorkspaceOperation::Grep { root, text }),
        3 => path().prop_map(WorkspaceOperation::Stat),
        1 => path().prop_map(WorkspaceOperation::Exists),
        2 => (plain(), mode()).prop_map(|(path, mode)| WorkspaceOperation::SetMode(path, mode)),
        4 => edit(),
        6 => open(),
        3 => (slot(), 0u64..8, 0usize..8)
            .prop_map(|(slot, offset, length)| WorkspaceOperation::ReadAt { slot, offset, length }),
        4 => (slot(), 0u64..8, content())
            .prop_map(|(slot, offset, bytes)| WorkspaceOperation::WriteAt { slot, offset, bytes }),
        2 => (slot(), 0u64..8).prop_map(|(slot, length)| WorkspaceOperation::SetLen { slot, length }),
        1 => slot().prop_map(WorkspaceOperation::Describe),
    ]
}

fn write() -> impl Strategy<Value = WorkspaceOperation> {
    let modes = mostly(
        WriteMode::CreateOrReplace,
        4,
        &[WriteMode::CreateNew, WriteMode::Replace, WriteMode::CreateIfMissing],
    );
    (path(), content(), modes, expect(), permissions()).prop_map(
        |(path, bytes, mode, expect, permissions)| WorkspaceOperation::Write {
            path,
            bytes,
            mode,
            expect,
            permissions,
        },
    )
}

fn edit() -> impl Strategy<Value = WorkspaceOperation> {
    let text =
        || select(&["a", "b", "ab", "aa", "ba", "\n", "a\n", ""][..]).prop_map(str::to_owned);
    let which =
        select(&[EditOccurrences::Unique, EditOccurrences::All, EditOccurrences::First][..]);
    let one =
        (text(), text(), which).prop_map(|(old, new, which)| Edit { old, new, occurrences: which });
    (path(), vec(one, 0..3), expect(), prop::bool::weighted(0.2)).prop_map(
        |(path, edits, expect, dry_run)| WorkspaceOperation::Edit { path, edits, expect, dry_run },
    )
}

fn glob() -> impl Strategy<Value = WorkspaceOperation> {
    let limit = mostly(DEFAULT_MAX_SEARCH_MATCHES, 4, &[0, 1, 3]);
    (searched(), select(SAMPLE_GLOBS), limit)
        .prop_map(|(root, pattern, limit)| WorkspaceOperation::Glob { root, pattern, limit })
}

fn rename() -> impl Strategy<Value = WorkspaceOperation> {
    (path(), path(), select(&[OverwriteMode::Refuse, OverwriteMode::Replace][..]))
        .prop_map(|(from, to, overwrite)| WorkspaceOperation::Rename { from, to, overwrite })
}

fn open() -> impl Strategy<Value = WorkspaceOperation> {
    let options = (
        mostly(FileAccess::ReadWrite, 2, &[FileAccess::Read, FileAccess::Write]),
        mostly(
            FileCreationMode::IfMissing,
            2,
            &[FileCreationMode::Never, FileCreationMode::MustBeNew],
        ),
        mostly(ExistingContentHandling::Keep, 2, &[ExistingContentHandling::Truncate]),
        permissions(),
    );
    (slot(), path(), options).prop_map(|(slot, path, options)| {
        let (access, create, existing, permissions) = options;
        let options =
            OpenOptions { access, create, existing, permissions, ..OpenOptions::default() };
        WorkspaceOperation::Open { slot, path, options }
    })
}

fn removal() -> impl Strategy<Value = RemoveOptions> {
    (
        select(&[RemoveDepth::NonRecursive, RemoveDepth::Recursive][..]),
        select(&[OnMissingTarget::Fail, OnMissingTarget::Ignore][..]),
    )
        .prop_map(|(reach, missing)| RemoveOptions { depth: reach, missing })
}

fn reading() -> impl Strategy<Value = ReadOptions> {
    let range = (0u64..8, 0u64..8).prop_map(|(start, length)| ByteRange { start, length });
    let limit = mostly(DEFAULT_MAX_READ_BYTES, 6, &[0, 1, 2, 4]);
    (option::of(range), limit).prop_map(|(range, limit)| ReadOptions { range, max_bytes: limit })
}

fn listing() -> impl Strategy<Value = ListOptions> {
    let depth = select(&[1, 1, usize::MAX, usize::MAX, 0, 2, 3][..]);
    let limit = mostly(DEFAULT_MAX_LIST_ENTRIES, 4, &[0, 1, 3]);
    (depth, limit, select(&[EntryDetailLevel::Kind, EntryDetailLevel::Stat][..])).prop_map(
        |(depth, limit, detail)| ListOptions { max_depth: depth, max_entries: limit, detail },
    )
}

fn expect() -> impl Strategy<Value = ExpectedVersion> {
    let others = [
        ExpectedVersion::Current,
        ExpectedVersion::Current,
        ExpectedVersion::Stale,
        ExpectedVersion::NeverExisted,
    ];
    mostly(ExpectedVersion::Any, 7, &others)
}

/// Modes that let the owner continue to use the file or directory.
fn mode() -> impl Strategy<Value = u32> {
    select(&[0o700, 0o755, 0o777][..])
}

/// Both more and fewer bits than most hosts give a new file by default.
fn permissions() -> impl Strategy<Value = Option<u32>> {
    mostly(None, 4, &[Some(0o600), Some(0o666), Some(0o755)])
}

fn slot() -> impl Strategy<Value = OpenFileSlot> {
    mostly(0, 2, &[1])
}

/// Repetitive text, and sometimes bytes that are not text.
fn content() -> impl Strategy<Value = Vec<u8>> {
    vec(select(&b"aaaaaabbbb\n\n\xff"[..]), 0..6)
}

/// A path as a caller may write it.
fn path() -> impl Strategy<Value = String> {
    (plain(), name(), mostly(Spelling::Plain, 144, ODD_SPELLINGS)).prop_map(
        |(path, name, spelling)| match spelling {
            Spelling::Plain => path,
            Spelling::FromHere => format!("./{path}"),
            Spelling::FromTheRoot => format!("/{path}"),
            Spelling::Trailing => format!("{path}/"),
            Spelling::TrailingDot => format!("{path}/."),
            Spelling::Doubled => path.replace('/', "//"),
            Spelling::Detour => format!("{name}/../{path}"),
            Spelling::Sideways => format!("{path}/../{name}"),
            Spelling::Exactly(text) => text.to_owned(),
        },
    )
}

/// Where a walk starts: often at the root, where most files are.
fn root() -> impl Strategy<Value = String> {
    prop_oneof![Just(".".to_owned()), path()]
}

/// Where a search starts. This is never the root, because a scope that was never written to has no
/// directory to search.
fn searched() -> impl Strategy<Value = String> {
    plain()
}

/// One, two or three names.
fn plain() -> impl Strategy<Value = String> {
    (select(&[1, 1, 1, 2, 2, 2, 3][..]), name(), name(), name())
        .prop_map(|(length, first, second, third)| [first, second, third][..length].join("/"))
}

/// Names with a common prefix, and one that sorts between a directory and its entries.
fn name() -> impl Strategy<Value = &'static str> {
    select(&["a", "a", "a", "a", "a", "a", "b", "b", "b", "a.b", "ab"][..])
}

/// How a path is written.
#[derive(Clone, Copy, Debug)]
enum Spelling {
    Plain,
    FromHere,
    FromTheRoot,
    Trailing,
    TrailingDot,
    Doubled,
    Detour,
    Sideways,
    Exactly(&'static str),
}

const ODD_SPELLINGS: &[Spelling] = &[
    Spelling::FromHere,
    Spelling::FromTheRoot,
    Spelling::Trailing,
    Spelling::TrailingDot,
    Spelling::Doubled,
    Spelling::Detour,
    Spelling::Sideways,
    Spelling::Exactly("."),
    Spelling::Exactly("/"),
    Spelling::Exactly("a/.."),
    Spelling::Exactly(""),
    Spelling::Exactly(".."),
    Spelling::Exactly("/../a"),
    Spelling::Exactly("a/../../b"),
    Spelling::Exactly("a/.ab-tmp-b"),
    Spelling::Exactly("a\0b"),
];

/// A value that is `weight` times as likely as each of the other values. The choice takes one draw,
/// which is much cheaper than a choice between strategies.
fn mostly<T: Clone + fmt::Debug + 'static>(
    usual: T,
    weight: usize,
    others: &[T],
) -> impl Strategy<Value = T> + use<T> {
    select([vec![usual; weight], others.to_vec()].concat())
}
