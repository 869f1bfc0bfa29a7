//! Every route is described, and what is described is there.

use std::path::Path;

use ab_server::{HttpAccessPolicy, openapi_description};

use crate::caller::{get, memory, open, send, serves};
use crate::gateway::Fixture;

/// Routes enter by `routes!`, which takes the description along. Nothing else may add one.
#[test]
fn no_route_is_added_without_its_description() {
    let mut sources = vec![];
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { sources.push(path) }
        }
    }
    assert!(sources.len() > 5);
    for path in sources {
        let text = std::fs::read_to_string(&path).unwrap();
        // Unit tests may build routers of their own.
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        for way in
            [".route(", ".route_service(", ".nest(", ".nest_service(", ".merge(", "Router::new("]
        {
            // Surfaces are merged in one place, each with its descriptions.
            let merges = way == ".merge(" && path.ends_with("src/routes.rs");
            assert!(merges || !text.contains(way), "{} adds a route by {way}", path.display());
        }
        let declared = text.matches(".routes(Access::").count();
        assert_eq!(text.matches(".routes(").count(), declared, "{}", path.display());
    }
}

/// Every port describes what it has, with the statuses that it answers.
#[tokio::test]
async fn everything_described_is_served() {
    let daemon = open(serves(&memory().await), HttpAccessPolicy::default()).await;
    let gateway = Fixture::start().await;
    for (address, has, lacks) in [
        (daemon.address(), ["/health", "/mcp", "/ssh"], ["/v1/acp", "/api/v1/sessions", "/ui"]),
        (gateway.address(), ["/health", "/v1/acp", "/metrics"], ["/mcp", "/v1/spaces", "/ui"]),
    ] {
        let served = get(address, "/api/v1/openapi.json", &[]).await.json();
        let paths = served["paths"].as_object().unwrap();
        let all = serde_json::to_value(openapi_description()).unwrap();
        assert!(has.iter().all(|path| paths.contains_key(*path)), "{:?}", paths.keys());
        for path in lacks {
            assert!(all["paths"][path].is_object() && !paths.contains_key(path), "{path}");
            assert_eq!(get(address, path, &[]).await.status, 404, "{path}");
        }
        for (path, methods) in paths {
            assert_eq!(methods, &all["paths"][path], "{path}");
            for (method, about) in methods.as_object().unwrap() {
                let head = format!("{} {path} HTTP/1.1\r\nhost: localhost", method.to_uppercase());
                let got = send(address, &head, "").await;
                let answers = about["responses"].as_object().unwrap();
                assert!(answers.contains_key(&got.status.to_string()), "{method} {path}: {got:?}");
                assert!(!got.body.contains("no such path") || path == "/", "{method} {path}");
            }
        }
    }
}

#[test]
fn every_route_says_what_it_does() {
    let all = serde_json::to_value(openapi_description()).unwrap();
    for (path, methods) in all["paths"].as_object().unwrap() {
        for (method, about) in methods.as_object().unwrap() {
            assert!(about["summary"].is_string(), "{method} {path} says nothing of itself");
            assert!(about["responses"].is_object(), "{method} {path}");
        }
    }
}

/// The endpoints of sandbox-agent, as seed 3 lists them in section 10.
const ENDPOINTS_OF_SANDBOX_AGENT: [(&str, &str); 22] = [
    ("get", "/"),
    ("get", "/v1/health"),
    ("get", "/v1/acp"),
    ("post", "/v1/acp/{server_id}"),
    ("get", "/v1/acp/{server_id}"),
    ("delete", "/v1/acp/{server_id}"),
    ("get", "/v1/agents"),
    ("post", "/v1/agents/{agent}/install"),
    ("get", "/v1/fs/entries"),
    ("get", "/v1/fs/file"),
    ("put", "/v1/fs/file"),
    ("delete", "/v1/fs/entry"),
    ("post", "/v1/fs/mkdir"),
    ("post", "/v1/fs/move"),
    ("get", "/v1/fs/stat"),
    ("post", "/v1/fs/upload-batch"),
    ("get", "/v1/config/mcp"),
    ("put", "/v1/config/mcp"),
    ("delete", "/v1/config/mcp"),
    ("get", "/v1/config/skills"),
    ("put", "/v1/config/skills"),
    ("delete", "/v1/config/skills"),
];

#[tokio::test]
async fn every_endpoint_of_sandbox_agent_is_described_and_no_removed_one() {
    let gateway = Fixture::start().await;
    let served = get(gateway.address(), "/api/v1/openapi.json", &[]).await.json();
    for (method, path) in ENDPOINTS_OF_SANDBOX_AGENT {
        assert!(served["paths"][path][method].is_object(), "{method} {path}");
    }
    for path in served["paths"].as_object().unwrap().keys() {
        let is_removed = path.starts_with("/v1/rpc") || path.starts_with("/opencode");
        assert!(!is_removed, "{path}");
    }
}

#[tokio::test]
async fn what_is_not_there_says_where_to_look() {
    let port = open(serves(&memory().await), HttpAccessPolicy::default()).await;
    let got = get(port.address(), "/nowhere", &[]).await;
    assert_eq!((got.status, got.json()["error"].as_str()), (404, Some("Not found")));
    let got = send(port.address(), "PUT /health HTTP/1.1\r\nhost: localhost", "").await;
    assert_eq!((got.status, got.json()["error"].as_str()), (405, Some("Method not allowed")));
    assert_eq!(got.header("allow"), Some("GET,HEAD"));
}
