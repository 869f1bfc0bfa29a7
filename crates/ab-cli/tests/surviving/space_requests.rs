//! What requests of spaces and runs can say, over HTTP and on the command line of the built binary.

use std::fs;
use std::io::Write;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use super::fixture::Server;
use super::spaces::{code, decision, fixture, operations, post, space};
use crate::outliving::comes;
use crate::stage::run;

const ASKS: &str = "rm -rf data";

#[test]
fn a_space_has_what_its_request_says() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let source = fixture.stage.outside("template");
    fs::create_dir_all(source.join("src")).unwrap();
    fs::write(source.join("src/a.txt"), "one").unwrap();
    let body = json!({
        "name": "copy", "description": "of a template", "copyOf": source,
        "metadata": { "ticket": 7 }, "env": { "GREETING": "hi" }, "ttlSeconds": 3600,
    });
    let id = space(&server, &body);
    let shown = server.get(&format!("/v1/spaces/{id}"))["data"].clone();
    for member in ["name", "description", "metadata", "env"] {
        assert_eq!(shown[member], body[member], "{member}: {shown:#}");
    }
    assert!(shown["expiresAt"].is_string(), "{shown:#}");
    assert_eq!(shown["policy"]["name"], "standard");
    let changed = operations(json!([
        { "type": "readFile", "path": "src/a.txt" },
        { "type": "createFile", "path": "src/a.txt", "content": "two", "overwrite": true },
    ]));
    let (_, answer) = post(&server, &format!("/v1/spaces/{id}/runs"), &changed);
    assert_eq!(answer["data"]["events"][0]["content"], "one", "{answer:#}");
    assert_eq!(fs::read_to_string(source.join("src/a.txt")).unwrap(), "one");
    // Only callers on the machine of the server may name a directory of it.
    let mut headers = server.operator();
    headers.push(("x-forwarded-for", "203.0.113.9"));
    let elsewhere = server.try_ask("POST", "/v1/spaces", &headers, &body.to_string()).unwrap();
    assert_eq!(
        (elsewhere.status, code(&elsewhere.json())),
        (422, "VALIDATION_ERROR"),
        "{elsewhere:?}"
    );
    // A memory space has files and no commands.
    let memory = space(&server, &json!({ "backend": "memory" }));
    let file = format!("/v1/spaces/{memory}/files/a");
    assert_eq!(server.ask("PUT", &file, "kept").status, 200);
    assert_eq!(server.ask("GET", &file, "").body, "kept");
    let listed = operations(json!([{ "type": "shell", "command": "ls" }]));
    let (_, answer) = post(&server, &format!("/v1/spaces/{memory}/runs"), &listed);
    let event = &answer["data"]["events"][0];
    assert!(event["error"].as_str().unwrap().contains("memory"), "{event}");
    server.end();
}

