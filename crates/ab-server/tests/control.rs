//! The control plane over a real port: tasks, sessions, events, approvals.

mod catalogues;
mod fake;
mod identity;
mod opening;
mod operation;
mod programs;
mod rate;
mod readers;
mod uploads;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::caller::{get, head, send};
use fake::{JSON, SHOWN, TASK};
pub(crate) use fake::{Script, Served, serve};

#[tokio::test]
async fn a_task_becomes_a_session_with_its_story() {
    let served = serve(Script::Work).await;
    let got = served.ask("POST", "/api/v1/tasks", TASK).await;
    assert_eq!(got.status, 201, "{got:?}");
    assert_eq!(got.header("content-type"), Some("application/json; charset=utf-8"));
    let created = got.json();
    let session = created["links"]["self"].as_str().unwrap();
    assert_eq!(got.header("location"), Some(session));
    assert_eq!(
        (&created["status"], &created["session_ids"][0]),
        (&json!("queued"), &created["id"])
    );
    let events = served.events(session, &[]).await;
    assert_eq!(events.header("content-type"), Some("text/event-stream"));
    assert!(events.body.contains("\"completed\""), "{events:?}");
    let shown = served.json(session).await;
    assert_eq!((&shown["status"], &shown["prompt"]), (&json!("completed"), &json!("fix it")));
    let info = served.json(&format!("{session}/info")).await;
    assert_eq!((&info["fleet"]["leader"], &info["status"]), (&json!("fake"), &json!("completed")));
    let logs = served.json(&format!("{session}/logs?tail=1000")).await;
    let lines = logs["items"].as_array().unwrap();
    assert!(lines.iter().any(|line| line["message"] == "looking around"), "{logs}");
    let diff = served.ask("GET", &format!("{session}/diff"), "").await;
    assert_eq!((diff.status, diff.header("x-content-type-options")), (200, Some("nosniff")));
    assert!(diff.body.contains("a diff"), "{diff:?}");
}

#[tokio::test]
async fn diff_is_answered_although_the_session_ends_meanwhile() {
    let served = serve(Script::DiffEndsWithSession).await;
    let session = served.create().await;
    let path = format!("{session}/diff");
    // The session has no workspace at first.
    while served.json(&session).await["workspace"]["mountPath"].is_null() {}
    let ending = async {
        served.diff_begun().await;
        assert_eq!(served.ask("DELETE", &session, "").await.status, 202);
    };
    let (diff, ()) = tokio::join!(served.ask("GET", &path, ""), ending);
    assert_eq!((diff.status, diff.body.as_str()), (200, "a diff"), "{diff:?}");
}

#[tokio::test]
async fn tasks_that_do_not_fit_are_problems() {
    let served = serve(Script::Silence).await;
    let local = TASK.replace("https://h/x", "/srv/repository");
    let container =
        TASK.replace("\"prompt\"", "\"runtime\":{\"type\":\"devcontainer\"},\"prompt\"");
    for (headers, body, status, field) in [
        (vec![JSON], "{", 400, None),
        (vec![JSON], "{}", 400, Some("prompt")),
        (vec![JSON], container.as_str(), 422, Some("runtime.type")),
        (vec![("content-type", "text/plain")], TASK, 415, None),
        (vec![JSON, ("idempotency-key", "")], TASK, 400, None),
        // A proxy speaks for a caller on another machine.
        (vec![JSON, ("x-forwarded-for", "192.0.2.1")], local.as_str(), 422, Some("repo.url")),
    ] {
        let got = served.ask_with("POST", "/api/v1/tasks", &headers, body).await;
        assert_eq!(got.status, status, "{body}: {got:?}");
        assert_eq!(got.header("content-type"), Some("application/problem+json"), "{body}");
        if let Some(field) = field {
            assert!(got.json()["errors"][field].is_array(), "{body}: {got:?}");
        }
    }
    assert_eq!(served.ask("POST", "/api/v1/tasks", &local).await.status, 201);
}

#[tokio::test]
async fn a_repeated_request_makes_no_second_session() {
    let served = serve(Script::Silence).await;
    let key = [JSON, ("idempotency-key", "k1")];
    let first = served.ask_with("POST", "/api/v1/tasks", &key, TASK).await.json();
    let again = served.ask_with("POST", "/api/v1/tasks", &key, TASK).await.json();
    assert_eq!(first, again);
    let other = TASK.replace("fix it", "something else");
    let got = served.ask_with("POST", "/api/v1/tasks", &key, &other).await;
    assert_eq!(got.status, 422, "{got:?}");
    assert_eq!(got.json()["type"], "urn:agent-backend:error:idempotency_key_reused");
    assert_eq!(served.json("/api/v1/sessions").await["total"], 1);
}

