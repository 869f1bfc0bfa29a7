//! What a well-behaved agent and the client say to each other.

use ab_acp::session_update::{PlanEntryStatus, SessionUpdate};
use ab_acp::tool_call::{ChangedLineCounts, FileDiff, ToolCallId, ToolCallStatus, ToolKind};
use ab_acp::{
    AcpClientSettings, AcpError, AgentEvent, PermissionAnswer, PromptPart, SessionReopenMethod,
    StopReason,
};

use crate::stage::{Place, Stage, watch};

const ALLOW: PermissionAnswer = PermissionAnswer::Allow;

#[tokio::test]
async fn built_in_scenario_writes_notes_and_reports() {
    let place = Place::new();
    let mut stage = Stage::start(&place, "", AcpClientSettings::default());
    let session = stage.open(&place).await.unwrap();
    let (watched, result) = stage.turn(&session, "tidy up", ALLOW).await;
    assert_eq!(result.unwrap().stop_reason, StopReason::EndTurn);
    assert_eq!(watched.asked, ["Write NOTES.md"]);
    assert!(watched.thought.contains("The task is: tidy up"), "{}", watched.thought);
    assert!(watched.said.ends_with("NOTES.md\n"), "{}", watched.said);
    let notes = std::fs::read_to_string(place.cwd().join("NOTES.md")).unwrap();
    assert!(notes.contains("tidy up") && notes.contains("## Plan"), "{notes}");

    // The question, the write and its diff are one call.
    let write = watched.calls.get(&ToolCallId("call-1-1".into())).unwrap();
    assert_eq!((write.kind, write.status), (ToolKind::Edit, ToolCallStatus::Completed));
    let diffs: Vec<&FileDiff> = write.diffs().collect();
    assert_eq!(diffs.len(), 1);
    assert_eq!(diffs[0].path, place.cwd().join("NOTES.md").to_str().unwrap());
    let lines = notes.lines().count() as u64;
    assert_eq!(diffs[0].line_counts(), ChangedLineCounts { added: lines, removed: 0 });
    let list = watched.calls.get(&ToolCallId("call-1-2".into())).unwrap();
    assert_eq!((list.title.as_str(), list.output_text().as_str()), ("Run ls", "NOTES.md"));
    assert_eq!(watched.calls.unfinished_calls().count(), 0);

    let last = watched.updates.iter().rev().find_map(|update| match update {
        SessionUpdate::Plan(entries) => Some(entries),
        _ => None,
    });
    let last = last.unwrap();
    assert!(last.iter().all(|entry| entry.status == PlanEntryStatus::Completed), "{last:?}");
}

#[tokio::test]
async fn refused_permission_changes_nothing() {
    let place = Place::new();
    let mut stage = Stage::start(&place, "", AcpClientSettings::default());
    let session = stage.open(&place).await.unwrap();
    let (watched, result) = stage.turn(&session, "tidy up", PermissionAnswer::Reject).await;
    assert_eq!(result.unwrap().stop_reason, StopReason::EndTurn);
    assert!(watched.said.contains("changed nothing"), "{}", watched.said);
    assert!(std::fs::read_dir(place.cwd()).unwrap().next().is_none());
}

#[tokio::test]
async fn kind_of_call_that_is_always_allowed_is_not_asked_for_again() {
    let scenario = r#"
        [[turn]]
        steps = [
            { ask = { title = "Write a", kind = "edit" } },
            { write = { path = "a", text = "{turn}" } },
            { ask = { title = "Write b", kind = "edit" } },
            { ask = { title = "Run c", kind = "execute", command = "c" } },
        ]
    "#;
    let place = Place::new();
    let mut stage = Stage::start(&place, scenario, AcpClientSettings::default());
    let session = stage.open(&place).await.unwrap();
    let always = PermissionAnswer::Choose("always".to_owned());
    let (watched, _) = stage.turn(&session, "go", always).await;
    assert_eq!(watched.asked, ["Write a", "Run c"]);
    let (watched, result) = stage.turn(&session, "go", PermissionAnswer::Reject).await;
    assert_eq!(watched.asked, [""; 0]);
    assert_eq!(result.unwrap().stop_reason, StopReason::EndTurn);
    assert_eq!(std::fs::read_to_string(place.cwd().join("a")).unwrap(), "2");
    // Another session asks again.
    let session = stage.client.new_session(&place.setup()).await.unwrap();
    let (watched, _) = stage.turn(&session, "go", ALLOW).await;
    assert_eq!(watched.asked, ["Write a", "Write b", "Run c"]);
}

