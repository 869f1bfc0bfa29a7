//! The prompt queue of the built server: order, changes, receipts, kill -9, and the commands for it.

use std::fs;
use std::time::{Duration, Instant};

use ab_control::CrashTestPoint;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::fixture::{Fixture, Server, task};
use crate::outliving::comes;
use crate::stage::{BINARY, Ran, run};

/// Works until it is cancelled, and then does what further prompts say.
const WORKER: &str = r#"
[[turn]]
steps = [{ say = "ready\n" }, { hang = "until_cancelled" }]
[[turn]]
steps = [{ say = "did {prompt}\n" }]
"#;

fn fixture() -> Fixture {
    Fixture::with_agents(&[("worker", WORKER.to_owned())], "")
}

/// A session whose agent works on its first prompt.
fn working(server: &Server, fixture: &Fixture) -> String {
    let id = server.create_with(fixture, "worker");
    server.event(&id, |event| event["message"] == "ready");
    id
}

fn post(server: &Server, id: &str, key: &str, body: &Value) -> super::http::Answer {
    let mut headers = server.operator();
    headers.push(("idempotency-key", key));
    let path = format!("/api/v1/sessions/{id}/prompt");
    server.try_ask("POST", &path, &headers, &body.to_string()).unwrap()
}

/// The prompts of a session as `number status text`.
fn prompts(server: &Server, id: &str) -> Vec<String> {
    let list = server.get(&format!("/api/v1/sessions/{id}/prompts"));
    let line = |it: &Value| {
        let (status, text) = (it["status"].as_str().unwrap(), it["prompt"].as_str().unwrap());
        format!("{} {status} {text}", it["number"])
    };
    list["items"].as_array().unwrap().iter().map(line).collect()
}

fn count_said(server: &Server, id: &str, text: &str) -> usize {
    let logs = server.get(&format!("/api/v1/sessions/{id}/logs"));
    let lines = logs["items"].as_array().unwrap();
    lines.iter().filter(|line| line["message"] == text).count()
}

#[test]
fn queued_prompts_survive_a_kill_and_are_sent_once() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = fixture();
    let server = fixture.start(&[]);
    let id = working(&server, &fixture);
    let first = post(&server, &id, "a", &json!({ "prompt": "two" }));
    assert_eq!((first.status, &first.json()["number"]), (202, &json!(2)), "{first:?}");
    let location = format!("/api/v1/sessions/{id}/prompts/2").to_lowercase();
    assert!(first.head.to_lowercase().contains(&location), "{}", first.head);
    assert_eq!(post(&server, &id, "b", &json!({ "prompt": "three" })).status, 202);
    assert_eq!(prompts(&server, &id), ["1 sent Work", "2 queued two", "3 queued three"]);
    let mut servers = vec![server.pid()];
    server.signal(Signal::KILL);
    server.died();

    let server = fixture.start(&[]);
    servers.push(server.pid());
    // The client did not see the answer, and sends again.
    let again = post(&server, &id, "a", &json!({ "prompt": "two" }));
    assert_eq!((again.status, &again.json()["number"]), (202, &json!(2)), "{again:?}");
    let other = post(&server, &id, "a", &json!({ "prompt": "else" }));
    assert_eq!(other.status, 422, "{other:?}");
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{session:#}\n{story:#?}");
    assert_eq!(prompts(&server, &id), ["1 unknown Work", "2 answered two", "3 answered three"]);
    for text in ["did two", "did three"] {
        assert_eq!(count_said(&server, &id, text), 1, "{text}: {story:#?}");
    }
    assert_eq!(story.count("prompt"), 3, "{story:#?}");
    server.end();
    fixture.assert_nothing_left(&servers);
}

