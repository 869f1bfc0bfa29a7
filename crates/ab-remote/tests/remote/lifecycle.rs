//! From the first call to destruction: what a remote backend says of its connection, and what
//! becomes of calls, files and processes when that is lost.

use std::sync::Arc;
use std::time::Duration;

use ab_core::options::{FileAccess, FileCreationMode, OpenOptions, WritePosition};
use ab_core::process::{
    Command, ExecRequest, HostDirectory, PathRestrictions, Process, ProcessControlMessage,
    StdinMode,
};
use ab_core::{Backend, ConnectionStatus, ErrorCode, ErrorKind, ExecOptions, LostCallEffect};
use ab_remote::client::{
    Keepalive, ReconnectPolicy, RemoteClientSettings, RemoteDriver, RemoteEndpoint,
};
use ab_testkit::ConnectionStatusRecorder;
use agent_backend::LocalWorkspaceConfig;
use tempfile::TempDir;
use tokio::time::timeout;

use super::relay::{Relay, Weather};
use super::world::server;
use crate::stage::within;

use ConnectionStatus::{Connected, Connecting, Destroyed, Disconnected, Reconnecting};

/// A local workspace behind a relay.
struct Fixture {
    relay: Arc<Relay>,
    local: Backend,
    backend: Backend,
    _keep: TempDir,
}

/// Short waits, so that a test does not take long.
fn fast_retries(settings: &mut RemoteClientSettings) {
    settings.reconnection = ReconnectPolicy {
        initial_delay: Duration::from_millis(20),
        max_delay: Duration::from_millis(40),
        ..ReconnectPolicy::default()
    };
    settings.operation_timeout = Duration::from_secs(20);
    settings.connect_timeout = Duration::from_secs(10);
}

impl Fixture {
    fn new(adjust: impl FnOnce(&mut RemoteClientSettings)) -> Self {
        let keep = tempfile::tempdir().unwrap();
        let config = LocalWorkspaceConfig::new(keep.path()).prevent_dangerous_commands(false);
        let local = agent_backend::local_with(config).unwrap();
        let relay = Arc::new(Relay::new(server(local.clone())));
        let mut settings = RemoteClientSettings::new(RemoteEndpoint::Stream(relay.clone()));
        fast_retries(&mut settings);
        adjust(&mut settings);
        let backend = Backend::new(RemoteDriver::new(settings).unwrap());
        Self { relay, local, backend, _keep: keep }
    }

    /// Waits for a status.
    async fn until(&self, status: ConnectionStatus) {
        let (tell, told) = tokio::sync::oneshot::channel();
        let tell = std::sync::Mutex::new(Some(tell));
        let _listening = self.backend.on_status_change(move |change| {
            if change.to == status
                && let Some(tell) = tell.lock().unwrap().take()
            {
                let _ = tell.send(());
            }
        });
        if self.backend.status() != status {
            within(told).await.unwrap();
        }
    }

    async fn end(self) {
        within(self.backend.destroy()).await.unwrap();
        within(self.relay.server().shut_down()).await;
        within(self.local.destroy()).await.unwrap();
    }
}

#[tokio::test]
async fn starts_disconnected_and_connects_when_it_is_needed() {
    let fixture = Fixture::new(|_| {});
    let heard = ConnectionStatusRecorder::subscribe(&fixture.backend);
    assert_eq!(fixture.backend.status(), Disconnected);
    assert_eq!(fixture.relay.attempts(), 0);
    within(fixture.backend.write("file", "x")).await.unwrap();
    assert_eq!(heard.transitions(), [(Disconnected, Connecting), (Connecting, Connected)]);
    within(fixture.backend.connect()).await.unwrap();
    within(fixture.backend.read("file")).await.unwrap();
    assert_eq!(fixture.relay.attempts(), 1);
    within(fixture.backend.destroy()).await.unwrap();
    assert_eq!(heard.transitions()[2..], [(Connected, Destroyed)]);
    fixture.end().await;
}

#[tokio::test]
async fn many_first_calls_share_one_connection() {
    let fixture = Fixture::new(|_| {});
    let calls = (0..40).map(|_| fixture.backend.exists("file"));
    for answer in within(futures_util::future::join_all(calls)).await {
        assert!(!answer.unwrap());
    }
    assert_eq!(fixture.relay.attempts(), 1);
    fixture.end().await;
}

