//! What is served: health, the tools, the headers that choose a part of the workspace.

use ab_server::HttpAccessPolicy;
use serde_json::json;

use crate::caller::{ROOT, get, guarded, memory, open, post, send, serves, serves_scope, tool};

const SHOWN: (&str, &str) = ("authorization", "Bearer not-a-secret");

#[tokio::test]
async fn health_is_open_and_tells_the_trusted_what_is_in_force() {
    let backend = memory().await;
    let port = open(serves(&backend), guarded()).await;
    let got = get(port.address(), "/health", &[]).await;
    let expect = json!({
        "status": "ok",
        "version": env!("CARGO_PKG_VERSION"),
        "transports": { "mcp": true, "ssh-ws": false, "ssh": false },
    });
    assert_eq!((got.status, got.json()), (200, expect));
    let trusted = get(port.address(), "/health", &[SHOWN]).await.json();
    assert_eq!(trusted["rootDir"], ROOT);
    // It is not waited for, so it comes a moment later.
    loop {
        let trusted = get(port.address(), "/health", &[SHOWN]).await.json();
        let policy = trusted.get("effectivePolicy").unwrap();
        if !policy.is_null() {
            assert!(policy["controls"].is_array(), "{trusted}");
            break;
        }
    }
    let wrong = get(port.address(), "/health", &[("authorization", "Bearer x")]).await.json();
    assert!(wrong.get("effectivePolicy").is_none(), "{wrong}");
    assert!(wrong.get("rootDir").is_none(), "{wrong}");
}

#[tokio::test]
async fn without_a_token_health_has_the_form_that_clients_know() {
    let port = open(serves(&memory().await), HttpAccessPolicy::default()).await;
    let mut got = get(port.address(), "/health", &[]).await.json();
    got.as_object_mut().unwrap().remove("effectivePolicy");
    let expect = json!({
        "status": "ok",
        "version": env!("CARGO_PKG_VERSION"),
        "rootDir": ROOT,
        "transports": { "mcp": true, "ssh-ws": false, "ssh": false },
    });
    assert_eq!(got, expect);
}

#[tokio::test]
async fn tools_work_with_the_token_and_no_handshake() {
    let backend = memory().await;
    let port = open(serves(&backend), guarded()).await;
    let read = json!({ "path": "a.txt" });
    let got = tool(port.address(), "read_text_file", read, &[]).await;
    assert_eq!(got.json()["result"]["content"][0]["text"], "hello\n");
    let refused = post(port.address(), &[], "{}").await;
    let expect = json!({
        "error": "Unauthorized",
        "message": "Invalid or missing authentication token",
    });
    assert_eq!((refused.status, refused.json()), (401, expect));
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
}

#[tokio::test]
async fn every_request_has_an_id_and_a_sane_one_is_kept() {
    let port = open(serves(&memory().await), guarded()).await;
    let made = get(port.address(), "/health", &[]).await;
    let other = get(port.address(), "/health", &[]).await;
    assert_ne!(made.header("x-request-id").unwrap(), other.header("x-request-id").unwrap());
    let kept = get(port.address(), "/nowhere", &[("x-request-id", "mine-1")]).await;
    assert_eq!((kept.status, kept.header("x-request-id")), (401, Some("mine-1")));
    let long = "x".repeat(200);
    let replaced = get(port.address(), "/health", &[("x-request-id", long.as_str())]).await;
    assert_eq!(replaced.header("x-request-id").unwrap().len(), 16);
}

