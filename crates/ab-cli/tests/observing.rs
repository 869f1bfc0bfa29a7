//! What an operator sees of sessions: the audit, logs as JSON, and traces.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::outliving::comes;
use crate::serve::{Server, client, repository};
use crate::stage::{BINARY, Stage};

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The id of the only session.
fn only(stage: &Stage) -> String {
    let listed = client(stage, &["session", "list", "--json"]).value();
    listed["items"][0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn audit_has_requests_of_people_and_calls_of_the_agent() {
    let stage = repository();
    let server = Server::start(&stage);
    let followed = client(&stage, &["task", "Note it", "--follow", "--approve", "always"]);
    assert_eq!(followed.code, 0, "{}", followed.err);
    let id = only(&stage);
    let audit = || lines(&client(&stage, &["session", "audit", &id, "--json"]).text());
    let find = |action: &str, subject: &str| {
        let has = |entry: &&Value| {
            entry["action"] == action
                && entry["subject"].as_str().unwrap_or_default().contains(subject)
        };
        audit().iter().find(has).cloned()
    };
    // Calls are stored by another task than the one that performs them.
    comes("the calls of the agent", || {
        find("write", "NOTES.md").is_some() && find("exec", "ls").is_some()
    });
    let write = find("write", "NOTES.md").unwrap();
    assert_eq!(
        (&write["source"], &write["actor"]),
        (&"endpoint".into(), &json!(format!("agent:{id}")))
    );
    assert_eq!(write["success"], true, "{write}");
    let created = find("create", "").unwrap();
    assert_eq!(created["source"], "request", "{created}");
    assert!(created["actor"].as_str().unwrap().contains("admin"), "{created}");
    assert!(find("approve", "").is_some(), "{:?}", audit());
    let text = client(&stage, &["session", "audit", &id]).text();
    assert!(text.starts_with("TIME") && text.contains("NOTES.md"), "{text}");
    assert_eq!(server.end().0, 0);
    // It is stored.
    let server = Server::start(&stage);
    assert!(find("write", "NOTES.md").is_some());
    assert_eq!(server.end().0, 0);
}

#[test]
fn logs_of_a_session_are_lines_of_json_with_its_id() {
    let stage = repository();
    let server = Server::start_with(&stage, &["--log-format", "json", "--log-level", "info"]);
    let made = client(&stage, &["task", "Note it", "--json"]).value();
    let id = made["sessionId"].as_str().unwrap().to_owned();
    let mut follow = stage.command(BINARY);
    follow.args(["session", "logs", &id, "--follow", "--json", "--data-dir"]);
    follow.arg(stage.outside("data")).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut follow = follow.stderr(Stdio::null()).spawn().unwrap();
    let approved = client(&stage, &["session", "events", &id, "--follow", "--approve", "always"]);
    assert_eq!(approved.code, 0, "{}", approved.err);
    let mut followed = String::new();
    follow.stdout.take().unwrap().read_to_string(&mut followed).unwrap();
    assert_eq!(follow.wait().unwrap().code(), Some(0));
    let followed = lines(&followed);
    assert!(followed.len() > 1, "{followed:?}");
    for line in &followed {
        assert_eq!((&line["sessionId"], &line["type"]), (&json!(id), &"log".into()), "{line}");
        assert!(line["ts"].is_string() && line["level"].is_string(), "{line}");
    }
    let past = lines(&client(&stage, &["session", "logs", &id, "--json"]).text());
    assert_eq!(past, followed);
    let (code, said) = server.end();
    assert_eq!(code, 0);
    // The server's own log names the session too.
    let own = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let named = own.filter(|line| line.to_string().contains(&id)).count();
    assert!(named > 0, "{said}");
}

/// A collector for one request: its head and its body.
fn collect(listener: &TcpListener) -> (String, Value) {
    let (stream, _) = listener.accept().unwrap();
    read(stream)
}

fn read(stream: TcpStream) -> (String, Value) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
    });
    let mut body = vec![0; length.unwrap()];
    reader.read_exact(&mut body).unwrap();
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    reader.get_mut().write_all(answer.as_bytes()).unwrap();
    (head, serde_json::from_slice(&body).unwrap())
}

#[test]
fn collector_gets_the_phases_of_a_session_as_one_trace() {
    let stage = repository();
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = collector.local_addr().unwrap();
    let variable = ("AGENT_BACKEND_OTLP_ENDPOINT", format!("http://{address}"));
    let data = stage.outside("data");
    let serve = || {
        let mut command = stage.command(BINARY);
        command.env(variable.0, &variable.1);
        Server::start_by(command, &["--data-dir", data.to_str().unwrap()])
    };
    let server = serve();
    let done = client(&stage, &["task", "Note it", "--follow", "--approve", "always"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let id = only(&stage);
    let (head, body) = collect(&collector);
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(head.to_ascii_lowercase().contains("content-type: application/json"), "{head}");
    let resource = &body["resourceSpans"][0];
    assert_eq!(resource["resource"]["attributes"][0]["value"]["stringValue"], "agent-backend");
    let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
    let by_name: BTreeMap<&str, &Value> =
        spans.iter().map(|span| (span["name"].as_str().unwrap(), span)).collect();
    let root = by_name["session"];
    let time = |span: &Value, name: &str| span[name].as_str().unwrap().parse::<u64>().unwrap();
    for name in ["provision", "run", "delivery"] {
        let span = by_name[name];
        assert_eq!((&span["traceId"], &span["parentSpanId"]), (&root["traceId"], &root["spanId"]));
        assert_eq!(span["attributes"][0]["value"]["stringValue"], id.as_str(), "{span}");
        assert!(time(span, "startTimeUnixNano") <= time(span, "endTimeUnixNano"), "{span}");
        assert!(time(root, "startTimeUnixNano") <= time(span, "startTimeUnixNano"), "{span}");
    }
    assert!(
        time(by_name["provision"], "endTimeUnixNano") <= time(by_name["run"], "startTimeUnixNano")
    );
    assert_eq!(root["status"]["code"], 1);

    // Without a collector, sessions go on and the log has one line.
    drop(collector);
    for prompt in ["Second", "Third"] {
        let done = client(&stage, &["task", prompt, "--follow", "--approve", "always"]);
        assert_eq!(done.code, 0, "{}", done.err);
    }
    let (code, said) = server.end();
    assert_eq!((code, said.matches("cannot send traces").count()), (0, 1), "{said}");
}
