//! Drivers: a session from its task to its end.

use std::time::Duration;

use ab_api::{
    ApprovalDecider, ApprovalDecision, ApprovalStatus, ApproveOrDeny, DeciderKind, PageRequest,
    SessionEndReason, SessionId, SessionStatus,
};
use ab_control::{ControlPlaneError, ControlPlaneSettings, SessionIdempotencyKey};
use ab_executor::{AgentReport, TurnOutcome};
use ab_store::{ApprovalFilter, SessionPromptChange, StoreError};

use crate::fake::{Fake, Fault, LONG_ERROR, Point, Script, prompt, scene, start, task};

/// Longer waits count as failures.
const TIMEOUT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_task_becomes_a_delivered_session() {
    let scene = scene(Fake::new(Script::Work)).await;
    let id = scene.create(false).await;
    let session = scene.end(id).await;
    assert_eq!(session.status, SessionStatus::Completed);
    assert_eq!(session.end_reason, Some(SessionEndReason::Done));
    assert_eq!(session.workspace.host.as_deref(), Some("fake"));
    assert!(session.started_at.is_some() && session.ended_at.is_some());
    scene.executor.called("cleanup").await;
    let calls = scene.executor.calls();
    let expect = ["provision", "launch", "prompt 1 fix", "deliver", "terminate", "cleanup"];
    assert_eq!(calls, expect);
    let story = scene.story(id).await;
    let expect = [
        "queued",
        "provisioning",
        "log",
        "log",
        "running",
        "prompt",
        "thought",
        "running",
        "diffStat",
        "delivery",
        "completed",
    ];
    assert_eq!(story, expect);
    assert_eq!(
        scene.control.store().get_session_artifact(id, "diff").await.expect("kept"),
        "a diff"
    );
    scene.control.shutdown().await;
    assert_eq!(scene.control.store().pending_cleanups(None).await.expect("list"), []);
}

#[tokio::test]
async fn failures_end_the_session_with_their_reason() {
    let table = [
        (Point::Provision, SessionEndReason::Provision),
        (Point::Launch, SessionEndReason::Launch),
        (Point::Prompt, SessionEndReason::Agent),
        (Point::Deliver, SessionEndReason::Delivery),
    ];
    for (point, reason) in table {
        let fault = Some((point, Fault::Fail));
        let scene = scene(Fake { fault, ..Fake::new(Script::Work) }).await;
        let id = scene.create(false).await;
        let session = scene.end(id).await;
        assert_eq!(session.status, SessionStatus::Failed, "{point:?}");
        assert_eq!(session.end_reason, Some(reason), "{point:?}");
        assert_eq!(session.end_detail, Some(format!("{point:?} failed")));
        scene.control.shutdown().await;
        // The work is kept until the session is deleted.
        assert_eq!(scene.control.store().pending_cleanups(Some(id)).await.expect("list").len(), 1);
    }
}

#[tokio::test]
async fn a_crashed_agent_fails_its_session() {
    let scene = scene(Fake::new(Script::Crash)).await;
    let id = scene.create(false).await;
    let session = scene.end(id).await;
    assert_eq!(
        (session.status, session.end_reason),
        (SessionStatus::Failed, Some(SessionEndReason::Agent))
    );
    assert_eq!(session.end_detail.as_deref(), Some("exit code 3"));
}

#[tokio::test]
async fn long_error_of_an_agent_fails_its_session_and_is_cut() {
    let scene = scene(Fake::new(Script::LongError)).await;
    let id = scene.create(false).await;
    let session = tokio::time::timeout(TIMEOUT, scene.end(id)).await.expect("the session ends");
    assert_eq!(
        (session.status, session.end_reason),
        (SessionStatus::Failed, Some(SessionEndReason::Agent))
    );
    let detail = session.end_detail.expect("a reason");
    let left_out = LONG_ERROR - 4096;
    assert!(detail.ends_with(&format!("é\n… ({left_out} more bytes)")), "{detail}");
}

#[tokio::test]
async fn longest_prompt_is_sent_whole() {
    let scene = scene(Fake::new(Script::Work)).await;
    let id = scene.create(true).await;
    let text = "\"".repeat(128 * 1024);
    scene.control.queue_prompt(id, prompt(&text), None).await.expect("prompt");
    let sent = format!("prompt 2 {text}");
    let sent = tokio::time::timeout(TIMEOUT, scene.executor.called(&sent)).await;
    sent.expect("the prompt is sent");
}

#[tokio::test]
async fn session_fails_if_its_driver_panics() {
    for point in [Point::Provision, Point::Prompt, Point::Deliver] {
        let fault = Some((point, Fault::Panic));
        let scene = scene(Fake { fault, ..Fake::new(Script::Work) }).await;
        let id = scene.create(false).await;
        let session = tokio::time::timeout(TIMEOUT, scene.end(id)).await.expect("it ends");
        assert_eq!(session.status, SessionStatus::Failed, "{point:?}");
        let detail = session.end_detail.expect("a reason");
        assert!(detail.contains("internal error of the server"), "{detail}");
        let stopped = scene.control.stop_session(id).await.expect("stop");
        assert_eq!(stopped.status, SessionStatus::Failed);
        let cancelled = scene.control.cancel_session(id).await.expect("cancel");
        assert_eq!(cancelled.status, SessionStatus::Failed);
        scene.executor.called("cleanup").await;
        scene.control.shutdown().await;
    }
}

