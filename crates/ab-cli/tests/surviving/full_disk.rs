//! Sessions that fill the disk of the server, and what a person can still do then.

use std::cell::RefCell;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::disk::{SmallDisk, on_small_disk};
use super::fixture::{Fixture, Server, task};
use super::spaces;
use crate::outliving::comes;
use crate::stage::{BINARY, Ran, run};

/// An agent that fills the disk in its first turn, and says so if it still can.
const FILLER: &str = r#"
[[turn]]
steps = [{ run = "head -c 60000000 /dev/zero > ~/big" }, { say = "full\n" }, { hang = "until_cancelled" }]
"#;

fn filler() -> Fixture {
    Fixture::with_agents(&[("filler", FILLER.to_owned())], "")
}

/// A session whose agent has filled the disk.
#[track_caller]
fn filled(server: &Server, fixture: &Fixture) -> String {
    let id = server.create_with(fixture, "filler");
    // Small events can still find room; the audit of the command, or they, do not.
    comes("a full disk", || server.said().contains("cannot store"));
    id
}

/// Takes what is left of the disk, such as the room that the database gave back.
fn take_rest(server: &Server) {
    let mut file =
        OpenOptions::new().append(true).create(true).open(server.data.join("rest")).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
}

/// Fills the disk until a request that is not urgent has no room.
#[track_caller]
fn full(server: &Server) {
    refused(server, "POST", "/api/v1/drafts", &json!({ "prompt": "x".repeat(100_000) }));
    take_rest(server);
}

/// A request that has no room, although it may find some at first.
#[track_caller]
fn refused(server: &Server, method: &str, path: &str, body: &Value) {
    let body = body.to_string();
    let problem = RefCell::new(Value::Null);
    comes("no room", || {
        take_rest(server);
        let answer = server.ask(method, path, &body);
        problem.replace(answer.json());
        answer.status == 507
    });
    let problem = problem.into_inner();
    assert_eq!(problem["type"], "urn:agent-backend:error:disk_full", "{problem:#}");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("the disk of the server is full"), "{detail}");
}

/// The session is cancelled, its workspace is gone, and the server works on.
#[track_caller]
fn cancelled(server: &Server, fixture: &Fixture, id: &str) {
    let path = format!("/api/v1/sessions/{id}");
    let answer = server.ask("DELETE", &path, "");
    assert_eq!(answer.status, 202, "{answer:?}");
    let (session, story) = server.ended(id);
    assert_eq!(session["status"], "cancelled", "{session:#}\n{story:#?}");
    story.assert_tools_ended();
    completes(server, fixture);
}

/// The next task completes.
#[track_caller]
fn completes(server: &Server, fixture: &Fixture) {
    let left = || server.data.join("sessions/workspaces").read_dir().unwrap().count();
    comes("the end of the workspace", || left() == 0);
    let id = server.create(&fixture.source(), "Work");
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{story:#?}\n{}", server.said());
}

#[test]
fn mounts_session_that_filled_the_disk_can_be_cancelled() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = filler();
    let Some(server) = on_small_disk(&fixture) else { return };
    let id = filled(&server, &fixture);
    let session = format!("/api/v1/sessions/{id}");
    let large = json!({ "prompt": "x".repeat(100_000) });
    refused(&server, "POST", &format!("{session}/prompt"), &large);
    refused(&server, "POST", "/api/v1/drafts", &large);
    let mut task = task(&fixture.source(), "");
    task["prompt"] = large["prompt"].clone();
    refused(&server, "POST", "/api/v1/tasks", &task);
    assert!(server.session(&id)["endReason"].is_null(), "requests that read are answered");
    cancelled(&server, &fixture, &id);
    server.end();
}

