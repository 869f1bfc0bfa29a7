//! Callers of a server that have no business there, and requests that make no sense.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::fixture::{Fixture, Server, task};
use crate::stage::BINARY;

#[test]
fn strangers_get_nowhere() {
    let fixture = Fixture::new();
    let server = fixture.start(&[]);
    let operator = ("authorization", server.token.clone());
    let operator = (operator.0, operator.1.as_str());
    let wrong = "0".repeat(64);
    let port = server.address.split(':').nth(1).unwrap();
    let rebound = format!("evil.example:{port}");
    for path in ["/api/v1/sessions", "/api/v1/events", "/v1/approvals", "/ui"] {
        for (headers, status) in [
            (vec![], 401),
            (vec![("authorization", wrong.as_str())], 401),
            (vec![operator, ("origin", "https://evil.example")], 403),
            (vec![operator, ("origin", "null")], 403),
            // A name that a stranger's DNS points at this machine.
            (vec![("host", rebound.as_str())], 403),
            (vec![("host", rebound.as_str()), ("cookie", "session=x")], 403),
        ] {
            let answer = server.try_ask("GET", path, &headers, "").unwrap();
            assert_eq!(answer.status, status, "{path} {headers:?}: {answer:?}");
            assert!(!answer.body.contains("items"), "{answer:?}");
        }
    }
    // A page of another origin cannot use the token, nor the cookie of a browser that is logged in.
    let (host, cookie) = logged_in(&server);
    let session = [("host", host.as_str()), ("cookie", cookie.as_str())];
    let own = server.try_ask("GET", "/api/v1/sessions", &session, "").unwrap();
    assert_eq!(own.status, 200, "{own:?}");
    let json = ("content-type", "application/json");
    let body = task(&fixture.source(), "Work").to_string();
    for origin in ["https://evil.example", "null", "http://localhost:1"] {
        let origin = ("origin", origin);
        for headers in [vec![operator, json, origin], [&session[..], &[json, origin]].concat()] {
            let answer = server.try_ask("POST", "/api/v1/tasks", &headers, &body).unwrap();
            assert_eq!(answer.status, 403, "{headers:?}: {answer:?}");
        }
    }
    assert_eq!(server.get("/api/v1/sessions")["total"], 0);

    // Its port and its data directory are taken.
    let data = fixture.stage.outside("other");
    let data = data.to_str().unwrap();
    let mut second = fixture.stage.command(BINARY);
    second.args(["serve", "--port", port, "--data-dir", data]);
    let ran = crate::stage::run(second, b"");
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains(&format!("port {port}")) && ran.err.contains("--port"), "{}", ran.err);
    server.end();
}

/// The host name and the cookie of a browser that opened the link of the notice.
fn logged_in(server: &Server) -> (String, String) {
    let said = server.said();
    let link = said.split_whitespace().find(|word| word.contains("/ui/login?")).unwrap();
    let (host, path) = link.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let answer = server.try_ask("GET", &format!("/{path}"), &[("host", host)], "").unwrap();
    let head = answer.head.as_str();
    let (_, cookie) = head.split_once("set-cookie: ").unwrap_or_else(|| panic!("{answer:?}"));
    (host.to_owned(), cookie.split(';').next().unwrap().to_owned())
}

/// An agent that keeps what it is told, its session's token included, in its home.
const LISTENER: &str =
    "#!/bin/sh\ntee \"$HOME/heard\" | \"$SCRIPTED\" agent script \"$SCENARIO\"\n";

/// The token that the server gave the agent of the only session.
fn token_of_the_agent(fixture: &Fixture) -> String {
    let workspaces = fixture.data().join("sessions/workspaces");
    let workspace = workspaces.read_dir().unwrap().next().unwrap().unwrap();
    let heard = fs::read_to_string(workspace.path().join("home/heard")).unwrap();
    let mut lines = heard.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let opened = lines.find(|line| line["method"] == "session/new").unwrap();
    let headers = &opened["params"]["mcpServers"][0]["headers"];
    let value = headers[0]["value"].as_str().unwrap_or_else(|| panic!("{opened:#}"));
    value.strip_prefix("Bearer ").unwrap().to_owned()
}

