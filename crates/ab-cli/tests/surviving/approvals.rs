//! Approvals of the built server: over kill -9, over MCP, on the command line, as a stream, and decided wrongly.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::fixture::{Fixture, Server, Story, task};
use super::spaces;
use crate::outliving::comes;
use crate::stage::{BINARY, run};

const YES: &str = r#"{"decision":"approve"}"#;

/// Asks for permission, and cannot be loaded again.
const FORGETFUL: &str =
    "[agent]\nload = false\n[[turn]]\nsteps = [{ ask = { title = \"May I?\" } }]";
/// Works until it is stopped.
const WAITING: &str = "[[turn]]\nsteps = [{ say = \"ready\\n\" }, { hang = \"until_cancelled\" }]";

const RULES: &str = "[[rule]]\nid = \"own.touch\"\ncategory = \"destructive\"\nverdict = \"ask\"\n\
     command = [\"touch\"]\nreason = \"it makes a file\"\n";

/// The only pending approval.
pub(super) fn pending(server: &Server) -> Value {
    let list = server.get("/v1/approvals?status=pending");
    let items = list["items"].as_array().unwrap();
    assert_eq!(items.len(), 1, "{list:#}");
    items[0].clone()
}

fn path(approval: &Value) -> String {
    format!("/v1/approvals/{}", approval["id"].as_str().unwrap())
}

/// Starts a session whose agent asks, and kills the server while it waits.
fn killed_while_asking(fixture: &Fixture, agent: &str) -> (String, Story) {
    let mut server = fixture.start(&[]);
    let mut task = task(&fixture.source(), "Describe the project");
    task["agent"]["type"] = agent.into();
    let id = server.create_from(&task);
    server.event(&id, |event| event["type"] == "approvalRequested");
    let mut story = Story::default();
    let mut follower = server.follow(&id, 0).unwrap();
    while story.find("approvalRequested").is_none() {
        story.events.push(follower.next().unwrap().unwrap());
    }
    server.signal(Signal::KILL);
    server.wait();
    (id, story)
}

/// Presses the button of the page, which shows these texts: logs in by a one-time link, and sends the form with the
/// cookie.
pub(super) fn press_in_the_page(server: &Server, approval: &Value, decision: &str, shows: &[&str]) {
    in_the_page(server, |headers, inbox| {
        let id = approval["id"].as_str().unwrap();
        for text in [&[&*format!("approve-{id}")], shows].concat() {
            assert!(inbox.contains(text), "{text}: {inbox}");
        }
        let form = format!("decision={decision}");
        let path = format!("/ui/approvals/{id}");
        let sent = server.try_ask("POST", &path, headers, &form).unwrap();
        assert_eq!(sent.status, 303, "{sent:?}");
    });
}

/// Logs in to the page by a one-time link. The headers of the browser, and the inbox.
pub(super) fn in_the_page(server: &Server, acts: impl FnOnce(&[(&str, &str)], &str)) {
    let link = server.ask("POST", "/api/v1/login-links", "").json();
    let port = server.address.split(':').next_back().unwrap();
    let host = format!("{}:{port}", link["host"].as_str().unwrap());
    let (host, path) = (host.as_str(), link["path"].as_str().unwrap());
    let login = server.try_ask("GET", path, &[("host", host)], "").unwrap();
    let cookie = login.head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let headers = [
        ("host", host),
        ("origin", &format!("http://{host}")),
        ("cookie", &cookie),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    let inbox = server.try_ask("GET", "/ui/inbox", &headers, "").unwrap();
    acts(&headers, &inbox.body);
}

#[test]
fn slow_a_question_outlives_the_server_until_the_page_approves_it() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::new();
    let (id, mut story) = killed_while_asking(&fixture, "scripted");
    let server = fixture.start(&[]);
    // The session waits: its agent is loaded, and nothing else happens.
    server.reaches(&id, "the loaded agent", |session| session["activity"] == "awaitingApproval");
    assert_eq!(server.session(&id)["openApprovals"], 1);
    let asked = pending(&server);
    assert_eq!(asked["sessionId"], id.as_str());
    assert_eq!(asked["describedBy"], "agent");
    press_in_the_page(&server, &asked, "approve", &["As the agent describes it"]);
    server.work_to_the_end(&id, &mut story);
    story.assert_whole(&server, &id);
    let session = server.session(&id);
    assert_eq!(session["status"], "completed", "{story:#?}");
    assert_eq!(story.count("approvalRequested"), 1, "it is not asked twice: {story:#?}");
    assert_eq!(story.count("approvalDecided"), 1, "{story:#?}");
    let prompts: Vec<&str> =
        story.events.iter().filter_map(|(_, event)| event["prompt"].as_str()).collect();
    assert!(prompts.len() == 2 && prompts[1].starts_with("[agent-backend] "), "{prompts:?}");
    assert!(prompts[1].contains("approved"), "{prompts:?}");
    let used = server.get(&path(&asked));
    assert_eq!(used["status"], "approved", "{used:#}");
    assert_eq!(used["decidedBy"]["kind"], "person", "{used:#}");
    assert_eq!(used["decidedBy"]["via"], "web", "{used:#}");
    assert!(used["usedAt"].is_string(), "{used:#}");
    let branch = story.find("delivery").unwrap()["branch"].as_str().unwrap();
    let notes = fixture.git(&["show", &format!("{branch}:NOTES.md")]);
    assert!(notes.contains("Describe the project"), "{notes}");
    server.end();
}

