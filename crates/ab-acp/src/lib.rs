//! Coding agents that speak the Agent Client Protocol (ACP).
//!
//! [`AcpClient`] controls an agent over any pair of byte streams and reports its actions as
//! [`AgentEvent`]s. [`catalog`] describes how agents are started. [`gateway`] makes agents
//! available to an HTTP server. [`scripted_agent`] is our own agent, which follows a scenario, so
//! that everything can be tested without a model.
//!
//! The wire types are our own: real agents deviate from the published schema, and a strict parser
//! would reject them. Unknown updates and notifications are returned as JSON.

pub mod agent_readiness;
pub mod bounds;
pub mod catalog;
mod client;
mod failure;
pub mod gateway;
pub mod install;
pub mod launch;
pub mod login_files;
mod mcp_server;
mod permission;
mod profile;
mod rpc;
pub mod scripted_agent;
pub mod session_update;
pub mod tool_call;

pub use client::{
    AcpClient, AcpClientSettings, AcpSessionId, AcpSessionSetup, AgentEvent, AgentEventStream,
    PromptPart, SessionReopenMethod, StopReason, TokenCounts, TurnEnd,
};
pub use failure::AcpError;
pub use mcp_server::McpServer;
pub use permission::{
    PermissionAnswer, PermissionOption, PermissionOptionKind, PermissionQuestion,
};
pub use profile::{AgentCapabilities, AuthMethod};
pub use rpc::RpcError;