#[test]
fn mounts_session_that_filled_the_disk_can_be_stopped() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = filler();
    let Some(server) = on_small_disk(&fixture) else { return };
    let id = filled(&server, &fixture);
    full(&server);
    let answer = server.ask("POST", &format!("/api/v1/sessions/{id}/stop"), "");
    assert_eq!(answer.status, 202, "{answer:?}\n{}", server.said());
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "stopped", "{session:#}\n{story:#?}");
    story.assert_tools_ended();
    // The work is kept until a person removes it.
    let answer = server.ask("DELETE", &format!("/api/v1/sessions/{id}"), "");
    assert_eq!(answer.status, 202, "{answer:?}");
    completes(&server, &fixture);
    let diff = server.ask("GET", &format!("/api/v1/sessions/{id}/diff"), "");
    assert!(matches!(diff.status, 200 | 404), "{diff:?}");
    server.end();
}

#[test]
fn mounts_restart_on_a_full_disk_lets_a_session_be_ended() {
    if !Fixture::can_run() {
        return;
    }
    for is_stopped in [false, true] {
        let fixture = filler();
        let Some(disk) = SmallDisk::mount(&fixture) else { return };
        let server = disk.start(&fixture);
        let id = filled(&server, &fixture);
        take_rest(&server);
        server.signal(Signal::KILL);
        server.died();
        let server = disk.start(&fixture);
        take_rest(&server);
        if is_stopped {
            let answer = server.ask("POST", &format!("/api/v1/sessions/{id}/stop"), "");
            assert_eq!(answer.status, 202, "{answer:?}\n{}", server.said());
            assert_eq!(server.ended(&id).0["status"], "stopped");
            assert_eq!(server.ask("DELETE", &format!("/api/v1/sessions/{id}"), "").status, 202);
            completes(&server, &fixture);
        } else {
            cancelled(&server, &fixture, &id);
        }
        server.end();
    }
}

/// An agent that asks twice.
const ASKING: &str = r#"
[[turn]]
steps = [{ ask = { title = "May I?" } }, { say = "answered\n" }, { hang = "until_cancelled" }]
"#;

#[test]
fn mounts_approvals_are_decided_on_a_full_disk() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::with_agents(&[("asking", ASKING.to_owned())], "");
    let Some(server) = on_small_disk(&fixture) else { return };
    for (decision, status) in [("approve", "approved"), ("deny", "denied")] {
        let id = server.create_with(&fixture, "asking");
        let asked = server.event(&id, |event| event["type"] == "approvalRequested");
        full(&server);
        let path = format!("/v1/approvals/{}", asked["approvalId"].as_str().unwrap());
        let body = json!({ "decision": decision }).to_string();
        let answer = server.ask("POST", &path, &body);
        assert_eq!(answer.status, 200, "{answer:?}\n{}", server.said());
        assert_eq!(server.ask("POST", &path, &body).status, 409, "it is decided once");
        // Nothing is stuck when there is room again.
        fs::remove_file(server.data.join("rest")).unwrap();
        assert_eq!(server.get(&path)["status"], status);
        let session = format!("/api/v1/sessions/{id}");
        assert_eq!(server.ask("POST", &format!("{session}/stop"), "").status, 202);
        assert_eq!(server.ended(&id).0["status"], "stopped");
        assert_eq!(server.ask("DELETE", &session, "").status, 202);
    }
    completes(&server, &fixture);
    server.end();
}

