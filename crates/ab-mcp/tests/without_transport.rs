//! Tools without a transport: what is listed, what a call answers, and what it says when it fails.

use ab_core::{Backend, MemoryDriver};
use ab_mcp::{McpServer, WorkspaceTools};
use serde_json::{Value, json};

async fn tools() -> (Backend, WorkspaceTools) {
    let backend = Backend::new(MemoryDriver::new());
    backend.write("a.txt", "one\ntwo\n").await.unwrap();
    (backend.clone(), WorkspaceTools::new(backend))
}

fn arguments(value: Value) -> rmcp::model::JsonObject {
    value.as_object().unwrap().clone()
}

#[tokio::test]
async fn tools_are_listed_as_the_server_lists_them() {
    let (backend, tools) = tools().await;
    let listed: Vec<String> =
        tools.list_tools().await.iter().map(|it| it.name.to_string()).collect();
    let server = McpServer::new(backend);
    let served: Vec<String> = server.tools().map(|it| it.name.to_string()).collect();
    assert_eq!(listed, served);
    assert!(listed.contains(&"read_text_file".to_owned()), "{listed:?}");
}

#[tokio::test]
async fn a_call_works_on_the_workspace() {
    let (backend, tools) = tools().await;
    let read =
        tools.call_tool("read_text_file", arguments(json!({ "path": "a.txt" }))).await.unwrap();
    assert_ne!(read.is_error, Some(true), "{read:?}");
    let text = serde_json::to_value(&read.content).unwrap();
    assert!(text[0]["text"].as_str().unwrap().contains("two"), "{text}");
    let write = arguments(json!({ "path": "b.txt", "content": "new" }));
    tools.call_tool("write_file", write).await.unwrap();
    assert_eq!(backend.read_text("b.txt").await.unwrap(), "new");
}

#[tokio::test]
async fn a_failed_call_is_a_result_and_an_unknown_tool_an_error() {
    let (_, tools) = tools().await;
    let failed =
        tools.call_tool("read_text_file", arguments(json!({ "path": "none" }))).await.unwrap();
    assert_eq!(failed.is_error, Some(true), "{failed:?}");
    let unknown = tools.call_tool("no_such_tool", arguments(json!({}))).await.unwrap_err();
    assert_eq!(unknown.message, "unknown tool: no_such_tool");
}
