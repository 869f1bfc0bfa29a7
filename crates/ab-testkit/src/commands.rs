//! Functions for cases about commands. They read the output of commands to its end, and wait for
//! commands without a clock.

use std::time::Duration;

use ab_core::process::{
    Command, ExecRequest, OutputChannel, OutputChunk, Process, ProcessControlMessage, ProcessExit,
    StdinMode,
};
use ab_core::process::{ProcessId, TerminalSize};
use ab_core::{Backend, ErrorCode, ErrorKind, ExecOptions};
use bytes::Bytes;

use crate::expect::expect_error;

/// Longer than any step takes; a wait that reaches it has failed.
pub const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// A file that a command keeps locked while any of its processes lives; see
/// [`lock_holding_script`].
const LOCK: &str = "lock";

/// Whether the backend runs commands. If not, checks that calls fail with `Unsupported`.
pub async fn supports_commands(backend: &Backend) -> bool {
    if backend.info().capabilities.exec {
        return true;
    }
    let ran = expect_error(backend.exec("true").await, ErrorKind::Unsupported);
    assert_eq!(ran.code(), ErrorCode::NotImplemented);
    expect_error(backend.spawn_detached(ExecRequest::shell("true")).await, ErrorKind::Unsupported);
    expect_error(backend.detached_processes().await, ErrorKind::Unsupported);
    expect_error(backend.attach(&ProcessId::new("1"), 0).await, ErrorKind::Unsupported);
    false
}

/// Whether commands can be started detached. If not, checks that calls fail with `Unsupported`.
pub async fn supports_detached(backend: &Backend) -> bool {
    if !supports_commands(backend).await {
        return false;
    }
    if backend.info().capabilities.detached_processes {
        return true;
    }
    let refused = expect_error(
        backend.spawn_detached(ExecRequest::shell("true")).await,
        ErrorKind::Unsupported,
    );
    assert_eq!(refused.code(), ErrorCode::NotImplemented);
    expect_error(backend.detached_processes().await, ErrorKind::Unsupported);
    expect_error(backend.attach(&ProcessId::new("1"), 0).await, ErrorKind::Unsupported);
    false
}

/// The standard output of a command that must succeed.
pub async fn exec_stdout_text(backend: &Backend, line: &str) -> String {
    exec_stdout_text_with(backend, line, ExecOptions::default()).await
}

pub async fn exec_stdout_text_with(backend: &Backend, line: &str, options: ExecOptions) -> String {
    let options = ExecOptions { timeout: options.timeout.or(Some(COMMAND_TIMEOUT)), ..options };
    match backend.exec_with(line, options).await {
        Ok(output) => output.stdout_text(),
        Err(error) => panic!("{line:?} failed: {error}: {:?}", error.exec_output()),
    }
}

/// A request for a line with its standard input held open.
pub fn piped_stdin_request(line: &str) -> ExecRequest {
    ExecRequest { stdin: StdinMode::Piped, ..ExecRequest::shell(line) }
}

/// Like [`piped_stdin_request`], but the command runs in the directory `cwd`.
pub fn piped_stdin_request_in(backend: &Backend, cwd: &str, line: &str) -> ExecRequest {
    let options = ExecOptions { cwd: Some(cwd.to_owned()), ..ExecOptions::default() };
    let request = backend.build_exec_request(Command::Shell(line.to_owned()), options).unwrap();
    ExecRequest { stdin: StdinMode::Piped, ..request }
}

/// A request for a line on a terminal.
pub fn terminal_request(line: &str) -> ExecRequest {
    let terminal = Some(TerminalSize { columns: 80, rows: 24 });
    ExecRequest { terminal, ..piped_stdin_request(line) }
}

pub fn argv_command(words: &[&str]) -> Command {
    Command::Argv(words.iter().map(|&word| word.to_owned()).collect())
}

/// All remaining output, and the exit.
pub async fn read_to_exit(process: &mut Process) -> (Vec<OutputChunk>, ProcessExit) {
    let mut pieces = Vec::new();
    while let Some(piece) = process.output.recv().await {
        pieces.push(piece);
    }
    let exit = process.wait().await.expect("the process was lost");
    (pieces, exit)
}

/// The bytes of one channel.
pub fn channel_bytes(pieces: &[OutputChunk], channel: OutputChannel) -> Vec<u8> {
    let own = pieces.iter().filter(|piece| piece.channel == channel);
    own.flat_map(|piece| piece.bytes.to_vec()).collect()
}

/// Reads until the output contains `word`, and returns the output until then.
pub async fn read_until(process: &mut Process, word: &str) -> Vec<OutputChunk> {
    let mut pieces = Vec::new();
    while let Some(piece) = process.output.recv().await {
        pieces.push(piece);
        let text = output_text(&pieces);
        if text.contains(word) {
            return pieces;
        }
    }
    panic!("never said {word:?}, but {:?}", output_text(&pieces));
}

/// The output of both channels in its order, as text.
pub fn output_text(pieces: &[OutputChunk]) -> String {
    let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.bytes.to_vec()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

pub async fn write_stdin(process: &Process, words: &str) {
    let stdin = process.stdin.as_ref().expect("standard input is closed");
    stdin.send(Bytes::copy_from_slice(words.as_bytes())).await.unwrap();
}

pub async fn send_control(process: &Process, control: ProcessControlMessage) {
    process.control.send(control).await.unwrap();
}

/// A line that takes a lock and then runs `rest`. All processes that the line starts also hold the
/// lock.
pub fn lock_holding_script(rest: &str) -> String {
    format!("exec 9>{LOCK}; flock 9; {rest}")
}

/// Waits until all processes of a [`lock_holding_script`] command have ended. The kernel releases
/// the lock when the last process that holds it ends.
pub async fn wait_until_lock_is_free(backend: &Backend) {
    assert_eq!(exec_stdout_text(backend, "exec 9>lock; flock 9; echo free").await, "free\n");
}

/// Whether a process of a [`lock_holding_script`] command still lives.
pub async fn is_lock_held(backend: &Backend) -> bool {
    exec_stdout_text(backend, "exec 9>lock; if flock -n 9; then echo free; else echo held; fi")
        .await
        == "held\n"
}
