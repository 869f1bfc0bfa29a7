//! Guards: exactly one exit for each enter that passed, last in first out, whatever is refused,
//! fails or is cancelled; files and processes keep their guards as long as they live.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use ab_core::options::{
    AttributeChanges, ExistingContentHandling, FileAccess, FileCreationMode, ListOptions,
    OpenOptions, RemoveOptions, StatOptions,
};
use ab_core::process::{ExecRequest, ProcessExit, ProcessId};
use ab_core::{
    Backend, BackendOptions, Error, ErrorCode, ErrorKind, Guard, Guards, Result, ScopeOptions, Verb,
};
use ab_testkit::expect::{assert_content, expect_error};
use ab_testkit::gate::RecordedCallOutcome;
use ab_testkit::{
    GuardEvent, GuardLog, RecordingDriver, ScriptedCommand, ScriptedGuard, ScriptedGuardBehavior,
    fuzz,
};
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_assert_eq, prop_oneof};
use proptest::sample::select;

fn backend(driver: &RecordingDriver, guards: Guards) -> Backend {
    Backend::with_options(
        Arc::new(driver.clone()),
        BackendOptions { guards, ..BackendOptions::default() },
    )
}

/// Gates in one of the places, numbered from 0.
fn gates(answers: &[ScriptedGuardBehavior], log: &GuardLog) -> Vec<Arc<dyn Guard>> {
    let gate = |(number, answer): (usize, &ScriptedGuardBehavior)| {
        Arc::new(ScriptedGuard::new(number, *answer, log)) as Arc<dyn Guard>
    };
    answers.iter().enumerate().map(gate).collect()
}

/// What the driver does with the call.
#[derive(Clone, Copy, Debug)]
enum Work {
    Succeeds,
    Fails,
    NeverEnds,
}

#[derive(Clone, Debug)]
struct Story {
    verb: Verb,
    answers: Vec<ScriptedGuardBehavior>,
    /// Where the guards stand: how many of them trace, how many judge.
    places: (usize, usize),
    work: Work,
    /// How often the caller looks before it goes away.
    time_limit: usize,
}

fn story() -> impl Strategy<Value = Story> {
    let answer = prop_oneof![
        4 => Just(ScriptedGuardBehavior::Pass),
        4 => Just(ScriptedGuardBehavior::PassLater),
        1 => Just(ScriptedGuardBehavior::Refuse),
        1 => Just(ScriptedGuardBehavior::RefuseLater),
        1 => Just(ScriptedGuardBehavior::Hang),
    ];
    let work = select(vec![Work::Succeeds, Work::Fails, Work::NeverEnds]);
    let verb = select(Verb::ALL.to_vec());
    (verb, vec(answer, 0..7), (any::<usize>(), any::<usize>()), work, 0..10usize).prop_map(
        |(verb, answers, places, work, time_limit)| Story {
            verb,
            answers,
            places,
            work,
            time_limit,
        },
    )
}

/// What must have happened: which gates passed, and how the call ended for them.
fn told(story: &Story) -> (Vec<usize>, Option<RecordedCallOutcome>) {
    let mut passed = Vec::new();
    let mut looks = story.time_limit;
    if looks == 0 {
        return (passed, None);
    }
    for (gate, answer) in story.answers.iter().enumerate() {
        match answer {
            ScriptedGuardBehavior::PassLater | ScriptedGuardBehavior::RefuseLater => {
                looks -= 1;
                if looks == 0 {
                    return (passed, Some(RecordedCallOutcome::Cancelled));
                }
            }
            ScriptedGuardBehavior::Pass
            | ScriptedGuardBehavior::Refuse
            | ScriptedGuardBehavior::Hang => {}
        }
        match answer {
            ScriptedGuardBehavior::Pass | ScriptedGuardBehavior::PassLater => passed.push(gate),
            ScriptedGuardBehavior::Refuse | ScriptedGuardBehavior::RefuseLater => {
                return (passed, Some(RecordedCallOutcome::Failed(ErrorKind::DeniedByPolicy)));
            }
            ScriptedGuardBehavior::Hang => return (passed, Some(RecordedCallOutcome::Cancelled)),
        }
    }
    let end = match story.work {
        Work::Succeeds => RecordedCallOutcome::Done,
        Work::Fails => RecordedCallOutcome::Failed(ErrorKind::Io),
        Work::NeverEnds => RecordedCallOutcome::Cancelled,
    };
    (passed, Some(end))
}

