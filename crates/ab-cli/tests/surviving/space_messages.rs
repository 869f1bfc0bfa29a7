//! Messages and decisions that do not fit, and uploads that end early, sent to the built server: all issues are named,
//! and nothing is performed.

use std::fs;
use std::io::Write;

use serde_json::{Map, Value, json};

use super::approvals::in_the_page;
use super::spaces::{code, fixture, operations, post, space};
use crate::outliving::comes;
use crate::stage::BINARY;

/// A message with one operation that is fine and one that is not.
fn beside(bad: &Value) -> String {
    operations(json!([{ "type": "createFile", "path": "made", "content": "x" }, bad]))
}

#[test]
fn every_malformed_message_is_refused_as_a_whole() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let id = space(&server, &json!({}));
    let runs = format!("/v1/spaces/{id}/runs");
    let bad = [
        (json!({ "type": "format", "path": "a" }), "/operations/1/type"),
        (json!({ "type": "message" }), "/operations/1/content"),
        (
            json!({ "type": "createFile", "path": "a", "content": "%%", "encoding": "base64" }),
            "/operations/1/content",
        ),
        (
            json!({ "type": "createFile", "path": "a", "content": "x".repeat(11 << 20) }),
            "/operations/1/content",
        ),
        (json!({ "type": "readFile", "path": "/etc/passwd" }), "/operations/1/path"),
        (json!({ "type": "readFile", "path": "../../token" }), "/operations/1/path"),
        (json!({ "type": "readFile", "path": "a\0b" }), "/operations/1/path"),
        (json!({ "type": "readFile", "path": "" }), "/operations/1/path"),
        (json!({ "type": "readFile", "path": "x".repeat(256) }), "/operations/1/path"),
        (json!({ "type": "shell", "command": "ls", "cwd": "/tmp" }), "/operations/1/cwd"),
        (json!({ "type": "shell", "command": "ls", "timeout": -1 }), "/operations/1/timeout"),
        (json!({ "type": "editFile", "path": "a", "edits": [] }), "/operations/1/edits"),
        (json!("shell"), "/operations/1"),
        (Value::Null, "/operations/1"),
    ];
    for (operation, pointer) in &bad {
        let (status, answer) = post(&server, &runs, &beside(operation));
        assert_eq!((status, answer["error"]["code"].as_str()), (400, Some("VALIDATION_ERROR")));
        let issues = answer["error"]["details"]["issues"].as_array().unwrap();
        let found: Vec<&str> = issues.iter().filter_map(|it| it["pointer"].as_str()).collect();
        assert_eq!(found, [*pointer], "{answer:#}");
    }
    // All of them at once are all told.
    let all: Vec<Value> = bad
        .iter()
        .map(|(operation, _)| operation.clone())
        .filter(|it| it.to_string().len() < 1000)
        .collect();
    let count = all.len();
    let (status, answer) = post(&server, &runs, &operations(json!(all)));
    assert_eq!(status, 400);
    assert_eq!(answer["error"]["details"]["issues"].as_array().unwrap().len(), count, "{answer:#}");

    let message = json!({ "type": "message", "content": "x" });
    let same = json!({ "type": "message", "id": "m", "content": "x" });
    for (body, pointer) in [
        (operations(json!(vec![message.clone(); 10_000])), "/operations"),
        (operations(json!([same, same])), "/operations/1/id"),
        (operations(json!({})), "/operations"),
        (
            json!({ "protocolVersion": "2.0", "operations": [message] }).to_string(),
            "/protocolVersion",
        ),
        (json!({ "operations": [] }).to_string(), "/protocolVersion"),
        ("[]".to_owned(), ""),
    ] {
        let (status, answer) = post(&server, &runs, &body);
        let issue = &answer["error"]["details"]["issues"][0];
        assert_eq!((status, issue["pointer"].as_str()), (400, Some(pointer)), "{answer:#}");
    }
    for body in ["", "{", "not JSON", "{\"protocolVersion\":\"1.0\",\"operations\":[}", "\u{0}"] {
        let (status, answer) = post(&server, &runs, body);
        assert_eq!(
            (status, answer["error"]["code"].as_str()),
            (400, Some("VALIDATION_ERROR")),
            "{body:?}"
        );
        assert!(answer["meta"]["requestId"].is_string(), "{answer}");
    }
    let large = operations(json!([{ "type": "message", "content": "x".repeat(33 << 20) }]));
    assert_eq!(post(&server, &runs, &large).0, 413);
    assert_eq!(server.get(&runs)["data"], json!([]), "there is no run");
    assert_eq!(server.get(&format!("/v1/spaces/{id}/files/"))["data"], json!([]));
    server.end();
}

