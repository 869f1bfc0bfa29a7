//! Random sequences from a small alphabet, so that operations meet at the same few places.
//!
//! Every alternative has its plainest form first: that is what a failing sequence shrinks to.

use ab_core::edit::{Edit, Which};
use ab_core::options::{
    Access, ByteRange, Creation, DEFAULT_LIST_LIMIT, DEFAULT_READ_LIMIT, Detail, Existing,
    ListOptions, Missing, OpenOptions, Overwrite, Reach, ReadOptions, RemoveOptions, WriteMode,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::operation::{Expect, Operation, SLOTS, Slot};

/// Most operations of one sequence.
pub const LONGEST: usize = 40;

/// Sequences of any operations.
pub fn sequence() -> impl Strategy<Value = Vec<Operation>> {
    vec(operation(), 1..=LONGEST)
}

/// Any operation.
pub fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        10 => write(),
        5 => path().prop_map(Operation::Mkdir),
        3 => path().prop_map(Operation::Touch),
        6 => (path(), removal()).prop_map(|(path, options)| Operation::Remove(path, options)),
        8 => rename(),
        4 => (path(), reading()).prop_map(|(path, options)| Operation::Read(path, options)),
        1 => vec(path(), 0..4).prop_map(Operation::ReadMany),
        4 => (path(), listing()).prop_map(|(path, options)| Operation::List(path, options)),
        3 => path().prop_map(Operation::Stat),
        1 => path().prop_map(Operation::Exists),
        2 => (plain(), mode()).prop_map(|(path, mode)| Operation::SetMode(path, mode)),
        4 => edit(),
        6 => open(),
        3 => (slot(), 0u64..8, 0usize..8)
            .prop_map(|(slot, offset, length)| Operation::ReadAt { slot, offset, length }),
        4 => (slot(), 0u64..8, content())
            .prop_map(|(slot, offset, bytes)| Operation::WriteAt { slot, offset, bytes }),
        2 => (slot(), 0u64..8).prop_map(|(slot, length)| Operation::SetLen { slot, length }),
        1 => slot().prop_map(Operation::Describe),
    ]
}

fn write() -> impl Strategy<Value = Operation> {
    let modes = prop_oneof![
        6 => Just(WriteMode::CreateOrReplace),
        1 => Just(WriteMode::CreateNew),
        1 => Just(WriteMode::Replace),
        1 => Just(WriteMode::CreateIfMissing),
    ];
    (path(), content(), modes, expect(), permissions()).prop_map(
        |(path, bytes, mode, expect, permissions)| Operation::Write {
            path,
            bytes,
            mode,
            expect,
            permissions,
        },
    )
}

fn edit() -> impl Strategy<Value = Operation> {
    let text = || prop_oneof![8 => "[ab\n]{1,2}", 1 => Just(String::new())];
    let which = select(vec![Which::Unique, Which::All, Which::First]);
    let one = (text(), text(), which).prop_map(|(old, new, which)| Edit { old, new, which });
    (path(), vec(one, 0..3), expect(), prop::bool::weighted(0.2))
        .prop_map(|(path, edits, expect, dry_run)| Operation::Edit { path, edits, expect, dry_run })
}

fn rename() -> impl Strategy<Value = Operation> {
    (path(), path(), select(vec![Overwrite::Refuse, Overwrite::Replace]))
        .prop_map(|(from, to, overwrite)| Operation::Rename { from, to, overwrite })
}

fn open() -> impl Strategy<Value = Operation> {
    let options = (
        select(vec![Access::ReadWrite, Access::Read, Access::Write]),
        select(vec![Creation::Never, Creation::IfMissing, Creation::Always]),
        prop_oneof![3 => Just(Existing::Keep), 1 => Just(Existing::Truncate)],
        permissions(),
    );
    (slot(), path(), options).prop_map(|(slot, path, options)| {
        let (access, create, existing, permissions) = options;
        let options = OpenOptions { access, create, existing, permissions };
        Operation::Open { slot, path, options }
    })
}

fn removal() -> impl Strategy<Value = RemoveOptions> {
    (select(vec![Reach::One, Reach::Recursive]), select(vec![Missing::Fail, Missing::Ignore]))
        .prop_map(|(reach, missing)| RemoveOptions { reach, missing })
}

fn reading() -> impl Strategy<Value = ReadOptions> {
    let range = (0u64..8, 0u64..8).prop_map(|(start, length)| ByteRange { start, length });
    let limit = prop_oneof![3 => Just(DEFAULT_READ_LIMIT), 1 => 0u64..6];
    (option::of(range), limit).prop_map(|(range, limit)| ReadOptions { range, limit })
}

fn listing() -> impl Strategy<Value = ListOptions> {
    let depth = prop_oneof![3 => Just(1), 2 => Just(usize::MAX), 1 => 0usize..4];
    let limit = prop_oneof![3 => Just(DEFAULT_LIST_LIMIT), 1 => 0usize..6];
    (depth, limit, select(vec![Detail::Kind, Detail::Stat]))
        .prop_map(|(depth, limit, detail)| ListOptions { depth, limit, detail })
}

fn expect() -> impl Strategy<Value = Expect> {
    prop_oneof![
        8 => Just(Expect::Nothing),
        2 => Just(Expect::Current),
        1 => Just(Expect::Former),
        1 => Just(Expect::Foreign),
    ]
}

/// Bits that let the owner of a file or directory go on working with it.
fn mode() -> impl Strategy<Value = u32> {
    select(vec![0o700, 0o755, 0o777])
}

/// More than most hosts let a new file have by itself, and less.
fn permissions() -> impl Strategy<Value = Option<u32>> {
    prop_oneof![6 => Just(None), 1 => select(vec![0o600, 0o666, 0o755]).prop_map(Some)]
}

fn slot() -> impl Strategy<Value = Slot> {
    0..SLOTS
}

/// Text that repeats itself, and now and then bytes that are no text.
fn content() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        12 => vec(select(b"ab\n".to_vec()), 0..6),
        1 => Just(b"a\xff".to_vec()),
    ]
}

/// A path as a caller may write it.
fn path() -> impl Strategy<Value = String> {
    prop_oneof![
        40 => plain(),
        1 => plain().prop_map(|path| format!("./{path}")),
        1 => plain().prop_map(|path| format!("/{path}")),
        1 => plain().prop_map(|path| format!("{path}/")),
        1 => plain().prop_map(|path| format!("{path}/.")),
        1 => plain().prop_map(|path| path.replace('/', "//")),
        1 => (name(), plain()).prop_map(|(name, path)| format!("{name}/../{path}")),
        1 => (plain(), name()).prop_map(|(path, name)| format!("{path}/../{name}")),
        2 => select(vec![".", "/", "a/.."]).prop_map(str::to_owned),
        1 => select(vec!["", "..", "/..", "../a", "a/../../b", ".ab-tmp-a", "a/.ab-tmp-a", "a\0b"])
            .prop_map(str::to_owned),
    ]
}

fn plain() -> impl Strategy<Value = String> {
    let names =
        prop_oneof![5 => vec(name(), 1..=1), 4 => vec(name(), 2..=2), 2 => vec(name(), 3..=3)];
    names.prop_map(|names| names.join("/"))
}

/// Names that begin alike, and one that sorts between a directory and what the directory holds.
fn name() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just("a"), 3 => Just("b"), 2 => Just("a.b"), 1 => Just("ab")]
}
