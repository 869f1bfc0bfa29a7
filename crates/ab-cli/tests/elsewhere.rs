//! MCP of a remote workspace: HTTP to the endpoint that is set, and nothing where none is.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ab_core::process::PathRestrictions;
use ab_core::{Backend, ConnectionStatus, ErrorCode, ErrorKind, ScopeOptions};
use agent_backend::RemoteConfig;
use agent_backend::mcp::{BackendMcpExt, McpOptions};
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::stage::{BINARY, Stage};

const TOKEN: &str = "t0ken";

fn guarded(stage: &Stage) -> Daemon {
    Daemon::start(stage, &["--rootDir", ".", "--auth-token", TOKEN])
}

fn config(daemon: &Daemon) -> RemoteConfig {
    let config = RemoteConfig::parse(&format!("ws://{}/ssh", daemon.address)).unwrap();
    config.token(TOKEN).unwrap().mcp_url(format!("http://{}/mcp", daemon.address))
}

fn options() -> McpOptions {
    McpOptions { program: PathBuf::from(BINARY), ..McpOptions::default() }
}

async fn read(backend: &Backend, path: &str) -> String {
    let client = backend.mcp_client(options()).await.unwrap();
    let result = client.call_tool("read_text_file", json!({ "path": path })).await.unwrap();
    result.content.iter().filter_map(|it| it.as_text()).map(|it| it.text.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_workspace_has_the_tools_of_its_daemon() {
    let stage = Stage::with(&[("a.txt", "hello\n"), ("in/b.txt", "inside\n")]);
    let daemon = guarded(&stage);
    let root = stage.root().to_str().unwrap().to_owned();
    let backend = agent_backend::remote_with(config(&daemon).root(root)).unwrap();
    let client = backend.mcp_client(options()).await.unwrap();
    let tools = client.list_tools().await.unwrap();
    assert!(tools.iter().any(|tool| tool.name == "exec"), "{tools:?}");
    // Tools do not need the other connection.
    assert_eq!(backend.status(), ConnectionStatus::Disconnected);
    assert_eq!(read(&backend, "a.txt").await, "hello\n");
    // A scope of the handle, of a scope, and one that is asked for.
    let scope = backend.scope("in", ScopeOptions::default()).unwrap();
    assert_eq!(read(&scope, "b.txt").await, "inside\n");
    let options = McpOptions { scope: Some("in".to_owned()), ..options() };
    let inside = backend.mcp_client(options).await.unwrap();
    let refused = inside.call_tool("read_text_file", json!({ "path": "../a.txt" })).await.unwrap();
    assert_eq!(refused.is_error, Some(true));
    // Many at once, each a request of its own.
    let calls: Vec<_> =
        (0..20).map(|_| client.call_tool("read_text_file", json!({ "path": "a.txt" }))).collect();
    for call in calls {
        assert_ne!(call.await.unwrap().is_error, Some(true));
    }
    backend.destroy().await.unwrap();
    let late = client.call_tool("read_text_file", json!({ "path": "a.txt" })).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Disconnected);
    assert_eq!(daemon.end().0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transport_speaks_lines_and_ends_with_the_backend() {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    let stage = Stage::new();
    let daemon = guarded(&stage);
    let backend = agent_backend::remote_with(config(&daemon)).unwrap();
    let mut transport = BufReader::new(backend.mcp_transport(options()).await.unwrap());
    let ask = json!({ "jsonrpc": "2.0", "id": "x", "method": "tools/list" });
    transport.write_all(format!("{ask}\n").as_bytes()).await.unwrap();
    let mut line = String::new();
    transport.read_line(&mut line).await.unwrap();
    let answer: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(answer["id"], "x");
    assert!(answer["result"]["tools"].is_array(), "{answer}");
    backend.destroy().await.unwrap();
    line.clear();
    assert_eq!(transport.read_line(&mut line).await.unwrap(), 0);
    assert_eq!(daemon.end().0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_setting_it_is_not_implemented_and_names_it() {
    let backend = agent_backend::remote("ws://127.0.0.1:1/ssh").unwrap();
    let error = backend.mcp_client(options()).await.unwrap_err();
    assert_eq!((error.code(), error.kind()), (ErrorCode::NotImplemented, ErrorKind::Unsupported));
    assert!(error.message().contains("the setting mcp"), "{error}");
    let error = backend.mcp_transport(options()).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotImplemented);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_reach_the_caller() {
    let stage = Stage::new();
    let daemon = guarded(&stage);
    let url = format!("http://{}", daemon.address);
    let socket = || RemoteConfig::parse(&format!("ws://{}/ssh", daemon.address)).unwrap();
    for (config, code, kind, says) in [
        (socket().mcp_url(&url), ErrorCode::AuthFailed, ErrorKind::DeniedByPolicy, "401"),
        (
            socket().mcp_url_with_token(&url, "wrong"),
            ErrorCode::AuthFailed,
            ErrorKind::DeniedByPolicy,
            "401",
        ),
        (
            socket().root("/elsewhere").mcp_url_with_token(&url, TOKEN),
            ErrorCode::AuthFailed,
            ErrorKind::DeniedByPolicy,
            "Server is configured for",
        ),
        (
            socket().mcp_url_with_token(format!("{url}/nowhere"), TOKEN),
            ErrorCode::ConnectionClosed,
            ErrorKind::Unavailable,
            "404",
        ),
    ] {
        let backend = agent_backend::remote_with(config).unwrap();
        let error = backend.mcp_client(options()).await.unwrap_err();
        assert_eq!((error.code(), error.kind()), (code, kind), "{error}");
        assert!(error.message().contains(says), "{error}");
    }
    assert_eq!(daemon.end().0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_fails_is_not_made_again() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let callers = Arc::new(AtomicUsize::new(0));
    let counted = callers.clone();
    // Hangs up on everybody, until the test is over.
    std::thread::spawn(move || {
        for caller in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
            drop(caller);
        }
    });
    let config = RemoteConfig::parse("ws://127.0.0.1:1/ssh").unwrap();
    let backend = agent_backend::remote_with(config.mcp_url(format!("http://{address}"))).unwrap();
    let error = backend.mcp_client(options()).await.unwrap_err();
    assert_eq!(
        (error.code(), error.kind()),
        (ErrorCode::ConnectionClosed, ErrorKind::Disconnected)
    );
    assert_eq!(callers.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_nothing_is_a_timeout() {
    // Connections are taken by the system, and nobody answers.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let config = RemoteConfig::parse("ws://127.0.0.1:1/ssh").unwrap().mcp_url(url);
    let backend = agent_backend::remote_with(config).unwrap();
    let options = McpOptions { start_timeout: Duration::from_millis(100), ..options() };
    let error = backend.mcp_client(options).await.unwrap_err();
    assert_eq!((error.code(), error.kind()), (ErrorCode::Timeout, ErrorKind::Timeout));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_with_limits_of_its_own_is_served_from_here() {
    let stage = Stage::with(&[("a.txt", "seen\n"), ("secret.txt", "hidden\n")]);
    let daemon = guarded(&stage);
    let backend = agent_backend::remote_with(config(&daemon)).unwrap();
    let hidden = vec![backend.parse_path("secret.txt").unwrap()];
    let restricted =
        backend.restrict(PathRestrictions { hidden, ..PathRestrictions::default() }).unwrap();
    assert_eq!(read(&restricted, "a.txt").await, "seen\n");
    assert!(!read(&restricted, "secret.txt").await.contains("hidden"));
    backend.destroy().await.unwrap();
    assert_eq!(daemon.end().0, 0);
}
