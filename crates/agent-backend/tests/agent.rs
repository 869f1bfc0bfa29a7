//! The agent library: sessions, factories and toolsets, on real directories and in memory.

mod approvals;
mod changing;
mod ecosystem;
mod example;
mod factories;
mod files;
mod sessions;
mod shell;
mod skills;
mod ssh_sandboxes;

use std::path::Path;

use agent_backend::agent::{
    AgentDefinition, AgentSession, AgentSessionId, AgentTools, SessionOptions, ToolResult, Toolset,
};
use agent_backend::{Backend, Isolation, LocalWorkspaceConfig};
use serde_json::Value;

/// A workspace without walls around its commands: those are tested elsewhere.
pub(crate) fn local(root: &Path) -> Backend {
    agent_backend::local_with(config(root)).unwrap()
}

pub(crate) fn config(root: &Path) -> LocalWorkspaceConfig {
    let mut config = LocalWorkspaceConfig::new(root);
    config.options.exec.isolation = Isolation::None;
    config
}

pub(crate) fn named(id: &str) -> SessionOptions {
    SessionOptions::for_session(AgentSessionId::parse(id).unwrap())
}

/// A session with one toolset on a backend.
pub(crate) async fn session(
    backend: &Backend,
    toolset: impl Toolset + 'static,
) -> (AgentSession, AgentTools) {
    let definition = AgentDefinition::builder().backend(backend.clone()).toolset(toolset).build();
    let session = definition.start(SessionOptions::default()).await.unwrap();
    let tools = session.tools().await.unwrap();
    (session, tools)
}

/// The text of a call that had to work.
#[track_caller]
pub(crate) fn worked(result: ToolResult) -> String {
    assert!(!result.is_error, "{result:?}");
    result.all_text()
}

/// The text of a call that had to fail, and to say this.
#[track_caller]
pub(crate) fn failed(result: ToolResult, says: &str) -> String {
    assert!(result.is_error, "{result:?}");
    let text = result.all_text();
    assert!(text.contains(says), "{text:?} does not say {says:?}");
    text
}

pub(crate) async fn call(tools: &AgentTools, name: &str, arguments: Value) -> ToolResult {
    tools.call_tool(name, arguments).await
}
