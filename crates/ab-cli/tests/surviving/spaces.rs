//! Spaces of the built server over HTTP.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::sync::OnceLock;

use ab_testkit::schema::schema_problems;
use serde_json::{Value, json};

use super::fixture::{Fixture, Server};
use crate::stage::Stage;

pub(super) fn fixture() -> Fixture {
    let fixture = Fixture { stage: Stage::new() };
    fs::create_dir(fixture.stage.outside("tmp")).ok();
    fixture
}

pub(super) fn operations(operations: Value) -> String {
    json!({ "protocolVersion": "1.0", "operations": operations }).to_string()
}

/// Makes a space and gives its id.
pub(super) fn space(server: &Server, body: &Value) -> String {
    let made = server.ask("POST", "/v1/spaces", &body.to_string());
    assert_eq!(made.status, 201, "{made:?}");
    let made = made.json();
    assert!(made["meta"]["requestId"].is_string(), "{made}");
    made["data"]["id"].as_str().unwrap().to_owned()
}

/// Sends a request. An events message in the answer fits the schema that the server publishes.
#[track_caller]
pub(super) fn post(server: &Server, path: &str, body: &str) -> (u16, Value) {
    let answer = server.ask("POST", path, body);
    let (status, answer) = (answer.status, answer.json());
    if answer["data"]["runId"].is_string() {
        fits(server, &answer["data"]);
    }
    (status, answer)
}

#[track_caller]
pub(super) fn fits(server: &Server, message: &Value) {
    static DESCRIPTION: OnceLock<Value> = OnceLock::new();
    let description = DESCRIPTION.get_or_init(|| server.get("/api/v1/openapi.json"));
    let schema = &description["components"]["schemas"]["EventsMessage"];
    let problems = schema_problems(description, schema, message);
    assert!(problems.is_empty(), "{problems:?}: {message:#}");
}

pub(super) fn code(answer: &Value) -> &str {
    answer["error"]["code"].as_str().unwrap_or_default()
}

#[test]
fn a_space_takes_runs_files_and_tools_under_one_policy() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let id = space(&server, &json!({ "name": "one", "env": { "GREETING": "hi" } }));
    assert!(id.starts_with("spc_"), "{id}");
    let runs = format!("/v1/spaces/{id}/runs");
    let (status, answer) = post(
        &server,
        &runs,
        &operations(json!([
            { "type": "createFile", "path": "src/a.txt", "content": "one" },
            { "type": "shell", "command": "cat src/a.txt; echo $GREETING" },
            { "type": "createFile", "path": ".env", "content": "x" },
            { "type": "shell", "command": "sudo ls" },
        ])),
    );
    assert_eq!(status, 201, "{answer:#}");
    let message = &answer["data"];
    assert_eq!(message["status"], "completed");
    let types: Vec<&str> =
        message["events"].as_array().unwrap().iter().filter_map(|it| it["type"].as_str()).collect();
    assert_eq!(types, ["createFile", "shell", "policyDenied", "policyDenied"]);
    assert_eq!(message["events"][1]["stdout"], "onehi\n", "{answer:#}");
    let run = message["runId"].as_str().unwrap();
    let shown = server.get(&format!("/v1/runs/{run}"));
    assert_eq!(shown["data"]["events"], message["events"]);
    assert_eq!(shown["data"]["status"], "completed");
    // The same rules for file routes, with encoded paths too.
    let files = format!("/v1/spaces/{id}/files");
    assert_eq!(server.ask("GET", &format!("{files}/src%2Fa.txt"), "").body, "one");
    let denied = server.ask("PUT", &format!("{files}/.env"), "x");
    assert_eq!((denied.status, code(&denied.json())), (403, "POLICY_DENIED"), "{denied:?}");
    let written = server.ask("PUT", &format!("{files}/b.txt"), "two");
    assert_eq!(written.json()["data"]["size"], 3, "{written:?}");
    let listed = server.get(&format!("{files}/?recursive=true"));
    assert!(listed["data"].to_string().contains("src/a.txt"), "{listed}");
    assert_eq!(server.ask("DELETE", &format!("{files}/b.txt"), "").status, 204);
    let missing = server.ask("GET", &format!("{files}/b.txt"), "");
    assert_eq!((missing.status, code(&missing.json())), (404, "FILE_NOT_FOUND"));
    let large = "x".repeat(11 << 20);
    let refused = server.ask("PUT", &format!("{files}/large"), &large);
    assert_eq!((refused.status, code(&refused.json())), (413, "FILE_TOO_LARGE"));
    for path in ["..%2f..%2ftoken", "%2Fetc%2Fpasswd", "a%00b"] {
        let out = server.ask("GET", &format!("{files}/{path}"), "");
        assert_eq!(out.status / 100, 4, "{path}: {out:?}");
    }
    // And for tools.
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "write_file", "arguments": { "path": ".env", "content": "x" } } });
    let mut headers = server.operator();
    headers.push(("accept", "application/json, text/event-stream"));
    let tool = server.try_ask("POST", &format!("/v1/spaces/{id}/mcp"), &headers, &call.to_string());
    let tool = tool.unwrap();
    assert!(tool.body.contains("filesystem.blockedPaths"), "{tool:?}");
    assert_eq!(server.ask("DELETE", &format!("/v1/spaces/{id}"), "").status, 204);
    let gone = server.ask("GET", &format!("/v1/spaces/{id}"), "");
    assert_eq!((gone.status, code(&gone.json())), (404, "SPACE_NOT_FOUND"));
    assert!(!fixture.data().join("spaces").join(&id).exists());
    server.end();
}

