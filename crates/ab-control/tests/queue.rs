//! The prompt queue: order, changes, receipts, and restarts.

use ab_api::{PageRequest, PromptRequest, PromptStatus, SessionId, SessionStatus};
use ab_control::{ControlPlaneError, SessionIdempotencyKey};
use ab_store::StoreError;

use crate::fake::{Fake, Fault, Point, Scene, Script, prompt, scene};

/// The prompts of a session as `number status text`.
async fn listed(scene: &Scene, id: SessionId) -> Vec<String> {
    let page = PageRequest::default();
    let (prompts, total) =
        scene.control.store().session_prompts(id, None, page).await.expect("list");
    assert_eq!(total, prompts.len() as u64);
    let line = |it: &ab_api::SessionPrompt| format!("{} {} {}", it.number, it.status, it.prompt);
    prompts.iter().map(line).collect()
}

#[tokio::test]
async fn queued_prompts_are_listed_changed_and_withdrawn() {
    let scene = scene(Fake::new(Script::Silence)).await;
    let id = scene.create(false).await;
    scene.event(id, "thought").await;
    for text in ["two", "three", "four"] {
        let queued = scene.control.queue_prompt(id, prompt(text), None).await.expect("queue");
        assert_eq!(queued.status, PromptStatus::Queued);
    }
    scene.control.replace_queued_prompt(id, 4, "vier".to_owned()).await.expect("change");
    let gone = scene.control.withdraw_queued_prompt(id, 2).await.expect("withdraw");
    assert_eq!(gone.status, PromptStatus::Withdrawn);
    let expect = ["1 sent fix", "2 withdrawn two", "3 queued three", "4 queued vier"];
    assert_eq!(listed(&scene, id).await, expect);
    let again =
        scene.control.withdraw_queued_prompt(id, 2).await.expect_err("it is not in the queue");
    let is_refused = matches!(
        again,
        ControlPlaneError::Store(StoreError::PromptNotQueued(PromptStatus::Withdrawn))
    );
    assert!(is_refused, "{again}");
    let sent = scene.control.replace_queued_prompt(id, 1, "x".to_owned()).await.expect_err("sent");
    assert!(
        matches!(sent, ControlPlaneError::Store(StoreError::PromptNotQueued(PromptStatus::Sent))),
        "{sent}"
    );
    let unknown = scene.control.withdraw_queued_prompt(id, 9).await.expect_err("unknown");
    assert!(matches!(unknown, ControlPlaneError::PromptNotFound(9)), "{unknown}");
    scene.control.cancel_session(id).await.expect("cancel");
    assert_eq!(scene.end(id).await.status, SessionStatus::Cancelled);
    let expect = ["1 interrupted fix", "2 withdrawn two", "3 withdrawn three", "4 withdrawn vier"];
    assert_eq!(listed(&scene, id).await, expect);
}

#[tokio::test]
async fn prompt_for_now_cancels_the_turn_and_goes_first() {
    let scene = scene(Fake::new(Script::Silence)).await;
    let id = scene.create(false).await;
    scene.event(id, "thought").await;
    scene.control.queue_prompt(id, prompt("later"), None).await.expect("queue");
    let now = PromptRequest { prompt: "now".to_owned(), now: true };
    scene.control.queue_prompt(id, now, None).await.expect("queue");
    scene.executor.called("prompt 2 now").await;
    let expect = ["1 interrupted fix", "3 sent now", "2 queued later"];
    assert_eq!(listed(&scene, id).await, expect);
    let again = PromptRequest { prompt: "again".to_owned(), now: true };
    scene.control.queue_prompt(id, again, None).await.expect("queue");
    scene.executor.called("prompt 3 again").await;
    let calls = scene.executor.calls();
    let expect = ["prompt 1 fix", "cancel 1", "prompt 2 now", "cancel 2", "prompt 3 again"];
    assert_eq!(calls[2..], expect, "each turn is cancelled once");
    scene.control.cancel_session(id).await.expect("cancel");
    scene.end(id).await;
}