#[test]
fn prompt_whose_caller_got_no_answer_is_there_after_a_crash() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = fixture();
    let server = fixture.start(&["--crash-at", CrashTestPoint::PromptQueued.as_str()]);
    let mut servers = vec![server.pid()];
    let id = working(&server, &fixture);
    let mut headers = server.operator();
    headers.push(("idempotency-key", "a"));
    let body = json!({ "prompt": "two" }).to_string();
    // The server dies before it answers, or while it does.
    let _ = server.try_ask("POST", &format!("/api/v1/sessions/{id}/prompt"), &headers, &body);
    server.died();
    let server = fixture.start(&[]);
    servers.push(server.pid());
    let again = post(&server, &id, "a", &json!({ "prompt": "two" }));
    assert_eq!((again.status, &again.json()["number"]), (202, &json!(2)), "{again:?}");
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{session:#}\n{story:#?}");
    assert_eq!(prompts(&server, &id), ["1 unknown Work", "2 answered two"]);
    assert_eq!(count_said(&server, &id, "did two"), 1, "{story:#?}");
    server.end();
    fixture.assert_nothing_left(&servers);
}

#[test]
fn prompt_for_now_interrupts_the_agent() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = fixture();
    let server = fixture.start(&[]);
    let id = working(&server, &fixture);
    assert_eq!(post(&server, &id, "a", &json!({ "prompt": "later" })).status, 202);
    assert_eq!(post(&server, &id, "b", &json!({ "prompt": "first", "now": true })).status, 202);
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{session:#}\n{story:#?}");
    let expect = ["1 interrupted Work", "3 answered first", "2 answered later"];
    assert_eq!(prompts(&server, &id), expect, "{story:#?}");
    let interrupted =
        |event: &Value| event["type"] == "promptReceipt" && event["status"] == "interrupted";
    assert!(story.events.iter().any(|(_, event)| interrupted(event)), "{story:#?}");
    let gone = post(&server, &id, "c", &json!({ "prompt": "more" }));
    assert_eq!(gone.status, 410, "{gone:?}");
    server.end();
}