#[tokio::test]
async fn a_first_connection_that_fails_is_not_repeated() {
    let fixture = Fixture::new(|_| {});
    let heard = ConnectionStatusRecorder::subscribe(&fixture.backend);
    fixture.relay.refuse(1);
    let error = within(fixture.backend.connect()).await.unwrap_err();
    assert_eq!(
        (error.code(), error.kind()),
        (ErrorCode::ConnectionClosed, ErrorKind::Disconnected)
    );
    assert_eq!(heard.transitions(), [(Disconnected, Connecting), (Connecting, Disconnected)]);
    assert_eq!(fixture.relay.attempts(), 1);
    // The next call tries again.
    assert!(!within(fixture.backend.exists("file")).await.unwrap());
    fixture.end().await;
}

#[tokio::test]
async fn a_loss_rejects_what_is_pending_and_comes_back() {
    let fixture = Fixture::new(|_| {});
    within(fixture.backend.connect()).await.unwrap();
    let heard = ConnectionStatusRecorder::subscribe(&fixture.backend);
    fixture.relay.set(Weather::Stalled);
    let scope = fixture.backend.scope("inner", ab_core::ScopeOptions::default()).unwrap();
    let pending = [&fixture.backend, &fixture.backend, &scope].map(|backend| {
        let backend = backend.clone();
        tokio::spawn(async move { backend.stat("file").await })
    });
    // They wait for an answer that does not come.
    tokio::task::yield_now().await;
    fixture.relay.set(Weather::Cut);
    for call in pending {
        let error = within(call).await.unwrap().unwrap_err();
        assert_eq!(
            (error.code(), error.kind()),
            (ErrorCode::ConnectionClosed, ErrorKind::Disconnected)
        );
        assert_eq!(error.path(), Some("file"), "{error}");
        assert_eq!(error.retry_advice(), ab_core::RetryAdvice::Safe);
    }
    fixture.relay.set(Weather::Fair);
    fixture.until(Connected).await;
    assert_eq!(
        heard.transitions(),
        [(Connected, Disconnected), (Disconnected, Reconnecting), (Reconnecting, Connected)]
    );
    within(fixture.backend.write("file", "x")).await.unwrap();
    fixture.end().await;
}

#[tokio::test]
async fn calls_while_reconnecting_join_the_attempt() {
    let fixture = Fixture::new(|_| {});
    within(fixture.backend.connect()).await.unwrap();
    fixture.relay.refuse(2);
    fixture.relay.cut();
    fixture.until(Reconnecting).await;
    let calls = (0..10).map(|_| fixture.backend.exists("file"));
    for answer in within(futures_util::future::join_all(calls)).await {
        assert!(!answer.unwrap());
    }
    // The first connection, two refusals, and one that everybody shares.
    assert_eq!(fixture.relay.attempts(), 4);
    fixture.end().await;
}

#[tokio::test]
async fn a_call_waits_for_the_link_no_longer_than_it_may() {
    let fixture = Fixture::new(|settings| {
        settings.operation_timeout = Duration::from_millis(100);
        settings.reconnection.initial_delay = Duration::from_secs(30);
        settings.reconnection.max_delay = Duration::from_secs(30);
    });
    within(fixture.backend.connect()).await.unwrap();
    fixture.relay.cut();
    fixture.until(Reconnecting).await;
    let error = within(fixture.backend.stat("file")).await.unwrap_err();
    assert_eq!((error.code(), error.kind()), (ErrorCode::Timeout, ErrorKind::Timeout));
    assert_eq!(fixture.backend.status(), Reconnecting);
    fixture.end().await;
}

#[tokio::test]
async fn attempts_end_and_the_next_call_begins_anew() {
    let fixture = Fixture::new(|settings| settings.reconnection.max_retries = 3);
    within(fixture.backend.connect()).await.unwrap();
    let heard = ConnectionStatusRecorder::subscribe(&fixture.backend);
    fixture.relay.refuse(3);
    fixture.relay.cut();
    fixture.until(Reconnecting).await;
    let waiting = within(fixture.backend.stat("file")).await.unwrap_err();
    assert_eq!(waiting.kind(), ErrorKind::Disconnected);
    assert_eq!(fixture.backend.status(), Disconnected);
    assert_eq!(fixture.relay.attempts(), 4);
    within(fixture.backend.write("file", "x")).await.unwrap();
    let lost = [(Connected, Disconnected), (Disconnected, Reconnecting)];
    let given_up = [(Reconnecting, Disconnected)];
    let anew = [(Disconnected, Connecting), (Connecting, Connected)];
    assert_eq!(heard.transitions(), [&lost[..], &given_up, &anew].concat());
    fixture.end().await;
}

