//! The bytes of every message of our own wire: peers of other versions read them, so they stay.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use ab_core::driver::{BackendInfo, BackendKind, Capabilities};
use ab_core::metadata::{DirEntry, FileKind, FileVersion, Stat, TruncationCause};
use ab_core::options::{
    AttributeChanges, ByteRange, Durability, ExistingContentHandling, FileAccess, FileCreationMode,
    ListOptions, OpenOptions, ReadOptions, RemoveOptions, RenameOptions, StatOptions, WriteMode,
    WriteOptions, WritePosition,
};
use ab_core::process::{
    Command, ExecLimits, ExecRequest, ExitCause, HostDirectory, HostDirectoryAccess,
    LeftoverProcessOutcome, MountLayout, OutputChannel, OutputChunk, PathRestrictions,
    ProcessControlMessage, ProcessExit, ProcessId, ProcessLifetime, StderrMode, StdinMode,
    TerminalSize,
};
use ab_core::search::{
    CaseSensitivity, DotfileVisibility, EntryKindFilter, IgnoreFileHandling, IgnoredEntryCounts,
    LineSelection, MatchLineMode, PatternSyntax, SearchLimits, SearchLineRole, SearchMatch,
    SearchOutputMode, SearchQuery, SearchResults, SearchTarget, TextQuery,
};
use ab_core::{ApprovalId, Error, ErrorCode, ErrorKind, PathParser, Verb, WsPath};
use ab_remote::wire::call::{
    RemoteCall, RemoteCallId, RemoteCallReplyPart, RemoteHelloReply, RemoteReadReply,
    RemoteWriteBody,
};
use ab_remote::wire::frame::{ProcessClientFrame, ProcessServerFrame};
use ab_remote::wire::{DecodeError, WireCodec, decode, encode};
use bytes::Bytes;

fn path(text: &str) -> WsPath {
    PathParser::lenient().parse(text).unwrap()
}

