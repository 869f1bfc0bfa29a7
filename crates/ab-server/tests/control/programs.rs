//! Approvals that programs outside the server ask for.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::fake::{JSON, SHOWN, Script, Served, serve};
use crate::caller::{Got, head, send};

fn question() -> Value {
    json!({
        "requester": "agent:chat-1",
        "title": "Deploy the site",
        "action": "execute",
        "detail": "deploy {\"to\":\"production\"}",
        "digest": "a".repeat(64),
        "expiresIn": 600,
    })
}

async fn request(served: &Served, body: &Value) -> Got {
    served.ask("POST", "/v1/approvals", &body.to_string()).await
}

async fn decide(served: &Served, path: &str, decision: &str) {
    let body = json!({ "decision": decision, "reason": "looked at it" }).to_string();
    let got = served.ask("POST", path, &body).await;
    assert_eq!(got.status, 200, "{got:?}");
}

async fn use_it(served: &Served, path: &str, digest: &str) -> Got {
    served.ask("POST", &format!("{path}/use"), &json!({ "digest": digest }).to_string()).await
}

#[tokio::test]
async fn a_program_asks_waits_and_uses_the_answer_once() {
    let served = serve(Script::Silence).await;
    let digest = "a".repeat(64);
    let made = request(&served, &question()).await;
    assert_eq!(made.status, 201, "{made:?}");
    let path = made.header("location").unwrap().to_owned();
    let asked = made.json();
    assert_eq!(path, format!("/v1/approvals/{}", asked["id"].as_str().unwrap()));
    assert_eq!((&asked["status"], &asked["describedBy"]), (&json!("pending"), &json!("program")));
    assert_eq!(asked["detail"], "deploy {\"to\":\"production\"}");
    let requester = json!({ "principal": "api-key:admin", "name": "agent:chat-1" });
    assert_eq!(asked["requester"], requester);
    // Asked again, it is the same one.
    let again = request(&served, &question()).await;
    assert_eq!((again.status, &again.json()["id"]), (200, &asked["id"]));
    assert_eq!(served.json("/v1/approvals?status=pending").await["total"], 1);
    // Not yet.
    assert_eq!(use_it(&served, &path, &digest).await.status, 409);
    // A caller that waits has the answer when it is decided.
    let wait = format!("{path}?wait=60");
    let (waited, ()) = tokio::join!(served.json(&wait), decide(&served, &path, "approve"));
    assert_eq!(
        (&waited["status"], &waited["reason"]),
        (&json!("approved"), &json!("looked at it"))
    );
    assert_eq!(waited["usedAt"], Value::Null);
    let other = use_it(&served, &path, &"b".repeat(64)).await;
    assert_eq!((other.status, &other.json()["error"]["code"]), (409, &json!("GRANT_REFUSED")));
    let used = use_it(&served, &path, &digest).await;
    assert_eq!((used.status, &used.json()["status"]), (200, &json!("approved")), "{used:?}");
    assert!(used.json()["usedAt"].is_string());
    assert_eq!(use_it(&served, &path, &digest).await.status, 409);
    // The next question with the same digest is a new one.
    let next = request(&served, &question()).await;
    assert_eq!(next.status, 201);
    assert_ne!(next.json()["id"], asked["id"]);
}

#[tokio::test]
async fn a_no_is_an_answer_too() {
    let served = serve(Script::Silence).await;
    let path = request(&served, &question()).await.header("location").unwrap().to_owned();
    decide(&served, &path, "deny").await;
    let used = use_it(&served, &path, &"a".repeat(64)).await;
    assert_eq!((used.status, &used.json()["status"]), (200, &json!("denied")));
    assert_eq!(request(&served, &question()).await.status, 201);
}

#[tokio::test]
async fn the_answer_is_of_the_caller_that_asked() {
    let served = serve(Script::Silence).await;
    let (mine, other) = (served.key("mine").await, served.key("other").await);
    let ask = async |key: &str, path: &str, body: String| {
        let shown = format!("Bearer {key}");
        let headers = [("authorization", shown.as_str()), JSON];
        send(served.address(), &head("POST", path, &headers), &body).await
    };
    let made = ask(&mine, "/v1/approvals", question().to_string()).await;
    assert_eq!(made.status, 201, "{made:?}");
    let path = made.header("location").unwrap().to_owned();
    // The same name and digest of another caller is another question.
    let foreign = ask(&other, "/v1/approvals", question().to_string()).await;
    assert_eq!(foreign.status, 201, "{foreign:?}");
    decide(&served, &path, "approve").await;
    let body = json!({ "digest": "a".repeat(64) }).to_string();
    let using = format!("{path}/use");
    assert_eq!(ask(&other, &using, body.clone()).await.status, 409);
    assert_eq!(use_it(&served, &path, &"a".repeat(64)).await.status, 409);
    assert_eq!(ask(&mine, &using, body).await.status, 200);
}

