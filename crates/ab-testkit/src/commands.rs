//! Commands as cases run them: held to their end, told apart, and waited for without a clock.

use std::time::Duration;

use ab_core::process::{
    Command, ExecRequest, Exit, OutputChannel, OutputChunk, Process, ProcessControl, Stdin,
};
use ab_core::process::{ProcessId, TerminalSize};
use ab_core::{Backend, Code, ExecOptions, Kind};
use bytes::Bytes;

use crate::expect::failure;

/// Longer than anything here takes; what waits for it has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A file whose lock a command holds as long as anything of it lives; see [`holding`].
const LOCK: &str = "lock";

/// Whether the backend runs commands; if not, it must say so to whoever tries.
pub async fn can_run(backend: &Backend) -> bool {
    if backend.info().capabilities.exec {
        return true;
    }
    let ran = failure(backend.exec("true").await, Kind::Unsupported);
    assert_eq!(ran.code(), Code::NotImplemented);
    failure(backend.start(ExecRequest::shell("true")).await, Kind::Unsupported);
    failure(backend.processes().await, Kind::Unsupported);
    failure(backend.attach(&ProcessId::new("1"), 0).await, Kind::Unsupported);
    false
}

/// Whether commands can be started to stay; if not, the backend must say so to whoever tries.
pub async fn can_stay(backend: &Backend) -> bool {
    if !can_run(backend).await {
        return false;
    }
    if backend.info().capabilities.detached {
        return true;
    }
    let refused = failure(backend.start(ExecRequest::shell("true")).await, Kind::Unsupported);
    assert_eq!(refused.code(), Code::NotImplemented);
    failure(backend.processes().await, Kind::Unsupported);
    failure(backend.attach(&ProcessId::new("1"), 0).await, Kind::Unsupported);
    false
}

/// What a command that must succeed says.
pub async fn said(backend: &Backend, line: &str) -> String {
    said_with(backend, line, ExecOptions::default()).await
}

pub async fn said_with(backend: &Backend, line: &str, options: ExecOptions) -> String {
    let options = ExecOptions { timeout: options.timeout.or(Some(PATIENCE)), ..options };
    match backend.exec_with(line, options).await {
        Ok(output) => output.text(),
        Err(error) => panic!("{line:?} failed: {error}: {:?}", error.output()),
    }
}

/// A request for a line with its standard input held open.
pub fn talking(line: &str) -> ExecRequest {
    ExecRequest { stdin: Stdin::Piped, ..ExecRequest::shell(line) }
}

/// The same in a directory.
pub fn talking_in(backend: &Backend, cwd: &str, line: &str) -> ExecRequest {
    let options = ExecOptions { cwd: Some(cwd.to_owned()), ..ExecOptions::default() };
    let request = backend.request(Command::Shell(line.to_owned()), options).unwrap();
    ExecRequest { stdin: Stdin::Piped, ..request }
}

/// A request for a line on a terminal.
pub fn on_terminal(line: &str) -> ExecRequest {
    let terminal = Some(TerminalSize { columns: 80, rows: 24 });
    ExecRequest { terminal, ..talking(line) }
}

pub fn argv(words: &[&str]) -> Command {
    Command::Argv(words.iter().map(|&word| word.to_owned()).collect())
}

/// Everything that is still to come, and the end.
pub async fn rest(process: &mut Process) -> (Vec<OutputChunk>, Exit) {
    let mut pieces = Vec::new();
    while let Some(piece) = process.output.recv().await {
        pieces.push(piece);
    }
    let exit = process.wait().await.expect("the process was lost");
    (pieces, exit)
}

/// The bytes of one channel.
pub fn of(pieces: &[OutputChunk], channel: OutputChannel) -> Vec<u8> {
    let own = pieces.iter().filter(|piece| piece.channel == channel);
    own.flat_map(|piece| piece.bytes.to_vec()).collect()
}

/// Reads until `word` was said, and gives what came until then.
pub async fn until(process: &mut Process, word: &str) -> Vec<OutputChunk> {
    let mut pieces = Vec::new();
    while let Some(piece) = process.output.recv().await {
        pieces.push(piece);
        let text = text(&pieces);
        if text.contains(word) {
            return pieces;
        }
    }
    panic!("never said {word:?}, but {:?}", text(&pieces));
}

/// All that was said, both channels, in its order.
pub fn text(pieces: &[OutputChunk]) -> String {
    let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes.to_vec()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

pub async fn say(process: &Process, words: &str) {
    let stdin = process.stdin.as_ref().expect("standard input is closed");
    stdin.send(Bytes::copy_from_slice(words.as_bytes())).await.unwrap();
}

pub async fn control(process: &Process, control: ProcessControl) {
    process.control.send(control).await.unwrap();
}

/// A line that takes a lock, says `ready` and goes on with `rest`. Whatever it starts holds the
/// lock too.
pub fn holding(rest: &str) -> String {
    format!("exec 9>{LOCK}; flock 9; {rest}")
}

/// Waits until nothing of a [`holding`] command is left: the kernel lets go of the lock with the
/// last process that has it.
pub async fn let_go(backend: &Backend) {
    assert_eq!(said(backend, "exec 9>lock; flock 9; echo free").await, "free\n");
}

/// Whether something of a [`holding`] command still lives.
pub async fn is_held(backend: &Backend) -> bool {
    said(backend, "exec 9>lock; if flock -n 9; then echo free; else echo held; fi").await
        == "held\n"
}
