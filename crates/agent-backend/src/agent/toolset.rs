//! Toolsets create tools that work on the backend of a session.

use std::fmt;

use ab_core::{Backend, Result, WsPath};
use ab_mcp::WorkspaceTools;
use async_trait::async_trait;

use super::session::AgentSession;
use super::tool::{AgentTool, ToolOrigin, ToolResult};

/// Creates the tools of a session. A toolset has no backend of its own, because all sessions of a
/// definition share the toolset.
#[async_trait]
pub trait Toolset: fmt::Debug + Send + Sync {
    /// Creates the current tools of this toolset for `session`.
    async fn open(&self, session: &AgentSession) -> Result<SessionToolset>;
}

/// The tools of a toolset in one session.
#[derive(Clone, Debug, Default)]
pub struct SessionToolset {
    pub tools: Vec<AgentTool>,
    /// What a model must know to use the tools.
    pub instructions: Option<String>,
}

/// The directory of a session's backend in which a toolset works.
#[derive(Clone, Debug)]
pub(super) struct ToolsetRoot {
    /// The path of the directory in the session's backend.
    pub(super) path: WsPath,
    pub(super) workspace: Backend,
}

impl ToolsetRoot {
    /// Opens the directory `path` of `backend`. Without a path, uses the whole backend.
    pub(super) fn open(backend: Backend, path: Option<&str>) -> Result<ToolsetRoot> {
        let path = backend.parse_path(path.unwrap_or("."))?;
        let workspace =
            if path.is_root() { backend } else { backend.scope(&path, Default::default())? };
        Ok(ToolsetRoot { path, workspace })
    }

    /// A text that tells a model that paths of `tools` are relative to this directory. `None` if it
    /// is the root.
    pub(super) fn instructions(&self, tools: &str) -> Option<String> {
        let path = &self.path;
        (!path.is_root()).then(|| {
            format!("{tools} work in the directory '{path}' of the workspace: their paths count from there.")
        })
    }
}

/// The tools of a workspace as [`AgentTool`] values. `prefix` is added before each name.
pub(super) async fn workspace_tools(
    tools: WorkspaceTools,
    prefix: &str,
    root: &ToolsetRoot,
) -> Vec<AgentTool> {
    let tools = tools.limit_all_result_sizes().with_tool_name_prefix(prefix);
    let listed = tools.list_tools().await.into_iter();
    let listed = listed.map(|tool| {
        let (calling, name) = (tools.clone(), tool.name.to_string());
        let description = tool.description.as_deref().unwrap_or_default().to_owned();
        let schema = serde_json::Value::Object((*tool.input_schema).clone());
        let called = name.clone();
        let run = move |arguments| {
            let (calling, name) = (calling.clone(), called.clone());
            async move {
                match calling.call_tool(&name, arguments).await {
                    Ok(result) => ToolResult::from(result),
                    Err(error) => ToolResult::from(error),
                }
            }
        };
        let called = format!("{prefix}{name}");
        let tool = AgentTool::new(called.clone(), description, schema, run);
        let ToolsetRoot { path, workspace } = root.clone();
        tool.of_workspace(ToolOrigin { name, called, root: path, workspace })
    });
    listed.collect()
}
