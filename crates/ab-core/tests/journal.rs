//! The journal: which calls are written, and what is written of each.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ab_core::journal::{
    JournalGuard, JournalRecord, JournalVerbosity, JournalWriter, MAX_MEMORY_JOURNAL_RECORDS,
    MemoryJournalWriter, RecordedCallFailure,
};
use ab_core::options::{
    AttributeChanges, FileAccess, FileCreationMode, ListOptions, OpenOptions, RemoveOptions,
};
use ab_core::process::{ExecRequest, ProcessExit};
use ab_core::{
    Actor, Backend, BackendOptions, Edit, EditOptions, ErrorCode, ErrorKind, Guards, ScopeOptions,
    Verb,
};
use ab_testkit::expect::expect_error;
use ab_testkit::{
    GuardLog, RecordingDriver, ScriptedCommand, ScriptedGuard, ScriptedGuardBehavior, every_call,
};
use bytes::Bytes;
use futures_util::FutureExt;

struct World {
    driver: RecordingDriver,
    writer: Arc<MemoryJournalWriter>,
    backend: Backend,
}

fn world(mode: JournalVerbosity) -> World {
    guarded(mode, Guards::default())
}

/// A backend with a journal among other guards.
fn guarded(mode: JournalVerbosity, guards: Guards) -> World {
    let (driver, writer) = (RecordingDriver::new(), Arc::new(MemoryJournalWriter::default()));
    let journal = JournalGuard::new(writer.clone(), mode).with_workspace_name("project");
    let guards = Guards { journal: Some(Arc::new(journal)), ..guards };
    let assembly = BackendOptions {
        actor: Actor::for_process("agent-7"),
        guards,
        ..BackendOptions::default()
    };
    let backend = Backend::with_options(Arc::new(driver.clone()), assembly);
    World { driver, writer, backend }
}

/// A successful record, as far as a test can know it.
fn record(verb: Verb, path: &str) -> JournalRecord {
    JournalRecord {
        at: SystemTime::UNIX_EPOCH,
        verb,
        actor: "agent-7".to_owned(),
        workspace: Some("project".to_owned()),
        path: Some(path.to_owned()),
        to: None,
        command: None,
        success: true,
        failure: None,
        exit_code: None,
        stdout: None,
        stderr: None,
        bytes: 0,
        duration: Duration::ZERO,
    }
}

fn failed(record: JournalRecord, code: ErrorCode, message: &str) -> JournalRecord {
    let failure = RecordedCallFailure { code: Some(code), message: message.to_owned() };
    JournalRecord { success: false, failure: Some(failure), ..record }
}

/// The records without what only a clock knows.
fn timeless(writer: &MemoryJournalWriter) -> Vec<JournalRecord> {
    let timeless = |record: JournalRecord| JournalRecord {
        at: SystemTime::UNIX_EPOCH,
        duration: Duration::ZERO,
        ..record
    };
    writer.records().into_iter().map(timeless).collect()
}

/// Verb and path of each record.
fn lines(writer: &MemoryJournalWriter) -> Vec<(Verb, String)> {
    let line = |record: JournalRecord| (record.verb, record.path.unwrap_or_default());
    writer.records().into_iter().map(line).collect()
}

fn expect(lines: &[(Verb, &str)]) -> Vec<(Verb, String)> {
    lines.iter().map(|(verb, path)| (*verb, (*path).to_owned())).collect()
}

#[tokio::test]
async fn entry_has_the_required_fields() {
    let World { writer, backend, .. } = world(JournalVerbosity::Standard);
    let before = SystemTime::now();
    backend.write("dir/file", "12345").await.unwrap();
    let after = SystemTime::now();
    let records = writer.records();
    assert_eq!(timeless(&writer), [JournalRecord { bytes: 5, ..record(Verb::Write, "dir/file") }]);
    // The start is reckoned from the end, and the two clocks differ a little.
    let slack = Duration::from_millis(50);
    assert!(records[0].at >= before - slack && records[0].at <= after, "{records:?}");
    assert!(records[0].duration <= after.duration_since(before).unwrap() + slack, "{records:?}");
}

#[tokio::test]
async fn standard_logs_what_modifies() {
    let World { driver, writer, backend } = world(JournalVerbosity::Standard);
    backend.mkdir("dir").await.unwrap();
    backend.write("dir/a", "1").await.unwrap();
    backend.touch("dir/b").await.unwrap();
    backend.set_attributes("dir/a", AttributeChanges::default()).await.unwrap();
    backend.edit("dir/a", &[Edit::new("1", "2")], EditOptions::default()).await.unwrap();
    backend.rename("dir/a", "dir/c").await.unwrap();
    backend.rm("dir", RemoveOptions::recursive()).await.unwrap();
    expect_error(backend.symlink("link", "dir").await, ErrorKind::Unsupported);
    driver.script_next_command(ScriptedCommand::exits(0));
    backend.exec("make").await.unwrap();
    let all = expect(&[
        (Verb::Mkdir, "dir"),
        (Verb::Write, "dir/a"),
        (Verb::Touch, "dir/b"),
        (Verb::SetAttributes, "dir/a"),
        (Verb::Write, "dir/a"),
        (Verb::Rename, "dir/a"),
        (Verb::Delete, "dir"),
        (Verb::Symlink, "link"),
        (Verb::Exec, "."),
    ]);
    assert_eq!(lines(&writer), all);
}

