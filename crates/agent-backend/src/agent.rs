//! Your own agent on a workspace: a session owns a backend, and every tool works in it.
//!
//! An [`AgentDefinition`] says where an agent works and which tools it has. Each [`AgentSession`]
//! that is started from it gets its own backend from the factory. The tools are values: an agent
//! loop lists them to a model and calls the ones that the model asks for. `examples/agent.rs` is
//! such a loop.
//!
//! ```
//! use agent_backend::agent::{
//!     AgentDefinition, FilesystemToolset, MemoryPerSession, SessionOptions, ShellToolset,
//! };
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> agent_backend::Result<()> {
//! let definition = AgentDefinition::builder()
//!     .backend(MemoryPerSession) // or DirectoryPerSession::new("sandboxes"), or any async closure
//!     .toolset(FilesystemToolset::new().allow_writes())
//!     .toolset(ShellToolset::new()) // adds no tools here: a workspace in memory runs no commands
//!     .build();
//! let session = definition.start(SessionOptions::default()).await?;
//! let tools = session.tools().await?;
//! let arguments = json!({ "path": "notes.md", "content": "look around\n" });
//! assert!(!tools.call_tool("write_file", arguments).await.is_error);
//! assert_eq!(session.require_backend()?.read_text("notes.md").await?, "look around\n");
//! # Ok(())
//! # }
//! ```
//!
//! A session without a factory has no backend until [`AgentSession::attach_backend`] gives it one.
//! A session never destroys its backend. The creator of the backend does that.

mod approval;
mod context;
mod dialect;
mod factory;
mod filesystem;
mod mcp_server;
mod model;
mod overflow;
mod picture;
mod places;
mod sandbox;
mod session;
mod shell;
mod skills;
mod tool;
mod tools;
mod toolset;

pub use approval::{ServerApprover, ToolApproval, ToolApprovalDecision, ToolApprovalQuestion};
pub use context::{AgentSessionId, MAX_AGENT_SESSION_ID_BYTES, SessionContext};
pub use factory::{
    BackendFactory, DirectoryPerSession, MemoryPerSession, OverlayPerSession, PooledPerSession,
    RemotePerSession, ScopePerSession, ServeSessionWorkspace, SessionBackend,
};
pub use filesystem::FilesystemToolset;
pub use model::ModelEndpoint;
pub use sandbox::{
    DaemonSandboxProvider, ExternalSandbox, SandboxPerSession, SandboxProvider, SshSandboxProvider,
};
pub use session::{
    AgentDefinition, AgentDefinitionBuilder, AgentSession, DEFAULT_FACTORY_TIMEOUT, SessionOptions,
    SubAgentBackend,
};
pub use shell::{LONG_OUTPUT_DIRECTORY, ShellToolset};
pub use skills::{DiscoveredSkills, MAX_SKILL_BYTES, Skill, SkillProblem, SkillsToolset};
pub use tool::{AgentTool, ToolContent, ToolResult};
pub use tools::AgentTools;
pub use toolset::{SessionToolset, Toolset};