/// Makes the one call of a story. What it returns, files and processes too, is dropped at once.
fn call(backend: &Backend, verb: Verb) -> Pin<Box<dyn Future<Output = Result<()>>>> {
    let backend = backend.clone();
    let create = OpenOptions { create: FileCreationMode::IfMissing, ..OpenOptions::default() };
    Box::pin(async move {
        match verb {
            Verb::Stat => backend.stat_with("file", StatOptions::default()).await.map(drop),
            Verb::List => backend.list(".", ListOptions::default()).await.map(drop),
            Verb::Search => {
                backend.search(&ab_testkit::every_call::all_names_query()).await.map(drop)
            }
            Verb::Read => backend.read("file").await.map(drop),
            Verb::Write => backend.write("file", "x").await.map(drop),
            Verb::Touch => backend.touch("file").await.map(drop),
            Verb::Open => backend.open("file", create).await.map(drop),
            Verb::SetAttributes => {
                backend.set_attributes("file", AttributeChanges::default()).await.map(drop)
            }
            Verb::ReadLink => backend.read_link("file").await.map(drop),
            Verb::Symlink => backend.symlink("link", "file").await,
            Verb::Mkdir => backend.mkdir("dir").await,
            Verb::Delete => backend.rm("file", RemoveOptions::default()).await.map(drop),
            Verb::Rename => backend.rename("file", "other").await.map(drop),
            Verb::DiskSpace => backend.disk_space().await.map(drop),
            Verb::Exec => backend.spawn(ExecRequest::shell("true")).await.map(drop),
            Verb::Processes => backend.detached_processes().await.map(drop),
            Verb::Attach => backend.attach(&ProcessId::new("1"), 0).await.map(drop),
            Verb::Connect => backend.connect().await,
        }
    })
}

/// The verb under which a driver sees a call: touching is a way of writing.
fn seen_as(verb: Verb) -> Verb {
    if verb == Verb::Touch { Verb::Write } else { verb }
}

/// What the files below cannot do fails, however well the driver means it.
fn is_unsupported(backend: &Backend, verb: Verb) -> bool {
    let can = backend.info().capabilities;
    match verb {
        Verb::Search => !can.search,
        Verb::ReadLink | Verb::Symlink => !can.symlinks,
        _ => false,
    }
}

#[test]
fn every_enter_has_one_exit() {
    fuzz::check_property("every_enter_has_one_exit", story(), |story| {
        let driver = RecordingDriver::new();
        let bare = Backend::new(driver.clone());
        let mut prepare = call(&bare, Verb::Write);
        let mut context = Context::from_waker(Waker::noop());
        assert!(prepare.as_mut().poll(&mut context).is_ready());
        match story.work {
            Work::Succeeds => {}
            Work::Fails => driver.fail_next(
                seen_as(story.verb),
                Error::new(ErrorCode::ReadFailed, ErrorKind::Io, "broken"),
            ),
            Work::NeverEnds => driver.stall_calls(seen_as(story.verb)),
        }

        let log = GuardLog::default();
        let mut trace = gates(&story.answers, &log);
        let mut policy = trace.split_off(story.places.0 % (trace.len() + 1));
        let limits = policy.split_off(story.places.1 % (policy.len() + 1));
        let backend = backend(&driver, Guards { trace, journal: None, policy, limits });

        let mut future = call(&backend, story.verb);
        for _ in 0..story.time_limit {
            if future.as_mut().poll(&mut context).is_ready() {
                break;
            }
        }
        drop(future);

        let (passed, end) = told(&story);
        let end = match end {
            Some(RecordedCallOutcome::Done) if is_unsupported(&backend, story.verb) => {
                Some(RecordedCallOutcome::Failed(ErrorKind::Unsupported))
            }
            other => other,
        };
        let owed = |end| passed.iter().rev().map(move |gate| (*gate, end));
        let exits: Vec<_> = end.into_iter().flat_map(owed).collect();
        prop_assert_eq!(log.call_outcomes(), exits);
        prop_assert_eq!(log.admitting_guard_numbers(), passed);
        let calls: Vec<_> = log.events().iter().map(call_of).collect();
        prop_assert_eq!(calls.iter().filter(|id| **id != calls[0]).count(), 0);
        Ok(())
    });
}