/// Everything that only looks.
async fn look_around(backend: &Backend) {
    backend.read("file").await.unwrap();
    backend.stat("file").await.unwrap();
    backend.exists("file").await.unwrap();
    backend.list(".", ListOptions::default()).await.unwrap();
    drop(backend.search(&every_call::all_names_query()).await);
    expect_error(backend.read_link("file").await, ErrorKind::Unsupported);
    drop(backend.open("file", OpenOptions::default()).await.unwrap());
    backend.disk_space().await.unwrap();
    backend.detached_processes().await.unwrap();
    backend.connect().await.unwrap();
}

#[tokio::test]
async fn standard_leaves_reads_out() {
    let World { writer, backend, .. } = world(JournalVerbosity::Standard);
    backend.write("file", "x").await.unwrap();
    look_around(&backend).await;
    assert_eq!(lines(&writer), expect(&[(Verb::Write, "file")]));
}

#[tokio::test]
async fn verbose_logs_everything() {
    let World { writer, backend, .. } = world(JournalVerbosity::Verbose);
    backend.write("file", "x").await.unwrap();
    look_around(&backend).await;
    let all = expect(&[
        (Verb::Write, "file"),
        (Verb::Read, "file"),
        (Verb::Stat, "file"),
        (Verb::Stat, "file"),
        (Verb::List, "."),
        (Verb::Search, "."),
        (Verb::ReadLink, "file"),
        (Verb::Open, "file"),
        (Verb::DiskSpace, ""),
        (Verb::Processes, ""),
        (Verb::Connect, ""),
    ]);
    assert_eq!(lines(&writer), all);
}

#[tokio::test]
async fn a_file_is_written_down_when_it_is_closed() {
    let World { writer, backend, .. } = world(JournalVerbosity::Standard);
    let access = OpenOptions {
        access: FileAccess::ReadWrite,
        create: FileCreationMode::IfMissing,
        ..OpenOptions::default()
    };
    let file = backend.open("file", access).await.unwrap();
    file.write_at(0, Bytes::from("12345")).await.unwrap();
    assert_eq!(timeless(&writer), []);
    drop(file);
    assert_eq!(timeless(&writer), [JournalRecord { bytes: 5, ..record(Verb::Open, "file") }]);
}

#[tokio::test]
async fn a_rename_names_both_ends() {
    let World { writer, backend, .. } = world(JournalVerbosity::Standard);
    backend.write("from", "").await.unwrap();
    backend.rename("from", "dir/to").await.unwrap();
    let renamed = JournalRecord { to: Some("dir/to".to_owned()), ..record(Verb::Rename, "from") };
    assert_eq!(timeless(&writer), [record(Verb::Write, "from"), renamed]);
}

#[tokio::test]
async fn entry_has_the_command() {
    let World { driver, writer, backend } = world(JournalVerbosity::Standard);
    driver.script_next_command(ScriptedCommand::exits(0).stdout("fine"));
    backend.exec("make all").await.unwrap();
    driver.script_next_command(ScriptedCommand::exits(2).stderr("no rule"));
    expect_error(backend.exec("make none").await, ErrorKind::CommandFailed);
    let command = |line: &str, code| JournalRecord {
        command: Some(line.to_owned()),
        exit_code: Some(code),
        ..record(Verb::Exec, ".")
    };
    let failed = JournalRecord {
        success: false,
        stderr: Some("no rule".to_owned()),
        ..command("make none", 2)
    };
    let done = JournalRecord { stdout: Some("fine".to_owned()), ..command("make all", 0) };
    assert_eq!(timeless(&writer), [done, failed]);
}

#[tokio::test]
async fn a_command_is_written_down_when_it_ends() {
    let World { driver, writer, backend } = world(JournalVerbosity::Standard);
    driver.script_next_command(ScriptedCommand::driven_by_test());
    let _process = backend.spawn(ExecRequest::shell("sleep")).await.unwrap();
    assert_eq!(timeless(&writer), []);
    driver.take_test_driven_process().exit.send(ProcessExit {
        code: None,
        signal: Some(9),
        ..ProcessExit::default()
    });
    let killed = JournalRecord {
        command: Some("sleep".to_owned()),
        success: false,
        ..record(Verb::Exec, ".")
    };
    assert_eq!(timeless(&writer), [killed]);
}

