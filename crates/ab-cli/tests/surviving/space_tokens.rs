//! Agents with a token of their space: what it opens, and that nothing else opens with it.

use std::fs;

use serde_json::{Value, json};

use super::fixture::Server;
use super::http::Answer;
use super::spaces::{code, decision, fixture, operations, space};

const ASKS: &str = "rm -rf data";

/// Everything that the token of a space opens.
const OPEN: [&str; 14] = [
    "DELETE /v1/spaces/{id}/files/{path}",
    "DELETE /v1/spaces/{id}/mcp",
    "GET /v1/runs/{id}",
    "GET /v1/runs/{id}/stream",
    "GET /v1/spaces/{id}",
    "GET /v1/spaces/{id}/files",
    "GET /v1/spaces/{id}/files/",
    "GET /v1/spaces/{id}/files/{path}",
    "GET /v1/spaces/{id}/mcp",
    "GET /v1/spaces/{id}/runs",
    "POST /v1/runs/{id}/cancel",
    "POST /v1/spaces/{id}/mcp",
    "POST /v1/spaces/{id}/runs",
    "PUT /v1/spaces/{id}/files/{path}",
];

/// An agent with the token of a space.
struct Agent<'a> {
    server: &'a Server,
    secret: String,
    /// The id of its token.
    id: String,
}

impl<'a> Agent<'a> {
    fn of(server: &'a Server, space: &str) -> Self {
        let created = server.ask("POST", &format!("/v1/spaces/{space}/tokens"), "");
        assert_eq!(created.status, 201, "{created:?}");
        assert!(created.head.contains("cache-control: no-store"), "{}", created.head);
        let token = created.json()["data"].clone();
        let (id, secret) = (token["id"].as_str().unwrap(), token["secret"].as_str().unwrap());
        assert!(id.starts_with("tok_") && secret.starts_with("abs_"), "{token}");
        assert_eq!(token["spaceId"], space, "{token}");
        Agent { server, secret: secret.to_owned(), id: id.to_owned() }
    }

    #[track_caller]
    fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        let headers = [
            ("authorization", self.secret.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        self.server.try_ask(method, path, &headers, body).unwrap()
    }
}

/// The methods and paths of the description that an agent of a space may use, and all others that need a token.
fn described(server: &Server) -> (Vec<String>, Vec<String>) {
    let description = server.get("/api/v1/openapi.json");
    let (mut open, mut closed) = (Vec::new(), Vec::new());
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let route = format!("{} {path}", method.to_uppercase());
            if operation["security"].to_string().contains("spaceAgent") {
                open.push(route);
            } else if operation["security"] != json!([{}]) {
                closed.push(route);
            }
        }
    }
    (open, closed)
}

/// Method and path of a route, with the ids of a space and of a run in it.
fn filled<'a>(route: &'a str, space: &str, run: &str) -> (&'a str, String) {
    let (method, path) = route.split_once(' ').unwrap();
    let id = if path.starts_with("/v1/runs/") { run } else { space };
    (method, path.replace("{id}", id).replace("{path}", "file"))
}

/// A run that waits for an approval.
fn parked(server: &Server, space: &str) -> String {
    let asks = operations(json!([{ "type": "shell", "id": "s", "command": ASKS }]));
    let answer = server.ask("POST", &format!("/v1/spaces/{space}/runs"), &asks).json();
    assert_eq!(answer["data"]["status"], "awaiting_approval", "{answer:#}");
    answer["data"]["runId"].as_str().unwrap().to_owned()
}

