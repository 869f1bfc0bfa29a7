//! Several agents on one task, and budgets, with the built server.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::fixture::{Fixture, Server, task};
use crate::outliving::comes;
use crate::stage::{BINARY, Ran, run};

fn command(fixture: &Fixture, arguments: &[&str]) -> Ran {
    let mut command = fixture.stage.command(BINARY);
    command.args(arguments).arg("--data-dir").arg(fixture.data());
    run(command, b"")
}

/// An agent that writes its text, with usage that its model would report.
fn writer(text: &str) -> String {
    format!(
        "[[turn]]\nsteps = [{{ write = {{ path = \"result.txt\", text = {text:?} }} }}, \
         {{ usage = {{ used = 10, size = 100, cost = 0.25 }} }}, {{ say = \"done\\n\" }}]"
    )
}

#[test]
fn several_agents_work_on_one_task_and_are_compared() {
    if !Fixture::can_run() {
        return;
    }
    let agents = [("short", writer("one\n")), ("long", writer("one\ntwo\nthree\n"))];
    let fixture = Fixture::with_agents(&agents, "");
    let server = fixture.start(&[]);
    let mut body = task(&fixture.source(), "Work");
    body.as_object_mut().unwrap().remove("agent");
    body["agents"] = json!([{ "type": "short", "count": 2 }, { "type": "long" }]);
    body["repo"]["branch"] = "result".into();
    let mut headers = server.operator();
    headers.push(("idempotency-key", "k"));
    let create = || server.try_ask("POST", "/api/v1/tasks", &headers, &body.to_string()).unwrap();
    let created = create();
    assert_eq!(created.status, 201, "{created:?}");
    let ids: Vec<String> = serde_json::from_value(created.json()["session_ids"].clone()).unwrap();
    assert_eq!((ids.len(), &created.json()["id"]), (3, &json!(ids[0])), "{created:?}");
    assert_eq!(create().json()["session_ids"], json!(ids), "a repeated request makes none");
    for (number, id) in (1..).zip(&ids) {
        let (session, story) = server.ended(id);
        assert_eq!(session["status"], "completed", "{story:#?}");
        let group = json!({ "id": ids[0], "number": number, "size": 3 });
        assert_eq!(session["taskGroup"], group);
        assert_eq!(
            (&session["usage"]["turns"], &session["usage"]["costMicros"]),
            (&json!(1), &json!(250_000))
        );
    }
    let mut branches = fixture.branches();
    branches.sort();
    assert_eq!(branches, ["result", "result-2", "result-3"]);
    assert_eq!(server.get(&format!("/api/v1/sessions?taskId={}", ids[0]))["total"], 3);
    assert_eq!(server.ask("GET", "/api/v1/sessions?taskId=x", "").status, 400);

    let ran = command(&fixture, &["session", "compare", &ids[1]]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let text = ran.text();
    let row = |name: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
        let line = line.unwrap_or_else(|| panic!("no {name}: {text}"));
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    assert_eq!(row("agent"), ["agent", "short latest", "short latest", "long latest"], "{text}");
    assert_eq!(row("delivered"), ["delivered", "result", "result-2", "result-3"], "{text}");
    assert_eq!(row("result.txt"), ["result.txt", "+1 -0", "+1 -0", "+3 -0"], "{text}");
    assert!(row("used")[1].contains("1 turn") && row("used")[1].contains("$0.25"), "{text}");
    let ran = command(&fixture, &["session", "compare", &ids[0], &ids[2], "--json"]);
    let compared: Value = serde_json::from_slice(&ran.out).unwrap();
    assert_eq!(compared["sessions"][1]["files"][0]["linesAdded"], 3, "{compared:#}");
    server.end();
}

#[test]
fn command_line_makes_sessions_with_several_agents_and_bounds() {
    if !Fixture::can_run() {
        return;
    }
    let agents = [("short", writer("one\n")), ("long", writer("two\n"))];
    let fixture = Fixture::with_agents(&agents, "");
    let server = fixture.start(&[]);
    let source = fixture.source();
    let repo = source.to_str().unwrap();
    let ran = command(
        &fixture,
        &[
            "task",
            "Work",
            "--repo",
            repo,
            "--agent",
            "short",
            "--agent",
            "long",
            "--max-turns",
            "3",
            "--max-cost",
            "1.5",
        ],
    );
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ids: Vec<String> = ran.text().lines().map(str::to_owned).collect();
    assert_eq!(ids.len(), 2, "{}", ran.text());
    assert!(ran.err.contains("session compare"), "{}", ran.err);
    for id in &ids {
        let (session, _) = server.ended(id);
        assert_eq!(session["budget"], json!({ "turns": 3, "costUsd": 1.5 }));
    }
    let follow = ["task", "x", "--repo", repo, "--agent", "short", "--count", "2", "--follow"];
    let ran = command(&fixture, &follow);
    assert_eq!(ran.code, 2, "{}", ran.err);
    let ran = command(&fixture, &["task", "x", "--repo", repo, "--max-turns", "0"]);
    assert!(ran.code != 0 && ran.err.contains("turns must be"), "{}", ran.err);
    for (flag, value, says) in [
        ("--max-cost", "nan", "must be a number, such as"),
        ("--max-cost", "inf", "must be a number, such as"),
        ("--cpu", "inf", "must be a number, such as"),
        ("--cpu", "two", "must be a number, such as"),
        ("--max-minutes", "0", "must be a whole number from 1 to 527040"),
        ("--memory", "1g", "must be a whole number"),
    ] {
        let ran = command(&fixture, &["task", "x", "--repo", repo, flag, value]);
        assert!(ran.code == 2 && ran.err.contains(says), "{flag} {value}: {}", ran.err);
    }
    server.end();
}

#[test]
fn sessions_of_a_task_start_from_the_commit_of_its_creation() {
    if !Fixture::can_run() {
        return;
    }
    let asks = "[[turn]]\nsteps = [{ ask = { title = \"Go on\" } }, { write = { path = \"new\", text = \"x\" } }]";
    let fixture = Fixture::with_agents(&[("asks", asks.to_owned())], "max-running = 1");
    let server = fixture.start(&[]);
    let start = fixture.git(&["rev-parse", "HEAD"]).trim().to_owned();
    let mut body = task(&fixture.source(), "Work");
    body.as_object_mut().unwrap().remove("agent");
    body["agents"] = json!([{ "type": "asks", "count": 2 }]);
    let created = server.ask("POST", "/api/v1/tasks", &body.to_string()).json();
    let ids: Vec<String> = serde_json::from_value(created["session_ids"].clone()).unwrap();
    // One session waits for a decision, and the other one for its place.
    let asks = |id: &String| server.session(id)["openApprovals"] == 1;
    comes("a question", || ids.iter().any(&asks));
    fixture.git(&["commit", "-q", "--allow-empty", "-m", "Later"]);
    let (first, second): (Vec<_>, Vec<_>) = ids.iter().partition(|id| asks(id));
    for id in first.into_iter().chain(second) {
        let (session, story) = server.ended(id);
        assert_eq!(session["status"], "completed", "{story:#?}");
        assert_eq!(session["vcs"]["baseCommit"], start);
    }
    let ran = command(&fixture, &["session", "compare", &ids[0]]);
    assert_eq!(ran.text().matches(&start[..10]).count(), 2, "{}", ran.text());
    server.end();
}

/// A session with a budget of one turn and a second prompt in its queue, which waits for a decision.
fn held(server: &Server, fixture: &Fixture) -> (String, String) {
    let mut body = task(&fixture.source(), "Work");
    body["agent"]["type"] = "worker".into();
    body["budget"] = json!({ "turns": 1 });
    body["keepOpen"] = json!(true);
    let id = server.create_from(&body);
    server.event(&id, |event| event["message"] == "did Work");
    let path = format!("/api/v1/sessions/{id}/prompt");
    assert_eq!(server.ask("POST", &path, r#"{"prompt":"two"}"#).status, 202);
    let asked = server.event(&id, |event| event["type"] == "approvalRequested");
    assert_eq!(asked["title"], "Continue beyond the budget: 1 of 1 turns used");
    comes("the question", || server.session(&id)["activity"] == "awaitingApproval");
    (id, asked["approvalId"].as_str().unwrap().to_owned())
}

const WORKER: &str = "[[turn]]\nsteps = [{ write = { path = \"{prompt}.txt\", text = \"x\" } }, { say = \"did {prompt}\\n\" }]";

#[test]
fn session_beyond_its_budget_asks_and_goes_on_or_ends() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::with_agents(&[("worker", WORKER.to_owned())], "");
    let mut server = fixture.start(&[]);
    let mut servers = vec![server.pid()];
    // The question also survives a kill, and is not asked twice.
    for is_killed in [false, true] {
        for (decision, expect) in [("approve", "answered"), ("deny", "withdrawn")] {
            let (id, approval) = held(&server, &fixture);
            if is_killed {
                server.signal(Signal::KILL);
                server.died();
                server = fixture.start(&[]);
                servers.push(server.pid());
            }
            let path = format!("/v1/approvals/{approval}");
            let body = json!({ "decision": decision }).to_string();
            let decided = server.ask("POST", &path, &body);
            assert_eq!(decided.status, 200, "{decided:?}");
            if decision == "approve" {
                server.event(&id, |event| event["message"] == "did two");
                comes("the end of the turn", || server.session(&id)["activity"] == "idle");
                assert_eq!(server.session(&id)["budgetStart"]["turns"], 1);
                assert_eq!(
                    server.ask("POST", &format!("/api/v1/sessions/{id}/finish"), "").status,
                    202
                );
            }
            comes("the end", || !server.session(&id)["endReason"].is_null());
            let session = server.session(&id);
            assert_eq!(session["status"], "completed", "{decision}: {session:#}");
            let prompt = server.get(&format!("/api/v1/sessions/{id}/prompts/2"));
            assert_eq!(prompt["status"], expect, "{decision} {is_killed}");
            let asked = server.get(&format!("/v1/approvals?sessionId={id}"));
            assert_eq!(asked["total"], 1, "{asked:#}");
            let diff = server.ask("GET", &format!("/api/v1/sessions/{id}/diff"), "").body;
            assert!(diff.contains("Work.txt"), "the work is delivered: {diff}");
        }
    }
    server.end();
    fixture.assert_nothing_left(&servers);
}

/// Agents that use 300 tokens in each turn, and how they report them.
fn token_agents() -> Fixture {
    let scenario = |second: &str| {
        let turn = |tokens: &str| {
            format!(
                "[[turn]]\nsteps = [{{ tokens = {tokens} }}, {{ say = \"did {{prompt}}\\n\" }}]\n"
            )
        };
        turn("{ input = 200, output = 100 }") + &turn(second)
    };
    let agents = [
        ("turns", scenario("{ input = 200, output = 100 }")),
        ("totals", scenario("{ input = 400, output = 200 }")),
    ];
    let fixture = Fixture::with_agents(&agents, "");
    // The last entry is the one of the second agent.
    let config = fs::read_to_string(fixture.config()).unwrap() + "token-reports = \"session\"\n";
    fs::write(fixture.config(), config).unwrap();
    fixture
}

#[test]
fn tokens_of_all_turns_count_however_the_agent_reports_them() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = token_agents();
    let server = fixture.start(&[]);
    for agent in ["turns", "totals"] {
        let mut body = task(&fixture.source(), "one");
        body["agent"]["type"] = agent.into();
        body["budget"] = json!({ "tokens": 500 });
        body["keepOpen"] = json!(true);
        let id = server.create_from(&body);
        let path = format!("/api/v1/sessions/{id}/prompt");
        for prompt in ["two", "three"] {
            let body = json!({ "prompt": prompt }).to_string();
            assert_eq!(server.ask("POST", &path, &body).status, 202);
        }
        let asked = server.event(&id, |event| event["type"] == "approvalRequested");
        let title = asked["title"].as_str().unwrap();
        assert!(title.contains("600 of 500 tokens used"), "{agent}: {title}");
        let usage = server.session(&id)["usage"].clone();
        assert_eq!((&usage["turns"], &usage["inputTokens"]), (&json!(2), &json!(400)), "{agent}");
        assert_eq!(usage["outputTokens"], 200, "{agent}: {usage}");
        server.delete(&id);
    }
    server.end();
}

#[test]
fn usage_goes_on_after_a_kill_in_a_turn() {
    if !Fixture::can_run() {
        return;
    }
    // After the kill the agent counts from zero.
    let agent = r#"
        [[turn]]
        steps = [{ tokens = { input = 300, output = 60 } }, { usage = { used = 1, size = 9, cost = 0.5 } }]
        [[turn]]
        steps = [{ usage = { used = 1, size = 9, cost = 0.75 } }, { delay = 50 }, { say = "counted\n" }, { hang = "forever" }]
        [[turn]]
        steps = [{ tokens = { input = 100, output = 20 } }, { usage = { used = 1, size = 9, cost = 0.125 } }]"#;
    let fixture = Fixture::with_agents(&[("counter", agent.to_owned())], "");
    let server = fixture.start(&[]);
    let mut body = task(&fixture.source(), "one");
    body["agent"]["type"] = "counter".into();
    body["keepOpen"] = json!(true);
    let id = server.create_from(&body);
    let path = format!("/api/v1/sessions/{id}/prompt");
    let first = server.reaches(&id, "the first turn", |session| session["activity"] == "idle");
    assert_eq!(server.ask("POST", &path, r#"{"prompt":"two"}"#).status, 202);
    server.event(&id, |event| event["message"] == "counted");
    server.signal(Signal::KILL);
    server.died();
    let server = fixture.start(&[]);
    let again = server.reaches(&id, "the restart", |session| session["activity"] == "idle");
    let millis = |session: &Value| session["usage"]["wallMillis"].as_u64().unwrap();
    assert!(millis(&again) >= millis(&first) + 50, "{first:#}\n{again:#}");
    assert_eq!(again["usage"]["costMicros"], 750_000, "{again:#}");
    assert_eq!(server.ask("POST", &path, r#"{"prompt":"three"}"#).status, 202);
    let counted = |session: &Value| session["usage"]["turns"] == 3 && session["activity"] == "idle";
    let usage = server.reaches(&id, "the third turn", counted)["usage"].clone();
    assert_eq!((&usage["inputTokens"], &usage["outputTokens"]), (&json!(400), &json!(80)));
    assert_eq!(usage["costMicros"], 875_000, "{usage}");
    server.delete(&id);
    server.end();
}

#[test]
fn budget_of_time_tokens_or_cost_asks_after_the_turn_that_used_it() {
    if !Fixture::can_run() {
        return;
    }
    let spender = r#"
        [[turn]]
        steps = [{ delay = 1100 }, { usage = { used = 300, size = 1000, cost = 0.75 } }, { say = "did {prompt}\n" }]"#;
    let fixture = Fixture::with_agents(&[("spender", spender.to_owned())], "");
    let server = fixture.start(&[]);
    for (budget, question) in [
        (json!({ "wallSeconds": 1 }), "of 1 seconds used"),
        (json!({ "costUsd": 0.5 }), "0.75 of 0.50 US dollars used"),
    ] {
        let mut body = task(&fixture.source(), "Work");
        body["agent"]["type"] = "spender".into();
        body["budget"] = budget;
        body["keepOpen"] = json!(true);
        let id = server.create_from(&body);
        server.event(&id, |event| event["message"] == "did Work");
        let path = format!("/api/v1/sessions/{id}/prompt");
        assert_eq!(server.ask("POST", &path, r#"{"prompt":"two"}"#).status, 202);
        let asked = server.event(&id, |event| event["type"] == "approvalRequested");
        assert!(asked["title"].as_str().unwrap().contains(question), "{asked:#}");
        let session = server.session(&id);
        assert!(session["usage"]["wallMillis"].as_u64().unwrap() >= 1000, "{session:#}");
        server.delete(&id);
    }
    server.end();
}