#[test]
fn no_link_leads_file_routes_or_tools_to_a_blocked_path() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let overrides = json!({
        "network": { "enabled": false }, "filesystem": { "blockedPaths": [".env", ".ssh/"] },
    });
    let id = space(&server, &json!({ "policy": "permissive", "policyOverrides": overrides }));
    let made = "mkdir .ssh; echo hunter2 > .env; cp .env .ssh/id; ln -s .env conf; ln -s .ssh d";
    let made = operations(json!([{ "type": "shell", "command": made }]));
    let (_, answer) = post(&server, &format!("/v1/spaces/{id}/runs"), &made);
    assert_eq!(answer["data"]["events"][0]["exitCode"], 0, "{answer:#}");
    let files = format!("/v1/spaces/{id}/files");
    for (method, path) in [
        ("GET", "conf"),
        ("GET", "d/id"),
        ("PUT", "conf"),
        ("PUT", "d/new"),
        ("DELETE", "d/id"),
        ("GET", "d/"),
    ] {
        let answer = server.ask(method, &format!("{files}/{path}"), "x");
        assert!(answer.status >= 400, "{method} {path}: {answer:?}");
        assert!(!answer.body.contains("hunter2"), "{method} {path}: {answer:?}");
    }
    let mut headers = server.operator();
    headers.push(("accept", "application/json, text/event-stream"));
    for (tool, arguments) in [
        ("read_text_file", json!({ "path": "conf" })),
        ("read_text_file", json!({ "path": "d/id" })),
        ("grep", json!({ "pattern": "hunter", "path": "d" })),
        ("grep", json!({ "pattern": "hunter" })),
    ] {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": tool, "arguments": arguments } });
        let path = format!("/v1/spaces/{id}/mcp");
        let answer = server.try_ask("POST", &path, &headers, &call.to_string()).unwrap();
        let is_answer = answer.status == 200 && !answer.body.contains("-32602");
        assert!(is_answer && !answer.body.contains("hunter2"), "{tool} {arguments}: {answer:?}");
    }
    let kept = operations(json!([{ "type": "shell", "command": "cat .env .ssh/id; ls .ssh" }]));
    let (_, answer) = post(&server, &format!("/v1/spaces/{id}/runs"), &kept);
    assert_eq!(answer["data"]["events"][0]["stdout"], "hunter2\nhunter2\nid\n", "{answer:#}");
    server.end();
}

