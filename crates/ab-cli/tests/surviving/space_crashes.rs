//! Servers that are killed at every crash point of a run: the log, the files and the run agree afterwards.

use ab_spaces::SpaceCrashTestPoint;
use serde_json::{Value, json};

use super::fixture::{Fixture, Server};
use super::spaces::{decision, fits, fixture, operations, space};

/// When a person approves the operation `s`.
#[derive(Clone, Copy, PartialEq)]
enum Approval {
    BeforeTheCrash,
    AfterTheCrash,
}

/// A run in a server that is killed, and the server after it.
struct Restarted {
    server: Server,
    space: String,
    run: String,
    /// The run right after the restart.
    shown: Value,
}

/// Sends operations to a server that dies at `point`, and starts it again.
fn crashed(
    fixture: &Fixture,
    point: SpaceCrashTestPoint,
    body: &str,
    approval: Approval,
) -> Restarted {
    let server = fixture.start(&["--space-crash-at", point.as_str()]);
    let overrides = json!({ "network": { "enabled": false } });
    let space = space(&server, &json!({ "policy": "permissive", "policyOverrides": overrides }));
    let path = format!("/v1/spaces/{space}/runs");
    let send = |server: &Server| {
        let mut headers = server.operator();
        headers.push(("idempotency-key", "once"));
        server.try_ask("POST", &path, &headers, body)
    };
    let answer = send(&server);
    if approval == Approval::BeforeTheCrash {
        let answer = answer.unwrap().json();
        assert_eq!(answer["data"]["status"], "awaiting_approval", "{point:?}: {answer:#}");
        let resume = format!("/v1/runs/{}/resume", answer["data"]["runId"].as_str().unwrap());
        // The server dies before or while it answers.
        let _ = server.try_ask("POST", &resume, &server.operator(), &decision("s", "approved"));
    }
    server.died();
    let server = fixture.start(&[]);
    // The key finds the run although its creator got no answer, and waits until it stands or has ended.
    let answer = send(&server).unwrap().json();
    fits(&server, &answer["data"]);
    let run = answer["data"]["runId"].as_str().unwrap().to_owned();
    let shown = server.get(&format!("/v1/runs/{run}"))["data"].clone();
    Restarted { server, space, run, shown }
}

impl Restarted {
    fn approve(&self) {
        let resume = format!("/v1/runs/{}/resume", self.run);
        let answer = self.server.ask("POST", &resume, &decision("s", "approved"));
        assert_eq!(answer.status, 201, "{answer:?}");
    }

    /// The run after its end: one event for each operation, and one question that was answered and used.
    fn end(&self, operations: &[&str]) -> Vec<Value> {
        let Restarted { server, run, .. } = self;
        let stream = server.ask("GET", &format!("/v1/runs/{run}/stream"), "");
        assert!(stream.body.contains("event: complete"), "{stream:?}");
        let shown = server.get(&format!("/v1/runs/{run}"))["data"].clone();
        assert_eq!(shown["status"], "completed", "{shown:#}");
        let events = shown["events"].as_array().unwrap();
        let is_of = |event: &&Value, id: &str| {
            event["operationId"] == id && event["type"] != "approvalRequired"
        };
        let ends = operations.iter().map(|id| {
            let of: Vec<&Value> = events.iter().filter(|event| is_of(event, id)).collect();
            assert_eq!(of.len(), 1, "one event for {id}: {shown:#}");
            of[0].clone()
        });
        let ends = ends.collect();
        let approvals = self.approvals();
        assert_eq!(approvals.len(), 1, "no question is asked twice: {approvals:#?}");
        assert_eq!(approvals[0]["status"], "approved", "{approvals:#?}");
        assert!(approvals[0]["usedAt"].is_string(), "{approvals:#?}");
        ends
    }

    fn approvals(&self) -> Vec<Value> {
        self.server.get("/v1/approvals")["items"].as_array().unwrap().clone()
    }

    /// The lines that the operations wrote; `None` without the file.
    fn log(&self) -> Option<String> {
        let log = self.server.ask("GET", &format!("/v1/spaces/{}/files/log", self.space), "");
        (log.status != 404).then_some(log.body)
    }
}

