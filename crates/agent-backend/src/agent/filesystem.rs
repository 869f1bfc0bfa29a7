//! The tools for files.

use ab_core::Result;
use ab_mcp::{ToolFamily, WorkspaceTools};
use async_trait::async_trait;

use super::session::AgentSession;
use super::toolset::{SessionToolset, Toolset, ToolsetRoot, workspace_tools};

/// An older name of `read_text_file`, which some MCP clients still use.
pub(super) const OLD_NAME: &str = "read_file";

/// Tools that read files and, if allowed, change them.
///
/// A file that exists can be overwritten or edited only if it was read in the session and has not
/// changed since. Calls may run in parallel.
#[derive(Clone, Debug, Default)]
pub struct FilesystemToolset {
    root: Option<String>,
    writes: FileWrites,
    prefix: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum FileWrites {
    #[default]
    Refused,
    Allowed,
}

impl FilesystemToolset {
    /// Creates a toolset that can read everything in the session's backend.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the tools to this directory of the backend. An absolute path is relative to the root
    /// of the backend: `/tmp` in a backend at `/foo` is `/foo/tmp`.
    pub fn rooted_at(mut self, directory: impl Into<String>) -> Self {
        self.root = Some(directory.into());
        self
    }

    /// Adds the tools that change files, except in a read-only sub-agent.
    pub fn allow_writes(mut self) -> Self {
        self.writes = FileWrites::Allowed;
        self
    }

    /// Adds a prefix to the names of the tools, so that a session can have two of these toolsets.
    pub fn name_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }
}

#[async_trait]
impl Toolset for FilesystemToolset {
    async fn open(&self, session: &AgentSession) -> Result<SessionToolset> {
        let root = ToolsetRoot::open(session.require_backend()?, self.root.as_deref())?;
        // Tools that can only fail would cost a model its turns.
        let writes = if session.is_read_only() { FileWrites::Refused } else { self.writes };
        let families: &[ToolFamily] = match writes {
            FileWrites::Refused => &[ToolFamily::ReadFiles],
            FileWrites::Allowed => &[ToolFamily::ReadFiles, ToolFamily::ChangeFiles],
        };
        let instructions = root.instructions(&match self.prefix.as_str() {
            "" => "The file tools".to_owned(),
            prefix => format!("The tools named {prefix}…"),
        });
        let tools = WorkspaceTools::new(root.workspace.clone())
            .only_families(families)
            .require_read_before_write(session.ledger(), root.path.clone());
        let mut tools = workspace_tools(tools, &self.prefix, &root).await;
        tools.retain(|tool| tool.original_name() != OLD_NAME);
        Ok(SessionToolset { tools, instructions })
    }
}
