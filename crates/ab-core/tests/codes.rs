//! One test for each published code that this crate alone can bring about.

use std::sync::Arc;

use ab_core::memory::MemoryDriverOptions;
use ab_core::options::{ReadOptions, WriteOptions};
use ab_core::process::{Command, ExecRequest, ProcessExit};
use ab_core::{
    Backend, BackendKind, BackendOptions, Error, ErrorCode, ErrorKind, Guards, MemoryDriver,
    Result, RetryAdvice, ScopeOptions, Verb,
};
use ab_testkit::{
    GuardLog, RecordingDriver, ScriptedCommand, ScriptedGuard, ScriptedGuardBehavior,
};

/// Checks an error's code, as published, and its kind.
#[track_caller]
fn provoked<T: std::fmt::Debug>(result: Result<T>, code: &str, kind: ErrorKind) -> Error {
    let error = result.unwrap_err();
    assert_eq!((error.code().as_str(), error.kind()), (code, kind), "{error:?}");
    assert!(!error.message().is_empty());
    error
}

fn memory() -> Backend {
    Backend::new(MemoryDriver::new())
}

fn scripted(script: ScriptedCommand) -> Backend {
    let driver = RecordingDriver::new();
    driver.script_next_command(script);
    Backend::new(driver)
}

#[tokio::test]
async fn empty_command() {
    for backend in [memory(), Backend::new(RecordingDriver::new())] {
        let error = provoked(backend.exec(" \t").await, "EMPTY_COMMAND", ErrorKind::Invalid);
        assert_eq!((error.verb(), error.command()), (Some(Verb::Exec), Some(" \t")));
        for command in [Command::Argv(vec![]), Command::Argv(vec![String::new()])] {
            let request = ExecRequest { command, ..ExecRequest::shell("") };
            provoked(backend.spawn(request).await, "EMPTY_COMMAND", ErrorKind::Invalid);
        }
    }
}

#[tokio::test]
async fn exec_failed() {
    let backend = scripted(ScriptedCommand::exits(3).stdout("half done").stderr("no such thing\n"));
    let error = provoked(backend.exec("make").await, "EXEC_FAILED", ErrorKind::CommandFailed);
    assert_eq!(error.command(), Some("make"));
    let exit = ProcessExit {
        code: Some(3),
        stdout_tail: "half done".to_owned(),
        stderr_tail: "no such thing\n".to_owned(),
        ..ProcessExit::default()
    };
    assert_eq!(error.process_exit(), Some(&exit));
    assert_eq!(error.message(), "command ended with exit code 3: no such thing");

    let killed = provoked(
        scripted(ScriptedCommand::killed(9)).exec("x").await,
        "EXEC_FAILED",
        ErrorKind::CommandFailed,
    );
    assert_eq!(killed.process_exit().and_then(|exit| exit.signal), Some(9));
}

#[tokio::test]
async fn a_command_that_succeeds_is_no_error() {
    let backend =
        scripted(ScriptedCommand::exits(0).stdout("one ").stderr("warning").stdout("two"));
    let output = backend.exec("make").await.unwrap();
    assert_eq!(
        (output.stdout_text(), output.stderr.display_text()),
        ("one two".into(), "warning".into())
    );
    assert!(output.exit.success());
}

#[tokio::test]
async fn a_failed_command_is_a_value_to_spawn() {
    let backend = scripted(ScriptedCommand::exits(3));
    let mut process = backend.spawn(ExecRequest::shell("make")).await.unwrap();
    assert_eq!(process.wait().await.unwrap().code, Some(3));
}

#[tokio::test]
async fn exec_error() {
    let backend = scripted(ScriptedCommand::lost().stdout("and then"));
    let error = provoked(backend.exec("make").await, "EXEC_ERROR", ErrorKind::Io);
    assert_eq!((error.verb(), error.command()), (Some(Verb::Exec), Some("make")));
}

#[tokio::test]
async fn read_failed() {
    provoked(memory().read(".").await, "READ_FAILED", ErrorKind::IsADirectory);
}

#[tokio::test]
async fn key_not_found() {
    provoked(memory().read("missing").await, "KEY_NOT_FOUND", ErrorKind::NotFound);
}