#[test]
fn slow_a_no_reaches_the_agent_after_a_restart() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::new();
    let (id, mut story) = killed_while_asking(&fixture, "scripted");
    let server = fixture.start(&[]);
    let asked = pending(&server);
    let no = r#"{"decision":"deny","reason":"not this file"}"#;
    assert_eq!(server.ask("POST", &path(&asked), no).status, 200);
    server.work_to_the_end(&id, &mut story);
    assert_eq!(server.session(&id)["status"], "completed", "{story:#?}");
    assert!(story.says("I may not write NOTES.md"), "{story:#?}");
    let mut told = story.events.iter().filter_map(|(_, event)| event["prompt"].as_str());
    assert!(told.next_back().unwrap().contains("denied: not this file"), "{story:#?}");
    assert_eq!(fixture.branches(), [""; 0]);
    server.end();
}

#[test]
fn slow_a_question_of_an_agent_that_cannot_load_expires() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::with_agents(&[("forgetful", FORGETFUL.to_owned())], "");
    let (id, _) = killed_while_asking(&fixture, "forgetful");
    let server = fixture.start(&[]);
    server.reaches(&id, "the end of the session", |session| !session["endReason"].is_null());
    let session = server.session(&id);
    assert_eq!(
        (&session["status"], &session["endReason"]),
        (&json!("failed"), &json!("interrupted"))
    );
    let expired = server.get(&format!("/v1/approvals?sessionId={id}"))["items"][0].clone();
    assert_eq!(expired["status"], "expired", "{expired:#}");
    assert_eq!(expired["decidedBy"]["kind"], "rule", "{expired:#}");
    let late = server.ask("POST", &path(&expired), YES);
    assert_eq!(late.status, 409, "{late:?}");
    assert_eq!(late.json()["error"]["code"], "APPROVAL_DECIDED", "{late:?}");
    server.end();
}

/// Runs a command on the endpoint of a session.
fn exec(server: &Server, id: &str, command: &str) -> Value {
    exec_at(server, &format!("/api/v1/sessions/{id}/mcp"), command)
}

/// The result of a command at an MCP endpoint.
pub(super) fn exec_at(server: &Server, endpoint: &str, command: &str) -> Value {
    let mut headers = server.operator();
    headers.push(("accept", "application/json, text/event-stream"));
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "exec", "arguments": { "command": command } },
    });
    let answer = server.try_ask("POST", endpoint, &headers, &call.to_string()).unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    let body = answer.body.lines().find_map(|line| line.strip_prefix("data: "));
    serde_json::from_str::<Value>(body.unwrap_or(&answer.body)).unwrap()["result"].clone()
}

