//! The tools for commands.

use ab_core::Result;
use ab_mcp::{SavedOutput, ToolFamily, WorkspaceTools};
use async_trait::async_trait;

use super::session::AgentSession;
use super::toolset::{OpenedToolset, Toolset, ToolsetRoot, workspace_tools};

/// The directory of the workspace in which long output of commands is stored.
pub const OUTPUT_DIRECTORY: &str = ".agent-output";

/// Tools that run commands. Empty if the session's backend cannot run commands.
///
/// If output is too long, a model gets its beginning, its end, and the path of a file in
/// [`OUTPUT_DIRECTORY`] with all of it.
#[derive(Clone, Debug, Default)]
pub struct ShellToolset {
    root: Option<String>,
}

impl ShellToolset {
    /// Commands start in the root of the session's backend and see all of it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Commands see only this directory of the backend.
    pub fn rooted_at(mut self, directory: impl Into<String>) -> Self {
        self.root = Some(directory.into());
        self
    }
}

#[async_trait]
impl Toolset for ShellToolset {
    async fn open(&self, session: &AgentSession) -> Result<OpenedToolset> {
        let backend = session.require_backend()?;
        if session.is_read_only() || !backend.info().capabilities.exec {
            return Ok(OpenedToolset::default());
        }
        let root = ToolsetRoot::open(backend, self.root.as_deref())?;
        let output = root.workspace.parse_path(OUTPUT_DIRECTORY)?;
        let (places, base) = (session.places(), root.path.clone());
        let output =
            SavedOutput::new(output).described_by(move |path| places.describe(&base.join(path)));
        let tools = WorkspaceTools::new(root.workspace.clone())
            .only(&[ToolFamily::RunCommands])
            .save_output_in(output);
        let instructions = root.instructions("Commands");
        Ok(OpenedToolset { tools: workspace_tools(tools, "", &root).await, instructions })
    }
}
