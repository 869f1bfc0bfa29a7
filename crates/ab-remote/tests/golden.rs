//! The bytes of every message of our own wire: peers of other versions read them, so they stay.

use ab_core::options::{ListOptions, RemoveOptions, RenameOptions, StatOptions};
use ab_core::process::{
    OutputChannel, OutputChunk, ProcessControlMessage, ProcessId, TerminalSize,
};
use ab_core::{PathParser, WsPath};
use ab_remote::wire::call::{RemoteCall, RemoteCallId, RemoteWriteBody};
use ab_remote::wire::frame::{ProcessClientFrame, ProcessServerFrame};
use ab_remote::wire::{WireCodec, encode};
use bytes::Bytes;

fn path(text: &str) -> WsPath {
    PathParser::lenient().parse(text).unwrap()
}

/// `value` is these bytes, in hexadecimal; spaces are for the reader.
#[track_caller]
fn check(value: &impl WireCodec, expected: &str) {
    let hex: String = encode(value).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, expected.replace(' ', ""));
}

/// The path `a`: no scope roots, and a string of one byte.
const A: &str = "00000000 00000001 61";

#[test]
fn calls_have_their_bytes() {
    let a = || path("a");
    check(&RemoteCall::Hello { connection: 1 }, "00 00000000000000000000000000000001");
    let stat = RemoteCall::Stat { path: a(), options: StatOptions::default() };
    check(&stat, &format!("01 {A} 00"));
    let options = ListOptions { depth: 1, limit: 2, ..ListOptions::default() };
    let list = RemoteCall::List { path: a(), options };
    check(&list, &format!("02 {A} 0000000000000001 0000000000000002 00"));
    check(&RemoteCall::Stage { size: 1 }, "06 0000000000000001");
    check(&RemoteCall::ReadLink { path: a() }, &format!("0c {A}"));
    let link = RemoteCall::Symlink { path: a(), target: "b".to_owned() };
    check(&link, &format!("0d {A} 00000001 62"));
    check(&RemoteCall::MakeDir { path: a() }, &format!("0e {A}"));
    let remove = RemoteCall::Remove { path: a(), options: RemoveOptions::default() };
    check(&remove, &format!("0f {A} 00 00"));
    let options = RenameOptions::default();
    let rename = RemoteCall::Rename { from: a(), to: WsPath::root(), options };
    check(&rename, &format!("10 {A} 00000000 00000000 00"));
    check(&RemoteCall::DiskSpace, "11");
    check(&RemoteCall::Processes, "12");
    check(&RemoteCall::Policy, "13");
    check(&RemoteCall::Cancel { request: 258 }, "14 00000102");
    let number = RemoteCallId { connection: 1, request: 2 };
    check(&RemoteCall::Outcome(number), "15 00000000000000000000000000000001 00000002");
    check(&RemoteWriteBody::Inline(Bytes::from_static(b"x")), "00 00000001 78");
}

#[test]
fn frames_of_processes_have_their_bytes() {
    let id = || ProcessId::new("1-a".to_owned());
    let attach = ProcessClientFrame::Attach { id: id(), from: 1, room: 2 };
    check(&attach, "01 00000003 312d61 0000000000000001 0000000000000002");
    check(&ProcessClientFrame::Input(Bytes::from_static(b"x")), "02 00000001 78");
    check(&ProcessClientFrame::InputDropped, "03");
    check(&ProcessClientFrame::Control(ProcessControlMessage::Signal(2)), "04 00 00000002");
    let size = TerminalSize { columns: 80, rows: 24 };
    check(
        &ProcessClientFrame::Control(ProcessControlMessage::Resize(size)),
        "04 01 00000050 00000018",
    );
    check(&ProcessClientFrame::Control(ProcessControlMessage::CloseStdin), "04 02");
    check(&ProcessClientFrame::Window(1), "05 0000000000000001");
    check(&ProcessClientFrame::Release, "06");
    let began = ProcessServerFrame::Started { id: id(), input: true };
    check(&began, "00 00000003 312d61 01");
    let (channel, bytes) = (OutputChannel::Stderr, Bytes::from_static(b"x"));
    let output = OutputChunk { offset: 1, channel, bytes, lost_bytes: 2 };
    check(
        &ProcessServerFrame::Output(output),
        "01 0000000000000001 0000000000000002 01 00000001 78",
    );
    check(&ProcessServerFrame::Ended(None), "02 00");
    check(&ProcessServerFrame::Window(1), "04 0000000000000001");
    check(&ProcessServerFrame::OutputEnd, "05");
}