#[test]
fn a_list_of_files_that_is_cut_says_so() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let overrides = json!({ "network": { "enabled": false } });
    let id = space(&server, &json!({ "policy": "permissive", "policyOverrides": overrides }));
    let runs = format!("/v1/spaces/{id}/runs");
    for (command, has_more) in
        [("mkdir m; cd m; seq 10000 | xargs touch", false), ("touch m/last", true)]
    {
        let made = operations(json!([{ "type": "shell", "command": command }]));
        let (_, answer) = post(&server, &runs, &made);
        assert_eq!(answer["data"]["events"][0]["exitCode"], 0, "{answer:#}");
        let listed = server.get(&format!("/v1/spaces/{id}/files/m/"));
        assert_eq!(listed["data"].as_array().unwrap().len(), 10_000);
        assert_eq!(listed["meta"]["hasMore"], has_more, "{}", listed["meta"]);
    }
    server.end();
}

#[test]
fn malformed_requests_get_every_issue_and_perform_nothing() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let bad = json!({ "policy": "none", "ttlSeconds": 0, "backend": "disk", "colour": 1 });
    let (status, answer) = post(&server, "/v1/spaces", &bad.to_string());
    assert_eq!((status, code(&answer)), (400, "VALIDATION_ERROR"));
    assert_eq!(answer["error"]["details"]["issues"].as_array().unwrap().len(), 4, "{answer:#}");
    let id = space(&server, &json!({}));
    let runs = format!("/v1/spaces/{id}/runs");
    let (status, answer) = post(
        &server,
        &runs,
        &operations(json!([
            { "type": "createFile", "path": "a", "content": "x" },
            { "type": "createFile", "path": "../b", "content": "%", "encoding": "base64" },
        ])),
    );
    assert_eq!((status, code(&answer)), (400, "VALIDATION_ERROR"));
    let issues = answer["error"]["details"]["issues"].as_array().unwrap();
    let pointers: Vec<&str> = issues.iter().filter_map(|it| it["pointer"].as_str()).collect();
    assert_eq!(pointers, ["/operations/1/path", "/operations/1/content"]);
    let listed = server.get(&format!("/v1/spaces/{id}/files"));
    assert_eq!(listed["data"], json!([]));
    assert_eq!(post(&server, &runs, "{").0, 400);
    let unknown = "/v1/spaces/spc_01J00000000000000000000000/runs";
    let (status, answer) = post(&server, unknown, &operations(json!([])));
    assert_eq!((status, code(&answer)), (404, "SPACE_NOT_FOUND"));
    // The policy of an operation, without performing it.
    let ask = json!({ "policy": "standard", "operation": { "type": "shell", "command": "rm -rf data/" } });
    let (_, answer) = post(&server, "/v1/policies/validate", &ask.to_string());
    let data = &answer["data"];
    assert_eq!(
        (&data["allowed"], &data["requiresApproval"], &data["policy"]),
        (&json!(true), &json!(true), &json!("shell.approvalRequired")),
        "{answer}"
    );
    // As a run judges it: behind the walls of the sandbox, a variable that loads code does no harm.
    let overrides = json!({ "network": { "enabled": false } });
    let body = json!({ "policy": "permissive", "policyOverrides": overrides });
    let id = space(&server, &body);
    for operation in [
        json!({ "type": "shell", "command": "LD_PRELOAD=./x true" }),
        json!({ "type": "shell", "command": "true", "env": { "LD_PRELOAD": "./x" } }),
        json!({ "type": "shell", "command": "true", "env": { "A=B": "x" } }),
        json!({ "type": "shell", "command": "true" }),
    ] {
        let mut ask = body.clone();
        ask["operation"] = operation.clone();
        let (_, judged) = post(&server, "/v1/policies/validate", &ask.to_string());
        let runs = format!("/v1/spaces/{id}/runs");
        let (_, ran) = post(&server, &runs, &operations(json!([operation])));
        let is_performed = !ran["data"]["events"][0]["exitCode"].is_null();
        assert_eq!(judged["data"]["allowed"] == true, is_performed, "{operation}: {judged} {ran}");
    }
    let presets = server.get("/v1/policies/presets");
    assert_eq!(presets["data"].as_array().unwrap().len(), 3);
    server.end();
}