/// `value` is these bytes, in hexadecimal; spaces are for the reader. The bytes are read back to the same value.
#[track_caller]
fn check<T: WireCodec>(value: &T, expected: &str) {
    let bytes = encode(value);
    assert_eq!(hex(&bytes), expected.replace(' ', ""));
    let read = decode::<T>(bytes).map(|read| hex(&encode(&read)));
    assert_eq!(read, Ok(expected.replace(' ', "")));
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks each row, and that the rows have all first bytes up to `last`, which is the largest that a peer reads.
#[track_caller]
fn check_all<T: WireCodec>(rows: &[(T, String)], last: u8) {
    for (value, expected) in rows {
        check(value, expected);
    }
    let tags: BTreeSet<u8> = rows.iter().map(|(value, _)| encode(value)[0]).collect();
    assert_eq!(tags, (0..=last).collect());
    let next = decode::<T>(Bytes::from(vec![last + 1])).err();
    assert_eq!(next, Some(DecodeError::Invalid), "{} has no row", last + 1);
}

/// The path `a`: no scope roots, and a string of one byte.
const A: &str = "00000000 00000001 61";
/// The empty path.
const ROOT: &str = "00000000 00000000";
const ONE: &str = "0000000000000001";
const TWO: &str = "0000000000000002";
const THREE: &str = "0000000000000003";

fn a() -> WsPath {
    path("a")
}

fn seconds(count: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(count)
}

/// With the bytes [`STAT`].
fn stat() -> Stat {
    Stat {
        kind: FileKind::Dir,
        size: 1,
        modified: seconds(2),
        accessed: Some(SystemTime::UNIX_EPOCH - Duration::from_nanos(3)),
        created: None,
        mode: Some(0o755),
        version: FileVersion::new(4),
    }
}

/// Kind, size, three times, mode and version.
const STAT: &str = "01 0000000000000001 00 0000000000000002 00000000 \
                    01 01 0000000000000000 00000003 00 01 000001ed \
                    00000000000000000000000000000004";

#[test]
fn calls_have_their_bytes() {
    let read = ReadOptions { range: Some(ByteRange { start: 1, length: 2 }), max_bytes: 3 };
    let write = WriteOptions {
        mode: WriteMode::Replace,
        expected_version: Some(FileVersion::new(4)),
        permissions: Some(0o644),
        durability: Durability::SurvivesPowerLoss,
    };
    let open = OpenOptions {
        access: FileAccess::ReadWrite,
        create: FileCreationMode::IfMissing,
        existing: ExistingContentHandling::Truncate,
        position: WritePosition::End,
        permissions: None,
    };
    let attributes =
        AttributeChanges { mode: Some(0o644), modified: None, accessed: Some(seconds(1)) };
    let attributes_bytes = format!("01 000001a4 00 01 00 {ONE} 00000000");
    let list = ListOptions { max_depth: 1, max_entries: 2, ..ListOptions::default() };
    let call = RemoteCallId { connection: 1, request: 2 };
    let body = RemoteWriteBody::Inline(Bytes::from_static(b"x"));
    let names = SearchTarget::Names { glob: "*".to_owned(), kinds: EntryKindFilter::All };
    let rows = [
        (RemoteCall::Hello { connection: 1 }, "00 00000000000000000000000000000001".to_owned()),
        (RemoteCall::Stat { path: a(), options: StatOptions::default() }, format!("01 {A} 00")),
        (RemoteCall::List { path: a(), options: list }, format!("02 {A} {ONE} {TWO} 00")),
        (RemoteCall::Search(Box::new(query(names))), format!("03 {A} 00 00000001 2a 01 {QUERY}")),
        (RemoteCall::NextReplyPart { handle: 1 }, "04 00000001".to_owned()),
        (
            RemoteCall::Read { path: a(), options: ReadOptions { range: None, ..read } },
            format!("05 {A} 00 {THREE}"),
        ),
        (RemoteCall::Read { path: a(), options: read }, format!("05 {A} 01 {ONE} {TWO} {THREE}")),
        (RemoteCall::StageWrite { size: 1 }, format!("06 {ONE}")),
        (
            RemoteCall::Write { path: a(), body, options: write },
            format!("07 {A} 02 01 00000000000000000000000000000004 01 000001a4 01 00 00000001 78"),
        ),
        (RemoteCall::Open { path: a(), options: open }, format!("08 {A} 02 01 01 01 00")),
        (RemoteCall::StatHandle { handle: 1 }, "09 00000001".to_owned()),
        (
            RemoteCall::SetHandleAttributes { handle: 1, attributes },
            format!("0a 00000001 {attributes_bytes}"),
        ),
        (RemoteCall::SetAttributes { path: a(), attributes }, format!("0b {A} {attributes_bytes}")),
        (RemoteCall::ReadLink { path: a() }, format!("0c {A}")),
        (RemoteCall::Symlink { path: a(), target: "b".to_owned() }, format!("0d {A} 00000001 62")),
        (RemoteCall::MakeDir { path: a() }, format!("0e {A}")),
        (
            RemoteCall::Remove { path: a(), options: RemoveOptions::default() },
            format!("0f {A} 00 00"),
        ),
        (
            RemoteCall::Rename { from: a(), to: WsPath::root(), options: RenameOptions::default() },
            format!("10 {A} {ROOT} 00"),
        ),
        (RemoteCall::DiskSpace, "11".to_owned()),
        (RemoteCall::Processes, "12".to_owned()),
        (RemoteCall::EffectivePolicy, "13".to_owned()),
        (RemoteCall::Cancel { request: 258 }, "14 00000102".to_owned()),
        (
            RemoteCall::QueryLostCall(call),
            "15 00000000000000000000000000000001 00000002".to_owned(),
        ),
    ];
    check_all(&rows, 21);
    let bodies = [
        (RemoteWriteBody::Inline(Bytes::from_static(b"x")), "00 00000001 78".to_owned()),
        (RemoteWriteBody::Staged(1), "01 00000001".to_owned()),
    ];
    check_all(&bodies, 1);
}

#[test]
fn answers_have_their_bytes() {
    check(&stat(), STAT);
    let replies = [
        (RemoteReadReply::Inline(stat()), format!("00 {STAT}")),
        (RemoteReadReply::Open(stat(), 1), format!("01 {STAT} 00000001")),
    ];
    check_all(&replies, 1);
    let info = BackendInfo {
        kind: BackendKind::Memory,
        root_aliases: vec!["/w".to_owned()],
        capabilities: Capabilities {
            exec: true,
            exact_error_kinds: true,
            ..Capabilities::default()
        },
    };
    check(
        &RemoteHelloReply { server_instance: 1, info },
        "00000000000000000000000000000001 01 00000001 00000002 2f77 01 00 00 00 00 00 00 00 01",
    );
    let bytes = Bytes::from_static(b"x");
    let last = RemoteCallReplyPart { next_part: None, bytes: bytes.clone() };
    check(&last, "00 00000001 78");
    check(&RemoteCallReplyPart { next_part: Some(1), bytes }, "01 00000001 00000001 78");
}

/// A search with the bytes of its root, those of its target, and [`QUERY`].
fn query(target: SearchTarget) -> SearchQuery {
    SearchQuery {
        root: a(),
        target,
        include: vec!["i".to_owned()],
        exclude: Vec::new(),
        ignore: vec!["n".to_owned()],
        dotfiles: DotfileVisibility::Include,
        ignore_files: IgnoreFileHandling::Honour,
        limits: SearchLimits {
            max_matches: 1,
            max_bytes: 2,
            max_duration: Duration::from_millis(3500),
        },
    }
}

/// What follows the target: three lists of globs, two choices and the limits.
const QUERY: &str = "00000001 00000001 69 00000000 00000001 00000001 6e 01 01 \
                     0000000000000001 0000000000000002 0000000000000003 1dcd6500";

#[test]
fn searches_have_their_bytes() {
    let text = TextQuery {
        pattern: "p".to_owned(),
        syntax: PatternSyntax::Regex,
        case: CaseSensitivity::Insensitive,
        line_mode: MatchLineMode::MultiLine,
        lines: LineSelection::Matching,
        max_lines_per_file: None,
        context_before: 1,
        context_after: 2,
        output_mode: SearchOutputMode::Counts,
    };
    let others = TextQuery { lines: LineSelection::NonMatching, ..text.clone() };
    let limited = TextQuery { max_lines_per_file: Some(2), ..text.clone() };
    let names = SearchTarget::Names { glob: "*".to_owned(), kinds: EntryKindFilter::All };
    let targets = [
        (names, "00 00000001 2a 01".to_owned()),
        (SearchTarget::Text(text), format!("01 00000001 70 01 01 01 {ONE} {TWO} 02")),
        (SearchTarget::Text(others), format!("02 00000001 70 01 01 01 {ONE} {TWO} 02 01 00")),
        (
            SearchTarget::Text(limited),
            format!("02 00000001 70 01 01 01 {ONE} {TWO} 02 00 01 {TWO}"),
        ),
    ];
    for (target, bytes) in &targets {
        check(&query(target.clone()), &format!("{A} {bytes} {QUERY}"));
    }
    check_all(&targets, 2);
    let line = |cut, role| SearchMatch::Line {
        path: a(),
        line_number: 1,
        text: "t".to_owned(),
        full_line_bytes: cut,
        role,
    };
    let entry = |stat| SearchMatch::Name(DirEntry { path: a(), kind: FileKind::Symlink, stat });
    let matches = [
        (entry(None), format!("00 {A} 02 00")),
        (entry(Some(stat())), format!("00 {A} 02 01 {STAT}")),
        (line(None, SearchLineRole::Match), format!("01 {A} {ONE} 00000001 74 00 00")),
        (line(Some(2), SearchLineRole::Context), format!("01 {A} {ONE} 00000001 74 01 {TWO} 01")),
        (SearchMatch::File { path: a() }, format!("02 {A}")),
        (SearchMatch::Count { path: a(), matching_lines: 1 }, format!("03 {A} {ONE}")),
    ];
    check_all(&matches, 3);
    let results = SearchResults {
        matches: vec![SearchMatch::File { path: a() }],
        truncated: Some(TruncationCause::Time),
        files_searched: 1,
        binary_files_skipped: 2,
        ignored_entries: IgnoredEntryCounts { directories: 3, files: 1 },
        problems: Vec::new(),
    };
    check(&results, &format!("00000001 02 {A} 01 02 {ONE} {TWO} {THREE} {ONE} 00000000"));
}

#[test]
fn client_frames_have_their_bytes() {
    let size = TerminalSize { columns: 80, rows: 24 };
    let call = RemoteCallId { connection: 1, request: 2 };
    let exec =
        |request| ProcessClientFrame::Exec { call, window_bytes: 3, request: Box::new(request) };
    let head = format!("00 00000000000000000000000000000001 00000002 {THREE}");
    let plain = ExecRequest::new(Command::Argv(vec!["ls".to_owned(), "-l".to_owned()]));
    let full = ExecRequest {
        command: Command::Shell("ls".to_owned()),
        cwd: a(),
        env: [("K".to_owned(), "v".to_owned())].into(),
        stdin: StdinMode::Piped,
        // It stays on the machine of the caller.
        stdin_for_guards: None,
        stderr: StderrMode::Merged,
        terminal: Some(size),
        lifetime: ProcessLifetime::Detached,
        limits: ExecLimits {
            wall_time: Some(Duration::from_secs(1)),
            cpu: None,
            memory: Some(1),
            processes: Some(2),
            file_size: Some(3),
            open_files: None,
        },
        restrictions: PathRestrictions {
            hidden: vec![a()],
            read_only: Vec::new(),
            host_directories: vec![HostDirectory {
                path: "/b".into(),
                access: HostDirectoryAccess::ReadWrite,
            }],
        },
        mount_layout: MountLayout { scope_path: Some(WsPath::root()), mounted: Vec::new() },
    };
    let rows = [
        (
            exec(plain),
            // The command, no variables, the input, no terminal, the lifetime, no limits and no restrictions.
            format!(
                "{head} 01 00000002 00000002 6c73 00000002 2d6c {ROOT} 00000000 00 00 00 \
                 000000000000 00000000 00000000 00000000 00"
            ),
        ),
        (
            exec(full),
            format!(
                "{head} 00 00000002 6c73 {A} 00000001 00000001 4b 00000001 76 01 \
                 01 00000050 00000018 01 01 {ONE} 00000000 00 01 {ONE} 01 {TWO} 01 {THREE} 00 \
                 00000001 {A} 00000000 00000001 00000002 2f62 01 01 {ROOT} 01"
            ),
        ),
        (
            ProcessClientFrame::Attach { id: id(), from: 1, window_bytes: 2 },
            format!("01 00000003 312d61 {ONE} {TWO}"),
        ),
        (ProcessClientFrame::Input(Bytes::from_static(b"x")), "02 00000001 78".to_owned()),
        (ProcessClientFrame::InputEnd, "03".to_owned()),
        (control(ProcessControlMessage::Signal(2)), "04 00 00000002".to_owned()),
        (control(ProcessControlMessage::Resize(size)), "04 01 00000050 00000018".to_owned()),
        (control(ProcessControlMessage::CloseStdin), "04 02".to_owned()),
        (ProcessClientFrame::WindowAdjust(1), format!("05 {ONE}")),
        (ProcessClientFrame::ProcessDropped, "06".to_owned()),
    ];
    check_all(&rows, 6);
}

fn control(message: ProcessControlMessage) -> ProcessClientFrame {
    ProcessClientFrame::Control(message)
}

fn id() -> ProcessId {
    ProcessId::new("1-a".to_owned())
}

#[test]
fn server_frames_have_their_bytes() {
    let (channel, bytes) = (OutputChannel::Stderr, Bytes::from_static(b"x"));
    let output = OutputChunk { offset: 1, channel, bytes, lost_bytes_before: 2 };
    let exit = ProcessExit {
        code: Some(-1),
        signal: None,
        cause: ExitCause::Timeout,
        leftover_processes: LeftoverProcessOutcome::Ended,
        stdout_tail: "o".to_owned(),
        stderr_tail: String::new(),
    };
    let exit_bytes = "01 ffffffff 00 01 01 00000001 6f 00000000";
    let bare = Error::new(ErrorCode::ExecFailed, ErrorKind::CommandFailed, "m");
    let full = Error::new(ErrorCode::Conflict, ErrorKind::ApprovalPending, "m")
        .with_hint("h")
        .with_backend_kind(BackendKind::Local)
        .with_verb(Verb::Exec)
        .with_path("a")
        .with_command("c")
        .with_process_exit(exit.clone())
        .with_pending_approval_id(ApprovalId::new("q"));
    let rows = [
        (
            ProcessServerFrame::Started { id: id(), accepts_input: true },
            "00 00000003 312d61 01".to_owned(),
        ),
        (ProcessServerFrame::Output(output), format!("01 {ONE} {TWO} 01 00000001 78")),
        (ProcessServerFrame::Ended(None), "02 00".to_owned()),
        (ProcessServerFrame::Ended(Some(exit)), format!("02 01 {exit_bytes}")),
        (ProcessServerFrame::Refused(bare), "03 02 14 00000001 6d 00 00 00 00 00 00 00".to_owned()),
        (
            ProcessServerFrame::Refused(full),
            format!(
                "03 12 0c 00000001 6d 01 00000001 68 01 00 01 0e 01 00000001 61 01 00000001 63 \
                 01 {exit_bytes} 01 00000001 71"
            ),
        ),
        (ProcessServerFrame::WindowAdjust(1), format!("04 {ONE}")),
        (ProcessServerFrame::OutputEnd, "05".to_owned()),
    ];
    check_all(&rows, 5);
}
