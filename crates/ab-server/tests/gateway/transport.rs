//! `/v1/acp`: seed 3's required tests, and every row of its error table.

use std::time::{Duration, Instant};

use ab_server::{AccessToken, HttpAccessPolicy};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::fixture::Fixture;
use crate::caller::{get, head, send};

fn notification(method: &str) -> Value {
    json!({ "jsonrpc": "2.0", "method": method })
}

#[tokio::test]
async fn messages_pass_in_both_directions_and_are_replayed() {
    let fixture = Fixture::start().await;
    let first = fixture.request("a?agent=echo", json!(1), "ping").await;
    assert_eq!(first["result"]["echo"]["method"], "ping");
    let got = fixture.post("a", &notification("note")).await;
    assert_eq!((got.status, got.body.as_str()), (202, ""));
    let got = fixture.post("a", &json!({ "jsonrpc": "2.0", "id": 9, "result": {} })).await;
    assert_eq!((got.status, got.body.as_str()), (202, ""));

    let mut events = fixture.events("a", None).await;
    let seen = events.take(4).await;
    let ids: Vec<_> = seen.iter().map(|event| event.id.unwrap()).collect();
    assert_eq!(ids, [1, 2, 3, 4]);
    assert!(seen.iter().all(|event| event.name == "message"));
    assert_eq!(seen[0].data["params"]["method"], "ping");
    assert_eq!(seen[1].data, first, "responses are events too");
    assert_eq!(seen[2].data["params"]["method"], "note");
    assert_eq!(seen[3].data["params"]["id"], 9);

    // A reader that comes back goes on after the last event that it has.
    drop(events);
    fixture.post("a", &notification("later")).await;
    let mut events = fixture.events("a", Some("3")).await;
    let ids: Vec<_> = events.take(2).await.iter().map(|event| event.id.unwrap()).collect();
    assert_eq!(ids, [4, 5]);
    // A cursor from an earlier run of the server knows no event of this one.
    let mut ahead = fixture.events("a", Some("400")).await;
    let ids: Vec<_> = ahead.take(5).await.iter().map(|event| event.id.unwrap()).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5]);
    let got = get(fixture.address(), "/v1/acp/a", &[("last-event-id", "x")]).await;
    assert_eq!(got.status, 400);
}

#[tokio::test]
async fn servers_with_the_same_agent_are_isolated() {
    let fixture = Fixture::start().await;
    let one = fixture.request("server-a?agent=echo", json!(1), "pid").await;
    let other = fixture.request("server-b?agent=echo", json!(1), "pid").await;
    assert_ne!(one["result"], other["result"], "one process each");
    // The same id may wait in both.
    let hang = json!({ "id": 5, "method": "hang" });
    let waiting = fixture.post("server-a", &hang);
    tokio::pin!(waiting);
    let mut events = fixture.events("server-a", None).await;
    tokio::select! {
        _ = &mut waiting => panic!("it hangs"),
        events = events.take(2) => assert_eq!(events[1].data["method"], "hanging"),
    }
    assert_eq!(fixture.request("server-b", json!(5), "ping").await["id"], 5);
    let replayed = fixture.events("server-b", None).await.take(3).await;
    assert!(replayed.iter().all(|event| event.data["method"] != "hanging"), "{replayed:?}");
    assert_eq!(fixture.delete("server-a").await, 204);
    assert_eq!(waiting.await.status, 502);
    assert_eq!(fixture.servers().await, [("server-b".to_owned(), "running".to_owned())]);
}

