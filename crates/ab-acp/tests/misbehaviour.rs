//! Agents that crash, print garbage, hang or flood: every conversation ends with a clear error, in
//! bounded time and memory.

use std::time::Duration;

use ab_acp::bounds::{MAX_CONSECUTIVE_INVALID_LINES, MAX_QUEUED_MESSAGES};
use ab_acp::scripted_agent::ScriptedAgentExit;
use ab_acp::{AcpClient, AcpClientSettings, AcpError, AgentEvent, PermissionAnswer, PromptPart};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::stage::{Place, Stage};

const ALLOW: PermissionAnswer = PermissionAnswer::Allow;

/// The whole built-in scenario; the error that ended it early.
async fn played(stage: &mut Stage, place: &Place) -> Result<(), AcpError> {
    let session = stage.open(place).await?;
    let (_, result) = stage.turn(&session, "go", ALLOW).await;
    result.map(drop)
}

#[tokio::test]
async fn crash_at_every_line_is_an_error() {
    let built_in = include_str!("../src/scripted_agent/default.toml");
    let mut crashes = 0;
    for lines in 0.. {
        let place = Place::new();
        let faults = format!("[faults]\nexit_after_lines = {lines}\nexit_code = 7\n{built_in}");
        let mut stage = Stage::start(&place, &faults, AcpClientSettings::default());
        let result = played(&mut stage, &place).await;
        if result.is_ok() {
            // The last line of the turn is its end; the next crash would come after it.
            break;
        }
        let error = result.unwrap_err();
        assert!(error.ends_connection(), "after {lines} lines: {error}");
        assert_eq!(stage.agent.await.unwrap(), ScriptedAgentExit::Exit(7));
        assert!(stage.events.next().await.is_none());
        crashes += 1;
    }
    assert!(crashes > 10, "{crashes}");
}

#[tokio::test]
async fn exit_in_a_turn_comes_after_its_updates() {
    let place = Place::new();
    let scenario = "[[turn]]\nsteps = [{ say = \"a\" }, { say = \"b\" }, { exit = 3 }]";
    let mut stage = Stage::start(&place, scenario, AcpClientSettings::default());
    let session = stage.open(&place).await.unwrap();
    let (watched, result) = stage.turn(&session, "go", ALLOW).await;
    assert_eq!(watched.said, "ab");
    let error = result.unwrap_err().to_string();
    assert_eq!(error, "connection to the agent ended: the agent closed its output");
    assert_eq!(stage.agent.await.unwrap(), ScriptedAgentExit::Exit(3));
}