#[test]
fn a_repeated_request_with_a_key_performs_nothing_twice() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let id = space(
        &server,
        &json!({ "policy": "permissive", "policyOverrides": { "network": { "enabled": false } } }),
    );
    let body = operations(json!([{ "type": "shell", "command": "echo x >> log" }]));
    let mut headers = server.operator();
    headers.push(("idempotency-key", "k1"));
    let path = format!("/v1/spaces/{id}/runs");
    let first = server.try_ask("POST", &path, &headers, &body).unwrap().json();
    let again = server.try_ask("POST", &path, &headers, &body).unwrap().json();
    assert_eq!(first["data"], again["data"]);
    assert_eq!(server.ask("GET", &format!("/v1/spaces/{id}/files/log"), "").body, "x\n");
    let other = operations(json!([]));
    let reused = server.try_ask("POST", &path, &headers, &other).unwrap();
    assert_eq!((reused.status, code(&reused.json())), (422, "IDEMPOTENCY_KEY_REUSED"));
    // The creation of a space too.
    let make = || server.try_ask("POST", "/v1/spaces", &headers, r#"{"name":"once"}"#).unwrap();
    let (made, again) = (make().json(), make().json());
    assert_eq!(made["data"]["id"], again["data"]["id"]);
    let listed = server.get("/v1/spaces")["data"].to_string();
    assert_eq!(listed.matches(r#""name":"once""#).count(), 1, "{listed}");
    server.end();
}

const PARKING: &str = "rm -rf data";

fn parked(server: &Server) -> (String, String, Value) {
    let id = space(server, &json!({}));
    let (status, answer) = post(
        server,
        &format!("/v1/spaces/{id}/runs"),
        &operations(json!([
            { "type": "createFile", "path": "data/x", "content": "x" },
            { "type": "shell", "command": PARKING },
            { "type": "createFile", "path": "after", "content": "y" },
        ])),
    );
    assert_eq!(
        (status, &answer["data"]["status"]),
        (200, &json!("awaiting_approval")),
        "{answer:#}"
    );
    let run = answer["data"]["runId"].as_str().unwrap().to_owned();
    (id, run, answer)
}

pub(super) fn decision(operation: &str, decision: &str) -> String {
    json!({ "approval": { "operationId": operation, "decision": decision } }).to_string()
}

#[test]
fn a_parked_run_goes_on_after_the_decision_and_over_a_restart() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let (id, run, answer) = parked(&server);
    let event = &answer["data"]["events"][1];
    // The server gave the operation this id, and takes the decision by it.
    assert_eq!(
        (&event["type"], &event["operationId"]),
        (&json!("approvalRequired"), &json!("op-2"))
    );
    assert_eq!(server.get(&format!("/v1/spaces/{id}"))["data"]["status"], "paused");
    server.end();
    let server = fixture.start(&[]);
    let shown = server.get(&format!("/v1/runs/{run}"));
    assert_eq!(shown["data"]["status"], "awaiting_approval", "{shown:#}");
    let resume = format!("/v1/runs/{run}/resume");
    let (status, answer) = post(&server, &resume, &decision("other", "approved"));
    assert_eq!((status, code(&answer)), (409, "RESUME_ERROR"), "{answer}");
    let (status, answer) = post(&server, &resume, &decision("op-2", "approved"));
    assert_eq!((status, &answer["data"]["status"]), (201, &json!("completed")), "{answer:#}");
    let events = answer["data"]["events"].as_array().unwrap();
    assert_eq!(events.len(), 2, "only the new events: {answer:#}");
    assert_eq!((&events[0]["type"], &events[0]["exitCode"]), (&json!("shell"), &json!(0)));
    let (status, answer) = post(&server, &resume, &decision("op-2", "approved"));
    assert_eq!((status, code(&answer)), (409, "RUN_ALREADY_COMPLETED"));
    let shown = server.get(&format!("/v1/runs/{run}"));
    assert_eq!(shown["data"]["events"].as_array().unwrap().len(), 4, "{shown:#}");
    let files = server.get(&format!("/v1/spaces/{id}/files/?recursive=true"))["data"].to_string();
    assert!(files.contains("after") && !files.contains("data"), "{files}");
    server.end();
}

#[test]
fn a_denied_operation_is_told_and_the_rest_runs() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let (id, run, _) = parked(&server);
    let (status, answer) =
        post(&server, &format!("/v1/runs/{run}/resume"), &decision("op-2", "denied"));
    assert_eq!((status, &answer["data"]["events"][0]["type"]), (201, &json!("policyDenied")));
    let files = server.get(&format!("/v1/spaces/{id}/files/?recursive=true"))["data"].to_string();
    assert!(files.contains("after") && files.contains("data/x"), "{files}");
    // The stream has everything, and a reader that has it all is told so.
    let stream = server.ask("GET", &format!("/v1/runs/{run}/stream"), "");
    assert!(stream.body.contains("event: parked") && stream.body.contains("event: complete"));
    let last =
        stream.body.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().unwrap();
    let mut headers = server.operator();
    headers.push(("last-event-id", last));
    let path = format!("/v1/runs/{run}/stream");
    assert_eq!(server.try_ask("GET", &path, &headers, "").unwrap().status, 204);
    // A cursor of another log, as after a restore, starts with the first event.
    let last = u64::MAX.to_string();
    *headers.last_mut().unwrap() = ("last-event-id", &last);
    assert_eq!(server.try_ask("GET", &path, &headers, "").unwrap().body, stream.body);
    server.end();
}