#[tokio::test]
async fn first_message_starts_the_agent() {
    let fixture = Fixture::start().await;
    assert_eq!(fixture.servers().await, []);
    assert_eq!(get(fixture.address(), "/v1/acp/a", &[]).await.status, 404);
    let got = fixture.post("a", &json!({ "id": 1, "method": "ping" })).await;
    assert_eq!(
        (got.status, got.json()["type"].as_str()),
        (400, Some("urn:sandbox-agent:error:invalid_request"))
    );
    assert!(got.json()["detail"].as_str().unwrap().contains("agent"), "{got:?}");
    assert_eq!(fixture.servers().await, []);
    // Requests at the same time share the process that the first of them started.
    let (one, other) = tokio::join!(
        fixture.request("a?agent=echo", json!(1), "pid"),
        fixture.request("a?agent=echo", json!(2), "pid"),
    );
    assert_eq!(one["result"], other["result"]);
    assert_eq!(fixture.servers().await, [("a".to_owned(), "running".to_owned())]);
    let listed = fixture.ask("GET", "/v1/acp", "").await.json();
    assert_eq!(listed["servers"][0]["agent"], "echo");
    assert!(listed["servers"][0]["createdAtMs"].is_u64());
}

#[tokio::test]
async fn delete_is_idempotent_and_leaves_no_process() {
    let fixture = Fixture::start().await;
    let pid = fixture.request("a?agent=echo", json!(1), "pid").await["result"].to_string();
    let mut events = fixture.events("a", None).await;
    events.take(1).await;
    let began = Instant::now();
    assert_eq!(fixture.delete("a").await, 204);
    assert!(began.elapsed() < Duration::from_secs(2));
    assert_eq!(events.next().await, None, "streams of a deleted server end");
    assert!(!std::path::Path::new("/proc").join(pid).exists());
    assert_eq!(fixture.servers().await, []);
    assert_eq!(fixture.delete("a").await, 204);
    assert_eq!(get(fixture.address(), "/v1/acp/a", &[]).await.status, 404);
    // The id can be used again, and its events begin anew.
    fixture.request("a?agent=echo", json!(1), "ping").await;
    assert_eq!(fixture.events("a", None).await.take(1).await[0].id, Some(1));
}