#[test]
fn mounts_keys_runs_and_spaces_end_on_a_full_disk() {
    let fixture = spaces::fixture();
    let Some(server) = on_small_disk(&fixture) else { return };
    let key = server.ask("POST", "/api/v1/keys", r#"{"name":"ci"}"#).json();
    let parked = || {
        let id = spaces::space(&server, &json!({}));
        let asks = spaces::operations(json!([{ "type": "shell", "command": "rm -rf data" }]));
        let answer = server.ask("POST", &format!("/v1/spaces/{id}/runs"), &asks).json();
        assert_eq!(answer["data"]["status"], "awaiting_approval", "{answer:#}");
        (id, answer["data"]["runId"].as_str().unwrap().to_owned())
    };
    let ((space, run), (_, other)) = (parked(), parked());
    full(&server);
    let revoked =
        server.ask("DELETE", &format!("/api/v1/keys/{}", key["id"].as_str().unwrap()), "");
    assert!(matches!(revoked.status, 200 | 204), "{revoked:?}\n{}", server.said());
    let secret = key["secret"].as_str().unwrap();
    let late = server.try_ask("GET", "/api/v1/sessions", &[("authorization", secret)], "").unwrap();
    assert_eq!(late.status, 401, "{late:?}");
    full(&server);
    let cancelled = server.ask("POST", &format!("/v1/runs/{other}/cancel"), "");
    assert_eq!(cancelled.status, 200, "{cancelled:?}\n{}", server.said());
    full(&server);
    let removed = server.ask("DELETE", &format!("/v1/spaces/{space}"), "");
    assert_eq!(removed.status, 204, "{removed:?}\n{}", server.said());
    assert_eq!(server.get(&format!("/v1/runs/{run}"))["data"]["status"], "cancelled");
    assert_eq!(server.get("/v1/approvals?status=pending")["total"], 0);
    fs::remove_file(server.data.join("rest")).unwrap();
    parked();
    server.end();
}

#[test]
fn mounts_cancel_of_a_run_without_any_room_is_told_and_takes_effect_later() {
    let fixture = spaces::fixture();
    let Some(server) = on_small_disk(&fixture) else { return };
    let id = spaces::space(&server, &json!({}));
    let asks = spaces::operations(json!([{ "type": "shell", "command": "rm -rf data" }]));
    let answer = server.ask("POST", &format!("/v1/spaces/{id}/runs"), &asks).json();
    let run = answer["data"]["runId"].as_str().unwrap().to_owned();
    let cancel = format!("/v1/runs/{run}/cancel");
    // The room that is reserved is taken too.
    full(&server);
    fs::write(server.data.join("reserve"), "").unwrap();
    take_rest(&server);
    let refused = server.ask("POST", &cancel, "");
    assert_eq!(refused.status, 507, "{refused:?}\n{}", server.said());
    assert_eq!(refused.json()["error"]["code"], "DISK_FULL", "{refused:?}");
    fs::remove_file(server.data.join("rest")).unwrap();
    let status = || server.get(&format!("/v1/runs/{run}"))["data"]["status"].clone();
    comes("the end of the run", || status() == "cancelled");
    assert_eq!(server.ask("POST", &cancel, "").status, 409);
    server.end();
}

#[test]
fn mounts_cleanup_makes_room_on_a_full_disk() {
    if !Fixture::can_run() {
        return;
    }
    let agent = r#"
        [[turn]]
        steps = [{ run = "head -c 1000000 /dev/zero > ~/some" }, { say = "ready\n" }, { hang = "until_cancelled" }]"#;
    let fixture = Fixture::with_agents(&[("worker", agent.to_owned())], "");
    let config = fs::read_to_string(fixture.config()).unwrap();
    fs::write(fixture.config(), format!("{config}[retention]\nworkspaces = \"1ms\"\n")).unwrap();
    let Some(server) = on_small_disk(&fixture) else { return };
    let id = server.create_with(&fixture, "worker");
    server.event(&id, |event| event["message"] == "ready");
    assert_eq!(server.ask("POST", &format!("/api/v1/sessions/{id}/stop"), "").status, 202);
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "stopped", "{story:#?}");
    // Something else fills the disk.
    refused(&server, "POST", "/api/v1/drafts", &json!({ "prompt": "x".repeat(100_000) }));
    take_rest(&server);
    let cleaned = server.ask("POST", "/api/v1/cleanup", "");
    assert_eq!(cleaned.status, 200, "{cleaned:?}");
    let report = cleaned.json();
    assert_eq!(report["workspaces"][0]["sessionId"], id.as_str(), "{report:#}");
    assert_eq!(server.ask("POST", &format!("/api/v1/sessions/{id}/continue"), "{}").status, 410);
    fs::remove_file(server.data.join("rest")).unwrap();
    completes(&server, &fixture);
    server.end();
}