#[test]
fn a_cancelled_run_stops_what_it_performs() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let (_, run, _) = parked(&server);
    let cancelled = server.ask("POST", &format!("/v1/runs/{run}/cancel"), "");
    let answer = cancelled.json();
    let status = &answer["data"]["status"];
    assert_eq!((cancelled.status, status), (200, &json!("cancelled")), "{answer:#}");
    let last = answer["data"]["events"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["type"], &last["category"]), (&json!("error"), &json!("execution")));
    let (status, answer) =
        post(&server, &format!("/v1/runs/{run}/resume"), &decision("op-2", "approved"));
    assert_eq!((status, code(&answer)), (409, "RUN_ALREADY_COMPLETED"), "{answer}");
    let pending = server.get("/v1/approvals?status=pending");
    assert!(!pending.to_string().contains(&run), "{pending}");
    server.end();
}

#[test]
fn a_command_over_mcp_is_asked_about_and_runs_once_after_the_yes() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let id = space(&server, &json!({}));
    post(
        &server,
        &format!("/v1/spaces/{id}/runs"),
        &operations(json!([{ "type": "createFile", "path": "data/x", "content": "x" }])),
    );
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "exec", "arguments": { "command": PARKING } } })
    .to_string();
    let mut headers = server.operator();
    headers.push(("accept", "application/json, text/event-stream"));
    let exec = || server.try_ask("POST", &format!("/v1/spaces/{id}/mcp"), &headers, &call).unwrap();
    let asked = exec();
    assert!(asked.body.contains("waits for approval"), "{asked:?}");
    let pending = server.ask("GET", "/v1/approvals?status=pending", "").json();
    let text = pending.to_string();
    let at = text.find("\"id\":\"").expect("an approval") + 6;
    let approval = &text[at..at + 26];
    assert!(asked.body.contains(approval), "the answer names the approval: {asked:?}");
    let decided =
        server.ask("POST", &format!("/v1/approvals/{approval}"), r#"{"decision":"approve"}"#);
    assert_eq!(decided.status, 200, "{decided:?}");
    let done = exec();
    assert!(!done.body.contains("waits for approval"), "{done:?}");
    assert!(exec().body.contains("waits for approval"), "one yes is one run");
    // A no is told with its reason, once; then the question is asked again.
    let pending = server.get("/v1/approvals?status=pending");
    let asked = &pending["items"][0];
    let detail = asked["detail"].as_str().unwrap();
    assert!(detail.starts_with(&format!("{PARKING}\n")), "{detail}");
    assert!(detail.contains("(rule shell.approvalRequired)"), "{detail}");
    let path = format!("/v1/approvals/{}", asked["id"].as_str().unwrap());
    let no = r#"{"decision":"deny","reason":"it is needed"}"#;
    assert_eq!(server.ask("POST", &path, no).status, 200);
    let denied = exec();
    assert!(denied.body.contains("it is needed"), "{denied:?}");
    assert!(exec().body.contains("waits for approval"));
    server.end();
}

