//! Sessions that fill the disk of the server, and what a person can still do then.

use std::cell::RefCell;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::disk::{SmallDisk, on_small_disk};
use super::fixture::{Fixture, Server, task};
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
fn mounts_restart_on_a_full_disk_lets_a_session_be_cancelled() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = filler();
    let Some(disk) = SmallDisk::mount(&fixture) else { return };
    let server = disk.start(&fixture);
    // The room that a start needs for the files of the database.
    let room = server.data.join("room");
    fs::write(&room, vec![1; 256 * 1024]).unwrap();
    let id = filled(&server, &fixture);
    take_rest(&server);
    server.signal(Signal::KILL);
    server.died();
    fs::remove_file(&room).unwrap();
    let server = disk.start(&fixture);
    take_rest(&server);
    cancelled(&server, &fixture, &id);
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
