//! Toolsets turn the backend of a session into tools.

use std::fmt;

use ab_core::{Result, WsPath};
use ab_mcp::WorkspaceTools;
use async_trait::async_trait;

use super::session::AgentSession;
use super::tool::{AgentTool, ToolResult};

/// Makes the tools of a session. A toolset holds no backend: all sessions of a definition share it.
#[async_trait]
pub trait Toolset: fmt::Debug + Send + Sync {
    /// The current tools of this set for `session`.
    async fn open(&self, session: &AgentSession) -> Result<OpenedToolset>;
}

/// The tools of a toolset in one session.
#[derive(Clone, Debug, Default)]
pub struct OpenedToolset {
    pub tools: Vec<AgentTool>,
    /// What a model must know to use them.
    pub instructions: Option<String>,
}

/// The tools of a workspace as values, with `prefix` before each name. They work in the directory
/// `root` of the session's backend.
pub(super) async fn workspace_tools(
    tools: &WorkspaceTools,
    prefix: &str,
    root: &WsPath,
) -> Vec<AgentTool> {
    let listed = tools.list().await.into_iter();
    let listed = listed.map(|tool| {
        let (calling, name) = (tools.clone(), tool.name.to_string());
        let description = tool.description.as_deref().unwrap_or_default().to_owned();
        let schema = serde_json::Value::Object((*tool.input_schema).clone());
        let called = name.clone();
        let run = move |arguments| {
            let (calling, name) = (calling.clone(), called.clone());
            async move {
                match calling.call(&name, arguments).await {
                    Ok(result) => ToolResult::from(result),
                    Err(error) => ToolResult::from(error),
                }
            }
        };
        AgentTool::new(format!("{prefix}{name}"), description, schema, run)
            .of_workspace(&name, root)
    });
    listed.collect()
}