#[test]
fn mounts_disk_that_fills_at_the_delivery_fails_the_session_and_keeps_its_work() {
    if !Fixture::can_run() {
        return;
    }
    let agent = r#"
        [[turn]]
        steps = [{ run = "head -c 9000000 /dev/urandom > blob" }, { say = "done\n" }]"#;
    let fixture = Fixture::with_agents(&[("worker", agent.to_owned())], "");
    let Some(server) = on_small_disk(&fixture) else { return };
    let id = server.create_with(&fixture, "worker");
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "failed", "{session:#}\n{story:#?}");
    assert_eq!(session["endReason"], "delivery", "{session:#}");
    let detail = session["endDetail"].as_str().unwrap();
    assert!(detail.to_lowercase().contains("no space left"), "{detail}");
    story.assert_whole(&server, &id);
    let path = session["workspace"]["mountPath"].as_str().unwrap();
    let blob = format!("/proc/{}/root{path}/blob", server.pid());
    assert_eq!(fs::metadata(blob).unwrap().len(), 9_000_000, "the work is kept");
    assert!(fixture.branches().is_empty());
    assert_eq!(server.ask("DELETE", &format!("/api/v1/sessions/{id}"), "").status, 202);
    completes(&server, &fixture);
    server.end();
}

#[test]
fn mounts_backup_onto_a_full_disk_leaves_nothing() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::new();
    let server = fixture.start(&[]);
    completes(&server, &fixture);
    let to = fixture.stage.outside("backups");
    fs::create_dir(&to).unwrap();
    for name in ["backup", "backup.tar.gz"] {
        let script = "mount -t tmpfs -o size=256k none \"$1\" || exit 99; \
                      \"$2\" backup \"$1/$3\" --data-dir \"$4\"; code=$?; ls -A \"$1\"; exit $code";
        let mut command: Command = fixture.stage.command("unshare");
        command.args(["-m", "sh", "-c", script, "sh"]).arg(&to).args([BINARY, name]);
        command.arg(fixture.data());
        let ran: Ran = run(command, b"");
        if ran.code == 99 {
            ab_testkit::host::report_skip("a full disk", &ran.err);
            return;
        }
        assert_ne!(ran.code, 0, "{}", ran.text());
        assert!(
            ran.err.to_lowercase().contains("no space left") || ran.err.contains("disk is full"),
            "{}",
            ran.err
        );
        assert_eq!(ran.text(), "", "a part of the backup is left");
    }
    server.end();
}

#[test]
fn mounts_restore_onto_a_full_disk_leaves_nothing() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::new();
    let server = fixture.start(&[]);
    completes(&server, &fixture);
    let backup = fixture.stage.outside("backup.tar.gz");
    let mut command = fixture.stage.command(BINARY);
    command.args(["backup", backup.to_str().unwrap(), "--data-dir"]).arg(fixture.data());
    let made = run(command, b"");
    assert_eq!(made.code, 0, "{}", made.err);
    let to = fixture.stage.outside("small");
    fs::create_dir(&to).unwrap();
    let script = "mount -t tmpfs -o size=256k none \"$1\" || exit 99; \
                  \"$2\" restore \"$3\" --data-dir \"$1/data\"; code=$?; ls -A \"$1\"; exit $code";
    let mut command: Command = fixture.stage.command("unshare");
    command.args(["-m", "sh", "-c", script, "sh"]).arg(&to).arg(BINARY).arg(&backup);
    let ran = run(command, b"");
    if ran.code == 99 {
        ab_testkit::host::report_skip("a full disk", &ran.err);
        return;
    }
    assert_ne!(ran.code, 0, "{}", ran.text());
    assert!(ran.err.contains("No space left"), "{}", ran.err);
    assert_eq!(ran.text(), "", "a part of the data is left");
    server.end();
}