#[tokio::test]
async fn garbage_is_reported_and_skipped() {
    let place = Place::new();
    let scenario = "
        [faults]\nnoise = [\"Welcome!\", \"\", \"[1, 2]\"]
        [[turn]]\nsteps = [{ garbage = \"panic!\" }, { garbage = \"{\" }, { say = \"fine\" }]";
    let mut stage = Stage::start(&place, scenario, AcpClientSettings::default());
    let session = stage.open(&place).await.unwrap();
    let (watched, result) = stage.turn(&session, "go", ALLOW).await;
    result.unwrap();
    assert_eq!(watched.noise, ["Welcome!", "[1, 2]", "panic!", "{"]);
    assert_eq!(watched.said, "fine");
}

#[tokio::test]
async fn errors_of_the_agent_are_told() {
    for (scenario, says) in [
        (
            "[[turn]]\nsteps = [{ error = { code = -32050, message = \"too busy\" } }]",
            "refused session/prompt: too busy (code -32050)",
        ),
        ("[faults]\nfail_at = \"initialize\"\n[[turn]]\nsteps = []", "refused initialize"),
        ("[faults]\nfail_at = \"session/new\"\n[[turn]]\nsteps = []", "refused session/new"),
    ] {
        let place = Place::new();
        let mut stage = Stage::start(&place, scenario, AcpClientSettings::default());
        let error = played(&mut stage, &place).await.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[tokio::test]
async fn hang_ends_with_a_timeout() {
    let brief = Duration::from_millis(300);
    let whole = AcpClientSettings::default();
    for (method, settings) in [
        ("initialize", AcpClientSettings { initialize_timeout: brief, ..whole.clone() }),
        ("session/new", AcpClientSettings { request_timeout: brief, ..whole }),
    ] {
        let place = Place::new();
        let scenario = format!("[faults]\nhang_at = \"{method}\"\n[[turn]]\nsteps = []");
        let mut stage = Stage::start(&place, &scenario, settings);
        let error = played(&mut stage, &place).await.unwrap_err().to_string();
        assert_eq!(error, format!("the agent did not answer {method} within 300ms"));
    }
}

#[tokio::test]
async fn turn_that_ignores_a_cancellation_ends_with_a_timeout() {
    let place = Place::new();
    let scenario = "[[turn]]\nsteps = [{ say = \"a\" }, { hang = \"forever\" }]";
    let cancel_timeout = Duration::from_millis(300);
    let settings = AcpClientSettings { cancel_timeout, ..AcpClientSettings::default() };
    let mut stage = Stage::start(&place, scenario, settings);
    let session = stage.open(&place).await.unwrap();
    stage.client.start_turn(&session, &[PromptPart::Text("go".into())]).await.unwrap();
    stage.events.next().await.unwrap();
    // The reader of events waits already when the turn is cancelled.
    let client = stage.client.clone();
    let id = session.clone();
    let (event, cancelled) = tokio::join!(stage.events.next(), client.cancel_turn(&id));
    cancelled.unwrap();
    match event {
        Some(AgentEvent::TurnEnded { result: Err(AcpError::Timeout { .. }), .. }) => {}
        other => panic!("{other:?}"),
    }
    stage.client.close().await;
    assert!(stage.events.next().await.is_none());
    assert_eq!(stage.agent.await.unwrap(), ScriptedAgentExit::Finished);
}

#[tokio::test]
async fn long_line_ends_the_connection() {
    let place = Place::new();
    let scenario =
        "[[turn]]\nsteps = [{ say = \"a\" }, { long_line = 100_000_000 }, { say = \"b\" }]";
    let mut stage = Stage::start(&place, scenario, AcpClientSettings::default());
    let session = stage.open(&place).await.unwrap();
    let (watched, result) = stage.turn(&session, "go", ALLOW).await;
    assert_eq!(watched.said, "a");
    assert_eq!(result.unwrap_err().to_string(), "the agent sent a line of more than 8388608 bytes");
    stage.client.close().await;
    stage.agent.await.unwrap();
}

#[tokio::test]
async fn flood_of_garbage_is_not_acp() {
    let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
    let (input, output) = tokio::io::split(ours);
    let (client, mut events) = AcpClient::connect(input, output, AcpClientSettings::default());
    let agent = tokio::spawn(async move { while theirs.write_all(b"y\n").await.is_ok() {} });
    let reading = tokio::spawn(async move {
        let mut noise = 0;
        while let Some(event) = events.next().await {
            assert!(matches!(event, AgentEvent::InvalidLine(_)), "{event:?}");
            noise += 1;
        }
        noise
    });
    let error = client.initialize().await.unwrap_err().to_string();
    assert!(error.starts_with("the agent does not speak ACP: 1000 consecutive lines"), "{error}");
    assert_eq!(reading.await.unwrap(), MAX_CONSECUTIVE_INVALID_LINES);
    drop(client);
    agent.await.unwrap();
}

#[tokio::test]
async fn flood_waits_for_its_reader_and_loses_nothing() {
    const PIECES: usize = 3000;
    let place = Place::new();
    let scenario =
        format!("[[turn]]\nsteps = [{{ flood = {{ pieces = {PIECES}, bytes = 1000 }} }}]");
    let mut stage = Stage::start(&place, &scenario, AcpClientSettings::default());
    let session = stage.open(&place).await.unwrap();
    let (watched, result) = stage.turn(&session, "go", ALLOW).await;
    result.unwrap();
    assert_eq!((watched.updates.len(), watched.said.len()), (PIECES, PIECES * 1000));
}

#[tokio::test]
async fn agent_blocks_while_events_are_not_read() {
    let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
    let (input, output) = tokio::io::split(ours);
    let (client, mut events) = AcpClient::connect(input, output, AcpClientSettings::default());
    let line = format!("{{\"method\":\"_n\",\"params\":\"{}\"}}\n", "x".repeat(1000));
    let mut sent = 0;
    // The agent writes until it blocks.
    while tokio::time::timeout(Duration::from_millis(200), theirs.write_all(line.as_bytes()))
        .await
        .is_ok()
    {
        sent += 1;
        assert!(sent < 2 * MAX_QUEUED_MESSAGES, "the agent never blocks");
    }
    assert!(sent >= MAX_QUEUED_MESSAGES, "{sent}");
    events.next().await.unwrap();
    // A client that is closed while its reader sleeps ends all the same.
    client.close().await;
    let mut rest = Vec::new();
    theirs.read_to_end(&mut rest).await.unwrap();
}

#[tokio::test]
async fn requests_that_wait_are_bounded() {
    let (ours, theirs) = tokio::io::duplex(1024 * 1024);
    let (input, output) = tokio::io::split(ours);
    let (_client, mut events) = AcpClient::connect(input, output, AcpClientSettings::default());
    let (mut from_client, mut to_client) = tokio::io::split(theirs);
    for id in 0..=ab_acp::bounds::MAX_PENDING_INCOMING_REQUESTS {
        let line = format!(
            "{{\"id\":{id},\"method\":\"session/request_permission\",\"params\":{{\"sessionId\":\"s\",\
             \"toolCall\":{{\"toolCallId\":\"t\"}},\"options\":[]}}}}\n"
        );
        to_client.write_all(line.as_bytes()).await.unwrap();
    }
    let mut questions = Vec::new();
    for _ in 0..ab_acp::bounds::MAX_PENDING_INCOMING_REQUESTS {
        questions.push(events.next().await.unwrap());
    }
    let mut answer = vec![0; 200];
    let count = from_client.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..count]).into_owned();
    assert!(answer.contains("\"id\":64") && answer.contains("-32001"), "{answer}");
}

#[tokio::test]
async fn broken_permission_request_is_refused() {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (input, output) = tokio::io::split(ours);
    let (client, mut events) = AcpClient::connect(input, output, AcpClientSettings::default());
    let (mut from_client, mut to_client) = tokio::io::split(theirs);
    to_client
        .write_all(b"{\"id\":\"x\",\"method\":\"session/request_permission\",\"params\":{}}\n")
        .await
        .unwrap();
    let reading = tokio::spawn(async move { events.next().await.is_none() });
    let mut answer = vec![0; 300];
    let count = from_client.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..count]).into_owned();
    assert!(answer.contains("\"id\":\"x\"") && answer.contains("-32602"), "{answer}");
    client.close().await;
    assert!(reading.await.unwrap());
}