#[test]
fn a_yes_over_mcp_holds_for_the_directory_that_was_shown() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let no_network = json!({ "network": { "enabled": false } });
    let id = space(&server, &json!({ "policy": "permissive", "policyOverrides": no_network }));
    let files = fixture.data().join("spaces").join(&id).join("files");
    for directory in ["one/build", "two/build"] {
        fs::create_dir_all(files.join(directory)).unwrap();
    }
    let point = |target: &str| {
        fs::remove_file(files.join("d")).ok();
        symlink(target, files.join("d")).unwrap();
    };
    let mut headers = server.operator();
    headers.push(("accept", "application/json, text/event-stream"));
    let exec = |cwd: &str, command: &str| {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": "exec", "arguments": { "command": command, "cwd": cwd } } });
        let path = format!("/v1/spaces/{id}/mcp");
        server.try_ask("POST", &path, &headers, &call.to_string()).unwrap()
    };
    let approve = |directory: &str| {
        let pending = server.get("/v1/approvals?status=pending");
        let asked = &pending["items"][0];
        let detail = asked["detail"].as_str().unwrap();
        assert!(detail.contains(&format!("directory: {directory}\n")), "{detail}");
        let path = format!("/v1/approvals/{}", asked["id"].as_str().unwrap());
        assert_eq!(server.ask("POST", &path, r#"{"decision":"approve"}"#).status, 200);
    };
    point("./one");
    let (asked, command) = ("waits for approval", "rm -r build");
    assert!(exec("d", command).body.contains(asked));
    approve("one");
    point("two");
    let again = exec("d", command);
    assert!(again.body.contains(asked), "{again:?}");
    assert!(files.join("one/build").exists() && files.join("two/build").exists());
    // Where the link leads to the directory that was shown, the yes counts.
    point("one");
    let done = exec("d", command);
    assert!(!done.body.contains(asked), "{done:?}");
    assert!(!files.join("one/build").exists() && files.join("two/build").exists());
    // Links lead to directories as before, also absolute ones inside the space, and never out.
    point(files.canonicalize().unwrap().join("two").to_str().unwrap());
    for (cwd, expect) in [("d", "two"), ("d/build", "build"), (".", "files")] {
        let ran = exec(cwd, "basename $(pwd -P)");
        assert!(ran.body.contains(&format!("\"text\":\"{expect}\"")), "{cwd}: {ran:?}");
    }
    for target in ["/tmp", "two/../.."] {
        point(target);
        let ran = exec("d", "pwd");
        assert!(ran.body.contains("\"isError\":true"), "{target}: {ran:?}");
    }
    server.end();
}

#[test]
fn callers_without_a_token_reach_no_space() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let id = space(&server, &json!({}));
    let body = operations(json!([{ "type": "message", "content": "x" }]));
    let ask = |method: &str, path: &str, authorization: Option<&str>| {
        let mut headers = vec![("host", server.address.as_str())];
        headers.push(("content-type", "application/json"));
        headers.extend(authorization.map(|it| ("authorization", it)));
        server.try_ask(method, path, &headers, &body).unwrap()
    };
    let runs = format!("/v1/spaces/{id}/runs");
    for (method, path) in [
        ("GET", "/v1/spaces"),
        ("POST", runs.as_str()),
        ("GET", &format!("/v1/spaces/{id}/files/")),
        ("PUT", &format!("/v1/spaces/{id}/files/a")),
        ("POST", &format!("/v1/spaces/{id}/mcp")),
        ("GET", "/v1/approvals"),
        ("GET", "/v1/policies/presets"),
        ("DELETE", &format!("/v1/spaces/{id}")),
    ] {
        let refused = ask(method, path, None);
        assert_eq!(refused.status, 401, "{method} {path}: {refused:?}");
    }
    let longer = format!("Bearer {}x", server.token);
    for wrong in ["Bearer as_live_0000000000000000", "ApiKey as_test_1", &longer] {
        let refused = ask("POST", &runs, Some(wrong));
        assert_eq!(refused.status, 401, "{wrong}: {refused:?}");
    }
    assert_eq!(server.get(&format!("/v1/spaces/{id}/runs"))["data"], json!([]));
    server.end();
}