#[tokio::test]
async fn agents_and_strangers_ask_for_nothing_here() {
    let served = serve(Script::Ask).await;
    let session = served.create().await;
    let agent = served.agent_token().await;
    let body = question().to_string();
    for (authorization, expect) in
        [(format!("Bearer {agent}"), 403), ("Bearer wrong".to_owned(), 401), (String::new(), 401)]
    {
        let mut headers = vec![JSON];
        headers.extend(
            (!authorization.is_empty()).then_some(("authorization", authorization.as_str())),
        );
        for path in ["/v1/approvals", "/v1/approvals/01HVZ6K9T1N8S6M3V3Q3F0X5B7/use"] {
            let got = send(served.address(), &head("POST", path, &headers), &body).await;
            assert_eq!(got.status, expect, "{path} {authorization}: {got:?}");
        }
    }
    // The approvals of sessions are used by their sessions only.
    let pending = loop {
        let page = served.json("/v1/approvals?status=pending").await;
        if page["total"] == 1 {
            break page["items"][0].clone();
        }
        tokio::task::yield_now().await;
    };
    assert!(session.ends_with(pending["sessionId"].as_str().unwrap()));
    let path = format!("/v1/approvals/{}", pending["id"].as_str().unwrap());
    let got = use_it(&served, &path, &"a".repeat(64)).await;
    assert_eq!(got.status, 409, "{got:?}");
}

#[tokio::test]
async fn questions_that_do_not_fit_are_refused_by_field() {
    let served = serve(Script::Silence).await;
    for (field, value) in [
        ("title", json!("")),
        ("detail", Value::Null),
        ("digest", json!("xyz")),
        ("expiresIn", json!(-1)),
        ("sessionId", json!("01HVZ6K9T1N8S6M3V3Q3F0X5B7")),
    ] {
        let mut body = question();
        body[field] = value;
        let got = request(&served, &body).await;
        assert_eq!(got.status, 400, "{field}: {got:?}");
        assert!(got.body.contains(field), "{field}: {got:?}");
    }
    let text =
        served.ask_with("POST", "/v1/approvals", &[("content-type", "text/plain")], "{}").await;
    assert_eq!(text.status, 415, "{text:?}");
    assert_eq!(request(&served, &question()).await.status, 201);
    // A person sees the text: another one needs another digest.
    let mut other = question();
    other["detail"] = json!("deploy {\"to\":\"the moon\"}");
    let got = request(&served, &other).await;
    assert_eq!(
        (got.status, &got.json()["error"]["code"]),
        (409, &json!("DIGEST_REUSED")),
        "{got:?}"
    );
    let id = "01HVZ6K9T1N8S6M3V3Q3F0X5B7";
    assert_eq!(use_it(&served, &format!("/v1/approvals/{id}"), &"a".repeat(64)).await.status, 404);
    for (path, status) in [
        (format!("/v1/approvals/{id}?wait=1"), 404),
        (format!("/v1/approvals/{id}?wait=61"), 400),
        (format!("/v1/approvals/{id}?wait=x"), 400),
    ] {
        assert_eq!(served.ask("GET", &path, "").await.status, status, "{path}");
    }
}

#[tokio::test]
async fn a_question_whose_program_is_gone_expires() {
    let served = serve(Script::Silence).await;
    let mut body = question();
    body["expiresIn"] = json!(1);
    let path = request(&served, &body).await.header("location").unwrap().to_owned();
    let expired = served.json(&format!("{path}?wait=60")).await;
    assert_eq!(expired["status"], "expired", "{expired}");
    assert_eq!(expired["decidedBy"]["kind"], "timeout", "{expired}");
    // Asked again, it is a new question.
    assert_eq!(request(&served, &body).await.status, 201);
}

#[tokio::test]
async fn a_wait_ends_when_the_port_closes() {
    let served = serve(Script::Silence).await;
    let path = request(&served, &question()).await.header("location").unwrap().to_owned();
    let mut waiting = TcpStream::connect(served.address()).await.unwrap();
    let wait = head("GET", &format!("{path}?wait=60"), &[SHOWN]);
    waiting.write_all(format!("{wait}\r\n\r\n").as_bytes()).await.unwrap();
    served.json(&path).await;
    let start = Instant::now();
    served.port.shutdown().await;
    let mut rest = Vec::new();
    let _ = waiting.read_to_end(&mut rest).await;
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}