#[tokio::test]
async fn session_fails_after_an_error_of_the_store_that_would_occur_again() {
    let scene = scene(Fake::new(Script::Silence)).await;
    let id = scene.create(false).await;
    scene.event(id, "thought").await;
    scene.control.queue_prompt(id, prompt("more"), None).await.expect("prompt");
    // The driver still counts this prompt, which is no longer in the store.
    let store = scene.control.store();
    let record = store.session_record(id).await.expect("read");
    let change = SessionPromptChange::Withdraw { number: 2 };
    store.change_session_prompts(record, change, Vec::new()).await.expect("withdraw");
    let reports = scene.executor.reports.lock().expect("reports").clone().expect("launched");
    reports.send(AgentReport::TurnEnded(TurnOutcome::Done)).await.expect("a driver");
    let session = tokio::time::timeout(TIMEOUT, scene.end(id)).await.expect("the session ends");
    assert_eq!(
        (session.status, session.end_reason),
        (SessionStatus::Failed, Some(SessionEndReason::Interrupted))
    );
    let detail = session.end_detail.expect("a reason");
    assert!(detail.contains("events could not be stored: not found"), "{detail}");
}

#[tokio::test]
async fn a_question_waits_for_its_decision() {
    for (choice, expect) in
        [(ApproveOrDeny::Approve, "answer q1 Approved"), (ApproveOrDeny::Deny, "answer q1 Denied")]
    {
        let scene = scene(Fake::new(Script::Ask)).await;
        let id = scene.create(false).await;
        scene.event(id, "approvalRequested").await;
        let filter = ApprovalFilter { status: Some(ApprovalStatus::Pending), session: Some(id) };
        let store = scene.control.store();
        let (open, _) = store.list_approvals(filter, PageRequest::default()).await.expect("list");
        let by = ApprovalDecider { kind: DeciderKind::Person, name: "ana".to_owned(), via: None };
        let decision = ApprovalDecision::from(choice);
        scene
            .control
            .decide_approval(open[0].id, decision.clone(), by.clone())
            .await
            .expect("decide");
        let again =
            scene.control.decide_approval(open[0].id, decision, by).await.expect_err("decided");
        assert!(
            matches!(again, ControlPlaneError::Store(StoreError::AlreadyDecided(_))),
            "{again}"
        );
        assert_eq!(scene.end(id).await.status, SessionStatus::Completed);
        assert!(scene.executor.calls().iter().any(|call| call == expect));
    }
}

#[tokio::test]
async fn stop_and_cancel_end_a_session_and_are_harmless_twice() {
    for (is_stop, expect) in [(true, SessionStatus::Stopped), (false, SessionStatus::Cancelled)] {
        let scene = scene(Fake::new(Script::Ask)).await;
        let id = scene.create(false).await;
        scene.event(id, "approvalRequested").await;
        for _ in 0..2 {
            if is_stop {
                scene.control.stop_session(id).await.expect("stop");
            } else {
                scene.control.cancel_session(id).await.expect("cancel");
            }
        }
        let session = scene.end(id).await;
        assert_eq!(session.status, expect);
        // The question expires with the request, before anything else of the end.
        let story = scene.story(id).await;
        let end = ["approvalDecided", "stopping", expect.as_str()];
        assert_eq!(story[story.len() - 3..], end);
        scene.control.cancel_session(id).await.expect("cancel an ended session");
        let cleanups = scene.control.store().pending_cleanups(Some(id)).await.expect("list");
        assert_eq!(cleanups, [], "a cancel removes the workspace");
        let error = scene.control.queue_prompt(id, prompt("more"), None).await.expect_err("ended");
        assert!(
            matches!(error, ControlPlaneError::SessionEnded(status) if status == expect),
            "{error}"
        );
    }
}

#[tokio::test]
async fn agent_that_asks_while_its_session_ends_gets_a_no_and_leaves_no_approval() {
    let scene = scene(Fake::new(Script::AskAtTheEnd)).await;
    let id = scene.create(false).await;
    scene.event(id, "thought").await;
    scene.control.stop_session(id).await.expect("stop");
    let ended =
        tokio::time::timeout(TIMEOUT, scene.end(id)).await.expect("the question is answered");
    assert_eq!(ended.status, SessionStatus::Stopped);
    let filter = ApprovalFilter { status: None, session: Some(id) };
    let store = scene.control.store();
    let (_, total) = store.list_approvals(filter, PageRequest::default()).await.expect("list");
    assert_eq!(total, 0, "nobody is asked");
}