fn call_of(step: &GuardEvent) -> u64 {
    match step {
        GuardEvent::Entered { call, .. }
        | GuardEvent::Passed { call, .. }
        | GuardEvent::Refused { call, .. }
        | GuardEvent::FileGrew { call, .. }
        | GuardEvent::Exited { call, .. } => call.get(),
    }
}

/// The ends that gate 0 was told of, with bytes and exit code.
fn ends(log: &GuardLog) -> Vec<(RecordedCallOutcome, u64, Option<i32>)> {
    let end = |step: &GuardEvent| match step {
        GuardEvent::Exited { end, bytes, exit_code, .. } => Some((*end, *bytes, *exit_code)),
        _ => None,
    };
    log.events().iter().filter_map(end).collect()
}

fn one_gate(gate: ScriptedGuard) -> Guards {
    Guards { limits: vec![Arc::new(gate)], ..Guards::default() }
}

const READ_WRITE: OpenOptions = OpenOptions {
    access: FileAccess::ReadWrite,
    create: FileCreationMode::IfMissing,
    existing: ExistingContentHandling::Keep,
    position: ab_core::options::WritePosition::AtOffset,
    permissions: None,
};

#[tokio::test]
async fn bytes_are_counted() {
    let (driver, log) = (RecordingDriver::new(), GuardLog::default());
    let backend = backend(&driver, one_gate(ScriptedGuard::allow_all(0, &log)));
    backend.write("file", "12345").await.unwrap();
    backend.read("file").await.unwrap();
    backend.stat("file").await.unwrap();
    expect_error(backend.read("missing").await, ErrorKind::NotFound);
    let expect = [
        (RecordedCallOutcome::Done, 5, None),
        (RecordedCallOutcome::Done, 5, None),
        (RecordedCallOutcome::Done, 0, None),
        (RecordedCallOutcome::Failed(ErrorKind::NotFound), 0, None),
    ];
    assert_eq!(ends(&log), expect);
}

#[tokio::test]
async fn a_file_leaves_when_its_handle_is_dropped() {
    let (driver, log) = (RecordingDriver::new(), GuardLog::default());
    let backend = backend(&driver, one_gate(ScriptedGuard::allow_all(0, &log)));
    let file = backend.open("file", READ_WRITE).await.unwrap();
    file.write_at(0, Bytes::from("12345")).await.unwrap();
    assert_eq!(file.read_at(1, 3).await.unwrap(), "234");
    file.stat().await.unwrap();
    file.sync().await.unwrap();
    assert_eq!(ends(&log), []);
    drop(file);
    assert_eq!(ends(&log), [(RecordedCallOutcome::Done, 8, None)]);
}

#[tokio::test]
async fn a_handle_that_outlives_its_backend_still_leaves() {
    let (driver, log) = (RecordingDriver::new(), GuardLog::default());
    let backend = backend(&driver, one_gate(ScriptedGuard::allow_all(0, &log)));
    let file = backend.open("file", READ_WRITE).await.unwrap();
    drop((backend, driver));
    assert_eq!(ends(&log), []);
    drop(file);
    assert_eq!(ends(&log), [(RecordedCallOutcome::Done, 0, None)]);
}

#[tokio::test]
async fn growth_can_be_refused() {
    let (driver, log) = (RecordingDriver::new(), GuardLog::default());
    let backend =
        backend(&driver, one_gate(ScriptedGuard::allow_all(0, &log).with_max_file_bytes(10)));
    let file = backend.open("file", READ_WRITE).await.unwrap();
    file.write_at(0, Bytes::from("12345")).await.unwrap();
    expect_error(file.write_at(8, Bytes::from("abc")).await, ErrorKind::DeniedByPolicy);
    expect_error(file.set_len(11).await, ErrorKind::DeniedByPolicy);
    expect_error(file.write_at(u64::MAX, Bytes::from("abc")).await, ErrorKind::DeniedByPolicy);
    assert_content(&backend, "file", "12345").await;
    file.set_len(10).await.unwrap();
    file.write_at(7, Bytes::from("abc")).await.unwrap();
    assert_content(&backend, "file", "12345\0\0abc").await;
    drop(file);

    let grown = |step: &GuardEvent| match step {
        GuardEvent::FileGrew { size, .. } => Some(*size),
        _ => None,
    };
    let sizes: Vec<u64> = log.events().iter().filter_map(grown).collect();
    assert_eq!(sizes, [5, 11, 11, u64::MAX, 10, 10]);
    assert_eq!(ends(&log).last(), Some(&(RecordedCallOutcome::Done, 8, None)));
}

