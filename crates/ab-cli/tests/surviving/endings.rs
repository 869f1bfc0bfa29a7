//! Stop and DELETE in every state, twice and at once.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::thread;

use ab_testkit::http_remote::HttpRemote;
use serde_json::{Value, json};

use super::fixture::{Fixture, Server, git, task};
use crate::outliving::comes;

/// States that a session can be held in, each by its agent.
const AGENTS: [(&str, &str); 5] = [
    ("provisioning", "[faults]\nhang_at = \"session/new\"\n[[turn]]\nsteps = []"),
    ("working", "[[turn]]\nsteps = [{ say = \"ready\\n\" }, { hang = \"forever\" }]"),
    ("paused", "[[turn]]\nsteps = [{ say = \"ready\\n\" }, { hang = \"forever\" }]"),
    ("asking", "[[turn]]\nsteps = [{ ask = { title = \"May I?\" } }]"),
    ("idle", "[[turn]]\nsteps = [{ say = \"ready\\n\" }]"),
];

fn is_there(state: &str, event: &Value) -> bool {
    match state {
        "provisioning" => event["status"] == "provisioning",
        "working" => event["message"] == "ready",
        "asking" => event["type"] == "approvalRequested",
        "idle" => event["activity"] == "idle",
        _ => event["status"] == state,
    }
}

/// Sends all of these at once. Every one is accepted.
fn send_at_once(server: &Server, id: &str, requests: &[(&str, &str)]) {
    thread::scope(|scope| {
        for (method, suffix) in requests {
            let path = format!("/api/v1/sessions/{id}{suffix}");
            scope.spawn(move || {
                let answer = server.ask(method, &path, "");
                assert_eq!(answer.status, 202, "{method} {path}: {answer:?}");
            });
        }
    });
}

/// Pauses a session, where the host has control groups.
fn pause(server: &Server, id: &str) {
    if server.session(id)["limits"]["processes"].is_null() {
        ab_testkit::host::report_skip("paused sessions", "there are no control groups");
        return;
    }
    send_at_once(server, id, &[("POST", "/pause")]);
    server.reaches(id, "the pause", |session| session["status"] == "paused");
}

const STOP: (&str, &str) = ("POST", "/stop");
const DELETE: (&str, &str) = ("DELETE", "");

#[test]
fn sessions_end_in_every_state_by_stop_and_delete_twice_and_at_once() {
    if !Fixture::can_run() {
        return;
    }
    let agents = AGENTS.map(|(name, scenario)| (name, scenario.to_owned()));
    let fixture = Fixture::with_agents(&agents, "stop-grace = \"200ms\"\nmax-running = 10");
    let server = fixture.start(&[]);
    let start = |state: &str| {
        let mut task = task(&fixture.source(), "Work");
        let agent = if state == "queued" { "idle" } else { state };
        task["agent"]["type"] = agent.into();
        task["keepOpen"] = json!(true);
        server.create_from(&task)
    };
    let states = AGENTS.map(|(name, _)| name);
    let running: Vec<_> = states.iter().map(|state| (*state, start(state), start(state))).collect();
    for (state, one, other) in &running {
        for id in [one, other] {
            // A session is paused while its agent works.
            let reached = if *state == "paused" { "working" } else { state };
            server.event(id, |event| is_there(reached, event));
            if *state == "paused" {
                pause(&server, id);
            }
        }
    }
    // There is no room for these.
    let queued = ("queued", start("queued"), start("queued"));
    let mut all = vec![&queued];
    all.extend(&running);
    for (state, stopped, deleted) in all {
        assert_eq!(is_there("queued", &server.session(stopped)), *state == "queued", "{state}");
        send_at_once(&server, stopped, &[STOP, STOP]);
        server.reaches(stopped, "the end", |session| !session["endReason"].is_null());
        let expect = if *state == "queued" { "cancelled" } else { "stopped" };
        assert_eq!(server.session(stopped)["status"], expect, "{state}");
        // A delete overtakes a stop, whichever is first.
        send_at_once(&server, deleted, &[STOP, DELETE, DELETE, STOP]);
        server.reaches(deleted, "the end", |session| !session["endReason"].is_null());
        assert_eq!(server.session(deleted)["status"], "cancelled", "{state}");
        // Sessions that have ended: nothing changes but the workspace.
        send_at_once(&server, stopped, &[DELETE, DELETE, STOP, DELETE]);
        assert_eq!(server.session(stopped)["status"], expect, "{state}");
        for id in [stopped, deleted] {
            let (_, story) = server.ended(id);
            story.assert_whole(&server, id);
            let ends = story.events.iter().filter(|(_, event)| !event["reason"].is_null());
            let ends = ends.filter(|(_, event)| event["type"] == "status");
            assert_eq!(ends.count(), 1, "{state}: {story:#?}");
        }
    }
    comes("the end of the workspaces", || fixture.workspaces() == 0);
    assert_eq!(fixture.branches(), [""; 0]);
    let pid = server.pid();
    server.end();
    fixture.assert_nothing_left(&[pid]);
}

/// Makes a file that takes a while to deliver.
const LARGE: &str = "[[turn]]\nsteps = [{ run = \"head -c 8000000 /dev/urandom >large.bin\" }]";

/// Asks for the diff of a session again and again until it has ended, and once after that.
fn diffs_until_the_end(server: &Server, id: &str) {
    loop {
        let is_over = !server.session(id)["endReason"].is_null();
        let diff = server.ask("GET", &format!("/api/v1/sessions/{id}/diff"), "");
        assert_eq!(diff.status, 200, "{}", diff.body);
        if is_over {
            return;
        }
    }
}