#[tokio::test]
async fn profile_says_what_the_agent_offers() {
    let place = Place::new();
    let scenario = "[agent]\nname = \"it\"\nresume = true\nmcp_http = false\n[[turn]]\nsteps = []";
    let stage = Stage::start(&place, scenario, AcpClientSettings::default());
    let profile = stage.client.initialize().await.unwrap();
    assert_eq!(profile.name.as_deref(), Some("it"));
    assert!(profile.loads_sessions && profile.resumes_sessions && !profile.mcp_http);
}

#[tokio::test]
async fn other_protocol_versions_are_refused() {
    let place = Place::new();
    let scenario = "[agent]\nprotocol = 2\n[[turn]]\nsteps = []";
    let stage = Stage::start(&place, scenario, AcpClientSettings::default());
    let error = stage.client.initialize().await.unwrap_err().to_string();
    assert!(error.contains("another protocol version (2)"), "{error}");
}

#[tokio::test]
async fn login_is_used_only_when_asked_for() {
    let place = Place::new();
    let scenario = "[agent]\nlogin = \"key\"\n[[turn]]\nsteps = []";
    let mut stage = Stage::start(&place, scenario, AcpClientSettings::default());
    match stage.open(&place).await.unwrap_err() {
        AcpError::LoginRequired { methods } => assert_eq!(methods[0].id, "key"),
        other => panic!("{other}"),
    }
    let settings =
        AcpClientSettings { auth_method: Some("key".into()), ..AcpClientSettings::default() };
    let mut stage = Stage::start(&place, scenario, settings);
    stage.open(&place).await.unwrap();
}