#[tokio::test]
async fn without_reconnection_it_stays_disconnected() {
    let fixture = Fixture::new(|settings| settings.reconnection.enabled = false);
    within(fixture.backend.connect()).await.unwrap();
    let heard = ConnectionStatusRecorder::subscribe(&fixture.backend);
    fixture.relay.cut();
    fixture.until(Disconnected).await;
    assert_eq!(heard.transitions(), [(Connected, Disconnected)]);
    assert_eq!(fixture.relay.attempts(), 1);
    within(fixture.backend.connect()).await.unwrap();
    fixture.end().await;
}

#[tokio::test]
async fn destruction_cancels_what_is_scheduled() {
    let fixture = Fixture::new(|settings| {
        settings.reconnection.initial_delay = Duration::from_secs(3600);
        settings.reconnection.max_delay = Duration::from_secs(3600);
    });
    within(fixture.backend.connect()).await.unwrap();
    fixture.relay.cut();
    fixture.until(Reconnecting).await;
    let backend = fixture.backend.clone();
    let waiting = tokio::spawn(async move { backend.stat("file").await });
    tokio::task::yield_now().await;
    within(fixture.backend.destroy()).await.unwrap();
    let error = within(waiting).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Destroyed);
    assert_eq!(fixture.backend.status(), Destroyed);
    assert_eq!(fixture.relay.attempts(), 1);
    within(fixture.backend.destroy()).await.unwrap();
    fixture.end().await;
}

#[tokio::test]
async fn destruction_rejects_what_is_pending() {
    let fixture = Fixture::new(|_| {});
    within(fixture.backend.connect()).await.unwrap();
    fixture.relay.set(Weather::Stalled);
    let backend = fixture.backend.clone();
    let pending = tokio::spawn(async move { backend.stat("file").await });
    tokio::task::yield_now().await;
    within(fixture.backend.destroy()).await.unwrap();
    let error = within(pending).await.unwrap().unwrap_err();
    assert_eq!(error.code(), ErrorCode::ConnectionClosed);
    fixture.relay.set(Weather::Cut);
    fixture.end().await;
}

#[tokio::test]
async fn a_peer_that_is_silent_is_found_out() {
    let fixture = Fixture::new(|settings| {
        settings.keepalive = Keepalive { interval: Duration::from_millis(50), max_missed: 3 };
        settings.reconnection.enabled = false;
    });
    within(fixture.backend.connect()).await.unwrap();
    fixture.relay.set(Weather::Stalled);
    fixture.until(Disconnected).await;
    fixture.relay.set(Weather::Cut);
    fixture.end().await;
}

#[tokio::test]
async fn a_call_that_takes_too_long_says_so_and_leaves_the_link() {
    let fixture = Fixture::new(|settings| settings.operation_timeout = Duration::from_secs(2));
    within(fixture.backend.connect()).await.unwrap();
    fixture.relay.set(Weather::Stalled);
    let error = within(fixture.backend.write("file", "x")).await.unwrap_err();
    assert_eq!((error.code(), error.kind()), (ErrorCode::Timeout, ErrorKind::Timeout));
    assert_eq!(error.lost_call_effect(), Some(LostCallEffect::Unknown));
    assert_eq!(fixture.backend.status(), Connected);
    fixture.relay.set(Weather::Slow(Duration::ZERO));
    let effect =
        within(fixture.backend.query_lost_call(error.lost_call_id().unwrap())).await.unwrap();
    let there = within(fixture.backend.exists("file")).await.unwrap();
    match effect {
        LostCallEffect::Applied => assert!(there),
        LostCallEffect::NotApplied => assert!(!there),
        // It was called off while it ran.
        LostCallEffect::Unknown => {}
    }
    fixture.relay.set(Weather::Cut);
    fixture.end().await;
}

