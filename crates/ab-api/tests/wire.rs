//! JSON examples of every wire type survive a round trip.

use std::fmt::Debug;

use ab_api::{
    AgentDescription, Approval, ApprovalDecision, Event, ExecutorDescription, Page,
    RuntimeDescription, Session, SessionId, SessionInfo, SessionStatus, TaskCreatedResponse,
    TaskRequest, Time,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const ID: &str = "01JD0Z6K9T1N8S6M3V3Q3F0X5B";

fn round_trip<T: Serialize + DeserializeOwned + Debug>(example: Value) -> T {
    let value: T = serde_json::from_value(example.clone()).expect("parse the example");
    assert_eq!(serde_json::to_value(&value).expect("write"), example, "{value:?}");
    value
}

#[test]
fn task_request() {
    round_trip::<TaskRequest>(json!({
        "tenantId": "acme",
        "projectId": "shop",
        "prompt": "Make the checkout tests stable.",
        "repo": { "mode": "git", "url": "git@git.example:acme/shop.git", "branch": "agent/stable" },
        "runtime": {
            "type": "devcontainer",
            "devcontainerPath": ".devcontainer/devcontainer.json",
            "resources": { "cpu": 4.0, "memoryMiB": 8192 },
        },
        "workspace": {
            "snapshotPreference": ["zfs", "btrfs", "overlay", "copy"],
            "executionHostId": "executor-a",
        },
        "agent": { "type": "claude-code", "version": "latest", "settings": { "maxTokens": 8000 } },
        "delivery": { "mode": "pr", "targetBranch": "main" },
        "labels": { "priority": "p2" },
        "webhooks": [{ "event": "session.completed", "url": "https://hooks.example/agents" }],
    }));
    let short: TaskRequest = serde_json::from_value(json!({
        "prompt": "Fix it.",
        "repo": { "mode": "git", "url": "/srv/x", "commit": null },
        "runtime": { "type": "local" },
        "agent": { "type": "openhands" },
    }))
    .expect("the short form");
    assert_eq!(short.repo.commit, None);
}

#[test]
fn task_answer() {
    round_trip::<TaskCreatedResponse>(json!({
        "id": ID,
        "session_ids": [ID],
        "status": "queued",
        "links": {
            "self": format!("/api/v1/sessions/{ID}"),
            "events": format!("/api/v1/sessions/{ID}/events"),
            "logs": format!("/api/v1/sessions/{ID}/logs"),
        },
    }));
}

fn session() -> Value {
    let repo = json!({ "mode": "git", "url": "/srv/x", "branch": null, "commit": null });
    json!({
        "id": ID,
        "tenantId": "acme",
        "projectId": "shop",
        "status": "running",
        "activity": "working",
        "prompt": "Fix the login.",
        "task": { "prompt": "Fix the login.", "attachments": [], "labels": { "priority": "p2" } },
        "agent": { "type": "scripted", "version": "latest" },
        "runtime": { "type": "local" },
        "workspace": {
            "snapshotProvider": "copy",
            "mountPath": "/srv/sessions/1",
            "host": "local",
            "snapshotPreference": ["copy"],
        },
        "repo": repo,
        "delivery": { "mode": "branch" },
        "vcs": { "repo": repo, "delivery": { "mode": "branch" }, "baseCommit": "abcd1234" },
        "labels": { "priority": "p2" },
        "keepOpen": false,
        "openApprovals": 0,
        "createdAt": "2025-09-30T17:09:58Z",
        "updatedAt": "2025-09-30T17:10:10Z",
        "startedAt": "2025-09-30T17:10:00Z",
        "endedAt": null,
        "recent_events": [
            { "type": "thought", "thought": "Reading the login flow", "ts": "2025-09-30T17:10:00Z" },
            {
                "type": "tool",
                "tool_execution_id": "t1",
                "tool_name": "read_file",
                "tool_output": "120 lines",
                "tool_status": "success",
                "ts": "2025-09-30T17:10:05Z",
            },
            {
                "type": "fileEdit",
                "file_path": "src/login.ts",
                "lines_added": 5,
                "lines_removed": 2,
                "ts": "2025-09-30T17:10:10Z",
            },
        ],
        "links": {
            "self": format!("/api/v1/sessions/{ID}"),
            "events": format!("/api/v1/sessions/{ID}/events"),
            "logs": format!("/api/v1/sessions/{ID}/logs"),
            "ide": format!("/api/v1/sessions/{ID}/open/ide"),
            "tui": format!("agent-backend session events {ID} --follow"),
        },
    })
}

#[test]
fn session_and_list() {
    let parsed: Session = round_trip(session());
    assert_eq!(parsed.status, SessionStatus::Running);
    round_trip::<Page<Session>>(json!({
        "items": [session()],
        "page": 1,
        "perPage": 1,
        "nextPage": 2,
        "total": 2,
    }));
}

#[test]
fn session_info() {
    round_trip::<SessionInfo>(json!({
        "id": ID,
        "status": "running",
        "fleet": {
            "leader": "linux-01",
            "followers": [{ "name": "win-01", "os": "windows", "health": "ok" }],
        },
        "endpoints": { "events": format!("/api/v1/sessions/{ID}/events") },
    }));
}

#[test]
fn every_event() {
    let ts = "2025-01-01T12:00:00Z";
    let examples = [
        json!({ "type": "status", "status": "provisioning" }),
        json!({ "type": "status", "status": "failed", "reason": "interrupted", "message": "x" }),
        json!({ "type": "prompt", "number": 1, "prompt": "Fix it." }),
        json!({ "type": "promptReceipt", "number": 2, "status": "queued" }),
        json!({ "type": "log", "level": "info", "message": "Testing", "source": "session" }),
        json!({ "type": "thought", "thought": "Hm" }),
        json!({ "type": "plan", "entries": [{ "content": "Look", "status": "in_progress" }] }),
        json!({
            "type": "tool", "tool_execution_id": "t1", "tool_name": "ls", "tool_status": "running",
        }),
        json!({ "type": "fileEdit", "file_path": "a", "lines_added": 1, "lines_removed": 0 }),
        json!({ "type": "diffStat", "files_changed": 1, "lines_added": 1, "lines_removed": 0 }),
        json!({ "type": "usage", "inputTokens": 10, "outputTokens": 2, "costMicros": 3 }),
        json!({ "type": "approvalRequested", "approvalId": ID, "title": "Run ls" }),
        json!({
            "type": "approvalDecided", "approvalId": ID, "status": "denied",
            "decidedBy": { "kind": "person", "name": "ana", "via": "cli" }, "reason": "no",
        }),
        json!({ "type": "moment", "snapshotId": "snap-1", "note": "after the fence" }),
        json!({ "type": "delivery", "mode": "pr", "url": "https://git.example/1", "changed": true }),
        json!({
            "type": "followersCatalog",
            "hosts": [{ "name": "win-01", "os": "windows", "tags": ["os=windows"] }],
        }),
        json!({
            "type": "fenceStarted", "snapshotId": "snap-1", "origin": "leader", "transport": "ssh",
        }),
        json!({
            "type": "fenceResult", "snapshotId": "snap-1",
            "hosts": { "win-01": { "state": "consistent", "tookMs": 842 } },
        }),
        json!({ "type": "hostStarted", "host": "mac-02" }),
        json!({ "type": "hostLog", "host": "win-01", "stream": "stdout", "message": "Testing" }),
        json!({ "type": "hostExited", "host": "mac-02", "code": 0 }),
        json!({ "type": "summary", "passed": ["mac-02"], "failed": ["win-01"] }),
        json!({ "type": "note", "message": "a remark" }),
    ];
    for mut example in examples {
        example["ts"] = json!(ts);
        let name = example["type"].clone();
        let event: Event = round_trip(example);
        assert_eq!(json!(event.kind.name()), name);
    }
}

#[test]
fn catalog() {
    round_trip::<AgentDescription>(json!({
        "type": "scripted",
        "versions": ["latest"],
        "settingsSchemaRef": "/api/v1/schemas/agents/scripted.json",
    }));
    round_trip::<RuntimeDescription>(json!({
        "type": "devcontainer",
        "images": ["registry.example/base:latest"],
        "paths": [".devcontainer/devcontainer.json"],
    }));
    round_trip::<RuntimeDescription>(json!({
        "type": "local", "sandboxProfiles": ["default", "disabled"],
    }));
    round_trip::<ExecutorDescription>(json!({
        "id": "local",
        "os": "linux",
        "arch": "x86_64",
        "snapshotCapabilities": ["git", "copy"],
        "health": "ok",
        "overlay": { "provider": null, "address": null, "magicName": null, "state": "none" },
        "controller": "server",
    }));
}

#[test]
fn approval_and_decision() {
    round_trip::<Approval>(json!({
        "id": ID,
        "sessionId": ID,
        "status": "approved",
        "title": "Run ls",
        "action": "execute",
        "detail": "ls -l",
        "describedBy": "agent",
        "isCut": true,
        "tool_execution_id": "t1",
        "digest": "00ff",
        "createdAt": "2025-01-01T12:00:00Z",
        "expiresAt": "2025-01-01T13:00:00Z",
        "decidedAt": "2025-01-01T12:01:00Z",
        "decidedBy": { "kind": "person", "name": "ana", "via": "web" },
        "reason": "fine",
        "usedAt": "2025-01-01T12:02:00Z",
    }));
    round_trip::<ApprovalDecision>(json!({ "decision": "approve" }));
    round_trip::<ApprovalDecision>(json!({ "decision": "deny", "by": "rule", "via": "cli" }));
    serde_json::from_value::<ApprovalDecision>(json!({ "decision": "approve", "resaon": "x" }))
        .expect_err("a misspelt field is refused");
}

#[test]
fn statuses_have_their_wire_names() {
    for status in SessionStatus::ALL {
        assert_eq!(json!(status), json!(status.as_str()));
        assert_eq!(status.as_str().parse(), Ok(status));
    }
    "asleep".parse::<SessionStatus>().expect_err("no such status");
}

#[test]
fn ids_are_ulids() {
    let id = SessionId::generate();
    assert_eq!(id.to_string().len(), 26);
    assert_eq!(id.to_string().parse(), Ok(id));
    for text in ["", "x", "../../etc/passwd", &"0".repeat(27), "01JD0Z6K9T1N8S6M3V3Q3F0X5U"] {
        text.parse::<SessionId>().expect_err(text);
    }
}

#[test]
fn times_have_milliseconds_in_utc() {
    let check = |text: &str, expect: &str| {
        let time: Time = text.parse().expect(text);
        assert_eq!(time.to_string(), expect);
        assert_eq!(Time::from_millis(time.as_millis()), time);
    };
    check("2025-01-01T12:00:00Z", "2025-01-01T12:00:00Z");
    check("2025-01-01T14:00:00.250999+02:00", "2025-01-01T12:00:00.25Z");
    "yesterday".parse::<Time>().expect_err("not a time");
    Time::from_millis(i64::MAX);
    Time::from_millis(i64::MIN);
}