/// The rules that a space reports with a strength.
fn rules(space: &Value, strength: &str) -> Vec<String> {
    let controls = space["policyControls"].as_array().unwrap().iter();
    let of = controls.filter(|control| control["commands"] == strength);
    of.map(|control| control["rule"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_space_tells_which_rules_hold_for_commands() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let (size, blocked) = ("filesystem.maxFileSize", "filesystem.blockedPaths");
    let (timeout, network) = ("shell.timeout", "network.enabled");
    let lists = ["shell.allowedCommands", "shell.blockedPatterns", "shell.approvalRequired"];
    let one_place = json!({ "filesystem": { "blockedPaths": ["config/secret"] } });
    for (body, enforced, advisory) in [
        (
            json!({ "policy": "restrictive" }),
            vec!["filesystem.readOnly", size, "shell.enabled", timeout, network],
            vec![blocked],
        ),
        (
            json!({ "policy": "standard" }),
            vec![size, timeout, network],
            vec![blocked, lists[0], lists[1], lists[2]],
        ),
        (json!({ "policy": "permissive" }), vec![size, timeout], vec![blocked, lists[1], lists[2]]),
        (
            json!({ "policy": "permissive", "policyOverrides": one_place }),
            vec![size, blocked, timeout],
            vec![lists[1], lists[2]],
        ),
        (
            json!({ "policy": "permissive", "policyOverrides": { "filesystem": { "enabled": false } } }),
            vec![size, timeout],
            vec!["filesystem.enabled", blocked, lists[1], lists[2]],
        ),
        (
            json!({ "policy": "permissive", "policyOverrides": { "filesystem": { "allowedPaths": ["src/**"] } } }),
            vec![size, timeout],
            vec!["filesystem.allowedPaths", blocked, lists[1], lists[2]],
        ),
        (json!({ "policy": "standard", "backend": "memory" }), vec![], vec![]),
    ] {
        let id = space(&server, &body);
        let shown = server.get(&format!("/v1/spaces/{id}"))["data"].clone();
        assert_eq!(rules(&shown, "enforced"), enforced, "{body}");
        assert_eq!(rules(&shown, "advisory"), advisory, "{body}");
    }
    let presets = server.get("/v1/policies/presets")["data"].clone();
    let told = presets.as_array().unwrap().iter().map(|preset| {
        let policy = if preset["policy"].is_object() { &preset["policy"] } else { preset };
        (
            policy["name"].clone(),
            policy["filesystem"]["readOnly"].clone(),
            policy["filesystem"]["maxFileSize"].clone(),
            policy["shell"]["approvalRequired"].clone(),
            policy["network"]["enabled"].clone(),
        )
    });
    let expect = [
        (json!("restrictive"), json!(true), json!(1_000_000), Value::Null, json!(false)),
        (
            json!("standard"),
            json!(false),
            json!(10_000_000),
            json!(["rm -rf", "rm -r"]),
            json!(false),
        ),
        (
            json!("permissive"),
            json!(false),
            json!(100_000_000),
            json!(["rm -rf", "rm -r", "chmod", "chown"]),
            json!(true),
        ),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expect, "{presets:#}");
    server.end();
}

/// Starts a run without waiting for it.
fn start(server: &Server, space: &str, body: &str) -> (u16, Value) {
    let mut headers = server.operator();
    headers.push(("prefer", "respond-async"));
    let path = format!("/v1/spaces/{space}/runs");
    let answer = server.try_ask("POST", &path, &headers, body).unwrap();
    (answer.status, answer.json())
}

#[test]
fn queued_runs_are_bounded_and_survive_a_kill() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let id = space(&server, &json!({}));
    let asks = operations(json!([{ "type": "shell", "id": "s", "command": ASKS }]));
    let (status, parked) = post(&server, &format!("/v1/spaces/{id}/runs"), &asks);
    assert_eq!((status, &parked["data"]["status"]), (200, &json!("awaiting_approval")));
    let writes = |number: usize| {
        let path = format!("file{number}");
        operations(json!([{ "type": "createFile", "path": path, "content": "x" }]))
    };
    for number in 0..64 {
        let (status, answer) = start(&server, &id, &writes(number));
        assert_eq!(status, 202, "{number}: {answer}");
    }
    let (status, answer) = start(&server, &id, &writes(64));
    assert_eq!((status, code(&answer)), (429, "QUOTA_EXCEEDED"), "{answer}");
    server.signal(Signal::KILL);
    server.died();
    let server = fixture.start(&[]);
    let resume = format!("/v1/runs/{}/resume", parked["data"]["runId"].as_str().unwrap());
    let (status, answer) = post(&server, &resume, &decision("s", "denied"));
    assert_eq!(status, 201, "{answer:#}");
    let runs = server.get(&format!("/v1/spaces/{id}/runs?perPage=200"))["data"].clone();
    let runs = runs.as_array().unwrap();
    assert_eq!(runs.len(), 65);
    for run in runs {
        let path = format!("/v1/runs/{}/stream", run["id"].as_str().unwrap());
        let stream = server.ask("GET", &path, "").body;
        assert!(stream.contains(r#""status":"completed""#), "{stream}");
    }
    let files = server.get(&format!("/v1/spaces/{id}/files/"))["data"].clone();
    assert_eq!(files.as_array().unwrap().len(), 64, "every queued run was performed");
    server.end();
}

#[test]
fn a_run_goes_on_when_its_client_goes_away() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let overrides = json!({ "network": { "enabled": false } });
    let id = space(&server, &json!({ "policy": "permissive", "policyOverrides": overrides }));
    let wait = "touch begun; while [ ! -e go ]; do sleep 0.02; done; echo ended";
    let body = operations(json!([
        { "type": "shell", "command": wait },
        { "type": "createFile", "path": "after", "content": "x" },
    ]));
    let runs = format!("/v1/spaces/{id}/runs");
    let mut stream = server.connect().unwrap();
    let (host, token, length) = (&server.address, &server.token, body.len());
    let request = format!(
        "POST {runs} HTTP/1.0\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let files = fixture.data().join("spaces").join(&id).join("files");
    comes("the start of the command", || files.join("begun").exists());
    drop(stream);
    // Another request shows that the server has gone on since.
    let run = server.get(&runs)["data"][0].clone();
    assert_eq!(run["status"], "running", "{run:#}");
    fs::write(files.join("go"), "").unwrap();
    let run = run["id"].as_str().unwrap();
    let told = server.ask("GET", &format!("/v1/runs/{run}/stream"), "").body;
    assert!(told.contains("event: complete"), "{told}");
    let shown = server.get(&format!("/v1/runs/{run}"))["data"].clone();
    assert_eq!(shown["status"], "completed", "{shown:#}");
    assert_eq!(shown["events"][0]["stdout"], "ended\n", "{shown:#}");
    assert!(files.join("after").exists());
    server.end();
}

#[test]
fn a_stream_goes_on_behind_the_last_event_of_its_reader() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let id = space(&server, &json!({}));
    let files = (0..4)
        .map(|number| json!({ "type": "createFile", "path": number.to_string(), "content": "x" }));
    let files = operations(files.collect());
    let (_, answer) = post(&server, &format!("/v1/spaces/{id}/runs"), &files);
    let path = format!("/v1/runs/{}/stream", answer["data"]["runId"].as_str().unwrap());
    let whole = server.ask("GET", &path, "").body;
    let ids: Vec<&str> = whole.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(ids.len(), 9, "a start and an event for each, and the end: {whole}");
    let mut headers = server.operator();
    headers.push(("last-event-id", ids[4]));
    let rest = server.try_ask("GET", &path, &headers, "").unwrap().body;
    let rest: Vec<&str> = rest.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(rest, ids[5..]);
    server.end();
}

#[test]
fn streams_of_tools_end_with_the_lifetime_of_their_space() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let id = space(&server, &json!({ "ttlSeconds": 2 }));
    let path = format!("/v1/spaces/{id}/mcp");
    let mut headers = server.operator();
    headers.push(("accept", "application/json, text/event-stream"));
    let initialize = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" },
    } });
    let first = format!("{path}?session=true");
    let begun = server.try_ask("POST", &first, &headers, &initialize.to_string()).unwrap();
    let name = |line: &str| line.strip_prefix("mcp-session-id: ").map(str::to_owned);
    let session = begun.head.lines().find_map(name).unwrap_or_else(|| panic!("{begun:?}"));
    headers.push(("mcp-session-id", &session));
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let noted = server.try_ask("POST", &path, &headers, &note.to_string()).unwrap();
    assert_eq!(noted.status, 202, "{noted:?}");
    // The answer is whole when the server ends the stream.
    let stream = server.try_ask("GET", &path, &headers, "").unwrap();
    assert_eq!(stream.status, 200, "{stream:?}");
    let gone = server.ask("GET", &format!("/v1/spaces/{id}"), "");
    assert_eq!((gone.status, code(&gone.json())), (404, "SPACE_NOT_FOUND"), "{gone:?}");
    server.end();
}

