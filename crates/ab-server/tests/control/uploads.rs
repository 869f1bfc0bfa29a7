//! Uploads over HTTP: signed addresses, offsets, and the tasks that use them.

use std::time::Duration;

use ab_control::ControlPlaneSettings;
use ab_server::HttpServerLimits;
use ab_store::UploadLimits;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::fake::{JSON, Script, Served, TASK, serve, serve_by};
use crate::caller::{Got, head, send};

async fn announce(served: &Served, body: &Value) -> Value {
    let got = served.ask("POST", "/api/v1/uploads", &body.to_string()).await;
    assert_eq!(got.status, 201, "{got:?}");
    let upload = got.json();
    let id = upload["id"].as_str().unwrap();
    assert_eq!(got.header("location"), Some(format!("/api/v1/uploads/{id}").as_str()));
    upload
}

fn file(name: &str, size: usize) -> Value {
    json!({ "kind": "file", "name": name, "size": size })
}

/// A request without a token.
async fn anonymous(
    served: &Served,
    method: &str,
    path: &str,
    offset: Option<&str>,
    body: &str,
) -> Got {
    let offset = offset.map(|offset| ("upload-offset", offset));
    let headers: Vec<_> = offset.into_iter().collect();
    send(served.address(), &head(method, path, &headers), body).await
}

fn problem(got: &Got, status: u16, code: &str) -> Value {
    let body = got.json();
    let kind = body["type"].as_str().unwrap_or_default();
    assert!(got.status == status && kind.ends_with(code), "{status} {code}: {got:?}");
    body
}

#[tokio::test]
async fn signed_address_takes_content_in_pieces_without_a_token() {
    let served = serve(Script::Silence).await;
    let upload = announce(&served, &file("notes.txt", 10)).await;
    assert_eq!((&upload["status"], &upload["offset"]), (&json!("open"), &json!(0)));
    let url = upload["uploadUrl"].as_str().unwrap();
    let id = upload["id"].as_str().unwrap();
    let got = anonymous(&served, "PATCH", url, Some("0"), "0123").await;
    assert_eq!((got.status, got.header("upload-offset")), (200, Some("4")), "{got:?}");
    let got = anonymous(&served, "GET", url, None, "").await;
    assert_eq!((got.status, got.header("upload-offset")), (200, Some("4")), "{got:?}");
    let wrong = anonymous(&served, "PATCH", url, Some("0"), "0123").await;
    let wrong = problem(&wrong, 409, "upload_offset");
    assert_eq!(wrong["offset"], 4);
    assert!(wrong["errors"]["upload-offset"].is_array(), "{wrong}");
    for offset in [None, Some("x"), Some("-1")] {
        let got = anonymous(&served, "PATCH", url, offset, "4").await;
        assert_eq!(got.status, 400, "{got:?}");
        assert!(got.json()["errors"]["upload-offset"].is_array(), "{got:?}");
    }
    let long = anonymous(&served, "PATCH", url, Some("4"), "4567890").await;
    assert!(problem(&long, 413, "upload_too_long")["errors"]["size"].is_array());
    let got = anonymous(&served, "PATCH", url, Some("4"), "456789").await;
    assert_eq!(got.json()["status"], "complete", "{got:?}");
    let shown = served.json(&format!("/api/v1/uploads/{id}")).await;
    assert_eq!((&shown["status"], shown.get("uploadUrl")), (&json!("complete"), None));
    let more = anonymous(&served, "PUT", url, None, "other").await;
    problem(&more, 409, "upload_complete");
    let listed = served.json("/api/v1/uploads").await;
    assert_eq!((&listed["total"], &listed["items"][0]["name"]), (&json!(1), &json!("notes.txt")));
    let path = format!("/api/v1/uploads/{id}");
    assert_eq!(served.ask("DELETE", &path, "").await.status, 204);
    assert_eq!(served.ask("DELETE", &path, "").await.status, 404);
    assert_eq!(anonymous(&served, "GET", url, None, "").await.status, 404);
}

