//! The tools for commands.

use ab_core::Result;
use ab_mcp::{OutputFileStore, ToolFamily, WorkspaceTools};
use async_trait::async_trait;

use super::session::AgentSession;
use super::toolset::{SessionToolset, Toolset, ToolsetRoot, workspace_tools};

/// The directory of the workspace in which long output of commands is stored.
pub const LONG_OUTPUT_DIRECTORY: &str = ".agent-output";

/// Tools that run commands. The toolset is empty if the session's backend cannot run commands.
///
/// If the output of a command is too long, the model gets its beginning, its end, and the path of a
/// file in [`LONG_OUTPUT_DIRECTORY`] that contains the whole output.
#[derive(Clone, Debug, Default)]
pub struct ShellToolset {
    root: Option<String>,
}

impl ShellToolset {
    /// Creates a toolset whose commands start in the root of the session's backend and can access
    /// all of it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits commands to this directory of the backend.
    pub fn rooted_at(mut self, directory: impl Into<String>) -> Self {
        self.root = Some(directory.into());
        self
    }
}

#[async_trait]
impl Toolset for ShellToolset {
    async fn open(&self, session: &AgentSession) -> Result<SessionToolset> {
        let backend = session.require_backend()?;
        if session.is_read_only() || !backend.info().capabilities.exec {
            return Ok(SessionToolset::default());
        }
        let root = ToolsetRoot::open(backend, self.root.as_deref())?;
        let output = root.workspace.parse_path(LONG_OUTPUT_DIRECTORY)?;
        let (places, base) = (session.places(), root.path.clone());
        let output = OutputFileStore::new(output)
            .with_file_description(move |path| places.describe(&base.join(path)));
        let tools = WorkspaceTools::new(root.workspace.clone())
            .only_families(&[ToolFamily::RunCommands])
            .save_long_output_in(output);
        let instructions = root.instructions("Commands");
        Ok(SessionToolset { tools: workspace_tools(tools, "", &root).await, instructions })
    }
}
