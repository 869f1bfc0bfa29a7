//! A port over a small workspace, and whoever calls it.

use std::net::SocketAddr;

use ab_core::{Backend, MemoryDriver, ScopeOptions};
use ab_host::{LocalDriver, LocalDriverOptions, LocalExecSettings};
use ab_mcp::McpHttpSettings;
use ab_server::{
    AccessToken, DaemonRoutes, HttpAccessPolicy, HttpApp, HttpServer, HttpServerLimits,
    RunningHttpServer,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) const TOKEN: &str = "not-a-secret";
pub(crate) const ROOT: &str = "/srv/project";

pub(crate) async fn memory() -> Backend {
    let options = ab_core::MemoryDriverOptions { root: ROOT.to_owned(), ..Default::default() };
    let backend = Backend::new(MemoryDriver::with_options(options).unwrap());
    backend.write("a.txt", "hello\n").await.unwrap();
    backend.write("tenants/a/a.txt", "theirs\n").await.unwrap();
    backend
}

/// With commands, which run without walls.
pub(crate) fn local(directory: &std::path::Path) -> Backend {
    let exec =
        LocalExecSettings { isolation: ab_core::Isolation::None, ..LocalExecSettings::default() };
    let options = LocalDriverOptions { exec, ..LocalDriverOptions::default() };
    Backend::new(LocalDriver::open(directory, options).unwrap())
}

pub(crate) fn guarded() -> HttpAccessPolicy {
    HttpAccessPolicy { token: Some(AccessToken::new(TOKEN)), ..HttpAccessPolicy::default() }
}

pub(crate) fn serves(backend: &Backend) -> DaemonRoutes {
    DaemonRoutes::new(
        backend.clone(),
        ROOT,
        &McpHttpSettings { max_body_bytes: 1_000_000, ..McpHttpSettings::default() },
    )
}

pub(crate) fn serves_scope(backend: &Backend) -> DaemonRoutes {
    let scope = backend.scope("tenants/a", ScopeOptions::default()).unwrap();
    serves(&scope).reject_requested_scopes()
}

pub(crate) async fn open(served: DaemonRoutes, gate: HttpAccessPolicy) -> RunningHttpServer {
    open_with(HttpServer::new(HttpApp::new(gate).with_daemon_routes(served))).await
}

pub(crate) async fn open_within(
    served: DaemonRoutes,
    gate: HttpAccessPolicy,
    bounds: HttpServerLimits,
) -> RunningHttpServer {
    open_with(HttpServer::new(HttpApp::new(gate).with_daemon_routes(served)).with_limits(bounds))
        .await
}

pub(crate) async fn open_with(port: HttpServer) -> RunningHttpServer {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    port.start(listener).unwrap()
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Got {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).next()
    }
}

/// Sends a head and a body as they are, and reads until the port has closed.
pub(crate) async fn send(address: SocketAddr, head: &str, body: &str) -> Got {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request =
        format!("{head}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    // The port may refuse before it has read everything.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    let got = parse(&bytes);
    described(head, &got);
    got
}

/// Whatever a test is answered has to be in the description of the port.
fn described(head: &str, got: &Got) {
    let mut words = head.split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let described = serde_json::to_value(ab_server::openapi_description()).unwrap();
    let path = target.split('?').next().unwrap_or_default();
    // The head itself is read before there is a route.
    let operation = &described["paths"][path][method.to_lowercase()];
    if let Some(answers) = operation["responses"].as_object()
        && got.status != 431
    {
        let status = got.status.to_string();
        assert!(answers.contains_key(&status), "{method} {path}: {status} is not described");
    }
}

pub(crate) fn parse(bytes: &[u8]) -> Got {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Got { status: status.unwrap_or_default(), head: head.to_owned(), body: body.to_owned() }
}

pub(crate) async fn get(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Got {
    send(address, &head("GET", path, headers), "").await
}

/// Calls a tool, with the token.
pub(crate) async fn tool(
    address: SocketAddr,
    name: &str,
    arguments: Value,
    headers: &[(&str, &str)],
) -> Got {
    let mut all = vec![("authorization", "Bearer not-a-secret")];
    all.extend_from_slice(headers);
    post(address, &all, &call(name, arguments).to_string()).await
}

pub(crate) fn call(name: &str, arguments: Value) -> Value {
    let params = json!({ "name": name, "arguments": arguments });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params })
}

pub(crate) async fn post(address: SocketAddr, headers: &[(&str, &str)], body: &str) -> Got {
    send(address, &post_head(headers), body).await
}

pub(crate) fn post_head(headers: &[(&str, &str)]) -> String {
    let mut all = vec![
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
    ];
    all.extend_from_slice(headers);
    head("POST", "/mcp", &all)
}

pub(crate) fn head(method: &str, path: &str, headers: &[(&str, &str)]) -> String {
    let mut head = format!("{method} {path} HTTP/1.1");
    if !headers.iter().any(|(name, _)| *name == "host") {
        head.push_str("\r\nhost: localhost");
    }
    for (name, value) in headers {
        head.push_str(&format!("\r\n{name}: {value}"));
    }
    head
}