#[tokio::test]
async fn entry_has_the_error() {
    let World { writer, backend, .. } = world(JournalVerbosity::Verbose);
    expect_error(backend.read("missing").await, ErrorKind::NotFound);
    expect_error(backend.write(".", "x").await, ErrorKind::IsADirectory);
    let records = [
        failed(
            record(Verb::Read, "missing"),
            ErrorCode::KeyNotFound,
            "read 'missing': no such key",
        ),
        failed(record(Verb::Write, "."), ErrorCode::WriteFailed, "write '.': is a directory"),
    ];
    assert_eq!(timeless(&writer), records);
}

#[tokio::test]
async fn refusals_are_written_down() {
    let log = GuardLog::default();
    let gate =
        ScriptedGuard::new(3, ScriptedGuardBehavior::Refuse, &log).only_for_verbs(&[Verb::Delete]);
    let guards = Guards { policy: vec![Arc::new(gate)], ..Guards::default() };
    let World { writer, backend, driver } = guarded(JournalVerbosity::Standard, guards);
    expect_error(backend.rm("file", RemoveOptions::default()).await, ErrorKind::DeniedByPolicy);
    let refused = record(Verb::Delete, "file");
    let message = "delete: gate 3 is shut";
    assert_eq!(timeless(&writer), [failed(refused, ErrorCode::DangerousOperation, message)]);
    assert_eq!(driver.recorded_calls(), []);
}

#[tokio::test]
async fn a_caller_that_goes_away_is_written_down() {
    let World { driver, writer, backend } = world(JournalVerbosity::Standard);
    driver.stall_calls(Verb::Write);
    assert!(backend.write("file", "x").now_or_never().is_none());
    let failure = RecordedCallFailure { code: None, message: "cancelled".to_owned() };
    let gone =
        JournalRecord { success: false, failure: Some(failure), ..record(Verb::Write, "file") };
    assert_eq!(timeless(&writer), [gone]);
}

#[tokio::test]
async fn journal_of_the_scope_is_called() {
    let World { writer, backend, .. } = world(JournalVerbosity::Standard);
    let own = Arc::new(MemoryJournalWriter::default());
    let options = ScopeOptions {
        journal: Some(Arc::new(JournalGuard::new(own.clone(), JournalVerbosity::Verbose))),
        ..ScopeOptions::default()
    };
    let scope = backend.scope("tenants/a", options).unwrap();
    let inner = scope.scope("jobs", ScopeOptions::default()).unwrap();
    scope.write("file", "12345").await.unwrap();
    expect_error(scope.read("missing").await, ErrorKind::NotFound);
    scope.rename("file", "moved").await.unwrap();
    inner.touch("deep").await.unwrap();

    let mine = |record: JournalRecord| JournalRecord { workspace: None, ..record };
    let of_scope = [
        mine(JournalRecord { bytes: 5, ..record(Verb::Write, "file") }),
        mine(failed(
            record(Verb::Read, "missing"),
            ErrorCode::KeyNotFound,
            "read 'missing': no such key",
        )),
        mine(JournalRecord { to: Some("moved".to_owned()), ..record(Verb::Rename, "file") }),
        mine(record(Verb::Mkdir, "jobs")),
        mine(record(Verb::Touch, "jobs/deep")),
    ];
    assert_eq!(timeless(&own), of_scope);

    let of_parent = [
        record(Verb::Mkdir, "tenants/a"),
        JournalRecord { bytes: 5, ..record(Verb::Write, "tenants/a/file") },
        JournalRecord {
            to: Some("tenants/a/moved".to_owned()),
            ..record(Verb::Rename, "tenants/a/file")
        },
        record(Verb::Mkdir, "tenants/a/jobs"),
        record(Verb::Touch, "tenants/a/jobs/deep"),
    ];
    assert_eq!(timeless(&writer), of_parent);
}

#[tokio::test]
async fn touch_is_recorded_as_touch() {
    let World { writer, backend, .. } = world(JournalVerbosity::Standard);
    backend.touch("file").await.unwrap();
    backend.touch("file").await.unwrap();
    assert_eq!(timeless(&writer), [record(Verb::Touch, "file"), record(Verb::Touch, "file")]);
}

#[test]
fn memory_writer_is_bounded() {
    let writer = MemoryJournalWriter::default();
    for number in 0..MAX_MEMORY_JOURNAL_RECORDS + 3 {
        writer.write(&record(Verb::Write, &number.to_string()));
    }
    let records = writer.records();
    assert_eq!(records.len(), MAX_MEMORY_JOURNAL_RECORDS);
    assert_eq!(records[0].path.as_deref(), Some("3"), "the oldest fall out");
    writer.clear();
    assert_eq!(writer.records(), []);
}