#[tokio::test]
async fn turns_follow_each_other_and_the_last_repeats() {
    let place = Place::new();
    let scenario = "
        [[turn]]
        steps = [{ say = \"first {prompt}\" }]
        [[turn]]
        steps = [{ say = \"turn {turn}\" }, { stop = \"max_tokens\" }]";
    let mut stage = Stage::start(&place, scenario, AcpClientSettings::default());
    let session = stage.open(&place).await.unwrap();
    for (said, stop) in [
        ("first {turn}", StopReason::EndTurn),
        ("turn 2", StopReason::MaxTokens),
        ("turn 3", StopReason::MaxTokens),
    ] {
        // What a prompt holds is not filled in.
        let (watched, result) = stage.turn(&session, "{turn}", ALLOW).await;
        assert_eq!((watched.said.as_str(), result.unwrap().stop_reason), (said, stop));
    }
}

#[tokio::test]
async fn restarted_agent_goes_on_with_its_session() {
    let place = Place::new();
    let turns = "
        [[turn]]
        steps = [{ say = \"one\" }]
        [[turn]]
        steps = [{ say = \"two\" }]";
    let mut stage = Stage::start(&place, turns, AcpClientSettings::default());
    let session = stage.open(&place).await.unwrap();
    stage.turn(&session, "go", ALLOW).await.1.unwrap();
    stage.client.close().await;
    stage.agent.await.unwrap();

    for (resume, expected) in [
        ("false", SessionReopenMethod::Loaded { replayed: 2 }),
        ("true", SessionReopenMethod::Resumed),
    ] {
        let scenario = format!("[agent]\nresume = {resume}\n{turns}");
        let mut stage = Stage::start(&place, &scenario, AcpClientSettings::default());
        stage.client.initialize().await.unwrap();
        let reopened = stage.client.load_or_resume_session(&session, &place.setup()).await.unwrap();
        assert_eq!(reopened, expected);
        let (watched, result) = stage.turn(&session, "go on", ALLOW).await;
        result.unwrap();
        assert_eq!(watched.said, "two", "the history is not among the updates");
    }
    let scenario = format!("[agent]\nload = false\n{turns}");
    let stage = Stage::start(&place, &scenario, AcpClientSettings::default());
    stage.client.initialize().await.unwrap();
    let error = stage.client.load_or_resume_session(&session, &place.setup()).await.unwrap_err();
    assert!(matches!(error, AcpError::Unsupported { .. }), "{error}");
}

/// A server that is killed closes the agent's input before its sandbox ends the agent.
#[tokio::test(flavor = "multi_thread")]
async fn question_outlives_its_client() {
    let place = Place::new();
    let mut stage = Stage::start(&place, "", AcpClientSettings::default());
    let session = stage.open(&place).await.unwrap();
    let prompt = [PromptPart::Text("Describe it".to_owned())];
    stage.client.start_turn(&session, &prompt).await.unwrap();
    let question = loop {
        if let Some(AgentEvent::Permission(question)) = stage.events.next().await {
            break question;
        }
    };
    stage.client.close().await;
    stage.agent.await.unwrap();
    drop(question);
    let mut stage = Stage::start(&place, "", AcpClientSettings::default());
    stage.client.initialize().await.unwrap();
    stage.client.load_or_resume_session(&session, &place.setup()).await.unwrap();
    let (watched, end) = stage.turn(&session, "Go on", PermissionAnswer::Allow).await;
    end.unwrap();
    assert_eq!(watched.asked.len(), 1, "{watched:?}");
    let notes = std::fs::read_to_string(place.cwd().join("NOTES.md")).unwrap();
    assert!(notes.contains("Describe it"), "{notes}");
}

#[tokio::test]
async fn unknown_session_cannot_be_reopened() {
    let place = Place::new();
    let stage = Stage::start(&place, "", AcpClientSettings::default());
    stage.client.initialize().await.unwrap();
    let unknown = ab_acp::AcpSessionId::new("00ff");
    let error = stage.client.load_or_resume_session(&unknown, &place.setup()).await.unwrap_err();
    assert!(error.to_string().contains("unknown session: 00ff"), "{error}");
}

#[tokio::test]
async fn cancelled_turn_ends_cancelled() {
    let place = Place::new();
    let scenario = "[[turn]]\nsteps = [{ say = \"a\" }, { hang = \"until_cancelled\" }]";
    let mut stage = Stage::start(&place, scenario, AcpClientSettings::default());
    let session = stage.open(&place).await.unwrap();
    let prompt = [PromptPart::Text("go".into())];
    stage.client.cancel_turn(&session).await.unwrap();
    stage.client.start_turn(&session, &prompt).await.unwrap();
    let again = stage.client.start_turn(&session, &prompt).await;
    assert!(matches!(again, Err(AcpError::TurnAlreadyRunning)), "{again:?}");
    stage.events.next().await.unwrap();
    stage.client.cancel_turn(&session).await.unwrap();
    let result = watch(&mut stage.events, &mut Default::default(), &ALLOW).await;
    assert_eq!(result.unwrap().stop_reason, StopReason::Cancelled);
    // The next turn starts as usual.
    stage.client.start_turn(&session, &prompt).await.unwrap();
}

#[tokio::test]
async fn cancelling_answers_open_questions() {
    let place = Place::new();
    let mut stage = Stage::start(&place, "", AcpClientSettings::default());
    let session = stage.open(&place).await.unwrap();
    stage.client.start_turn(&session, &[PromptPart::Text("go".into())]).await.unwrap();
    let question = loop {
        if let AgentEvent::Permission(question) = stage.events.next().await.unwrap() {
            break question;
        }
    };
    assert!(question.is_unanswered());
    stage.client.cancel_turn(&session).await.unwrap();
    assert!(!question.is_unanswered() && !question.answer(&ALLOW), "it has its answer");
    let result = watch(&mut stage.events, &mut Default::default(), &ALLOW).await;
    assert_eq!(result.unwrap().stop_reason, StopReason::Cancelled);
    assert!(!place.cwd().join("NOTES.md").exists());
}

#[tokio::test]
async fn dropped_question_is_cancelled() {
    let place = Place::new();
    let mut stage = Stage::start(&place, "", AcpClientSettings::default());
    let session = stage.open(&place).await.unwrap();
    stage.client.start_turn(&session, &[PromptPart::Text("go".into())]).await.unwrap();
    let result = loop {
        match stage.events.next().await.unwrap() {
            AgentEvent::Permission(question) => drop(question),
            AgentEvent::TurnEnded { result, .. } => break result,
            _ => {}
        }
    };
    assert_eq!(result.unwrap().stop_reason, StopReason::Cancelled);
}

#[tokio::test]
async fn methods_that_are_not_advertised_are_refused() {
    let place = Place::new();
    for method in ["fs/read_text_file", "fs/write_text_file", "terminal/create", "_vendor/x"] {
        let scenario = format!(
            "[[turn]]\nsteps = [{{ request = {{ method = \"{method}\" }} }}, {{ say = \"{{output}}\" }}]"
        );
        let mut stage = Stage::start(&place, &scenario, AcpClientSettings::default());
        let session = stage.open(&place).await.unwrap();
        let (watched, result) = stage.turn(&session, "go", ALLOW).await;
        result.unwrap();
        assert!(watched.said.contains("-32601"), "{}", watched.said);
    }
}

#[tokio::test]
async fn edits_and_failures_are_reported() {
    let place = Place::new();
    std::fs::write(place.cwd().join("a.txt"), "one\ntwo\n").unwrap();
    let scenario = "[[turn]]
        steps = [
            { edit = { path = \"a.txt\", old = \"two\", new = \"zwei\" } },
            { edit = { path = \"a.txt\", old = \"none\", new = \"x\" } },
            { read = \"a.txt\" },
            { run = \"echo out; exit 3\" },
            { call = { tool = \"grep\" } },
            { tool = { title = \"Look\", kind = \"search\", output = \"seen\" } },
            { update = { sessionUpdate = \"current_mode_update\", currentModeId = \"plan\" } },
            { notify = { method = \"_vendor/note\", params = { a = 1 } } },
        ]";
    let mut stage = Stage::start(&place, scenario, AcpClientSettings::default());
    let session = stage.open(&place).await.unwrap();
    let (watched, result) = stage.turn(&session, "go", ALLOW).await;
    result.unwrap();
    let call = |number: u64| watched.calls.get(&ToolCallId(format!("call-1-{number}"))).unwrap();
    let counts: Vec<ChangedLineCounts> = call(1).diffs().map(FileDiff::line_counts).collect();
    assert_eq!(counts, [ChangedLineCounts { added: 1, removed: 1 }]);
    assert_eq!((call(2).status, call(2).diffs().count()), (ToolCallStatus::Failed, 0));
    assert_eq!(call(3).output_text(), "one\nzwei\n");
    assert_eq!(call(4).status, ToolCallStatus::Failed);
    assert!(call(4).output_text().starts_with("out"), "{}", call(4).output_text());
    assert!(call(5).output_text().contains("no MCP server"), "{}", call(5).output_text());
    assert_eq!((call(6).kind, call(6).output_text().as_str()), (ToolKind::Search, "seen"));
    let others =
        watched.updates.iter().filter(|update| matches!(update, SessionUpdate::Other { .. }));
    assert_eq!(others.count(), 1);
}