#[tokio::test]
async fn a_lost_answer_can_be_asked_for() {
    let fixture = Fixture::new(|_| {});
    within(fixture.backend.connect()).await.unwrap();
    for round in 0..10 {
        let name = format!("file{round}");
        // Lets the request through, or half of it, but no answer.
        fixture.relay.set(Weather::CutAfter(20 + round * 20));
        let written = within(fixture.backend.write(&name, "x")).await;
        fixture.relay.set(Weather::Fair);
        // Late rounds let the answer through too.
        let Err(error) = written else { continue };
        assert_eq!(error.kind(), ErrorKind::Disconnected, "{error:?}");
        let effect = match error.lost_call_id() {
            Some(ticket) => within(fixture.backend.query_lost_call(ticket)).await.unwrap(),
            None => error.lost_call_effect().unwrap(),
        };
        assert_ne!(effect, LostCallEffect::Unknown, "{error:?}");
        let there = within(fixture.backend.exists(&name)).await.unwrap();
        assert_eq!(there, effect == LostCallEffect::Applied, "{round}");
    }
    fixture.end().await;
}

#[tokio::test]
async fn another_server_knows_nothing_of_earlier_calls() {
    let fixture = Fixture::new(|_| {});
    within(fixture.backend.connect()).await.unwrap();
    fixture.relay.set(Weather::Stalled);
    let backend = fixture.backend.clone();
    let writing = tokio::spawn(async move { backend.write("file", "x").await });
    tokio::task::yield_now().await;
    let old = fixture.relay.replace(server(fixture.local.clone()));
    fixture.relay.set(Weather::Cut);
    let error = within(writing).await.unwrap().unwrap_err();
    within(old.shut_down()).await;
    fixture.relay.set(Weather::Fair);
    if let Some(ticket) = error.lost_call_id() {
        assert_eq!(
            within(fixture.backend.query_lost_call(ticket)).await.unwrap(),
            LostCallEffect::Unknown
        );
    }
    fixture.end().await;
}

#[tokio::test]
async fn files_end_with_their_connection() {
    let fixture = Fixture::new(|_| {});
    let options = OpenOptions {
        access: FileAccess::ReadWrite,
        create: FileCreationMode::IfMissing,
        ..Default::default()
    };
    let file = within(fixture.backend.open("file", options)).await.unwrap();
    within(file.write_at(0, "abc".into())).await.unwrap();
    fixture.relay.cut();
    fixture.until(Disconnected).await;
    let error = within(file.read_at(0, 3)).await.unwrap_err();
    assert_eq!((error.kind(), error.path()), (ErrorKind::Disconnected, Some("file")));
    let error = within(file.write_at(0, "x".into())).await.unwrap_err();
    assert_eq!(error.lost_call_effect(), Some(LostCallEffect::NotApplied));
    assert_eq!(within(fixture.backend.read("file")).await.unwrap(), "abc");
    fixture.end().await;
}

#[tokio::test]
async fn an_abandoned_call_is_called_off() {
    let fixture = Fixture::new(|_| {});
    within(fixture.backend.connect()).await.unwrap();
    for name in 0..200 {
        fixture.local.write(&format!("d{name}/file"), "text\n").await.unwrap();
    }
    for wait in 0..20 {
        let search = fixture.backend.grep("t.*x", ab_core::backend::GrepOptions::default());
        let _ = timeout(Duration::from_micros(wait * 100), search).await;
    }
    assert!(!within(fixture.backend.exists("nothing")).await.unwrap());
    fixture.end().await;
}

fn talking(backend: &Backend, line: &str) -> ExecRequest {
    let command = Command::Shell(line.to_owned());
    let request = backend.build_exec_request(command, ExecOptions::default()).unwrap();
    ExecRequest { stdin: StdinMode::Piped, ..request }
}

async fn until_said(process: &mut Process, said: &mut Vec<u8>, what: &str) {
    while !String::from_utf8_lossy(said).contains(what) {
        let output = within(process.output.recv()).await.expect("it ended");
        assert_eq!(output.offset, said.len() as u64, "a gap, or bytes twice");
        assert_eq!(output.lost_bytes_before, 0);
        said.extend_from_slice(&output.bytes);
    }
}