#[test]
fn slow_a_command_over_mcp_names_its_approval_and_runs_once_after_a_yes() {
    if !Fixture::can_run() {
        return;
    }
    let waits = "approval-wait = \"1ms\"\nrules = \"rules.toml\"";
    let fixture = Fixture::with_agents(&[("waiting", WAITING.to_owned())], waits);
    fs::write(fixture.stage.outside("rules.toml"), RULES).unwrap();
    let mut server = fixture.start(&[]);
    let id = server.create_with(&fixture, "waiting");
    server.event(&id, |event| event["message"] == "ready");
    let command = format!("touch made # {}", "x".repeat(20_000));
    let first = exec(&server, &id, &command);
    let asked = pending(&server);
    assert_eq!(first["isError"], true, "{first:#}");
    let text = first["content"][0]["text"].as_str().unwrap();
    assert!(text.contains(asked["id"].as_str().unwrap()), "{text}");
    assert!(text.contains("repeat the same call"), "{text}");
    // Everything is shown: the digest is of nothing else.
    assert!(asked["detail"].as_str().unwrap().starts_with(&command), "{asked:#}");
    assert_eq!((&asked["describedBy"], &asked["isCut"]), (&json!("server"), &Value::Null));
    // Repeated while it waits, it is the same question; changed, it is another one.
    exec(&server, &id, &command);
    assert_eq!(pending(&server)["id"], asked["id"]);
    // The question outlives the server, and the yes is for the same command alone.
    server.signal(Signal::KILL);
    server.wait();
    let server = fixture.start(&[]);
    server.reaches(&id, "the loaded agent", |session| session["status"] == "running");
    assert_eq!(server.ask("POST", &path(&asked), YES).status, 200);
    let other = exec(&server, &id, "touch other");
    assert_eq!(other["isError"], true, "{other:#}");
    // The wait is so short that the decision may come after it: the same call again then runs.
    comes("the approved command", || exec(&server, &id, &command)["isError"] != true);
    assert!(server.get(&path(&asked))["usedAt"].is_string());
    let again = exec(&server, &id, &command);
    assert_eq!(again["isError"], true, "one yes counts once: {again:#}");
    let list = server.get(&format!("/v1/approvals?status=pending&sessionId={id}"));
    assert_eq!(list["total"], 2, "{list:#}");
    server.delete(&id);
    let list = server.get(&format!("/v1/approvals?status=pending&sessionId={id}"));
    assert_eq!(list["total"], 0, "{list:#}");
    server.end();
}