#[tokio::test]
async fn signature_opens_one_upload_until_it_expires() {
    let served = serve(Script::Silence).await;
    let upload = announce(&served, &file("a", 1)).await;
    let other = announce(&served, &file("b", 1)).await;
    let url = upload["uploadUrl"].as_str().unwrap();
    let (id, other) = (upload["id"].as_str().unwrap(), other["id"].as_str().unwrap());
    let (path, query) = url.split_once('?').unwrap();
    let (expires, signature) = query.split_once('&').unwrap();
    for wrong in [
        url.replace(id, other),
        format!("{path}?expires=9999999999&{signature}"),
        format!("{path}?{expires}&signature=00"),
        format!("{path}?{expires}&signature=%C3%A4"),
    ] {
        problem(&anonymous(&served, "PUT", &wrong, None, "x").await, 403, "wrong_signature");
    }
    for bare in [path.to_owned(), format!("{path}?{expires}"), format!("{path}?{signature}")] {
        assert_eq!(anonymous(&served, "PUT", &bare, None, "x").await.status, 401, "{bare}");
    }
    // The address opens nothing else.
    let elsewhere = format!("/api/v1/uploads/{id}?{query}");
    assert_eq!(anonymous(&served, "GET", &elsewhere, None, "").await.status, 401);
    assert_eq!(anonymous(&served, "DELETE", &elsewhere, None, "").await.status, 401);
    // Neither does an agent get in, nor another caller.
    served.create().await;
    let agent = format!("Bearer {}", served.agent_token().await);
    let headers = [("authorization", agent.as_str())];
    let got = send(served.address(), &head("PUT", path, &headers), "x").await;
    assert_eq!(got.status, 403, "{got:?}");
    let key = served.ask("POST", "/api/v1/keys", r#"{"name":"other"}"#).await.json();
    let shown = format!("ApiKey {}", key["secret"].as_str().unwrap());
    let headers = [("authorization", shown.as_str()), JSON];
    for (method, path) in
        [("PUT", path), ("GET", &format!("/api/v1/uploads/{id}")), ("DELETE", &elsewhere)]
    {
        let got = send(served.address(), &head(method, path, &headers), "x").await;
        assert_eq!(got.status, 404, "{method}: {got:?}");
    }
    // The owner needs no signature.
    assert_eq!(served.ask("PUT", path, "x").await.json()["status"], "complete");
}

#[tokio::test]
async fn content_that_does_not_fit_its_announcement_is_dropped() {
    let served = serve(Script::Silence).await;
    let digest = format!("sha256:{}", "0".repeat(64));
    let checked = json!({ "kind": "file", "name": "a", "size": 5, "digest": digest });
    let upload = announce(&served, &checked).await;
    let url = upload["uploadUrl"].as_str().unwrap();
    let got = anonymous(&served, "PUT", url, None, "hello").await;
    let refused = problem(&got, 422, "digest_mismatch");
    let told = refused["errors"]["digest"][0].as_str().unwrap();
    assert!(told.contains("sha256:2cf24dba"), "{told}");
    assert_eq!(anonymous(&served, "GET", url, None, "").await.json()["offset"], 0);
    let archive = json!({ "kind": "tar", "name": "a.tar", "size": 5 });
    let upload = announce(&served, &archive).await;
    let url = upload["uploadUrl"].as_str().unwrap();
    let got = anonymous(&served, "PUT", url, None, "hello").await;
    assert!(problem(&got, 422, "invalid_archive")["errors"]["content"].is_array());
    for (body, field) in [
        (json!({ "kind": "zip", "name": "a", "size": 1 }), "kind"),
        (json!({ "kind": "file", "name": "../a", "size": 1 }), "name"),
        (json!({ "kind": "file", "name": "a", "size": 1e18 }), "size"),
    ] {
        let got = served.ask("POST", "/api/v1/uploads", &body.to_string()).await;
        assert!(got.status == 400 && got.json()["errors"][field].is_array(), "{got:?}");
    }
    let key = [JSON, ("idempotency-key", "u1")];
    let body = file("same", 1).to_string();
    let first = served.ask_with("POST", "/api/v1/uploads", &key, &body).await.json();
    let again = served.ask_with("POST", "/api/v1/uploads", &key, &body).await.json();
    assert_eq!(first["id"], again["id"]);
    let other = file("other", 1).to_string();
    assert_eq!(served.ask_with("POST", "/api/v1/uploads", &key, &other).await.status, 422);
}

#[tokio::test]
async fn task_uses_its_uploads_once() {
    let served = serve(Script::Silence).await;
    let upload = announce(&served, &file("log.txt", 3)).await;
    let (id, url) = (upload["id"].as_str().unwrap(), upload["uploadUrl"].as_str().unwrap());
    let mut task: Value = serde_json::from_str(TASK).unwrap();
    task["attachments"] = json!([{ "uploadId": id }]);
    let body = task.to_string();
    let key = [JSON, ("idempotency-key", "t1")];
    let refused = |got: &Got, field: &str, says: &str| {
        let told = got.json()["errors"][field][0].as_str().unwrap_or_default().to_owned();
        assert!(got.status == 422 && told.contains(says), "{field}: {got:?}");
    };
    let got = served.ask("POST", "/api/v1/tasks", &body).await;
    refused(&got, "attachments.0.uploadId", "incomplete: 0 of 3 bytes");
    assert_eq!(anonymous(&served, "PUT", url, None, "abc").await.status, 200);
    let mut wrong = task.clone();
    wrong["repo"] = json!({ "mode": "upload", "uploadId": id });
    wrong["attachments"] = json!([{ "uploadId": "upload-01HVZ6K9T1N8S6M3V3Q3F0X5B7" }]);
    let got = served.ask("POST", "/api/v1/tasks", &wrong.to_string()).await;
    refused(&got, "repo.uploadId", "must be a tar archive");
    refused(&got, "attachments.0.uploadId", "not an upload of yours");

    let made = served.ask_with("POST", "/api/v1/tasks", &key, &body).await;
    assert_eq!(made.status, 201, "{made:?}");
    // The same request again is not a second use.
    let again = served.ask_with("POST", "/api/v1/tasks", &key, &body).await;
    assert_eq!((again.status, &again.json()["id"]), (201, &made.json()["id"]), "{again:?}");
    let got = served.ask("POST", "/api/v1/tasks", &body).await;
    refused(&got, "attachments.0.uploadId", "was used");
    let session = served.json(made.header("location").unwrap()).await;
    let attached = json!([{ "uploadId": id, "name": "log.txt", "size": 3 }]);
    assert_eq!(session["task"]["attachments"], attached);
    assert_eq!(served.json(&format!("/api/v1/uploads/{id}")).await["status"], "used");
    let path = format!("/api/v1/uploads/{id}");
    problem(&served.ask("DELETE", &path, "").await, 409, "upload_used");
    problem(&anonymous(&served, "PUT", url, None, "abc").await, 409, "upload_used");

    // Two attachments of one name would be one file.
    let mut listed = Vec::new();
    for _ in 0..2 {
        let upload = announce(&served, &file("same.txt", 1)).await;
        let url = upload["uploadUrl"].as_str().unwrap();
        assert_eq!(anonymous(&served, "PUT", url, None, "x").await.status, 200);
        listed.push(json!({ "uploadId": upload["id"] }));
    }
    task["attachments"] = json!(listed);
    let got = served.ask("POST", "/api/v1/tasks", &task.to_string()).await;
    let told = got.json()["errors"]["attachments.1.uploadId"][0].as_str().unwrap().to_owned();
    assert!(told.contains("the name \"same.txt\" of attachment 0"), "{told}");
}

async fn serve_limited(uploads: UploadLimits) -> Served {
    let settings = ControlPlaneSettings { uploads, ..ControlPlaneSettings::default() };
    serve_by(Script::Silence, HttpServerLimits::default(), settings).await
}

#[tokio::test]
async fn address_that_expired_is_refused() {
    let url_lifetime = Duration::ZERO;
    let served = serve_limited(UploadLimits { url_lifetime, ..UploadLimits::default() }).await;
    let upload = announce(&served, &file("a", 1)).await;
    let url = upload["uploadUrl"].as_str().unwrap();
    problem(&anonymous(&served, "PUT", url, None, "x").await, 403, "expired_signature");
}

#[tokio::test]
async fn uploads_beyond_the_bounds_of_the_server_are_refused() {
    let limits = UploadLimits {
        max_bytes: 10,
        max_total_bytes: 15,
        max_uploads: 2,
        ..UploadLimits::default()
    };
    let served = serve_limited(limits).await;
    let ask = async |size: usize| {
        served.ask("POST", "/api/v1/uploads", &file("a", size).to_string()).await
    };
    let got = ask(11).await;
    assert!(got.status == 400 && got.json()["errors"]["size"].is_array(), "{got:?}");
    assert_eq!(ask(10).await.status, 201);
    assert!(problem(&ask(6).await, 507, "uploads_full")["errors"]["size"].is_array());
    assert_eq!(ask(5).await.status, 201);
    problem(&ask(0).await, 507, "uploads_full");
}

#[tokio::test]
async fn sender_that_is_silent_loses_its_request_and_nothing_else() {
    let silence = Duration::from_millis(50);
    let served =
        serve_limited(UploadLimits { idle_timeout: silence, ..UploadLimits::default() }).await;
    let upload = announce(&served, &file("a", 10)).await;
    let url = upload["uploadUrl"].as_str().unwrap();
    let mut stream = TcpStream::connect(served.address()).await.unwrap();
    let head = head("PATCH", url, &[("upload-offset", "0")]);
    let begun = format!("{head}\r\nconnection: close\r\ncontent-length: 10\r\n\r\n0123");
    stream.write_all(begun.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4096];
    let length = stream.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    // The next request continues, while the first connection is still open.
    let got = anonymous(&served, "PATCH", url, Some("4"), "456789").await;
    assert_eq!(got.json()["status"], "complete", "{got:?}");
    drop(stream);
}