#[test]
fn a_run_is_followed_without_waiting_for_its_answer() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let id = space(
        &server,
        &json!({ "policy": "permissive", "policyOverrides": { "network": { "enabled": false } } }),
    );
    let command = "echo begun; while [ ! -e go ]; do sleep 0.02; done; echo ended";
    let body = operations(json!([{ "type": "shell", "id": "s", "command": command }]));
    let mut headers = server.operator();
    headers.push(("prefer", "respond-async"));
    let path = format!("/v1/spaces/{id}/runs");
    let answer = server.try_ask("POST", &path, &headers, &body).unwrap();
    assert_eq!(answer.status, 202, "{answer:?}");
    let run = answer.json()["data"]["id"].as_str().unwrap().to_owned();
    let location = format!("location: /v1/runs/{}", run.to_lowercase());
    assert!(answer.head.contains(&location), "{answer:?}");
    let mut stream = server.connect().unwrap();
    let request = format!(
        "GET /v1/runs/{run}/stream HTTP/1.0\r\nhost: {}\r\nauthorization: Bearer {}\r\n\r\n",
        server.address, server.token
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut kinds = Vec::new();
    for line in BufReader::new(stream).lines().map(Result::unwrap) {
        if let Some(kind) = line.strip_prefix("event: ") {
            kinds.push(kind.to_owned());
        }
        if line.starts_with("data: ") && kinds.last().is_some_and(|kind| kind == "output") {
            assert!(line.contains(r#""text":"begun\n""#), "{line}");
            // The command waits for this file.
            assert_eq!(server.ask("PUT", &format!("/v1/spaces/{id}/files/go"), "").status, 200);
        }
    }
    assert_eq!(kinds, ["operation", "output", "event", "complete"]);
    let shown = server.get(&format!("/v1/runs/{run}?operations=true"));
    assert_eq!(shown["data"]["events"][0]["stdout"], "begun\nended\n", "{shown:#}");
    assert_eq!(shown["data"]["operations"][0]["command"], command, "{shown:#}");
    server.end();
}

#[test]
fn a_person_at_the_terminal_sees_a_run_of_the_server_and_decides() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let id = space(&server, &json!({}));
    let file = fixture.stage.outside("operations.json");
    let body = operations(json!([
        { "type": "message", "content": "Cleaning" },
        { "type": "createFile", "path": "data/x", "content": "one\n" },
        { "type": "editFile", "path": "data/x", "edits": [{ "oldContent": "one", "newContent": "two" }] },
        { "type": "shell", "command": "sudo ls" },
        { "type": "createFile", "path": ".env", "content": "" },
        { "type": "shell", "command": PARKING },
        { "type": "shell", "command": "echo done" },
    ]));
    fs::write(&file, body).unwrap();
    let (file, data) = (file.to_str().unwrap(), fixture.data());
    let arguments = ["run", file, "--space", &id, "--data-dir", data.to_str().unwrap()];
    let shown = fixture.stage.answered(&arguments, &[("[y/n/l]", "what\n"), ("[y/n/l]", "y\n")]);
    for expect in [
        "# Cleaning\n+ data/x (4 bytes)\n~ data/x\n  - one\n  + two\n$ sudo ls\n! denied: ",
        "! createFile .env: denied: ",
        "answer y, n or l for later",
        "? Run rm -rf data\n",
        "$ rm -rf data\n$ echo done\n  done\n",
    ] {
        assert!(shown.contains(expect), "{expect}: {shown}");
    }
    let decided = server.get("/v1/approvals?status=approved");
    let by = &decided["items"][0]["decidedBy"];
    assert_eq!((&by["kind"], &by["via"]), (&json!("person"), &json!("cli")), "{decided:#}");
    // No; and later, which leaves the run as it waits.
    let shown = fixture.stage.answered(&arguments, &[("[y/n/l]", "n\n")]);
    assert!(shown.contains("$ rm -rf data\n! denied: not approved by admin"), "{shown}");
    let shown = fixture.stage.answered(&arguments, &[("[y/n/l]", "l\n")]);
    assert!(shown.contains("stays open"), "{shown}");
    let pending = server.get("/v1/approvals?status=pending");
    let run = pending["items"][0]["runId"].as_str().unwrap();
    let resume = ["run", "resume", run, "--deny", "--reason", "no", "--data-dir", arguments[5]];
    let resumed = fixture.stage.run(&resume);
    let text = resumed.text();
    assert_eq!(resumed.code, 1, "{text} {}", resumed.err);
    let expect =
        "$ rm -rf data\n! denied: not approved by admin: no\n$ echo done\n  done\ncompleted\n";
    assert_eq!(text, expect);
    server.end();
}

#[test]
fn spaces_and_runs_are_used_from_the_command_line() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let data = fixture.data();
    let cli = |arguments: &[&str], stdin: &str| {
        let mut all = arguments.to_vec();
        all.extend(["--data-dir", data.to_str().unwrap()]);
        let ran = fixture.stage.run_with(&all, stdin.as_bytes());
        (ran.code, String::from_utf8(ran.out).unwrap().trim().to_owned(), ran.err)
    };
    let (status, id, said) = cli(&["space", "create", "--name", "mine"], "");
    assert!(status == 0 && id.starts_with("spc_"), "{id} {said}");
    assert!(cli(&["space", "list"], "").1.contains("mine"));
    let body = operations(json!([
        { "type": "createFile", "path": "data/x", "content": "x" },
        { "type": "shell", "command": PARKING },
        { "type": "shell", "command": "echo done" },
    ]));
    let (status, out, said) = cli(&["run", "-", "--space", &id, "--json"], &body);
    assert_eq!(status, 3, "{out} {said}");
    let message: Value = serde_json::from_str(&out).unwrap();
    let run = message["runId"].as_str().unwrap();
    assert!(cli(&["run", "show", run], "").1.ends_with("awaiting_approval"));
    let (status, out, said) = cli(&["run", "resume", run], "");
    assert_eq!(status, 0, "{out} {said}");
    assert!(out.contains("$ echo done") && out.ends_with("completed"), "{out}");
    assert_ne!(cli(&["run", "cancel", run], "").0, 0, "it has ended");
    let (status, out, said) = cli(&["run", "-", "--space", &id, "--approve", "never"], &body);
    assert_eq!(status, 1, "{out} {said}");
    assert!(out.contains("denied"), "{out}");
    assert_eq!(cli(&["space", "rm", &id], "").0, 0);
    assert_ne!(cli(&["space", "show", &id], "").0, 0);
    server.end();
}
