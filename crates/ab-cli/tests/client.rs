//! The library's MCP client, with the built program in between.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ab_core::process::PathRestrictions;
use ab_core::{Backend, ErrorCode, ErrorKind, ScopeOptions};
use agent_backend::LocalWorkspaceConfig;
use agent_backend::mcp::{BackendMcpExt, McpOptions};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::stage::BINARY;

fn options() -> McpOptions {
    McpOptions { program: PathBuf::from(BINARY), ..McpOptions::default() }
}

/// A program that notes how it was started, then is ours.
fn noting(directory: &Path) -> McpOptions {
    let program = directory.join("noting");
    let text = format!(
        "#!/bin/sh\necho $$ > '{0}/pid'\nprintf '%s\\n' \"$@\" > '{0}/arguments'\nexec '{BINARY}' \"$@\"\n",
        directory.display()
    );
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    McpOptions { program, ..McpOptions::default() }
}

fn arguments(directory: &Path) -> Vec<String> {
    let text = fs::read_to_string(directory.join("arguments")).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Waits until the noted process is gone.
async fn gone(directory: &Path) {
    let pid = fs::read_to_string(directory.join("pid")).unwrap();
    let place = PathBuf::from(format!("/proc/{}", pid.trim()));
    while place.exists() {
        tokio::task::yield_now().await;
    }
}

async fn text(client: &agent_backend::mcp::Client, tool: &str, arguments: Value) -> String {
    let result = client.call_tool(tool, arguments).await.unwrap();
    result
        .content
        .iter()
        .filter_map(|block| block.as_text())
        .map(|text| text.text.clone())
        .collect()
}

fn plain(root: &Path) -> Backend {
    agent_backend::local_with(LocalWorkspaceConfig::new(root).prevent_dangerous_commands(false))
        .unwrap()
}

#[tokio::test]
async fn memory_is_served_by_the_live_handle() {
    let backend = agent_backend::memory();
    let client = backend.mcp_client(options()).await.unwrap();
    backend.write("from/here.txt", "written in the parent").await.unwrap();
    let read = text(&client, "read_text_file", json!({ "path": "from/here.txt" })).await;
    assert_eq!(read, "written in the parent");
    text(&client, "write_file", json!({ "path": "there.txt", "content": "by a tool" })).await;
    assert_eq!(backend.read_text("there.txt").await.unwrap(), "by a tool");
    let names: Vec<String> =
        client.list_tools().await.unwrap().iter().map(|tool| tool.name.to_string()).collect();
    assert!(names.contains(&"grep".to_owned()) && !names.contains(&"exec".to_owned()), "{names:?}");
    backend.destroy().await.unwrap();
}

#[tokio::test]
async fn rules_of_the_handle_hold_for_the_client() {
    let directory = TempDir::new().unwrap();
    let backend = agent_backend::local(directory.path()).unwrap();
    let client = backend.mcp_client(options()).await.unwrap();
    let refused = client.call_tool("exec", json!({ "command": "sudo ls" })).await.unwrap();
    assert_eq!(refused.is_error, Some(true));
    let said = text(&client, "exec", json!({ "command": "sudo ls" })).await;
    assert!(said.contains("sudo"), "{said}");
    assert_eq!(text(&client, "exec", json!({ "command": "echo fine" })).await, "fine");
    backend.destroy().await.unwrap();
}

#[tokio::test]
async fn restrictions_and_mounts_of_the_handle_hold_for_the_client() {
    let directory = TempDir::new().unwrap();
    let backend = plain(directory.path());
    backend.write("secret.txt", "hidden").await.unwrap();
    let hidden = vec![backend.parse_path("secret.txt").unwrap()];
    let restricted = backend.restrict(PathRestrictions { hidden, ..Default::default() }).unwrap();
    let client = restricted.mcp_client(options()).await.unwrap();
    let read = client.call_tool("read_text_file", json!({ "path": "secret.txt" })).await.unwrap();
    assert_eq!(read.is_error, Some(true));

    let notes = agent_backend::memory();
    notes.write("today.txt", "mounted").await.unwrap();
    let mounted = backend.mount("notes", &notes).unwrap();
    let client = mounted.mcp_client(options()).await.unwrap();
    let read = text(&client, "read_text_file", json!({ "path": "notes/today.txt" })).await;
    assert_eq!(read, "mounted");
    backend.destroy().await.unwrap();
}

#[tokio::test]
async fn a_plain_local_workspace_is_opened_by_flags() {
    let (directory, root) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let mut config = LocalWorkspaceConfig::new(root.path()).prevent_dangerous_commands(false);
    config.options.exec.isolation = ab_core::Isolation::None;
    config.options.exec.shell = agent_backend::CommandShell::Sh;
    let backend = agent_backend::local_with(config).unwrap();
    let client = backend.mcp_client(noting(directory.path())).await.unwrap();
    let shown = root.path().to_str().unwrap();
    let expect = [
        "daemon",
        "--local-only",
        "--rootDir",
        shown,
        "--isolation",
        "none",
        "--network",
        "shared",
        "--shell",
        "sh",
        "--toolchain",
        "none",
    ];
    assert_eq!(arguments(directory.path()), expect);
    let shell = text(&client, "exec", json!({ "command": "echo $0" })).await;
    assert!(shell.ends_with("/sh"), "{shell}");
    // Commands are not judged there.
    let said = text(&client, "exec", json!({ "command": "echo sudo; true || sudo ls" })).await;
    assert_eq!(said, "sudo");
    backend.destroy().await.unwrap();
}

#[tokio::test]
async fn a_scope_confines_the_server() {
    let (directory, root) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let backend = plain(root.path());
    backend.write("outside.txt", "no").await.unwrap();
    let tenant = backend.scope("tenants", ScopeOptions::default()).unwrap();
    let asked = McpOptions { scope: Some("ada".to_owned()), ..noting(directory.path()) };
    let client = tenant.mcp_client(asked).await.unwrap();
    let given = arguments(directory.path());
    assert!(given.ends_with(&["--scopePath".to_owned(), "tenants/ada".to_owned()]), "{given:?}");
    text(&client, "write_file", json!({ "path": "f", "content": "mine" })).await;
    assert_eq!(backend.read_text("tenants/ada/f").await.unwrap(), "mine");
    let out =
        client.call_tool("read_text_file", json!({ "path": "../../outside.txt" })).await.unwrap();
    assert_eq!(out.is_error, Some(true));

    let memory = agent_backend::memory();
    let asked = McpOptions { scope: Some("ada".to_owned()), ..options() };
    let client = memory.mcp_client(asked).await.unwrap();
    text(&client, "write_file", json!({ "path": "f", "content": "mine" })).await;
    assert_eq!(memory.read_text("ada/f").await.unwrap(), "mine");
}

#[tokio::test]
async fn destroying_the_backend_ends_client_and_program() {
    for backend in [agent_backend::memory(), plain(TempDir::new().unwrap().path())] {
        let directory = TempDir::new().unwrap();
        let client = backend.mcp_client(noting(directory.path())).await.unwrap();
        client.list_tools().await.unwrap();
        backend.destroy().await.unwrap();
        gone(directory.path()).await;
        let error = client.list_tools().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
        let error = backend.mcp_client(options()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Destroyed, "{error}");
    }
}

#[tokio::test]
async fn letting_go_of_a_client_or_transport_ends_the_program() {
    let backend = agent_backend::memory();
    let directory = TempDir::new().unwrap();
    let client = backend.mcp_client(noting(directory.path())).await.unwrap();
    drop(client);
    gone(directory.path()).await;
    let transport = backend.mcp_transport(noting(directory.path())).await.unwrap();
    drop(transport);
    gone(directory.path()).await;
    let transport = backend.mcp_transport(noting(directory.path())).await.unwrap();
    transport.close().await.unwrap();
    gone(directory.path()).await;
    backend.destroy().await.unwrap();
}

#[tokio::test]
async fn a_transport_serves_any_client() {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    let backend = agent_backend::memory();
    let mut transport = BufReader::new(backend.mcp_transport(options()).await.unwrap());
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" },
    } });
    transport.write_all(format!("{hello}\n").as_bytes()).await.unwrap();
    let mut line = String::new();
    transport.read_line(&mut line).await.unwrap();
    let answer: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(answer["result"]["serverInfo"]["name"], "agent-backend");
    backend.destroy().await.unwrap();
    line.clear();
    assert_eq!(transport.read_line(&mut line).await.unwrap_or_default(), 0, "{line}");
}

#[tokio::test]
async fn a_program_that_does_not_serve_is_told_of() {
    let backend = agent_backend::memory();
    let with = |program: &str| McpOptions {
        program: PathBuf::from(program),
        start_timeout: Duration::from_millis(300),
        ..McpOptions::default()
    };
    let error = backend.mcp_client(with("no-such-program")).await.unwrap_err();
    assert_eq!((error.code(), error.kind()), (ErrorCode::MissingUtilities, ErrorKind::Unavailable));
    assert!(error.to_string().contains("no-such-program"), "{error}");
    let error = backend.mcp_client(with("false")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let directory = TempDir::new().unwrap();
    let silent = directory.path().join("silent");
    fs::write(&silent, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    fs::set_permissions(&silent, fs::Permissions::from_mode(0o755)).unwrap();
    for backend in [backend, plain(directory.path())] {
        let error = backend.mcp_client(with(silent.to_str().unwrap())).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    }
}
