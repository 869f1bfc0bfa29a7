//! Every route is described, and what is described is there.

use std::path::Path;

use ab_server::{HttpAccessPolicy, openapi_description};

use crate::caller::{get, memory, open, send, serves};

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

#[tokio::test]
async fn everything_described_is_served() {
    let port = open(serves(&memory().await), HttpAccessPolicy::default()).await;
    let served = get(port.address(), "/api/v1/openapi.json", &[]).await.json();
    assert_eq!(served, serde_json::to_value(openapi_description()).unwrap());
    let paths = served["paths"].as_object().unwrap();
    for expect in ["/health", "/mcp", "/api/v1/openapi.json"] {
        assert!(paths.contains_key(expect), "{expect}");
    }
    for (path, methods) in paths {
        for (method, about) in methods.as_object().unwrap() {
            assert!(about["summary"].is_string(), "{method} {path} says nothing of itself");
            assert!(about["responses"].is_object(), "{method} {path}");
            let head = format!("{} {path} HTTP/1.1\r\nhost: localhost", method.to_uppercase());
            let got = send(port.address(), &head, "").await;
            let answers = about["responses"].as_object().unwrap();
            assert!(answers.contains_key(&got.status.to_string()), "{method} {path}: {got:?}");
        }
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