#[track_caller]
fn assert_interrupted(event: &Value) {
    assert_eq!(event["success"], false, "{event}");
    assert!(event["error"].as_str().is_some_and(|it| it.contains("interrupted")), "{event}");
}

fn crash_at(point: SpaceCrashTestPoint) {
    let fixture = fixture();
    let body = operations(json!([
        { "type": "shell", "id": "a", "command": "echo x >> log" },
        { "type": "shell", "id": "s", "command": "rm -rf data" },
        { "type": "createFile", "id": "z", "path": "after", "content": "y" },
    ]));
    let approval = match point {
        SpaceCrashTestPoint::DecisionStored | SpaceCrashTestPoint::OperationsEnded => {
            Approval::BeforeTheCrash
        }
        SpaceCrashTestPoint::RunStored
        | SpaceCrashTestPoint::OperationStarted
        | SpaceCrashTestPoint::OperationPerformed
        | SpaceCrashTestPoint::ApprovalStored => Approval::AfterTheCrash,
    };
    let restarted = crashed(&fixture, point, &body, approval);
    if approval == Approval::AfterTheCrash {
        let Restarted { shown, .. } = &restarted;
        assert_eq!(shown["status"], "awaiting_approval", "{point:?}: {shown:#}");
        let approvals = restarted.approvals();
        assert_eq!(approvals.len(), 1, "{point:?}: {approvals:#?}");
        assert_eq!(shown["pendingApproval"]["approvalId"], approvals[0]["id"], "{point:?}");
        restarted.approve();
    }
    let events = restarted.end(&["a", "s", "z"]);
    match point {
        SpaceCrashTestPoint::OperationStarted => {
            assert_interrupted(&events[0]);
            assert_eq!(restarted.log(), None, "it was not performed later");
        }
        SpaceCrashTestPoint::OperationPerformed => {
            assert_interrupted(&events[0]);
            assert_eq!(restarted.log().as_deref(), Some("x\n"), "it was performed once");
        }
        SpaceCrashTestPoint::RunStored
        | SpaceCrashTestPoint::ApprovalStored
        | SpaceCrashTestPoint::DecisionStored
        | SpaceCrashTestPoint::OperationsEnded => {
            assert_eq!(events[0]["success"], true, "{point:?}: {}", events[0]);
            assert_eq!(restarted.log().as_deref(), Some("x\n"), "{point:?}");
        }
    }
    assert_eq!(events[1]["success"], true, "{point:?}: {}", events[1]);
    // The event of the last operation is stored with the end of the run.
    if point == SpaceCrashTestPoint::OperationsEnded {
        assert_interrupted(&events[2]);
    } else {
        assert_eq!(events[2]["success"], true, "{point:?}: {}", events[2]);
    }
    let after = format!("/v1/spaces/{}/files/after", restarted.space);
    assert_eq!(restarted.server.ask("GET", &after, "").body, "y", "{point:?}");
    restarted.server.end();
}

/// A crash around an operation that a person approved: the yes is used up, and nothing is asked or performed again.
fn crash_of_the_approved_operation_at(point: SpaceCrashTestPoint, log: Option<&str>) {
    let fixture = fixture();
    let body = operations(json!([
        { "type": "shell", "id": "s", "command": "echo x >> log; rm -rf data" },
        { "type": "createFile", "id": "z", "path": "after", "content": "y" },
    ]));
    let restarted = crashed(&fixture, point, &body, Approval::BeforeTheCrash);
    let events = restarted.end(&["s", "z"]);
    assert_interrupted(&events[0]);
    assert_eq!(events[1]["success"], true, "{events:#?}");
    assert_eq!(restarted.log().as_deref(), log, "{point:?}");
    restarted.server.end();
}

#[test]
fn runs_survive_a_crash_before_and_after_an_operation() {
    for point in &SpaceCrashTestPoint::ALL[..3] {
        crash_at(*point);
    }
}

#[test]
fn runs_survive_a_crash_around_an_approval_and_at_the_end() {
    for point in &SpaceCrashTestPoint::ALL[3..] {
        crash_at(*point);
    }
}

#[test]
fn an_approved_operation_is_not_performed_again_after_a_crash() {
    crash_of_the_approved_operation_at(SpaceCrashTestPoint::OperationStarted, None);
    crash_of_the_approved_operation_at(SpaceCrashTestPoint::OperationPerformed, Some("x\n"));
}
