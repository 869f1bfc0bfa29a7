//! The server ends at any point, and sessions go on or end with a reason.

use ab_api::{ApprovalDecider, ApproveOrDeny, PageRequest, SessionEndReason, SessionStatus};
use ab_store::ApprovalFilter;

use crate::fake::{Fake, Fault, Point, Scene, Script, prompt, scene};

/// A server that ends while the executor hangs at `point`.
async fn ended_at(point: Point, call: &str) -> (Scene, ab_api::SessionId) {
    let fault = Some((point, Fault::Hang));
    let scene = scene(Fake { fault, ..Fake::new(Script::Work) }).await;
    let id = scene.create(false).await;
    scene.executor.called(call).await;
    (scene, id)
}

#[tokio::test]
async fn work_before_the_first_prompt_is_done_again() {
    for (point, call) in [(Point::Provision, "provision"), (Point::Launch, "launch")] {
        let (scene, id) = ended_at(point, call).await;
        let scene = scene.restart(Fake::new(Script::Work)).await;
        assert_eq!(scene.end(id).await.status, SessionStatus::Completed, "{point:?}");
        let calls = scene.executor.calls();
        assert_eq!(calls[0], "terminate", "the old processes end first");
        assert_eq!(calls[1], call);
        let prompts = calls.iter().filter(|call| call.starts_with("prompt")).count();
        assert_eq!(prompts, 1, "{calls:?}");
    }
}

#[tokio::test]
async fn a_prompt_is_never_given_twice() {
    let (scene, id) = ended_at(Point::Prompt, "prompt 1 fix").await;
    let scene = scene.restart(Fake::new(Script::Work)).await;
    scene.event(id, r#""activity":"idle""#).await;
    assert_eq!(scene.executor.calls(), ["terminate", "reload"]);
    scene.control.queue_prompt(id, prompt("go on"), None).await.expect("prompt");
    assert_eq!(scene.end(id).await.status, SessionStatus::Completed);
    let calls = scene.executor.calls();
    assert!(calls.contains(&"prompt 2 go on".to_owned()), "{calls:?}");
    assert!(!calls.iter().any(|call| call.starts_with("prompt 1")), "{calls:?}");
}

#[tokio::test]
async fn an_agent_that_cannot_load_is_interrupted() {
    let (scene, id) = ended_at(Point::Prompt, "prompt 1 fix").await;
    let scene = scene.restart(Fake { can_reload: false, ..Fake::new(Script::Work) }).await;
    let session = scene.end(id).await;
    assert_eq!(session.status, SessionStatus::Failed);
    assert_eq!(session.end_reason, Some(SessionEndReason::Interrupted));
}

#[tokio::test]
async fn agent_that_asks_again_after_a_restart_is_told_as_it_is() {
    for is_decided in [false, true] {
        let scene = scene(Fake::new(Script::Ask)).await;
        let id = scene.create(false).await;
        scene.event(id, "approvalRequested").await;
        let scene = scene.restart(Fake::new(Script::Ask)).await;
        let filter = ApprovalFilter { status: None, session: Some(id) };
        let store = scene.control.store();
        let (asked, _) = store.list_approvals(filter, PageRequest::default()).await.expect("list");
        let decide = async || {
            let by = ApprovalDecider::for_server_rule("test");
            let decision = ApproveOrDeny::Approve.into();
            scene.control.decide_approval(asked[0].id, decision, by).await.expect("decide");
        };
        let says = if is_decided {
            // The session tells its agent to go on.
            decide().await;
            format!("the decision of approval {} is used: approved", asked[0].id)
        } else {
            scene.control.queue_prompt(id, prompt("go on"), None).await.expect("prompt");
            format!("approval {} still waits for a decision", asked[0].id)
        };
        scene.event(id, &says).await;
        if !is_decided {
            decide().await;
        }
        assert_eq!(scene.end(id).await.status, SessionStatus::Completed);
        let (_, total) = store.list_approvals(filter, PageRequest::default()).await.expect("list");
        assert_eq!(total, 1, "nobody is asked twice");
    }
}

#[tokio::test]
async fn a_delivery_is_repeated() {
    let (scene, id) = ended_at(Point::Deliver, "deliver").await;
    let scene = scene.restart(Fake::new(Script::Work)).await;
    assert_eq!(scene.end(id).await.status, SessionStatus::Completed);
    let story = scene.story(id).await;
    assert_eq!(story.iter().filter(|kind| *kind == "delivery").count(), 1, "{story:?}");
}

#[tokio::test]
async fn an_end_that_was_begun_is_finished() {
    let scene = scene(Fake::new(Script::Silence)).await;
    let id = scene.create(false).await;
    scene.event(id, "thought").await;
    // The control plane ends between the stop and its effect.
    let stopping = scene.control.stop_session(id).await.expect("stop");
    assert_eq!(stopping.status, SessionStatus::Stopping);
    let scene = scene.restart(Fake::new(Script::Silence)).await;
    assert_eq!(scene.end(id).await.status, SessionStatus::Stopped);
}

#[tokio::test]
async fn leftovers_of_ended_sessions_are_collected() {
    let fault = Some((Point::Cleanup, Fault::Fail));
    let scene = scene(Fake { fault, ..Fake::new(Script::Work) }).await;
    let id = scene.create(false).await;
    scene.end(id).await;
    scene.executor.called("cleanup").await;
    let scene = scene.restart(Fake::new(Script::Work)).await;
    scene.executor.called("cleanup").await;
    scene.control.shutdown().await;
    assert_eq!(scene.control.store().pending_cleanups(None).await.expect("list"), []);
}