#[tokio::test]
async fn paused_session_takes_prompts_for_later_only() {
    let scene = scene(Fake::new(Script::Silence)).await;
    let id = scene.create(false).await;
    scene.event(id, "thought").await;
    scene.control.pause_session(id).await.expect("pause");
    scene.event(id, r#""status":"paused""#).await;
    scene.control.queue_prompt(id, prompt("later"), None).await.expect("queue");
    let now = PromptRequest { prompt: "now".to_owned(), now: true };
    let refused = scene.control.queue_prompt(id, now, None).await.expect_err("it is frozen");
    assert!(matches!(refused, ControlPlaneError::IllegalInput(_)), "{refused}");
    scene.control.cancel_session(id).await.expect("cancel");
}

#[tokio::test]
async fn repeated_request_queues_one_prompt() {
    let scene = scene(Fake::new(Script::Silence)).await;
    let id = scene.create(false).await;
    scene.event(id, "thought").await;
    let key = |request: &str| {
        let (scope, key) = ("ana".to_owned(), "k".to_owned());
        Some(SessionIdempotencyKey { scope, key, request: request.as_bytes().to_vec() })
    };
    // Both before the first is stored, and after it.
    let both = futures_util::future::join(
        scene.control.queue_prompt(id, prompt("more"), key("a")),
        scene.control.queue_prompt(id, prompt("more"), key("a")),
    );
    let (one, other) = both.await;
    assert_eq!(one.expect("queue"), other.expect("the same"));
    let third = scene.control.queue_prompt(id, prompt("more"), key("a")).await.expect("the same");
    assert_eq!(third.number, 2);
    assert_eq!(listed(&scene, id).await, ["1 sent fix", "2 queued more"]);
    let error = scene.control.queue_prompt(id, prompt("x"), key("b")).await.expect_err("another");
    assert!(matches!(error, ControlPlaneError::Store(StoreError::IdempotencyKeyReused)), "{error}");
    scene.control.cancel_session(id).await.expect("cancel");
    scene.end(id).await;
    let kept = scene.control.queue_prompt(id, prompt("more"), key("a")).await.expect("the first");
    assert_eq!((kept.number, kept.status), (2, PromptStatus::Withdrawn));
}

#[tokio::test]
async fn queue_survives_a_restart_and_nothing_is_sent_twice() {
    let fault = Some((Point::Prompt, Fault::Hang));
    let scene = scene(Fake { fault, ..Fake::new(Script::Work) }).await;
    let id = scene.create(false).await;
    scene.executor.called("prompt 1 fix").await;
    for text in ["two", "three"] {
        scene.control.queue_prompt(id, prompt(text), None).await.expect("queue");
    }
    let scene = scene.restart(Fake::new(Script::Work)).await;
    assert_eq!(scene.end(id).await.status, SessionStatus::Completed);
    let calls = scene.executor.calls();
    let prompts: Vec<&String> = calls.iter().filter(|call| call.starts_with("prompt")).collect();
    assert_eq!(prompts, ["prompt 2 two", "prompt 3 three"], "{calls:?}");
    let expect = ["1 unknown fix", "2 answered two", "3 answered three"];
    assert_eq!(listed(&scene, id).await, expect);
}

#[tokio::test]
async fn prompt_of_the_task_stays_and_the_queue_has_an_end() {
    let fault = Some((Point::Provision, Fault::Hang));
    let scene = scene(Fake { fault, ..Fake::new(Script::Work) }).await;
    let id = scene.create(false).await;
    scene.executor.called("provision").await;
    let refused = scene.control.withdraw_queued_prompt(id, 1).await.expect_err("the task");
    assert!(matches!(refused, ControlPlaneError::TaskPromptNotChangeable), "{refused}");
    for _ in 0..99 {
        scene.control.queue_prompt(id, prompt("more"), None).await.expect("queue");
    }
    let full = scene.control.queue_prompt(id, prompt("more"), None).await.expect_err("full");
    assert!(matches!(full, ControlPlaneError::QueueFull { limit: 100 }), "{full}");
    scene.control.cancel_session(id).await.expect("cancel");
}