#[tokio::test]
async fn sessions_are_listed_by_filter_and_page() {
    let served = serve(Script::Silence).await;
    for _ in 0..3 {
        served.create().await;
    }
    let page = served.json("/api/v1/sessions?perPage=2").await;
    assert_eq!((page["items"].as_array().unwrap().len(), &page["nextPage"]), (2, &json!(2)));
    let last = served.json("/api/v1/sessions?perPage=2&page=2").await;
    assert_eq!((last["items"].as_array().unwrap().len(), &last["nextPage"]), (1, &json!(null)));
    assert_eq!(served.json("/api/v1/sessions?status=failed,stopped").await["total"], 0);
    assert_eq!(served.json("/api/v1/sessions?agent=a").await["total"], 3);
    for query in ["status=asleep", "page=0", "perPage=201", "label=x", "page=x"] {
        let got = served.ask("GET", &format!("/api/v1/sessions?{query}"), "").await;
        assert_eq!(got.status, 400, "{query}: {got:?}");
    }
}

#[tokio::test]
async fn a_reader_that_comes_back_continues_after_its_last_event() {
    let served = serve(Script::Work).await;
    let session = served.create().await;
    let all = served.events(&session, &[]).await.body;
    let ids: Vec<u64> = all
        .lines()
        .filter_map(|line| line.strip_prefix("id: "))
        .map(|id| id.parse().unwrap())
        .collect();
    let last = *ids.last().unwrap();
    assert_eq!(ids, (1..=last).collect::<Vec<_>>(), "{all}");
    let rest = served.events(&session, &[("last-event-id", "3")]).await.body;
    assert!(!rest.contains("id: 3\n") && rest.contains("id: 4\n"), "{rest}");
    // The header counts before the query of the first request.
    let path = format!("{session}/events?after=1");
    let got = served.ask_with("GET", &path, &[("last-event-id", "3")], "").await;
    assert!(!got.body.contains("id: 2\n") && got.body.contains("id: 4\n"), "{got:?}");
    let end = last.to_string();
    assert_eq!(served.events(&session, &[("last-event-id", &end)]).await.status, 204);
    assert_eq!(served.events(&session, &[("last-event-id", "x")]).await.status, 400);
    let history = served.events(&session, &[("accept", "application/json")]).await.json();
    assert_eq!(history["items"].as_array().unwrap().len() as u64, last);
    assert_eq!((&history["lastEventId"], &history["hasMore"]), (&json!(last), &json!(false)));
    let path = format!("{session}/events?after=1&limit=2");
    let part = served.ask_with("GET", &path, &[("accept", "application/json")], "").await.json();
    assert_eq!((&part["lastEventId"], &part["hasMore"]), (&json!(3), &json!(true)));
}

/// The ids of the first `count` events of all sessions, after the last event that a reader got.
async fn positions(address: std::net::SocketAddr, last: &str, count: usize) -> Vec<u64> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = head("GET", "/api/v1/events", &[SHOWN, ("last-event-id", last)]);
    stream.write_all(format!("{head}\r\n\r\n").as_bytes()).await.unwrap();
    let (mut read, mut ids) = (Vec::new(), Vec::new());
    while ids.len() < count {
        let got = stream.read_buf(&mut read).await.unwrap();
        assert!(got > 0, "it ended after {ids:?}");
        let text = String::from_utf8_lossy(&read);
        let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
        let found = whole.lines().filter_map(|line| line.strip_prefix("id: "));
        ids = found.map(|id| id.parse().unwrap()).collect();
    }
    ids
}

#[tokio::test]
async fn a_reader_of_all_sessions_continues_after_its_last_event() {
    let served = serve(Script::Work).await;
    let mut count = 0;
    for _ in 0..2 {
        let session = served.create().await;
        let events = served.events(&session, &[]).await.body;
        count += events.lines().filter(|line| line.starts_with("id: ")).count();
    }
    let all = positions(served.address(), "0", count).await;
    assert_eq!(all.len(), count, "{all:?}");
    assert!(all.is_sorted_by(|one, next| one < next), "{all:?}");
    // From the first session into the second one.
    let rest = positions(served.address(), &all[2].to_string(), count - 3).await;
    assert_eq!(rest, all[3..]);
}