#[test]
fn agent_that_asks_is_interrupted_and_its_question_withdrawn() {
    if !Fixture::can_run() {
        return;
    }
    let asker = r#"
        [[turn]]
        steps = [{ ask = { title = "May I?" } }]
        [[turn]]
        steps = [{ say = "did {prompt}\n" }]"#;
    let fixture = Fixture::with_agents(&[("asker", asker.to_owned())], "");
    let server = fixture.start(&[]);
    let id = server.create_with(&fixture, "asker");
    server.event(&id, |event| event["type"] == "approvalRequested");
    assert_eq!(post(&server, &id, "a", &json!({ "prompt": "else", "now": true })).status, 202);
    let said = server.event(&id, |event| event["message"] == "did else");
    assert_eq!(said["type"], "log");
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{session:#}\n{story:#?}");
    let asked = server.get(&format!("/v1/approvals?sessionId={id}"));
    assert_eq!(asked["items"][0]["status"], "expired", "{asked:#}");
    server.end();
}

#[test]
fn prompts_that_make_no_sense_are_refused() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = fixture();
    let server = fixture.start(&[]);
    let id = working(&server, &fixture);
    let of = |suffix: &str| format!("/api/v1/sessions/{id}/{suffix}");
    let long = json!({ "prompt": "x".repeat(200_000) }).to_string();
    for (method, suffix, body, status, field) in [
        ("POST", "prompt", "", 400, ""),
        ("POST", "prompt", "[]", 400, ""),
        ("POST", "prompt", "{}", 400, "prompt"),
        ("POST", "prompt", r#"{"prompt":" "}"#, 400, "prompt"),
        ("POST", "prompt", r#"{"prompt":5}"#, 400, "prompt"),
        ("POST", "prompt", r#"{"prompt":"x","now":"yes"}"#, 400, "now"),
        ("POST", "prompt", r#"{"prompt":"x","later":true}"#, 400, "later"),
        ("POST", "prompt", long.as_str(), 400, "prompt"),
        ("PUT", "prompts/1", r#"{"prompt":"x"}"#, 409, ""),
        ("PUT", "prompts/7", r#"{"prompt":"x"}"#, 404, ""),
        ("PUT", "prompts/7", "{}", 400, "prompt"),
        ("DELETE", "prompts/1", "", 409, ""),
        ("DELETE", "prompts/7", "", 404, ""),
        ("DELETE", "prompts/x", "", 400, ""),
        ("DELETE", "prompts/-1", "", 400, ""),
        ("GET", "prompts/99999999999", "", 400, ""),
        ("GET", "prompts?status=asleep", "", 400, "status"),
        ("GET", "prompts?perPage=0", "", 400, "perPage"),
    ] {
        let answer = server.ask(method, &of(suffix), body);
        assert_eq!(answer.status, status, "{method} {suffix} {body:.60}: {answer:?}");
        assert!(answer.head.contains("application/problem+json"), "{}", answer.head);
        let errors = answer.json()["errors"].clone();
        assert!(field.is_empty() || errors[field].is_array(), "{suffix} {body:.60}: {errors}");
    }
    let unknown = "/api/v1/sessions/01KXXXXXXXXXXXXXXXXXXXXXXX/prompts";
    for (method, path) in
        [("GET", unknown), ("GET", &format!("{unknown}/1")), ("DELETE", &format!("{unknown}/1"))]
    {
        assert_eq!(server.ask(method, path, "").status, 404, "{method} {path}");
    }
    server.delete(&id);
    server.end();
}

#[test]
fn commands_queue_list_change_and_withdraw_prompts() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = fixture();
    let server = fixture.start(&[]);
    let id = working(&server, &fixture);
    let session = |arguments: &[&str]| -> Ran {
        let mut command = fixture.stage.command(BINARY);
        command.arg("session").args(arguments).arg("--data-dir").arg(fixture.data());
        run(command, b"")
    };
    for text in ["two", "three", "four"] {
        let ran = session(&["prompt", &id, text]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert!(ran.text().contains("queued") && ran.text().contains(text), "{}", ran.text());
    }
    assert_eq!(session(&["prompt", &id, "drei", "--replace", "3"]).code, 0);
    let withdrawn = session(&["withdraw", &id, "4"]);
    assert!(withdrawn.code == 0 && withdrawn.text().contains("withdrawn"), "{}", withdrawn.err);
    let again = session(&["withdraw", &id, "4"]);
    assert_eq!(again.code, 1, "{}", again.text());
    assert!(again.err.contains("the prompt is withdrawn"), "{}", again.err);
    let listed = session(&["prompts", &id]).text().to_owned();
    let lines: Vec<Vec<&str>> =
        listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NUMBER", "STATUS", "AGE", "PROMPT"], "{listed}");
    let rows: Vec<_> = lines[1..].iter().map(|line| (line[0], line[1], line[3])).collect();
    let expect = [
        ("1", "sent", "Work"),
        ("4", "withdrawn", "four"),
        ("2", "queued", "two"),
        ("3", "queued", "drei"),
    ];
    assert_eq!(rows, expect, "{listed}");
    assert_eq!(session(&["prompt", &id, "now", "--now"]).code, 0);
    let (ended, story) = server.ended(&id);
    assert_eq!(ended["status"], "completed", "{story:#?}");
    let said: Vec<&str> = story
        .events
        .iter()
        .filter_map(|(_, event)| event["message"].as_str()?.strip_prefix("did "))
        .collect();
    assert_eq!(said, ["now", "two", "drei"], "{story:#?}");
    server.end();
}

#[test]
fn stop_asks_a_working_agent_and_ends_a_hung_one() {
    if !Fixture::can_run() {
        return;
    }
    let wraps_up = r#"
        [[turn]]
        steps = [{ write = { path = "work.txt", text = "half" } }, { say = "ready\n" }, { hang = "until_cancelled" }]"#;
    let hangs = wraps_up.replace("until_cancelled", "forever");
    let agents = [("polite", wraps_up.to_owned()), ("hung", hangs)];
    let fixture = Fixture::with_agents(&agents, "");
    let server = fixture.start(&[]);
    for agent in ["polite", "hung"] {
        let id = server.create_with(&fixture, agent);
        server.event(&id, |event| event["message"] == "ready");
        let begun = Instant::now();
        assert_eq!(server.ask("POST", &format!("/api/v1/sessions/{id}/stop"), "").status, 202);
        comes("the end", || !server.session(&id)["endReason"].is_null());
        // The bar is 2 s on an idle machine; tests share theirs.
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(15), "{agent}: {took:?}");
        eprintln!("{agent}: stopped after {took:?}");
        let session = server.session(&id);
        assert_eq!(session["status"], "stopped", "{session:#}");
        assert_eq!(prompts(&server, &id), ["1 interrupted Work"]);
        let diff = server.ask("GET", &format!("/api/v1/sessions/{id}/diff"), "");
        assert!(diff.body.contains("+half"), "the work is kept: {diff:?}");
        assert!(fs::exists(session["workspace"]["mountPath"].as_str().unwrap()).unwrap());
        server.delete(&id);
    }
    let pid = server.pid();
    server.end();
    fixture.assert_nothing_left(&[pid]);
}

#[test]
fn prompt_to_a_session_that_stops_is_refused() {
    if !Fixture::can_run() {
        return;
    }
    let hangs = "[[turn]]\nsteps = [{ say = \"ready\\n\" }, { hang = \"forever\" }]";
    let fixture = Fixture::with_agents(&[("hung", hangs.to_owned())], "stop-grace = \"10m\"");
    let server = fixture.start(&[]);
    let id = server.create_with(&fixture, "hung");
    server.event(&id, |event| event["message"] == "ready");
    assert_eq!(server.ask("POST", &format!("/api/v1/sessions/{id}/stop"), "").status, 202);
    // It stops for as long as its agent may wrap up.
    let refused = post(&server, &id, "a", &json!({ "prompt": "more" }));
    assert_eq!(refused.status, 409, "{refused:?}");
    server.delete(&id);
    let (session, _) = server.ended(&id);
    assert_eq!(session["status"], "cancelled", "{session:#}");
    assert_eq!(post(&server, &id, "b", &json!({ "prompt": "more" })).status, 410);
    assert_eq!(prompts(&server, &id), ["1 interrupted Work"]);
    server.end();
}

#[test]
fn page_shows_the_queue_with_its_forms() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = fixture();
    let server = fixture.start(&[]);
    let mut kept = task(&fixture.source(), "Work");
    kept["agent"]["type"] = "worker".into();
    let id = server.create_from(&kept);
    server.event(&id, |event| event["message"] == "ready");
    let mut form = server.operator();
    form.retain(|(name, _)| *name != "content-type");
    form.push(("content-type", "application/x-www-form-urlencoded"));
    let submit = |path: &str, body: &str| {
        let path = format!("/ui/sessions/{id}/{path}");
        server.try_ask("POST", &path, &form, body).unwrap().status
    };
    assert_eq!(submit("prompt", "prompt=first+%3Cb%3E"), 303);
    assert_eq!(submit("prompt", "prompt=second"), 303);
    let page = server.ask("GET", &format!("/ui/sessions/{id}"), "").body;
    assert!(page.contains("id=\"queued-2\"") && page.contains("first &lt;b&gt;"), "{page}");
    assert_eq!(submit("prompts/2/edit", "prompt=changed"), 303);
    assert_eq!(submit("prompts/3/withdraw", ""), 303);
    let page = server.ask("GET", &format!("/ui/sessions/{id}"), "").body;
    assert!(page.contains("changed") && !page.contains("id=\"queued-3\""), "{page}");
    assert_eq!(submit("prompts/3/withdraw", ""), 409);
    assert_eq!(submit("prompt", "prompt=at+once&now=true"), 303);
    server.event(&id, |event| event["message"] == "did at once");
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{story:#?}");
    server.end();
}