#[tokio::test]
async fn the_root_that_a_client_believes_in_has_to_be_ours() {
    let port = open(serves(&memory().await), guarded()).await;
    for (named, status) in [
        (ROOT, 200),
        ("/srv/project/", 200),
        ("undefined", 200),
        ("", 200),
        ("/srv/other", 403),
        ("/srv/project/sub", 403),
        ("/srv/project-2", 403),
    ] {
        let read = json!({ "path": "a.txt" });
        let got = tool(port.address(), "read_text_file", read, &[("x-root-dir", named)]).await;
        assert_eq!(got.status, status, "{named}: {got:?}");
    }
    let got = tool(port.address(), "read_text_file", json!({}), &[("x-root-dir", "/x")]).await;
    let expect = json!({
        "error": "Root directory mismatch",
        "message": "Server is configured for /srv/project, not /x",
    });
    assert_eq!(got.json(), expect);
}

#[tokio::test]
async fn a_request_may_choose_a_scope_and_stays_inside() {
    let port = open(serves(&memory().await), guarded()).await;
    let scope = ("x-scope-path", "tenants/a");
    let read = |path: &'static str| json!({ "path": path });
    let got = tool(port.address(), "read_text_file", read("a.txt"), &[scope]).await;
    assert_eq!(got.json()["result"]["content"][0]["text"], "theirs\n");
    for path in ["../../a.txt", "../a.txt"] {
        let got = tool(port.address(), "read_text_file", read(path), &[scope]).await.json();
        assert_eq!(got["result"]["isError"], true, "{path}: {got}");
    }
    for bad in ["..", "../x", "tenants/../..", "a/../../b"] {
        let got = tool(port.address(), "read_text_file", read("a"), &[("x-scope-path", bad)]).await;
        let expect = json!({
            "error": "Invalid scope path",
            "message": "Scope path must not contain path traversal sequences",
        });
        assert_eq!((got.status, got.json()), (400, expect), "{bad}");
    }
    // Two dots in a name are just a name.
    let fine = [("x-scope-path", "a..b")];
    let write = json!({ "path": "f", "content": "x" });
    let got = tool(port.address(), "write_file", write, &fine).await;
    assert_eq!((got.status, got.json()["result"]["isError"].is_null()), (200, true), "{got:?}");
    let twice = [scope, ("x-scope-path", "tenants/b")];
    let got = tool(port.address(), "read_text_file", read("a.txt"), &twice).await;
    assert_eq!(
        (got.status, got.json()["message"].as_str()),
        (400, Some("x-scope-path occurs twice"))
    );
}

#[tokio::test]
async fn a_daemon_in_a_scope_lets_nobody_choose_another() {
    let port = open(serves_scope(&memory().await), guarded()).await;
    let read = json!({ "path": "a.txt" });
    let got = tool(port.address(), "read_text_file", read.clone(), &[]).await;
    assert_eq!(got.json()["result"]["content"][0]["text"], "theirs\n");
    let got = tool(port.address(), "read_text_file", read, &[("x-scope-path", "b")]).await;
    assert_eq!((got.status, &got.json()["error"]), (400, &json!("Scope conflict")));
}

#[tokio::test]
async fn a_session_that_is_not_there_is_not_found() {
    let port = open(serves(&memory().await), guarded()).await;
    let named = [SHOWN, ("mcp-session-id", "none"), ("accept", "text/event-stream")];
    for method in ["GET", "DELETE"] {
        let headers: Vec<String> =
            named.iter().map(|(name, value)| format!("\r\n{name}: {value}")).collect();
        let head = format!("{method} /mcp HTTP/1.1\r\nhost: localhost{}", headers.concat());
        assert_eq!(send(port.address(), &head, "").await.status, 404, "{method}");
    }
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    assert_eq!(post(port.address(), &named[..2], &ping).await.status, 404);
}

#[tokio::test]
async fn a_token_is_asked_for_before_anything_else_is_looked_at() {
    let port = open(serves(&memory().await), guarded()).await;
    let odd = [("x-root-dir", "/x"), ("x-scope-path", "..")];
    assert_eq!(post(port.address(), &odd, "{").await.status, 401);
    let both = [SHOWN, ("x-root-dir", "/x"), ("x-scope-path", "..")];
    assert_eq!(post(port.address(), &both, "{").await.status, 403);
}