/// Decisions for another operation, another run, another kind, and twice.
#[test]
fn decisions_that_do_not_fit_leave_the_run_parked() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let id = space(&server, &json!({}));
    let park = || {
        let body = operations(json!([{ "type": "shell", "id": "s", "command": "rm -rf data" }]));
        let (status, answer) = post(&server, &format!("/v1/spaces/{id}/runs"), &body);
        assert_eq!(status, 200, "{answer:#}");
        answer["data"].clone()
    };
    let parked = park();
    let run = parked["runId"].as_str().unwrap();
    let resume = format!("/v1/runs/{run}/resume");
    let decision = |operation: &str, decision: &str| {
        json!({ "approval": { "operationId": operation, "decision": decision } }).to_string()
    };
    for (body, status) in [
        ("{}".to_owned(), 400),
        ("{".to_owned(), 400),
        (decision("s", "maybe"), 400),
        (json!({ "approval": { "decision": "approved" } }).to_string(), 400),
        (
            json!({ "approval": { "operationId": "s", "decision": "approved", "grant": "x" } })
                .to_string(),
            400,
        ),
        (decision("other", "approved"), 409),
        (decision("", "approved"), 409),
    ] {
        let (found, answer) = post(&server, &resume, &body);
        assert_eq!(found, status, "{body}: {answer:#}");
    }
    let unknown = "/v1/runs/run_01J00000000000000000000000/resume";
    assert_eq!(post(&server, unknown, &decision("s", "approved")).0, 404);
    let shown = server.get(&format!("/v1/runs/{run}"));
    assert_eq!(shown["data"]["status"], "awaiting_approval", "{shown:#}");
    // Of many at once one counts.
    let statuses: Vec<u16> = std::thread::scope(|threads| {
        let ask = || post(&server, &resume, &decision("s", "approved")).0;
        let asked: Vec<_> = (0..4).map(|_| threads.spawn(ask)).collect();
        asked.into_iter().map(|it| it.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 409).count(), 3, "{statuses:?}");
    let shown = server.get(&format!("/v1/runs/{run}"))["data"].clone();
    let ran = shown["events"].as_array().unwrap().iter().filter(|it| it["type"] == "shell");
    assert_eq!(ran.count(), 1, "{shown:#}");
    server.end();
}

/// Where a part of the question is missing, nothing says yes to it.
#[test]
fn question_that_cannot_be_shown_in_full_is_denied() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let id = space(&server, &json!({}));
    let env: Map<String, Value> =
        (0..20).map(|number| (format!("V{number}"), json!("x".repeat(100 << 10)))).collect();
    let body = operations(json!([
        { "type": "createFile", "path": "data/x", "content": "x" },
        { "type": "shell", "id": "s", "command": "rm -rf data", "env": env },
        { "type": "createFile", "path": "after", "content": "x" },
    ]));
    let (status, answer) = post(&server, &format!("/v1/spaces/{id}/runs"), &body);
    assert_eq!((status, &answer["data"]["status"]), (200, &json!("awaiting_approval")));
    let run = answer["data"]["runId"].as_str().unwrap();
    let asked = server.get("/v1/approvals?status=pending")["items"][0].clone();
    assert_eq!((&asked["isCut"], &asked["runId"]), (&json!(true), &json!(run)));
    let approval = asked["id"].as_str().unwrap();

    let resume = format!("/v1/runs/{run}/resume");
    let decision = |decision: &str| {
        json!({ "approval": { "operationId": "s", "decision": decision } }).to_string()
    };
    let yes = r#"{"decision":"approve"}"#.to_owned();
    for (path, body) in
        [(&resume, decision("approved")), (&format!("/v1/approvals/{approval}"), yes)]
    {
        let (status, answer) = post(&server, path, &body);
        assert_eq!((status, code(&answer)), (409, "APPROVAL_INCOMPLETE"), "{path}: {answer:#}");
        let says = answer["error"]["message"].as_str().unwrap();
        assert!(says.contains("it can only be denied"), "{says}");
    }
    in_the_page(&server, |_, inbox| {
        assert!(inbox.contains(&format!("deny-{approval}")), "{inbox}");
        assert!(!inbox.contains(&format!("approve-{approval}")), "{inbox}");
        assert!(inbox.contains("This is not everything"), "{inbox}");
    });
    let (status, answer) = post(&server, &resume, &decision("denied"));
    assert_eq!((status, &answer["data"]["status"]), (201, &json!("completed")), "{answer:#}");
    let files = || {
        let listed = server.get(&format!("/v1/spaces/{id}/files/?recursive=true"));
        listed["data"].to_string()
    };
    assert!(files().contains("after") && files().contains("data/x"), "{}", files());

    // The command that answers every question with yes does not wait for ever.
    let file = fixture.stage.outside("operations.json");
    fs::write(&file, &body).unwrap();
    let always = ["run", file.to_str().unwrap(), "--space", &id, "--approve", "always"];
    let mut command = fixture.stage.command(BINARY);
    command.args(always).arg("--data-dir").arg(fixture.data());
    let ran = crate::stage::run(command, b"");
    assert_eq!(ran.code, 1, "{} {}", ran.text(), ran.err);
    assert!(ran.err.contains("in spite of --approve always"), "{}", ran.err);
    assert!(files().contains("data/x"), "{}", files());
    server.end();
}

#[test]
fn uploads_that_are_cut_off_leave_the_file_as_it_was() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let id = space(&server, &json!({}));
    let path = format!("/v1/spaces/{id}/files/file");
    assert_eq!(server.ask("PUT", &path, "old").status, 200);
    let files = fixture.data().join("spaces").join(&id).join("files");
    let names = || {
        let entries = fs::read_dir(&files).unwrap().map(|entry| entry.unwrap().file_name());
        entries.collect::<Vec<_>>()
    };
    let begin = || {
        let mut stream = server.connect().unwrap();
        let (host, token) = (&server.address, &server.token);
        let head = format!(
            "PUT {path} HTTP/1.0\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\
             content-length: 9000000\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&vec![b'x'; 3 << 20]).unwrap();
        comes("the temporary file of the upload", || names().len() == 2);
        stream
    };
    // The client goes away.
    drop(begin());
    comes("the end of the temporary file", || names() == ["file"]);
    assert_eq!(server.ask("GET", &path, "").body, "old");
    // The client stops, and the server ends.
    let _stopped = begin();
    server.end();
    assert_eq!(names(), ["file"]);
    assert_eq!(fs::read_to_string(files.join("file")).unwrap(), "old");
}