#[tokio::test]
async fn an_agent_that_never_stops_talking_is_cancelled() {
    let scene = scene(Fake::new(Script::Flood)).await;
    let id = scene.create(false).await;
    scene.executor.called("prompt 1 fix").await;
    let cancelled = tokio::time::timeout(TIMEOUT, scene.control.cancel_session(id)).await;
    cancelled.expect("a cancel does not wait for the agent").expect("cancel");
    let session = tokio::time::timeout(TIMEOUT, scene.end(id)).await;
    assert_eq!(session.expect("the session ends").status, SessionStatus::Cancelled);
}

#[tokio::test]
async fn every_point_can_be_cancelled() {
    for point in [Point::Provision, Point::Launch, Point::Prompt, Point::Deliver] {
        let fault = Some((point, Fault::Hang));
        let scene = scene(Fake { fault, ..Fake::new(Script::Work) }).await;
        let id = scene.create(false).await;
        let call = match point {
            Point::Prompt => "prompt 1 fix".to_owned(),
            point => format!("{point:?}").to_lowercase(),
        };
        scene.executor.called(&call).await;
        scene.control.cancel_session(id).await.expect("cancel");
        assert_eq!(scene.end(id).await.status, SessionStatus::Cancelled, "{point:?}");
        scene.executor.called("cleanup").await;
        scene.control.shutdown().await;
        assert_eq!(scene.control.store().pending_cleanups(None).await.expect("list"), []);
    }
}

#[tokio::test]
async fn a_kept_session_takes_prompts_until_it_is_finished() {
    let scene = scene(Fake::new(Script::Work)).await;
    let id = scene.create(true).await;
    scene.event(id, r#""activity":"idle""#).await;
    scene.control.queue_prompt(id, prompt("again"), None).await.expect("prompt");
    scene.executor.called("prompt 2 again").await;
    // The turn's end is not known yet, so finishing may come too early once or twice.
    while let Err(error) = scene.control.finish_session(id).await {
        assert!(matches!(error, ControlPlaneError::IllegalInput(_)), "{error}");
        tokio::task::yield_now().await;
    }
    assert_eq!(scene.end(id).await.status, SessionStatus::Completed);
}

#[tokio::test]
async fn a_paused_session_goes_on() {
    let scene = scene(Fake::new(Script::Silence)).await;
    let id = scene.create(false).await;
    scene.event(id, "thought").await;
    scene.control.pause_session(id).await.expect("pause");
    scene.event(id, r#""status":"paused""#).await;
    scene.control.resume_session(id).await.expect("resume");
    scene.executor.called("resume").await;
    scene.control.cancel_session(id).await.expect("cancel");
    let error = loop {
        match scene.control.resume_session(id).await {
            Err(error @ ControlPlaneError::SessionEnded(_)) => break error,
            Err(ControlPlaneError::IllegalInput(_)) => tokio::task::yield_now().await,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(error.to_string(), "the session has ended: it is cancelled");
}

#[tokio::test]
async fn sessions_beyond_the_limit_stay_queued() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let settings = ControlPlaneSettings { max_running: 1, ..ControlPlaneSettings::default() };
    let scene = start(dir, Fake::new(Script::Silence), settings).await;
    let first = scene.create(false).await;
    scene.event(first, "thought").await;
    let second = scene.create(false).await;
    let third = scene.create(false).await;
    let status = async |id| scene.control.store().get_session(id).await.expect("read").status;
    scene.event(second, "log").await;
    assert_eq!(status(second).await, SessionStatus::Queued);
    let events = scene.control.store().last_event_records(second, Some("log"), 1).await;
    let told = events.expect("read")[0].json.clone();
    assert!(told.contains("The maximum of 1 running sessions is reached"), "{told}");
    scene.control.stop_session(third).await.expect("stop");
    assert_eq!(scene.end(third).await.status, SessionStatus::Cancelled);
    scene.control.cancel_session(first).await.expect("cancel");
    scene.event(second, "thought").await;
    assert_eq!(status(first).await, SessionStatus::Cancelled);
}

#[tokio::test]
async fn a_repeated_request_gives_the_same_session() {
    let scene = scene(Fake::new(Script::Work)).await;
    let key = |request: &str| {
        let (scope, key) = ("ana".to_owned(), "k".to_owned());
        Some(SessionIdempotencyKey { scope, key, request: request.as_bytes().to_vec() })
    };
    let first = scene.control.create_session(task(false), key("a")).await.expect("create");
    let again = scene.control.create_session(task(false), key("a")).await.expect("the same");
    assert_eq!(first, again);
    let error = scene.control.create_session(task(false), key("b")).await.expect_err("another");
    assert!(matches!(error, ControlPlaneError::Store(StoreError::IdempotencyKeyReused)), "{error}");
}

#[tokio::test]
async fn unknown_sessions_are_not_found() {
    let scene = scene(Fake::new(Script::Work)).await;
    let error = scene.control.stop_session(SessionId::generate()).await.expect_err("unknown");
    assert!(matches!(error, ControlPlaneError::NotFound), "{error}");
}