#[test]
fn diff_is_answered_while_a_slow_server_takes_the_branch() {
    if !Fixture::can_run() {
        return;
    }
    let writes = "[[turn]]\nsteps = [{ write = { path = \"new.txt\", text = \"new\" } }]";
    let fixture = Fixture::with_agents(&[("writer", writes.to_owned())], "");
    let remotes = fixture.stage.outside("remotes");
    let bare = remotes.join("x.git");
    fixture.git(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
    git(&bare, &["config", "http.receivepack", "true"]);
    let hook = bare.join("hooks/pre-receive");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    let waits = "#!/bin/sh\ntouch asked\nwhile [ ! -e go ]; do sleep 0.02; done\n";
    fs::write(&hook, waits).unwrap();
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    let remote = HttpRemote::open(&remotes);
    let server = fixture.start(&[]);
    let mut task = task(&fixture.source(), "Work");
    task["agent"]["type"] = "writer".into();
    task["repo"]["url"] = remote.url("x.git").into();
    let id = server.create_from(&task);
    comes("the push", || bare.join("asked").exists());
    let diff = server.ask("GET", &format!("/api/v1/sessions/{id}/diff"), "");
    assert_eq!(diff.status, 200, "{diff:?}");
    assert!(diff.body.contains("+++ b/new.txt"), "{diff:?}");
    assert_eq!(server.session(&id)["activity"], "delivering");
    fs::write(bare.join("go"), "").unwrap();
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{story:#?}");
    let stored = server.ask("GET", &format!("/api/v1/sessions/{id}/diff"), "");
    assert_eq!(stored.body, diff.body);
    server.end();
}

#[test]
fn session_that_ends_while_it_is_delivered_has_a_whole_branch_or_none() {
    if !Fixture::can_run() {
        return;
    }
    let agents = [("large", LARGE.to_owned())];
    let fixture = Fixture::with_agents(&agents, "stop-grace = \"200ms\"");
    let server = fixture.start(&[]);
    let mut delivered = Vec::new();
    for requests in [[STOP, STOP], [STOP, DELETE], [DELETE, DELETE]] {
        let id = server.create_with(&fixture, "large");
        server.event(&id, |event| event["activity"] == "delivering");
        let ended = |session: &Value| !session["endReason"].is_null();
        let session = thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| diffs_until_the_end(&server, &id));
            }
            send_at_once(&server, &id, &requests);
            server.reaches(&id, "the end", ended)
        });
        let (_, story) = server.ended(&id);
        story.assert_whole(&server, &id);
        if let Some(branch) = session["vcs"]["deliveredBranch"].as_str() {
            let commit = fixture.git(&["rev-parse", branch]);
            assert_eq!(session["vcs"]["deliveredCommit"], commit.trim(), "{session:#}");
            delivered.push(branch.to_owned());
        }
    }
    delivered.sort();
    let mut branches = fixture.branches();
    branches.sort();
    assert_eq!(branches, delivered);
    fixture.git(&["fsck", "--full", "--connectivity-only"]);
    fixture.assert_source_untouched();
    let pid = server.pid();
    server.end();
    fixture.assert_nothing_left(&[pid]);
}

#[test]
fn kept_session_is_delivered_after_its_idle_timeout() {
    if !Fixture::can_run() {
        return;
    }
    let agent = "[[turn]]\nsteps = [{ write = { path = \"made.txt\", text = \"made\\n\" } }]";
    let fixture = Fixture::with_agents(&[("idle", agent.to_owned())], "idle-timeout = \"1s\"");
    let server = fixture.start(&[]);
    let mut task = task(&fixture.source(), "Work");
    task["agent"]["type"] = "idle".into();
    task["keepOpen"] = json!(true);
    let id = server.create_from(&task);
    server.event(&id, |event| event["activity"] == "idle");
    let ended = |session: &Value| !session["endReason"].is_null();
    let session = server.reaches(&id, "the end of the idle session", ended);
    assert_eq!((&session["status"], &session["endReason"]), (&json!("completed"), &json!("done")));
    assert_eq!(fixture.branches(), [session["vcs"]["deliveredBranch"].as_str().unwrap()]);
    server.end();
}

#[test]
fn clone_from_a_server_that_never_answers_ends_by_stop_and_delete() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::new();
    let server = fixture.start(&[]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x.git", silent.local_addr().unwrap());
    for ((method, suffix), status) in [(STOP, "stopped"), (DELETE, "cancelled")] {
        let mut task = task(&fixture.source(), "Work");
        task["repo"]["url"] = url.clone().into();
        let id = server.create_from(&task);
        let connection = silent.accept().unwrap();
        let answer = server.ask(method, &format!("/api/v1/sessions/{id}{suffix}"), "");
        assert_eq!(answer.status, 202, "{answer:?}");
        let (session, _) = server.ended(&id);
        assert_eq!(session["status"], status, "{session:#}");
        comes("the end of git", || Fixture::processes_with(&url).is_empty());
        // There is no workspace in which another session could go on.
        let refused = server.ask("POST", &format!("/api/v1/sessions/{id}/continue"), "{}");
        assert_eq!(refused.status, 410, "{refused:?}");
        drop(connection);
    }
    let pid = server.pid();
    server.end();
    fixture.assert_nothing_left(&[pid]);
}