#[tokio::test]
async fn a_cursor_of_another_log_starts_with_the_first_event() {
    let served = serve(Script::Silence).await;
    let session = served.create().await;
    let address = served.address();
    let mut readers = Vec::new();
    for cursor in ["100000".to_owned(), u64::MAX.to_string()] {
        let path = format!("{session}/events?after={cursor}");
        readers.push(follow(address, &path, "\"hm\"").await);
        follow(address, &format!("/api/v1/events?after={cursor}"), "\"hm\"").await;
    }
    assert_eq!(served.ask("DELETE", &session, "").await.status, 202);
    for mut reader in readers {
        // The stream ends with the session: after its last event comes the last chunk of the response.
        let mut rest = Vec::new();
        while !rest.ends_with(b"0\r\n\r\n") {
            assert!(reader.read_buf(&mut rest).await.unwrap() > 0);
        }
        let rest = String::from_utf8(rest).unwrap();
        assert!(rest.contains("\"cancelled\""), "{rest}");
    }
    for cursor in ["100000".to_owned(), u64::MAX.to_string()] {
        let all = served.events(&session, &[("last-event-id", &cursor)]).await;
        assert_eq!(all.status, 200, "{all:?}");
        assert!(all.body.contains("id: 1\n") && all.body.contains("\"cancelled\""), "{all:?}");
        let path = format!("{session}/events?after={cursor}");
        let history = served.ask_with("GET", &path, &[("accept", "application/json")], "").await;
        let items = history.json()["items"].as_array().unwrap().len() as u64;
        assert!(items > 2, "{history:?}");
        assert_eq!(history.json()["lastEventId"], items);
    }
}

/// Opens a stream and reads it up to a text.
async fn follow(address: std::net::SocketAddr, path: &str, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{}\r\n\r\n", head("GET", path, &[SHOWN]));
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut read = Vec::new();
    while !String::from_utf8_lossy(&read).contains(text) {
        let count = stream.read_buf(&mut read).await.unwrap();
        assert!(count > 0, "{}", String::from_utf8_lossy(&read));
    }
    stream
}

#[tokio::test]
async fn streams_end_when_the_port_closes() {
    let served = serve(Script::Silence).await;
    let session = served.create().await;
    let address = served.address();
    let mut one = follow(address, &format!("{session}/events"), "\"hm\"").await;
    let mut all = follow(address, "/api/v1/events?after=0", "\"sessionId\"").await;
    served.port.shutdown().await;
    let mut rest = Vec::new();
    one.read_to_end(&mut rest).await.unwrap();
    all.read_to_end(&mut rest).await.unwrap();
}