#[tokio::test]
async fn a_detached_process_goes_on_through_drops() {
    let fixture = Fixture::new(|_| {});
    let line = "echo begin; while read word; do echo got $word; done; echo end; exit 3";
    let request = talking(&fixture.backend, line);
    let mut process = within(fixture.backend.spawn_detached(request)).await.unwrap();
    let mut said = Vec::new();
    until_said(&mut process, &mut said, "begin\n").await;
    let stdin = process.stdin.clone().unwrap();
    for round in 0..5 {
        fixture.relay.cut();
        fixture.until(Disconnected).await;
        fixture.until(Connected).await;
        stdin.send(format!("word{round}\n").into()).await.unwrap();
        until_said(&mut process, &mut said, &format!("got word{round}\n")).await;
    }
    process.control.send(ProcessControlMessage::CloseStdin).await.unwrap();
    until_said(&mut process, &mut said, "end\n").await;
    assert_eq!(within(process.wait()).await.unwrap().code, Some(3));
    fixture.end().await;
}

#[tokio::test]
async fn an_end_of_input_that_was_lost_on_its_way_is_told_again() {
    let fixture = Fixture::new(|settings| settings.reconnection.max_retries = 0);
    let request = talking(&fixture.backend, "echo begin; cat; echo end; exit 3");
    let mut process = within(fixture.backend.spawn_detached(request)).await.unwrap();
    let mut said = Vec::new();
    until_said(&mut process, &mut said, "begin\n").await;
    // Behind this, nothing else is on its way.
    within(fixture.backend.exists(".")).await.unwrap();
    fixture.relay.set(Weather::CutAfter(1));
    process.control.send(ProcessControlMessage::CloseStdin).await.unwrap();
    fixture.until(Reconnecting).await;
    assert_eq!(process.control.capacity(), process.control.max_capacity(), "nobody took it");
    fixture.relay.set(Weather::Fair);
    until_said(&mut process, &mut said, "end\n").await;
    assert_eq!(within(process.wait()).await.unwrap().code, Some(3));
    fixture.end().await;
}

#[tokio::test]
async fn input_that_waits_for_room_outlives_a_loss() {
    let fixture = Fixture::new(|_| {});
    let line = "echo begin; until [ -e go ]; do sleep 0.05; done; tail -c 5; exit 3";
    let request = talking(&fixture.backend, line);
    let mut process = within(fixture.backend.spawn_detached(request)).await.unwrap();
    let mut said = Vec::new();
    until_said(&mut process, &mut said, "begin\n").await;
    // One piece, of which most waits for room that there is not before it is read.
    let piece = [vec![b'x'; 3 * 1024 * 1024], b"last\n".to_vec()].concat();
    within(process.stdin.as_ref().unwrap().send(piece.into())).await.unwrap();
    within(fixture.backend.exists(".")).await.unwrap();
    fixture.relay.cut();
    fixture.until(Disconnected).await;
    fixture.until(Connected).await;
    process.control.send(ProcessControlMessage::CloseStdin).await.unwrap();
    within(fixture.local.write("go", "")).await.unwrap();
    until_said(&mut process, &mut said, "last\n").await;
    assert_eq!(within(process.wait()).await.unwrap().code, Some(3));
    fixture.end().await;
}

