//! Who is let in: hosts, pages, tokens, on every path and in every shape of a request.

use std::collections::BTreeSet;

use ab_server::HttpAccessPolicy;
use serde_json::json;

use crate::caller::{get, guarded, memory, open, post, send, serves};
use crate::control::{Script, serve};
use crate::gateway::Fixture;

#[tokio::test]
async fn a_foreign_host_or_page_is_refused_on_every_path() {
    let port = open(serves(&memory().await), HttpAccessPolicy::default()).await;
    for path in ["/health", "/mcp", "/ssh", "/api/v1/openapi.json", "/nowhere"] {
        for header in [("host", "evil.example"), ("origin", "http://evil.example")] {
            let got = get(port.address(), path, &[header]).await;
            assert_eq!(got.status, 403, "{path} {header:?}: {got:?}");
        }
        let upgrade = [
            ("origin", "http://evil.example"),
            ("upgrade", "websocket"),
            ("connection", "upgrade"),
        ];
        assert_eq!(get(port.address(), path, &upgrade).await.status, 403, "{path}");
    }
}

/// The routes that callers without a token may use. The content of an upload needs a signed address instead.
const OPEN: [&str; 8] = [
    "/",
    "/api/v1/uploads/{id}/content",
    "/health",
    "/ssh",
    "/ui/login",
    "/ui/icon.svg",
    "/ui/page.css",
    "/ui/page.js",
];

const SPACES: [&str; 3] = ["spaces", "runs", "policies"];

#[tokio::test]
async fn every_route_describes_how_it_turns_callers_away() {
    let daemon = open(serves(&memory().await), guarded()).await;
    let (gateway, control) = (Fixture::with(guarded(), |_| {}).await, serve(Script::Silence).await);
    let mut seen = BTreeSet::new();
    for address in [daemon.address(), gateway.address(), control.address()] {
        let token = [("authorization", "Bearer not-a-secret")];
        let described = get(address, "/api/v1/openapi.json", &token).await.json();
        for (path, methods) in described["paths"].as_object().unwrap() {
            seen.insert(path.clone());
            for method in methods.as_object().unwrap().keys() {
                let head = format!("{} {path} HTTP/1.1", method.to_uppercase());
                let with = |more: &str| format!("{head}\r\n{more}");
                let ask = async |more: &str| send(address, &with(more), "").await.status;
                // Whether each is described is looked at where they are sent.
                assert_eq!(ask("host: [").await, 400, "{method} {path}");
                assert_eq!(ask("host: evil.example").await, 403, "{method} {path}");
                let status = ask("host: localhost").await;
                assert!(status == 401 || OPEN.contains(&path.as_str()), "{path}");
            }
        }
    }
    let all = serde_json::to_value(ab_server::openapi_description()).unwrap();
    // Spaces are served in the tests of `serve`, which ask every route.
    let is_of_spaces = |path: &str| path.split('/').nth(2).is_some_and(|it| SPACES.contains(&it));
    for path in all["paths"].as_object().unwrap().keys() {
        assert!(seen.contains(path) || is_of_spaces(path), "{path}");
    }
}

#[tokio::test]
async fn a_page_cannot_post_without_asking_its_browser() {
    let port = open(serves(&memory().await), HttpAccessPolicy::default()).await;
    // What a page may send without a preflight.
    let simple = "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: text/plain\r\naccept: */*";
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
    assert_eq!(send(port.address(), simple, &call).await.status, 415);
}

#[tokio::test]
async fn a_host_that_makes_no_sense_is_answered_and_the_port_goes_on() {
    let port = open(serves(&memory().await), guarded()).await;
    for host in ["[", "]", "[::1", "a b", "@", ":", "localhost:x"] {
        for path in ["/health", "/mcp", "/ssh"] {
            let got = get(port.address(), path, &[("host", host)]).await;
            assert_eq!(got.status, 400, "{host} {path}: {got:?}");
        }
    }
    assert_eq!(get(port.address(), "/health", &[]).await.status, 200);
}

#[tokio::test]
async fn pages_that_were_allowed_are_told_so() {
    let origins = vec!["https://app.example".parse().unwrap()];
    let port =
        open(serves(&memory().await), HttpAccessPolicy { allowed_origins: origins, ..guarded() })
            .await;
    let page = ("origin", "https://app.example");
    let preflight = "OPTIONS /mcp HTTP/1.1\r\nhost: localhost\r\norigin: https://app.example\r\n\
        access-control-request-method: POST";
    let got = send(port.address(), preflight, "").await;
    assert_eq!((got.status, got.header("access-control-allow-origin")), (204, Some(page.1)));
    assert!(got.header("access-control-allow-headers").unwrap().contains("authorization"));
    let got = get(port.address(), "/health", &[page]).await;
    assert_eq!((got.status, got.header("access-control-allow-origin")), (200, Some(page.1)));
    // A preflight opens nothing by itself.
    assert_eq!(post(port.address(), &[page], "{}").await.status, 401);
    let foreign = preflight.replace("app.example", "evil.example");
    assert_eq!(send(port.address(), &foreign, "").await.status, 403);
}