#[tokio::test]
async fn a_failed_open_leaves_at_once() {
    let (driver, log) = (RecordingDriver::new(), GuardLog::default());
    let backend = backend(&driver, one_gate(ScriptedGuard::allow_all(0, &log)));
    expect_error(backend.open("missing", OpenOptions::default()).await, ErrorKind::NotFound);
    assert_eq!(ends(&log), [(RecordedCallOutcome::Failed(ErrorKind::NotFound), 0, None)]);
}

#[tokio::test]
async fn a_command_leaves_when_its_process_ends() {
    let (driver, log) = (RecordingDriver::new(), GuardLog::default());
    let backend = backend(&driver, one_gate(ScriptedGuard::allow_all(0, &log)));
    driver.script_next_command(ScriptedCommand::driven_by_test());
    let mut process = backend.spawn(ExecRequest::shell("sleep")).await.unwrap();
    assert_eq!(ends(&log), []);
    driver
        .take_test_driven_process()
        .exit
        .send(ProcessExit { code: Some(3), ..ProcessExit::default() });
    assert_eq!(ends(&log), [(RecordedCallOutcome::Done, 0, Some(3))]);
    assert_eq!(process.wait().await.unwrap().code, Some(3));
    drop(process);
    assert_eq!(ends(&log).len(), 1);
}

#[tokio::test]
async fn a_command_that_is_over_already_leaves_at_once() {
    let (driver, log) = (RecordingDriver::new(), GuardLog::default());
    let backend = backend(&driver, one_gate(ScriptedGuard::allow_all(0, &log)));
    driver.script_next_command(ScriptedCommand::exits(7));
    let _process = backend.spawn(ExecRequest::shell("quick")).await.unwrap();
    assert_eq!(ends(&log), [(RecordedCallOutcome::Done, 0, Some(7))]);
}

#[tokio::test]
async fn a_lost_process_is_cancelled() {
    let (driver, log) = (RecordingDriver::new(), GuardLog::default());
    let backend = backend(&driver, one_gate(ScriptedGuard::allow_all(0, &log)));
    driver.script_next_command(ScriptedCommand::driven_by_test());
    let process = backend.spawn(ExecRequest::shell("sleep")).await.unwrap();
    drop(process);
    assert_eq!(ends(&log), [], "the process may live on: only its driver knows");
    drop(driver.take_test_driven_process());
    assert_eq!(ends(&log), [(RecordedCallOutcome::Cancelled, 0, None)]);
}

#[tokio::test]
async fn a_refused_call_never_reaches_the_driver() {
    let (driver, log) = (RecordingDriver::new(), GuardLog::default());
    let gate =
        ScriptedGuard::new(0, ScriptedGuardBehavior::Refuse, &log).only_for_verbs(&[Verb::Write]);
    let backend = backend(&driver, one_gate(gate));
    expect_error(backend.write("file", "x").await, ErrorKind::DeniedByPolicy);
    assert_eq!(driver.recorded_calls(), []);
    expect_error(backend.read("file").await, ErrorKind::NotFound);
    assert_eq!(driver.verbs_and_paths(), [(Verb::Read, "file".to_owned())]);
}

#[tokio::test]
async fn a_scope_still_meets_its_parents_guards() {
    let (driver, log) = (RecordingDriver::new(), GuardLog::default());
    let gate =
        ScriptedGuard::new(0, ScriptedGuardBehavior::Refuse, &log).only_for_verbs(&[Verb::Delete]);
    let root = backend(&driver, one_gate(gate));
    let scope = root.scope("scope", ScopeOptions::default()).unwrap();
    let inner = scope.scope("inner", ScopeOptions::default()).unwrap();
    inner.write("file", "kept").await.unwrap();
    expect_error(inner.rm("file", RemoveOptions::default()).await, ErrorKind::DeniedByPolicy);
    assert_content(&root, "scope/inner/file", "kept").await;
}