#[test]
fn the_token_of_an_agent_opens_its_endpoint_alone() {
    if !Fixture::can_run() {
        return;
    }
    let fixture = Fixture::new();
    let programs = fixture.stage.outside("programs");
    fs::create_dir(&programs).unwrap();
    let listener = programs.join("listener");
    fs::write(&listener, LISTENER).unwrap();
    fs::set_permissions(&listener, fs::Permissions::from_mode(0o755)).unwrap();
    let scenario = "[[turn]]\nsteps = [{ say = \"ready\\n\" }, { hang = \"until_cancelled\" }]\n";
    fs::write(programs.join("scenario.toml"), scenario).unwrap();
    let config = format!(
        "[[agents]]\nid = \"listener\"\nargv = [\"listener\"]\ntoolchains = [{programs:?}]\n\
         env = {{ SCRIPTED = {BINARY:?}, SCENARIO = {:?} }}\n",
        programs.join("scenario.toml")
    );
    fs::write(fixture.config(), config).unwrap();
    let server = fixture.start(&[]);
    let id = server.create_with(&fixture, "listener");
    server.event(&id, |event| event["message"] == "ready");
    let token = token_of_the_agent(&fixture);
    let own = format!("/api/v1/sessions/{id}/mcp");
    let headers = [
        ("authorization", token.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
    ];
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    let tools = server.try_ask("POST", &own, &headers, &list).unwrap();
    assert!(tools.status == 200 && tools.body.contains("read_text_file"), "{tools:?}");

    let description = server.get("/api/v1/openapi.json");
    let mut refused = 0;
    for (template, item) in description["paths"].as_object().unwrap() {
        let path = template.replace("{id}", &id);
        for (method, operation) in item.as_object().unwrap() {
            // Its own endpoint, and what needs no token at all.
            if path == own || operation["security"] == json!([{}]) {
                continue;
            }
            let answer = server.try_ask(&method.to_uppercase(), &path, &headers, "{}").unwrap();
            assert_eq!(answer.status, 403, "{method} {path}: {answer:?}");
            refused += 1;
        }
    }
    assert!(refused > 20, "{refused} routes");
    for path in ["/api/v1/sessions/01KXXXXXXXXXXXXXXXXXXXXXXX/mcp", "/no/such/route"] {
        let answer = server.try_ask("POST", path, &headers, "{}").unwrap();
        assert_eq!(answer.status, 403, "{path}: {answer:?}");
    }
    assert_eq!(server.session(&id)["status"], "running");
    server.delete(&id);
    let gone = server.try_ask("POST", &own, &headers, &list).unwrap();
    assert_eq!(gone.status, 401, "{gone:?}");
    server.end();
}

#[test]
fn tasks_that_make_no_sense_are_refused_by_the_field() {
    let fixture = Fixture::new();
    let server = fixture.start(&[]);
    let check = |body: &str, statuses: &[u16], field: &str| {
        let answer = server.ask("POST", "/api/v1/tasks", body);
        assert!(statuses.contains(&answer.status), "{field}: {answer:?}");
        assert!(answer.head.contains("application/problem+json"), "{}", answer.head);
        let problem = answer.json();
        let is_named = problem["errors"][field].is_array() || field.is_empty();
        assert!(is_named, "{field}: {problem:#}");
    };
    let sound = task(&fixture.source(), "Work");
    for (field, value) in [
        ("prompt", json!(5)),
        ("prompt", json!("")),
        ("prompt", Value::Null),
        ("repo", json!([])),
        ("repo.url", json!(5)),
        ("repo.url", json!("")),
        ("repo.url", json!("ext::sh -c id")),
        ("repo.url", json!("-u")),
        ("repo.commit", json!("HEAD; id")),
        ("agent.type", json!("nonsense")),
        ("agent.type", json!({})),
        ("keepOpen", json!("yes")),
        ("delivery.mode", json!("post")),
        ("delivery.targetBranch", json!("a b")),
        ("labels", json!("x")),
        ("surprise", json!(true)),
        ("repo.surprise", json!(true)),
        ("agent.surprise", json!(true)),
    ] {
        let mut task = sound.clone();
        let pointer = format!("/{}", field.replace('.', "/"));
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let parent = task.pointer(parent).cloned().unwrap_or_else(|| json!({}));
        let mut parent = if parent.is_null() { json!({}) } else { parent };
        parent[name] = value.clone();
        match field.split_once('.') {
            Some((first, _)) => task[first] = parent,
            None => task = parent,
        }
        check(&task.to_string(), &[400, 422], field);
    }
    for missing in ["prompt", "repo", "agent"] {
        let mut task = sound.clone();
        task.as_object_mut().unwrap().remove(missing);
        let answer = server.ask("POST", "/api/v1/tasks", &task.to_string());
        let errors = answer.json()["errors"].to_string();
        assert!(answer.status == 400 && errors.contains(missing), "{missing}: {answer:?}");
    }
    check("[]", &[400], "");
    check("{", &[400], "");
    let huge = json!({ "prompt": "x".repeat(3 << 20) }).to_string();
    check(&huge, &[413], "");
    assert_eq!(server.get("/api/v1/sessions")["total"], 0);
    server.end();
}