#[tokio::test]
async fn a_question_is_decided_once() {
    let served = serve(Script::Ask).await;
    let session = served.create().await;
    follow(served.address(), &format!("{session}/events"), "approvalRequested").await;
    let pending = served.json("/v1/approvals?status=pending").await;
    assert_eq!((&pending["total"], &pending["items"][0]["title"]), (&json!(1), &json!("Run ls")));
    let path = format!("/v1/approvals/{}", pending["items"][0]["id"].as_str().unwrap());
    let wrong = served.ask("POST", &path, r#"{"decision":"perhaps"}"#).await;
    assert_eq!((wrong.status, &wrong.json()["error"]["code"]), (400, &json!("VALIDATION_ERROR")));
    for unknown in ["limit=1", "Status=denied", "status=pending&spaceId=x"] {
        let answer = served.ask("GET", &format!("/v1/approvals?{unknown}"), "").await;
        assert_eq!(
            (answer.status, &answer.json()["error"]["code"]),
            (400, &json!("VALIDATION_ERROR"))
        );
        assert!(answer.body.contains("is not one of the parameters status,"), "{answer:?}");
    }
    let decided = served.ask("POST", &path, r#"{"decision":"approve"}"#).await;
    assert_eq!((decided.status, &decided.json()["status"]), (200, &json!("approved")));
    assert_eq!(decided.json()["decidedBy"]["kind"], "person");
    let again = served.ask("POST", &path, r#"{"decision":"deny"}"#).await;
    assert_eq!((again.status, &again.json()["error"]["code"]), (409, &json!("APPROVAL_DECIDED")));
    assert!(served.events(&session, &[]).await.body.contains("\"completed\""));
    assert_eq!(served.json("/v1/approvals?status=pending").await["total"], 0);
}

#[tokio::test]
async fn sessions_end_by_stop_and_delete_also_twice() {
    let served = serve(Script::Ask).await;
    for (method, suffix, end) in [("POST", "/stop", "stopped"), ("DELETE", "", "cancelled")] {
        let session = served.create().await;
        follow(served.address(), &format!("{session}/events"), "approvalRequested").await;
        for _ in 0..2 {
            let got = served.ask(method, &format!("{session}{suffix}"), "").await;
            assert_eq!(got.status, 202, "{got:?}");
        }
        served.events(&session, &[]).await;
        assert_eq!(served.json(&session).await["status"], end);
    }
}

#[tokio::test]
async fn what_the_server_offers_is_listed() {
    let served = serve(Script::Silence).await;
    assert_eq!(served.json("/api/v1/agents").await["items"][0]["type"], "a");
    assert_eq!(served.json("/api/v1/runtimes").await["items"][0]["type"], "local");
    let executors = served.json("/api/v1/executors").await;
    assert_eq!(executors["items"][0]["snapshotCapabilities"], json!(["copy"]));
}

#[tokio::test]
async fn unknown_sessions_are_not_found() {
    let served = serve(Script::Silence).await;
    let unknown = "/api/v1/sessions/01HVZ6K9T1N8S6M3V3Q3F0X5B7";
    for (method, suffix) in [
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/info"),
        ("GET", "/logs"),
        ("GET", "/diff"),
        ("GET", "/events"),
        ("POST", "/stop"),
    ] {
        let got = served.ask(method, &format!("{unknown}{suffix}"), "").await;
        assert_eq!(got.status, 404, "{method} {suffix}: {got:?}");
        assert_eq!(got.json()["type"], "urn:agent-backend:error:session_not_found");
    }
    assert_eq!(served.ask("GET", "/api/v1/sessions/x", "").await.status, 400);
}

/// The session's token opens no route of the admin, and nothing at all once the session has ended.
#[tokio::test]
async fn an_agents_token_opens_no_route_of_the_admin() {
    let served = serve(Script::Silence).await;
    let session = served.create().await;
    let token = format!("Bearer {}", served.agent_token().await);
    let shown = [("authorization", token.as_str())];
    let described = serde_json::to_value(ab_server::openapi_description()).unwrap();
    for (path, methods) in described["paths"].as_object().unwrap() {
        for (method, about) in methods.as_object().unwrap() {
            if about["security"] == json!([{}]) {
                continue;
            }
            let head = head(&method.to_uppercase(), path, &shown);
            let got = send(served.address(), &head, "").await;
            assert_eq!(got.status, 403, "{method} {path}: {got:?}");
        }
    }
    served.ask("DELETE", &session, "").await;
    served.events(&session, &[]).await;
    while get(served.address(), &session, &shown).await.status != 401 {
        tokio::task::yield_now().await;
    }
}

const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

#[tokio::test]
async fn the_page_takes_a_task_and_shows_it_as_text() {
    let served = serve(Script::Work).await;
    let empty = served.ask("GET", "/ui", "").await;
    assert_eq!(empty.status, 200, "{empty:?}");
    assert!(empty.body.contains("No session yet"), "{empty:?}");
    let policy = empty.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    let wrong = "prompt=&repo=nowhere&agent=scripted";
    let wrong = served.ask_with("POST", "/ui/new", &[FORM], wrong).await;
    assert_eq!(wrong.status, 422, "{wrong:?}");
    assert!(wrong.body.contains("must not be empty"), "{wrong:?}");
    let agent =
        served.json("/api/v1/agents").await["items"][0]["type"].as_str().unwrap().to_owned();
    let task = format!(
        "prompt=%3Cb%3Efix%3C/b%3E%0D%0Anow&repo=https://h/x&agent={agent}&delivery=branch"
    );
    let made = served.ask_with("POST", "/ui/new", &[FORM], &task).await;
    assert_eq!(made.status, 303, "{made:?}");
    let page = made.header("location").unwrap();
    let session = page.replace("/ui/", "/api/v1/");
    served.events(&session, &[]).await;
    assert_eq!(served.json(&session).await["prompt"], "<b>fix</b>\nnow", "without CR");
    let feed = served.ask("GET", "/ui", "").await;
    assert!(feed.body.contains("Ended <span class=\"quiet\">1</span>"), "{feed:?}");
    let shown = served.ask("GET", page, "").await;
    assert!(shown.body.contains("&lt;b&gt;fix&lt;/b&gt;"), "{shown:?}");
    assert!(!shown.body.contains("<b>fix"), "{shown:?}");
    assert!(shown.body.contains("looking around") && shown.body.contains("completed"), "{shown:?}");
    for (path, kind) in [("/ui/page.css", "text/css"), ("/ui/page.js", "text/javascript")] {
        let got = served.ask("GET", path, "").await;
        assert!(got.header("content-type").unwrap().starts_with(kind), "{path}: {got:?}");
    }
    assert_eq!(get(served.address(), "/ui", &[]).await.status, 401);
}
