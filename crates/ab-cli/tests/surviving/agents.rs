//! Agents that crash, print garbage, hang, flood and fork: the session says so, and the server stays as it was.

use std::fs;

use serde_json::Value;

use super::fixture::{Fixture, Server};
use crate::outliving::comes;

/// Lines that the agent of [`crashing`] writes in all; the last ones are its answers after the prompt.
const LINES: usize = 6;
/// Most memory of a server while agents flood it, in KiB. A debug build.
const MEMORY: u64 = 192 * 1024;
const FLOOD_PIECES: usize = 20_000;
const FLOOD_BYTES: usize = 200;
/// A number that no other process has in its command line.
const CHILD: &str = "986543";

fn crashing(lines: usize) -> String {
    format!(
        "[faults]\nexit_after_lines = {lines}\nexit_code = 7\n[[turn]]\n\
         steps = [{{ say = \"one\\n\" }}, {{ think = \"two\\n\" }}, {{ say = \"three\\n\" }}]"
    )
}

fn turn(steps: &str) -> String {
    format!("[[turn]]\nsteps = [{steps}]")
}

fn peak_memory(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn agents_that_misbehave_end_their_own_session_only() {
    if !Fixture::can_run() {
        return;
    }
    let names: Vec<String> = (0..=LINES).map(|lines| format!("crash-{lines}")).collect();
    let mut agents: Vec<(&str, String)> =
        names.iter().enumerate().map(|(lines, name)| (name.as_str(), crashing(lines))).collect();
    agents.extend([
        ("garbage", turn(r#"{ garbage = "{not json" }, { garbage = "\u0007" }, { say = "done\n" }"#)),
        ("long-line", turn("{ long_line = 100000000 }")),
        ("hang", turn(r#"{ say = "ready\n" }, { hang = "forever" }"#)),
        ("mute", "[faults]\nhang_at = \"initialize\"\n[[turn]]\nsteps = []".to_owned()),
        (
            "flood",
            turn(&format!("{{ flood = {{ pieces = {FLOOD_PIECES}, bytes = {FLOOD_BYTES} }} }}")),
        ),
        (
            "fork",
            turn(&format!(
                "{{ run = \"for i in 1 2 3; do (setsid sleep {CHILD} >/dev/null 2>&1 &); done\" }}, {{ exit = 0 }}"
            )),
        ),
    ]);
    let fixture = Fixture::with_agents(&agents, "stop-grace = \"1s\"");
    let server = fixture.start(&[]);
    let start = |agent: &str| server.create_with(&fixture, agent);
    let (hang, mute, flood, fork) = (start("hang"), start("mute"), start("flood"), start("fork"));
    let (garbage, long_line) = (start("garbage"), start("long-line"));
    let crashes: Vec<String> = names.iter().map(|name| start(name)).collect();

    let mut completed = 0;
    for (lines, id) in crashes.iter().enumerate() {
        let (session, story) = server.ended(id);
        story.assert_whole(&server, id);
        if session["status"] == "completed" {
            completed += 1;
            continue;
        }
        let reason = session["endReason"].as_str().unwrap();
        // The first two lines are the answers to `initialize` and `session/new`.
        let expect: &[&str] = match lines {
            0 | 1 => &["launch"],
            // The agent ends while its launch is completed.
            2 => &["launch", "agent"],
            _ => &["agent"],
        };
        assert_eq!(session["status"], "failed", "{lines}: {session:#}");
        assert!(expect.contains(&reason), "{lines}: {session:#}");
        assert_eq!(session["endDetail"], "the agent ended with exit code 7", "{lines}");
    }
    assert!(completed <= 1, "at most the last one says everything");

    let (session, story) = server.ended(&garbage);
    assert_eq!(session["status"], "completed", "{story:#?}");
    assert!(story.says("is not a message: {not json") && story.says("done"), "{story:#?}");
    let (session, _) = server.ended(&long_line);
    assert_eq!((&session["status"], &session["endReason"]), (&"failed".into(), &"agent".into()));

    let (session, story) = server.ended(&flood);
    assert_eq!(session["status"], "completed", "{:#?}", session);
    let texts = story.events.iter().filter(|(_, event)| event["source"] == "agent");
    let bytes: usize = texts.filter_map(|(_, event)| event["message"].as_str()).map(str::len).sum();
    assert_eq!(bytes, FLOOD_PIECES * FLOOD_BYTES, "text is lost or repeated");
    let peak = peak_memory(&server);
    assert!(peak < MEMORY, "{peak} KiB");

    let (session, _) = server.ended(&fork);
    assert_eq!(session["status"], "failed", "{session:#}");
    assert_eq!(Fixture::processes_with(CHILD), [""; 0]);

    // The one ignores a request to end, the other never answered at all.
    let says_ready = |event: &Value| event["message"] == "ready";
    server.event(&hang, says_ready);
    server.event(&mute, |event| event["status"] == "provisioning");
    for id in [&hang, &mute] {
        assert_eq!(server.ask("POST", &format!("/api/v1/sessions/{id}/stop"), "").status, 202);
        let (session, _) = server.ended(id);
        assert_eq!(session["status"], "stopped", "{session:#}");
    }
    for id in crashes.iter().chain([&hang, &mute, &flood, &fork, &garbage, &long_line]) {
        server.delete(id);
    }
    comes("the end of the workspaces", || fixture.workspaces() == 0);
    let pid = server.pid();
    server.end();
    fixture.assert_source_untouched();
    fixture.assert_nothing_left(&[pid]);
}