#[tokio::test]
async fn sandboxagent_methods_are_not_special() {
    let fixture = Fixture::start().await;
    let message = json!({
        "jsonrpc": "2.0", "id": 1, "method": "_sandboxagent/session/list",
        "params": { "_meta": { "sandboxagent.dev": { "x": 1 } } },
    });
    let got = fixture.post("a?agent=echo", &message).await;
    assert_eq!((got.status, &got.json()["result"]["echo"]), (200, &message));
    let seen = fixture.events("a", None).await.take(2).await;
    assert!(seen.iter().all(|event| event.data["method"] != "_sandboxagent/session/list"));
    for path in ["/v1/rpc", "/opencode/session", "/opencode"] {
        for method in ["GET", "POST", "DELETE"] {
            let got = send(fixture.address(), &head(method, path, &[]), "").await;
            assert_eq!(got.status, 404, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn bytes_are_forwarded_as_they_are() {
    let fixture = Fixture::start().await;
    let body = r#"{"z":123456789012345678901,  "jsonrpc":"2.0","id":1,"a":1e2,"method":"ping","u":"\u00e9é"}"#;
    let got = fixture.post_text("a?agent=echo", body).await;
    assert_eq!(got.body, format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"echo":{body}}}}}"#));
    // Line breaks are space between tokens, and a message is one line.
    let got = fixture.post_text("a", "{\"id\":2,\r\n\"method\":\"ping\"}").await;
    assert!(got.body.contains(r#"{"id":2,  "method":"ping"}"#), "{got:?}");
}

#[tokio::test]
async fn requests_that_make_no_sense_start_nothing() {
    let fixture = Fixture::start().await;
    let ask = async |path: &str, headers: &[(&str, &str)], body: &str| {
        let got = send(fixture.address(), &head("POST", path, headers), body).await;
        assert_eq!(got.header("content-type"), Some("application/problem+json"), "{got:?}");
        let problem = got.json();
        assert_eq!(problem["status"], got.status);
        (got.status, problem["type"].as_str().unwrap_or_default().to_owned(), problem)
    };
    let json = ("content-type", "application/json; charset=utf-8");
    let request = r#"{"id":1,"method":"ping"}"#;
    let (new, unknown) = ("/v1/acp/new?agent=echo", "/v1/acp/new?agent=no-such");
    let long = format!("/v1/acp/{}?agent=echo", "x".repeat(300));
    for (path, headers, body, status, code) in [
        (new, &[json][..], "{", 400, "invalid_request"),
        (new, &[json], "[]", 400, "invalid_request"),
        (new, &[json], "7", 400, "invalid_request"),
        (new, &[json], "{}", 400, "invalid_request"),
        (new, &[json], "", 400, "invalid_request"),
        (new, &[json], r#"{"id":1,"id":2,"method":"x"}"#, 400, "invalid_request"),
        (new, &[], request, 415, "unsupported_media_type"),
        (new, &[("content-type", "text/plain")], request, 415, "unsupported_media_type"),
        (new, &[json, ("accept", "text/html")], request, 406, "not_acceptable"),
        (unknown, &[json], request, 400, "unsupported_agent"),
        (long.as_str(), &[json], request, 400, "invalid_request"),
    ] {
        let (got, kind, problem) = ask(path, headers, body).await;
        assert_eq!(
            (got, kind),
            (status, format!("urn:sandbox-agent:error:{code}")),
            "{body} {problem}"
        );
        assert_eq!(fixture.servers().await, [], "{body}");
    }
    let (.., problem) = ask(unknown, &[json], request).await;
    assert_eq!(
        (&problem["agent"], &problem["title"]),
        (&"no-such".into(), &"Unsupported Agent".into())
    );
    let missing = get(fixture.address(), "/v1/acp/nobody", &[]).await.json();
    assert_eq!(missing["type"], "urn:sandbox-agent:error:session_not_found");
    assert_eq!(
        (&missing["sessionId"], &missing["title"]),
        (&"nobody".into(), &"Session Not Found".into())
    );
    fixture.request("old?agent=echo", json!(1), "ping").await;
    let (status, kind, _) = ask("/v1/acp/old?agent=scripted", &[json], request).await;
    assert_eq!((status, kind.as_str()), (409, "urn:sandbox-agent:error:conflict"));
}

#[tokio::test]
async fn an_id_in_flight_is_refused_and_not_forwarded() {
    let fixture = Fixture::start().await;
    fixture.request("a?agent=echo", json!(0), "ping").await;
    let hang = json!({ "id": 1, "method": "hang" });
    let waiting = fixture.post("a", &hang);
    tokio::pin!(waiting);
    let mut events = fixture.events("a", Some("2")).await;
    tokio::select! {
        got = &mut waiting => panic!("{got:?}"),
        event = events.next() => assert_eq!(event.unwrap().data["method"], "hanging"),
    }
    let again = fixture.post("a", &json!({ "id": 1.0, "method": "ping" })).await;
    assert_eq!(
        (again.status, again.json()["type"].as_str()),
        (409, Some("urn:sandbox-agent:error:conflict"))
    );
    assert_eq!(fixture.request("a", json!("1"), "ping").await["id"], "1");
    assert_eq!(events.next().await.unwrap().data["params"]["id"], "1");
    fixture.delete("a").await;
    assert_eq!(waiting.await.status, 502);
}

#[tokio::test]
async fn the_token_protects_everything_below_v1() {
    let gate =
        HttpAccessPolicy { token: Some(AccessToken::new("right")), ..HttpAccessPolicy::default() };
    let fixture = Fixture::with(gate, |_| {}).await;
    let root = get(fixture.address(), "/", &[]).await;
    assert_eq!((root.status, root.json()["name"].is_string()), (200, true));
    for path in ["/v1/health", "/v1/acp", "/v1/agents", "/v1/fs/entries", "/v1/no-such", "/v1/rpc"]
    {
        let got = get(fixture.address(), path, &[]).await;
        assert_eq!(got.status, 401, "{path}");
        assert_eq!(got.json()["type"], "urn:sandbox-agent:error:token_invalid", "{path}");
        assert_eq!(got.json()["title"], "Token Invalid");
        let right = [("authorization", "Bearer right")];
        let got = get(fixture.address(), path, &right).await;
        let expect = if ["/v1/no-such", "/v1/rpc"].contains(&path) { 404 } else { 200 };
        assert_eq!(got.status, expect, "{path}");
    }
    let right = [("authorization", "Bearer right")];
    assert_eq!(
        get(fixture.address(), "/v1/health", &right).await.json(),
        json!({ "status": "ok" })
    );
}

#[tokio::test]
async fn agents_are_listed_with_their_state() {
    let fixture = Fixture::with(HttpAccessPolicy::default(), |settings| {
        let mut gone = settings.agents.catalog.find("echo").unwrap().clone();
        gone.id = "gone".to_owned();
        gone.argv = vec!["/no/such/program".to_owned()];
        gone.credentials = vec!["NO_SUCH_KEY".to_owned()];
        settings.agents.catalog.add_or_change(gone).unwrap();
    })
    .await;
    fixture.request("a?agent=echo", json!(1), "ping").await;
    let listed = fixture.ask("GET", "/v1/agents", "").await.json();
    let agent = |id: &str| {
        let agents = listed["agents"].as_array().unwrap();
        agents.iter().find(|agent| agent["id"] == id).unwrap().clone()
    };
    assert_eq!(
        (&agent("echo")["installed"], &agent("gone")["installed"]),
        (&true.into(), &false.into())
    );
    assert_eq!(agent("gone")["credentialsAvailable"], false);
    assert_eq!(agent("echo")["serverStatus"]["status"], "running");
    assert_eq!(agent("echo")["capabilities"].as_object().unwrap().len(), 18);
    // What prompts may hold depends on the agent.
    for (id, is_taken) in [("scripted", false), ("claude", true)] {
        let capabilities = &agent(id)["capabilities"];
        let taken = (&capabilities["images"], &capabilities["fileAttachments"]);
        assert_eq!(taken, (&is_taken.into(), &is_taken.into()), "{id}");
        assert_eq!(capabilities["textMessages"], true, "{id}");
    }
    assert_eq!(agent("scripted")["aliases"], json!(["mock"]));
    assert_eq!(fixture.ask("GET", "/v1/agents/echo", "").await.json()["id"], "echo");
    assert_eq!(fixture.ask("GET", "/v1/agents/none", "").await.status, 400);
    let installed = fixture.ask("POST", "/v1/agents/echo/install", "{}").await;
    assert_eq!((installed.status, &installed.json()["already_installed"]), (200, &true.into()));
    let failed = fixture.ask("POST", "/v1/agents/gone/install", "{}").await;
    assert_eq!(
        (failed.status, failed.json()["type"].as_str()),
        (500, Some("urn:sandbox-agent:error:install_failed"))
    );
    let refused = fixture.post("b?agent=gone", &json!({ "id": 1, "method": "ping" })).await;
    assert_eq!(
        (refused.status, refused.json()["type"].as_str()),
        (404, Some("urn:sandbox-agent:error:agent_not_installed"))
    );
    assert_eq!(fixture.servers().await.len(), 1);
}

#[tokio::test]
async fn clients_of_sandbox_agent_find_the_id_mock() {
    let launchers = tempfile::tempdir().unwrap();
    let fixture = Fixture::with(HttpAccessPolicy::default(), |settings| {
        settings.agents.launchers_dir = Some(launchers.path().to_owned());
    })
    .await;
    let listed = fixture.ask("GET", "/v1/agents", "").await.json();
    let agents = listed["agents"].as_array().unwrap();
    let count = |id: &str| agents.iter().filter(|agent| agent["id"] == id).count();
    assert_eq!((count("mock"), count("scripted")), (1, 1), "{listed}");
    assert!(!listed.to_string().contains(r#""aliases":["mock"]"#), "{listed}");
    assert_eq!(fixture.ask("GET", "/v1/agents/mock", "").await.json()["id"], "mock");
}

#[tokio::test]
async fn closing_the_port_ends_every_agent() {
    let fixture = Fixture::start().await;
    let pid = fixture.request("a?agent=echo", json!(1), "pid").await["result"].to_string();
    let Fixture { port, .. } = fixture;
    timeout(Duration::from_secs(5), port.shutdown()).await.unwrap();
    assert!(!std::path::Path::new("/proc").join(pid).exists());
}