#[test]
fn the_token_of_a_space_opens_nothing_but_its_space() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let (own, other) = (space(&server, &json!({})), space(&server, &json!({})));
    let (own_run, other_run) = (parked(&server, &own), parked(&server, &other));
    let agent = Agent::of(&server, &own);
    let (mut open, closed) = described(&server);
    let mut expect = OPEN.map(str::to_owned).to_vec();
    for routes in [&mut open, &mut expect] {
        routes.sort_unstable();
        routes.dedup();
    }
    assert_eq!(open, expect);
    assert!(closed.len() > 60, "{closed:?}");
    for route in &closed {
        let (method, path) = filled(route, &own, &own_run);
        let answer = agent.ask(method, &path, "{}");
        assert_eq!(answer.status, 403, "{method} {path}: {answer:?}");
    }
    // Decisions in every form that they have.
    let pending = server.get("/v1/approvals?status=pending")["items"].clone();
    assert_eq!(pending.as_array().unwrap().len(), 2, "{pending:#}");
    for approval in pending.as_array().unwrap() {
        let path = format!("/v1/approvals/{}", approval["id"].as_str().unwrap());
        for (method, body) in [("POST", r#"{"decision":"approve"}"#), ("GET", "")] {
            let answer = agent.ask(method, &path, body);
            assert_eq!(answer.status, 403, "{method} {path}: {answer:?}");
        }
    }
    let yes = decision("s", "approved");
    let answer = agent.ask("POST", &format!("/v1/runs/{own_run}/resume"), &yes);
    assert_eq!((answer.status, answer.body.contains("decides nothing")), (403, true), "{answer:?}");
    // Another space and its run, and those that do not exist.
    let none = "01J00000000000000000000000";
    let (no_space, no_run) = (format!("spc_{none}"), format!("run_{none}"));
    for route in &open {
        for (space, run) in [(&other, &other_run), (&no_space, &no_run)] {
            let (method, path) = filled(route, space, run);
            let answer = agent.ask(method, &path, "{}");
            assert_eq!(answer.status, 403, "{method} {path}: {answer:?}");
        }
    }
    assert_eq!(agent.ask("GET", "/no/such/route", "").status, 403);
    for run in [own_run, other_run] {
        let shown = server.get(&format!("/v1/runs/{run}"));
        assert_eq!(shown["data"]["status"], "awaiting_approval", "{shown:#}");
    }
    server.end();
}