/// The blocks of docs/protocol.md that talk to a server with curl, as one script.
fn http_blocks() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/protocol.md")).unwrap();
    let blocks = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.filter(|block| ["ask ", "agent -H"].iter().any(|it| block.contains(it))).collect()
}

#[test]
fn the_dialogue_of_the_protocol_page_works_when_pasted() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let script = http_blocks()
        .replace("127.0.0.1:3001", &server.address)
        .replace("$HOME/.local/state/agent-backend", fixture.data().to_str().unwrap());
    let mut shell = fixture.stage.command("sh");
    shell.args(["-euc", &script]);
    let ran = run(shell, b"");
    let text = ran.text();
    assert_eq!(ran.code, 0, "{text} {}", ran.err);
    let answers: Vec<Value> =
        serde_json::Deserializer::from_str(&text).into_iter().collect::<Result<_, _>>().unwrap();
    let [asked, resumed, tool] = answers.try_into().unwrap();
    let question = &asked["data"]["events"][1];
    assert_eq!(asked["data"]["status"], "awaiting_approval", "{asked:#}");
    assert_eq!(question["operationId"], "clean", "{asked:#}");
    assert_eq!(question["reason"], "command 'rm -rf' requires approval", "{asked:#}");
    assert!(question["approvalId"].is_string(), "{asked:#}");
    assert_eq!(resumed["data"]["status"], "completed", "{resumed:#}");
    assert_eq!(resumed["data"]["events"].as_array().unwrap().len(), 2, "{resumed:#}");
    assert!(tool.to_string().contains("from a tool"), "{tool:#}");
    server.end();
}