#[tokio::test]
async fn write_failed() {
    provoked(memory().write(".", "x").await, "WRITE_FAILED", ErrorKind::IsADirectory);
}

#[tokio::test]
async fn ls_failed() {
    let backend = memory();
    backend.write("file", "x").await.unwrap();
    provoked(backend.readdir("file").await, "LS_FAILED", ErrorKind::NotADirectory);
}

#[tokio::test]
async fn path_escape_attempt() {
    let backend = memory();
    let scope = backend.scope("scope", ScopeOptions::default()).unwrap();
    for handle in [backend, scope] {
        let result = handle.read("../x").await;
        let error = provoked(result, "PATH_ESCAPE_ATTEMPT", ErrorKind::PathEscape);
        assert_eq!((error.path(), error.verb()), (Some("../x"), Some(Verb::Read)));
    }
}

#[tokio::test]
async fn invalid_path() {
    provoked(memory().write("a\0b", "x").await, "INVALID_PATH", ErrorKind::InvalidPath);
}

#[test]
fn invalid_configuration() {
    let options = MemoryDriverOptions {
        initial_files: vec![("a".to_owned(), "".into()), ("a/b".to_owned(), "".into())],
        ..MemoryDriverOptions::default()
    };
    provoked(MemoryDriver::with_options(options), "INVALID_CONFIGURATION", ErrorKind::Invalid);
}

#[tokio::test]
async fn connection_closed() {
    let backend = memory();
    backend.destroy().await.unwrap();
    let error = provoked(backend.read("file").await, "CONNECTION_CLOSED", ErrorKind::Destroyed);
    assert_eq!(error.verb(), Some(Verb::Read));
}

#[tokio::test]
async fn not_implemented() {
    let error = provoked(memory().exec("ls").await, "NOT_IMPLEMENTED", ErrorKind::Unsupported);
    assert_eq!((error.verb(), error.backend_kind()), (Some(Verb::Exec), Some(BackendKind::Memory)));
}

#[tokio::test]
async fn too_large() {
    let backend = memory();
    backend.write("file", "12345").await.unwrap();
    let options = ReadOptions { max_bytes: 4, ..ReadOptions::default() };
    provoked(backend.read_with("file", options).await, "TOO_LARGE", ErrorKind::TooLarge);
}

#[tokio::test]
async fn conflict() {
    let backend = memory();
    let stale = backend.write("file", "one").await.unwrap().version;
    backend.write("file", "two").await.unwrap();
    let expecting = WriteOptions { expected_version: Some(stale), ..WriteOptions::default() };
    let result = backend.write_with("file", "three", expecting).await;
    assert_eq!(provoked(result, "CONFLICT", ErrorKind::Conflict).retry_advice(), RetryAdvice::Safe);
}

#[tokio::test]
async fn dangerous_operation() {
    let gate = ScriptedGuard::new(0, ScriptedGuardBehavior::Refuse, &GuardLog::default());
    let guards = Guards { policy: vec![Arc::new(gate)], ..Guards::default() };
    let driver = Arc::new(MemoryDriver::new());
    let backend =
        Backend::with_options(driver, BackendOptions { guards, ..BackendOptions::default() });
    provoked(backend.write("file", "x").await, "DANGEROUS_OPERATION", ErrorKind::DeniedByPolicy);
}

#[tokio::test]
async fn a_scope_has_the_codes_of_its_parent() {
    let backend = memory();
    let scope = backend.scope("scope", ScopeOptions::default()).unwrap();
    for handle in [&backend, &scope] {
        handle.write("file", "x").await.unwrap();
        let codes = [
            handle.read("missing").await.unwrap_err().code(),
            handle.read(".").await.unwrap_err().code(),
            handle.write("file/x", "x").await.unwrap_err().code(),
            handle.readdir("file").await.unwrap_err().code(),
            handle.exec("ls").await.unwrap_err().code(),
        ];
        let expect = [
            ErrorCode::KeyNotFound,
            ErrorCode::ReadFailed,
            ErrorCode::WriteFailed,
            ErrorCode::LsFailed,
            ErrorCode::NotImplemented,
        ];
        assert_eq!(codes, expect);
    }
}
