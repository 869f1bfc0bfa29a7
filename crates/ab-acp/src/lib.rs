//! Coding agents that speak the Agent Client Protocol (ACP).
//!
//! [`AcpClient`] drives an agent over any pair of byte streams and reports its actions as
//! [`AgentEvent`]s. [`catalog`] describes how agents are started. [`gateway`] makes agents
//! available to an HTTP server. [`script`] is our own agent, which follows a scenario, so that
//! everything can be tested without a model.
//!
//! The wire types are our own: real agents deviate from the published schema, and a strict parser
//! would reject them. Unknown updates and notifications are passed on as JSON.

pub mod bounds;
pub mod catalog;
mod client;
mod failure;
pub mod gateway;
pub mod install;
pub mod launch;
pub mod login;
mod mcp_server;
mod permission;
mod profile;
pub mod resolve;
mod rpc;
pub mod script;
pub mod tool_call;
pub mod update;

pub use client::{
    AcpClient, AcpSessionId, AgentEvent, AgentEvents, ClientSettings, PromptPart,
    SessionReopenMethod, SessionSetup, StopReason, TokenCounts, TurnEnd,
};
pub use failure::AcpError;
pub use mcp_server::McpServer;
pub use permission::{
    PermissionAnswer, PermissionOption, PermissionOptionKind, PermissionQuestion,
};
pub use profile::{AgentProfile, AuthMethod};
pub use rpc::RpcError;