#[test]
fn the_options_of_spaces_and_decisions_work_on_the_command_line() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let data = fixture.data();
    let cli = |arguments: &[&str], stdin: &str| {
        let mut all = arguments.to_vec();
        all.extend(["--data-dir", data.to_str().unwrap()]);
        let ran = fixture.stage.run_with(&all, stdin.as_bytes());
        (ran.code, String::from_utf8(ran.out).unwrap().trim().to_owned(), ran.err)
    };
    let make = |options: &[&str]| {
        let mut arguments = vec!["space", "create"];
        arguments.extend(options);
        let (status, id, said) = cli(&arguments, "");
        assert!(status == 0 && id.starts_with("spc_"), "{options:?}: {id} {said}");
        id
    };
    let source = fixture.stage.outside("template");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("a.txt"), "one").unwrap();
    let copy = make(&["--copy", source.to_str().unwrap(), "--ttl", "3600"]);
    let read = operations(json!([{ "type": "readFile", "path": "a.txt" }]));
    let (status, out, said) = cli(&["run", "-", "--space", &copy, "--json"], &read);
    assert!(status == 0 && out.contains(r#""content":"one""#), "{out} {said}");
    assert!(cli(&["space", "show", &copy], "").1.contains("\nexpires "));
    let memory = make(&["--memory"]);
    assert!(cli(&["space", "show", &memory], "").1.contains("backend     memory"));
    let policy = fixture.stage.outside("policy.json");
    fs::write(&policy, r#"{"name":"mine","filesystem":{"readOnly":true}}"#).unwrap();
    let mine = make(&["--policy", policy.to_str().unwrap()]);
    assert!(cli(&["space", "show", &mine], "").1.contains("policy      mine"));
    let write = operations(json!([{ "type": "createFile", "path": "b", "content": "x" }]));
    let (status, out, _) = cli(&["run", "-", "--space", &mine], &write);
    assert!(status == 1 && out.contains("filesystem.readOnly"), "{out}");

    // Questions of runs: cancelled with the run, denied in the inbox, and approved by the caller's rule.
    let id = make(&[]);
    let asks = operations(json!([{ "type": "shell", "command": ASKS }]));
    let parked = || {
        let (status, out, said) = cli(&["run", "-", "--space", &id, "--json"], &asks);
        assert_eq!(status, 3, "{out} {said}");
        let message: Value = serde_json::from_str(&out).unwrap();
        message["runId"].as_str().unwrap().to_owned()
    };
    let run = parked();
    let (status, out, said) = cli(&["run", "cancel", &run], "");
    assert_eq!(status, 0, "{out} {said}");
    assert!(cli(&["run", "show", &run], "").1.ends_with("cancelled"));
    let run = parked();
    let pending = server.get("/v1/approvals?status=pending");
    let approval = pending["items"][0]["id"].as_str().unwrap();
    let (status, out, said) = cli(&["approvals", "deny", approval, "--reason", "needed"], "");
    assert_eq!(status, 0, "{out} {said}");
    let stream = server.ask("GET", &format!("/v1/runs/{run}/stream"), "").body;
    assert!(stream.contains("needed") && stream.contains("event: complete"), "{stream}");
    let always = ["run", "-", "--space", &id, "--approve", "always"];
    let (status, out, said) = cli(&always, &asks);
    assert_eq!(status, 0, "{out} {said}");
    let approved = server.get("/v1/approvals?status=approved");
    let by = &approved["items"][0]["decidedBy"];
    assert_eq!((&by["kind"], &by["via"]), (&json!("rule"), &json!("cli")), "{approved:#}");
    server.end();
}