#[test]
fn an_agent_works_with_the_token_of_its_space_until_it_is_revoked() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let id = space(&server, &json!({}));
    let root = format!("/v1/spaces/{id}");
    let token = Agent::of(&server, &id);
    let (secret, token_id) = (token.secret.clone(), token.id.clone());
    // The token outlives the server's process.
    server.end();
    let server = fixture.start(&[]);
    let agent = Agent { server: &server, secret, id: token_id };
    assert_eq!(agent.ask("GET", &root, "").json()["data"]["id"], *id);
    assert_eq!(agent.ask("PUT", &format!("{root}/files/data/x"), "one").status, 200);
    assert_eq!(agent.ask("GET", &format!("{root}/files/data/x"), "").body, "one");
    assert!(agent.ask("GET", &format!("{root}/files/"), "").body.contains("data"));
    let body = operations(json!([
        { "type": "shell", "id": "s", "command": ASKS },
        { "type": "shell", "command": "ls" },
    ]));
    let asked = agent.ask("POST", &format!("{root}/runs"), &body);
    assert_eq!(asked.status, 200, "{asked:?}");
    let run = asked.json()["data"]["runId"].as_str().unwrap().to_owned();
    let shown = agent.ask("GET", &format!("/v1/runs/{run}"), "").json()["data"].clone();
    assert_eq!(shown["createdBy"], format!("space-agent:{id}"), "{shown:#}");
    let caller = format!("space-agent:{id}");
    let pending = server.get("/v1/approvals?status=pending")["items"].clone();
    assert_eq!(pending[0]["askedBy"], caller, "{pending:#}");
    assert!(agent.ask("GET", &format!("{root}/runs"), "").body.contains(&run));
    // A person decides; the agent learns of it.
    let resume = format!("/v1/runs/{run}/resume");
    assert_eq!(server.ask("POST", &resume, &decision("s", "approved")).status, 201);
    let stream = agent.ask("GET", &format!("/v1/runs/{run}/stream"), "").body;
    assert!(stream.contains("event: complete"), "{stream}");
    let next = agent.ask("POST", &format!("{root}/runs"), &body);
    let next = next.json()["data"]["runId"].as_str().unwrap().to_owned();
    assert_eq!(agent.ask("POST", &format!("/v1/runs/{next}/cancel"), "").status, 200);
    // A tool call of an agent is not covered by a yes to the same call of another caller.
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": "exec", "arguments": { "command": ASKS } } })
    .to_string();
    let tools = format!("{root}/mcp");
    let mut headers = server.operator();
    headers.push(("accept", "application/json, text/event-stream"));
    for answer in
        [server.try_ask("POST", &tools, &headers, &call).unwrap(), agent.ask("POST", &tools, &call)]
    {
        assert!(answer.body.contains("waits for approval"), "{answer:?}");
    }
    let pending = server.get("/v1/approvals?status=pending")["items"].clone();
    // The newest is first.
    assert_eq!(pending[0]["askedBy"], caller, "{pending:#}");
    assert_eq!(pending[1]["askedBy"], "api-key:admin", "{pending:#}");
    let digests: Vec<&Value> = pending.as_array().unwrap().iter().map(|it| &it["digest"]).collect();
    assert!(digests.len() == 2 && digests[0] != digests[1], "{pending:#}");
    for approval in pending.as_array().unwrap() {
        let path = format!("/v1/approvals/{}", approval["id"].as_str().unwrap());
        assert_eq!(server.ask("POST", &path, r#"{"decision":"approve"}"#).status, 200);
    }
    let done = agent.ask("POST", &tools, &call);
    assert!(done.status == 200 && !done.body.contains("waits for approval"), "{done:?}");
    assert!(agent.ask("POST", &tools, &call).body.contains("waits for approval"));

    let listed = server.get(&format!("{root}/tokens"))["data"].clone();
    assert_eq!((&listed[0]["id"], &listed[1]), (&json!(agent.id), &Value::Null), "{listed:#}");
    assert!(!listed.to_string().contains("abs_"), "{listed:#}");
    let revoke = format!("{root}/tokens/{}", agent.id);
    let second = Agent::of(&server, &id);
    assert_eq!(server.ask("DELETE", &revoke, "").status, 204);
    let again = server.ask("DELETE", &revoke, "");
    assert_eq!((again.status, code(&again.json())), (404, "TOKEN_NOT_FOUND"), "{again:?}");
    assert_eq!(agent.ask("GET", &root, "").status, 401);
    assert_eq!(second.ask("GET", &root, "").status, 200);
    assert_eq!(server.ask("DELETE", &root, "").status, 204);
    assert_eq!(second.ask("GET", &root, "").status, 401);
    let gone = server.ask("POST", &format!("{root}/tokens"), "");
    assert_eq!((gone.status, code(&gone.json())), (404, "SPACE_NOT_FOUND"), "{gone:?}");
    server.end();
    // Without tokens at the port, one of a space would protect nothing.
    let server = fixture.start(&["--no-auth"]);
    let id = space(&server, &json!({}));
    let refused = server.ask("POST", &format!("/v1/spaces/{id}/tokens"), "");
    assert!(refused.status == 422 && refused.body.contains("--no-auth"), "{refused:?}");
    server.end();
}

#[test]
fn an_agent_gets_its_token_on_the_command_line() {
    let fixture = fixture();
    let server = fixture.start(&[]);
    let data = fixture.data();
    let cli = |arguments: &[&str], stdin: &str| {
        let mut all = arguments.to_vec();
        all.extend(["--data-dir", data.to_str().unwrap()]);
        let ran = fixture.stage.run_with(&all, stdin.as_bytes());
        (ran.code, String::from_utf8(ran.out).unwrap().trim().to_owned(), ran.err)
    };
    let id = space(&server, &json!({}));
    let (status, secret, said) = cli(&["space", "token", &id], "");
    assert!(status == 0 && secret.starts_with("abs_"), "{secret} {said}");
    assert!(said.contains(&format!("space token {id} --revoke tok_")), "{said}");
    let file = fixture.stage.outside("agent.token");
    fs::write(&file, format!("{secret}\n")).unwrap();
    let file = file.to_str().unwrap();
    let works = operations(json!([{ "type": "shell", "command": "echo done" }]));
    let run = |body: &str| cli(&["run", "-", "--space", &id, "--token-file", file], body);
    let (status, out, said) = run(&works);
    assert!(status == 0 && out.contains("done"), "{out} {said}");
    let asks = operations(json!([{ "type": "shell", "command": ASKS }]));
    let (status, out, said) = run(&asks);
    assert!(status == 3 && said.contains("this token cannot decide"), "{out} {said}");
    for command in [&["approvals", "list"][..], &["space", "list"], &["space", "token", &id]] {
        let (status, out, said) = cli(&[command, &["--token-file", file]].concat(), "");
        assert!(status == 3 && said.contains("decides nothing"), "{status} {out} {said}");
    }
    let (_, out, _) = cli(&["space", "token", &id, "--list"], "");
    let token = out.split_whitespace().find(|word| word.starts_with("tok_")).unwrap();
    let (status, out, said) = cli(&["space", "token", &id, "--revoke", token], "");
    assert_eq!((status, out.as_str()), (0, ""), "{said}");
    let (_, _, said) = cli(&["space", "token", &id, "--list"], "");
    assert!(said.contains("has no tokens"), "{said}");
    assert_ne!(run(&works).0, 0);
    server.end();
}