#[test]
fn slow_approvals_are_decided_on_the_command_line_and_streamed() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::new();
    let server = fixture.start(&[]);
    let data = fixture.data();
    let command = |arguments: &[&str]| {
        let mut command = fixture.stage.command(BINARY);
        command.arg("approvals").args(arguments).arg("--data-dir").arg(&data);
        command
    };
    let approvals = |arguments: &[&str]| run(command(arguments), b"");
    let none = approvals(&["list"]);
    assert!(none.code == 0 && none.err.contains("no approvals are open"), "{}", none.err);
    let mut watching = command(&["watch", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut watched = BufReader::new(watching.stdout.take().unwrap());
    let mut next = || {
        let mut line = String::new();
        watched.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()
    };
    let id = server.create(&fixture.source(), "Describe the project");
    let seen = next();
    assert_eq!((&seen["status"], &seen["title"]), (&json!("pending"), &json!("Write NOTES.md")));
    let approval = seen["id"].as_str().unwrap();
    let list = approvals(&["list"]);
    assert!(list.text().contains(approval) && list.text().contains(&id), "{}", list.text());
    let shown = approvals(&["show", &approval[..20]]);
    let text = shown.text();
    assert!(text.contains("the agent's description:\n  NOTES.md"), "{text}");
    assert!(text.contains("digest "), "{text}");
    // A reader of pages and of the stream sees the same.
    let mut event = approval_stream(&server);
    assert_eq!(event()["id"], approval);
    let done = approvals(&["approve", &approval[..20], "--reason", "fine"]);
    let expect = format!("{approval} approved by admin via cli: Write NOTES.md (fine)\n");
    assert_eq!((done.code, done.text()), (0, expect), "{}", done.err);
    assert_eq!(event()["status"], "approved");
    assert_eq!(next()["status"], "approved");
    let (session, story) = server.ended(&id);
    assert_eq!(session["status"], "completed", "{story:#?}");
    let twice = approvals(&["deny", approval]);
    assert_eq!(twice.code, 1, "{}", twice.err);
    assert!(twice.err.contains("already approved"), "{}", twice.err);
    for (arguments, expect) in [
        (vec!["show", "01KX"], "no approval ID starts with '01KX'"),
        (vec!["show", "nonsense!"], "this is not the ID of an approval or its first characters"),
        (vec!["approve"], "required arguments"),
        (vec!["list", "--status", "nothing"], "invalid value"),
        (vec!["approve", "01KXXXXXXXXXXXXXXXXXXXXXXX"], "there is no approval"),
    ] {
        let refused = approvals(&arguments);
        assert!(
            refused.code != 0 && refused.err.contains(expect),
            "{arguments:?}: {}",
            refused.err
        );
    }
    let all = approvals(&["list", "--status", "all", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&all.text()).unwrap()["total"], 1);
    kill_process(Pid::from_child(&watching), Signal::INT).unwrap();
    assert_eq!(watching.wait().unwrap().code(), Some(130));
    server.end();
}

/// A stream of approvals, and the next one in it.
fn approval_stream(server: &Server) -> impl FnMut() -> Value + use<> {
    let mut stream = server.connect().unwrap();
    let request = format!(
        "GET /v1/approvals?status=pending HTTP/1.0\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
         accept: text/event-stream\r\n\r\n",
        server.address, server.token
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut stream = BufReader::new(stream);
    move || loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the stream ended");
        if let Some(data) = line.strip_prefix("data: ") {
            break serde_json::from_str::<Value>(data).unwrap();
        }
    }
}

/// The approvals that waited have ended for this reason, in the list, for deciders and on the command line.
fn assert_expired(fixture: &Fixture, server: &Server, asked: &[Value], reason: &str) {
    let list = server.get("/v1/approvals?status=pending");
    assert_eq!(list["total"], 0, "{list:#}");
    for approval in asked {
        let shown = server.get(&path(approval));
        assert_eq!((&shown["status"], &shown["reason"]), (&json!("expired"), &json!(reason)));
        assert_eq!(shown["decidedBy"]["kind"], "rule", "{shown:#}");
        let late = server.ask("POST", &path(approval), YES);
        assert_eq!(late.status, 409, "{late:?}");
        let mut command = fixture.stage.command(BINARY);
        command.args(["approvals", "show", approval["id"].as_str().unwrap(), "--data-dir"]);
        command.arg(fixture.data());
        let told = run(command, b"").text();
        assert!(told.contains("expired") && told.contains(reason), "{told}");
    }
}

#[test]
fn approvals_of_tools_and_runs_end_with_their_space() {
    let fixture = spaces::fixture();
    let server = fixture.start(&[]);
    let mut next = approval_stream(&server);
    let id = spaces::space(&server, &json!({}));
    let asks = spaces::operations(json!([{ "type": "shell", "command": "rm -rf data" }]));
    let parked = server.ask("POST", &format!("/v1/spaces/{id}/runs"), &asks).json();
    assert_eq!(parked["data"]["status"], "awaiting_approval", "{parked:#}");
    let of_run = next();
    exec_at(&server, &format!("/v1/spaces/{id}/mcp"), "rm -rf data");
    let of_tool = next();
    assert_eq!((&of_tool["spaceId"], &of_tool["runId"]), (&json!(id), &Value::Null));
    assert_eq!(server.ask("DELETE", &format!("/v1/spaces/{id}"), "").status, 204);
    let asked = [of_run, of_tool];
    assert_expired(&fixture, &server, &asked, "the space was removed");
    for approval in &asked {
        let told = next();
        assert_eq!((&told["id"], &told["status"]), (&approval["id"], &json!("expired")));
    }
    let run = parked["data"]["runId"].as_str().unwrap();
    let shown = server.get(&format!("/v1/runs/{run}"))["data"].clone();
    assert_eq!(shown["status"], "cancelled", "{shown:#}");
    let last = shown["events"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["message"], "the space was removed", "{shown:#}");
    server.end();
}

#[test]
fn approvals_of_an_agent_and_its_commands_end_with_their_session() {
    if !Fixture::can_run() {
        return;
    }
    let asking = "[[turn]]\nsteps = [{ ask = { title = \"May I?\" } }]".to_owned();
    let waits = "approval-wait = \"1ms\"\nrules = \"rules.toml\"";
    let fixture = Fixture::with_agents(&[("asking", asking)], waits);
    fs::write(fixture.stage.outside("rules.toml"), RULES).unwrap();
    let server = fixture.start(&[]);
    for (method, suffix) in [("DELETE", ""), ("POST", "/stop")] {
        let mut next = approval_stream(&server);
        let id = server.create_with(&fixture, "asking");
        let of_agent = next();
        exec(&server, &id, "touch made");
        let of_command = next();
        assert_eq!(of_command["describedBy"], "server", "{of_command:#}");
        let session = format!("/api/v1/sessions/{id}{suffix}");
        assert_eq!(server.ask(method, &session, "").status, 202);
        // They have ended with the answer, before the processes of the session.
        let asked = [of_agent, of_command];
        assert_expired(&fixture, &server, &asked, "the session ended");
        // In any order: the agent that gets the no changes its approval again.
        let mut waited: BTreeSet<String> = asked.iter().map(path).collect();
        while !waited.is_empty() {
            let told = next();
            assert_eq!(told["status"], "expired", "{told:#}");
            waited.remove(&path(&told));
        }
        server.ended(&id);
    }
    server.end();
}

#[test]
fn slow_decisions_that_make_no_sense_are_refused() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::with_agents(
        &[("asking", "[[turn]]\nsteps = [{ ask = { title = \"May I?\" } }]".to_owned())],
        "approval-timeout = \"1h\"",
    );
    let server = fixture.start(&[]);
    let id = server.create_with(&fixture, "asking");
    server.event(&id, |event| event["type"] == "approvalRequested");
    let asked = pending(&server);
    for (body, field) in [
        ("{}", "decision"),
        (r#"{"decision":"later"}"#, "decision"),
        (r#"{"decision":"approve","by":"timeout"}"#, "by"),
        (r#"{"decision":"approve","via":"web"}"#, "via"),
        (r#"{"decision":"approve","grant":"x"}"#, "grant"),
        (r#"{"decision":1}"#, "decision"),
        ("[]", "object"),
        ("", "JSON"),
    ] {
        let refused = server.ask("POST", &path(&asked), body);
        assert!(refused.status == 400 && refused.body.contains(field), "{body}: {refused:?}");
    }
    for (method, path, status) in [
        ("GET", "/v1/approvals/nonsense", 400),
        ("GET", "/v1/approvals/01KXXXXXXXXXXXXXXXXXXXXXXX", 404),
        ("POST", "/v1/approvals/01KXXXXXXXXXXXXXXXXXXXXXXX", 404),
        ("GET", "/v1/approvals?status=open", 400),
        ("GET", "/v1/approvals?sessionId=x", 400),
        ("DELETE", "/v1/approvals/01KXXXXXXXXXXXXXXXXXXXXXXX", 405),
    ] {
        let refused = server.ask(method, path, YES);
        assert_eq!(refused.status, status, "{method} {path}: {refused:?}");
    }
    assert_eq!(pending(&server)["id"], asked["id"], "nothing decided it");
    // Decided twice at once: one counts.
    let (asked_path, statuses) = (path(&asked), std::sync::Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for decision in ["approve", "deny", "approve", "deny"] {
            let (server, statuses, path) = (&server, &statuses, &asked_path);
            scope.spawn(move || {
                let body = json!({ "decision": decision }).to_string();
                statuses.lock().unwrap().push(server.ask("POST", path, &body).status);
            });
        }
    });
    let mut statuses = statuses.into_inner().unwrap();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409, 409, 409]);
    let (_, story) = server.ended(&id);
    assert_eq!(story.count("approvalDecided"), 1, "{story:#?}");
    server.end();
}

#[test]
fn slow_a_question_expires_and_counts_as_no() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::new();
    fs::write(fixture.config(), "[sessions]\napproval-timeout = \"50ms\"\n").unwrap();
    let server = fixture.start(&[]);
    let id = server.create(&fixture.source(), "Describe the project");
    server.reaches(&id, "the end", |session| !session["endReason"].is_null());
    let expired = server.get(&format!("/v1/approvals?sessionId={id}"))["items"][0].clone();
    assert_eq!(expired["status"], "expired", "{expired:#}");
    assert_eq!(expired["decidedBy"]["kind"], "timeout", "{expired:#}");
    let late = server.ask("POST", &path(&expired), YES);
    assert_eq!(
        (late.status, late.json()["error"]["code"].as_str()),
        (409, Some("APPROVAL_DECIDED"))
    );
    assert_eq!(fixture.branches(), [""; 0], "nothing was written");
    server.end();
}