#[tokio::test]
async fn an_owned_process_ends_with_its_connection() {
    let fixture = Fixture::new(|_| {});
    let request = talking(&fixture.backend, "echo $$ > pid; echo ready; sleep 1000");
    let mut process = within(fixture.backend.spawn(request)).await.unwrap();
    until_said(&mut process, &mut Vec::new(), "ready").await;
    fixture.relay.cut();
    assert_eq!(within(process.wait()).await, None);
    let why = process.exit_receiver().process_lost_error().unwrap();
    assert_eq!(
        (why.code(), why.lost_call_effect()),
        (ErrorCode::ConnectionClosed, Some(LostCallEffect::Unknown))
    );
    // Whoever only waits for a command is told the same.
    let backend = fixture.backend.clone();
    let running = tokio::spawn(async move { backend.exec("echo > here; sleep 1000").await });
    within(async {
        while !fixture.local.exists("here").await.unwrap() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    fixture.relay.cut();
    let error = within(running).await.unwrap().unwrap_err();
    assert_eq!(
        (error.code(), error.lost_call_effect()),
        (ErrorCode::ConnectionClosed, Some(LostCallEffect::Unknown))
    );
    within(async {
        while fixture.relay.server().connection_count() > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    fixture.end().await;
}

#[tokio::test]
async fn followers_are_told_when_the_link_is_given_up() {
    let fixture = Fixture::new(|settings| settings.reconnection.max_retries = 2);
    let request = talking(&fixture.backend, "echo begin; read word; echo $word");
    let mut process = within(fixture.backend.spawn_detached(request)).await.unwrap();
    let mut follower = within(fixture.backend.attach(&process.id, 0)).await.unwrap();
    for follower in [&mut process, &mut follower] {
        until_said(follower, &mut Vec::new(), "begin\n").await;
    }
    fixture.relay.refuse(2);
    fixture.relay.cut();
    for follower in [&mut process, &mut follower] {
        assert_eq!(within(follower.wait()).await, None);
        assert_eq!(within(follower.output.recv()).await, None);
        let why = follower.exit_receiver().process_lost_error().unwrap();
        assert_eq!(
            (why.code(), why.kind()),
            (ErrorCode::ConnectionClosed, ErrorKind::Disconnected)
        );
        assert!(why.message().contains("nobody is there"), "{why}");
    }
    assert_eq!(fixture.backend.status(), Disconnected);
    // The process knows nothing of that, and the next call begins anew.
    let mut again = within(fixture.backend.attach(&process.id, 0)).await.unwrap();
    again.stdin.clone().unwrap().send("word\n".into()).await.unwrap();
    until_said(&mut again, &mut Vec::new(), "begin\nword\n").await;
    assert_eq!(within(again.wait()).await.unwrap().code, Some(0));
    fixture.end().await;
}

#[tokio::test]
async fn directories_of_the_server_cannot_be_bound_from_elsewhere() {
    let fixture = Fixture::new(|_| {});
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), "s").unwrap();
    let path = outside.path().to_str().unwrap().to_owned();
    let bind = HostDirectory { path, access: ab_core::process::HostDirectoryAccess::ReadOnly };
    let binds = PathRestrictions { host_directories: vec![bind], ..PathRestrictions::default() };
    let bound = fixture.backend.restrict(binds).unwrap();
    let line = format!("cat {}/secret", outside.path().display());
    let error = within(bound.exec(&line)).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.code()),
        (ErrorKind::DeniedByPolicy, ErrorCode::DangerousOperation)
    );
    // What hides goes along, and holds over there.
    let hidden = PathRestrictions {
        hidden: vec![fixture.backend.parse_path("h").unwrap()],
        ..Default::default()
    };
    let narrowed = fixture.backend.restrict(hidden).unwrap();
    within(narrowed.exec("true")).await.unwrap();
    fixture.end().await;
}

#[tokio::test]
async fn appends_are_applied_once() {
    let fixture = Fixture::new(|_| {});
    let options = OpenOptions {
        access: FileAccess::Write,
        create: FileCreationMode::IfMissing,
        position: WritePosition::End,
        ..OpenOptions::default()
    };
    let mut expect = Vec::new();
    for round in 0..30u32 {
        let line = format!("line {round}\n");
        let file = match within(fixture.backend.open("log", options)).await {
            Ok(file) => file,
            Err(_) => continue,
        };
        fixture.relay.set(match round % 3 {
            0 => Weather::Slow(Duration::ZERO),
            _ => Weather::CutAfter(20 + round as usize * 9),
        });
        let written = within(file.write_at(0, line.clone().into())).await;
        fixture.relay.set(Weather::Fair);
        let applied = match written {
            Ok(()) => true,
            Err(error) => match error.lost_call_id() {
                Some(ticket) => {
                    let effect = within(fixture.backend.query_lost_call(ticket)).await.unwrap();
                    assert_ne!(effect, LostCallEffect::Unknown);
                    effect == LostCallEffect::Applied
                }
                None => error.lost_call_effect() == Some(LostCallEffect::Applied),
            },
        };
        if applied {
            expect.push(line);
        }
    }
    let log = within(fixture.backend.read_text("log")).await.unwrap();
    assert_eq!(log, expect.concat());
    fixture.end().await;
}
