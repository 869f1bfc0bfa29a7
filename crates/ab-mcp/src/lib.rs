//! The tools of a workspace over MCP, on streams that the caller opens.
//!
//! [`WorkspaceTools`] are the tools of one [`Backend`](ab_core::Backend) of any kind. They can be
//! called without a transport. A [`McpServer`] offers them to MCP clients.
//! [`serve_mcp_over_streams`] serves JSON lines over a pair of streams until the client
//! disconnects, and an [`McpHttpEndpoint`] answers requests that an HTTP server passes to it. A
//! [`Client`] calls these servers over any stream. [`forward_lines_over_http`] makes a stream from
//! HTTP. A tool that fails returns a result that a model can read. Protocol violations are reported
//! as JSON-RPC errors.

mod answer;
mod arguments;
mod bounds;
mod briefing;
mod carried;
mod catalog;
mod client;
mod extension;
mod failure;
mod files_read_tracker;
mod http;
mod lines;
mod media;
mod nearest;
mod nonsense;
mod outgoing;
mod output_file_store;
mod progress;
mod quantity;
mod server;
mod stdio;
mod tools;
mod used;
mod window;

pub use bounds::{
    DEFAULT_MAX_READ_LINES, DEFAULT_MAX_RESULT_BYTES, MAX_CALL_TIME, MAX_RESULT_BYTES_ON_REQUEST,
};
pub use carried::{McpHttpRequestTarget, forward_lines_over_http};
pub use catalog::ToolFamily;
pub use client::Client;
pub use extension::McpServerExtension;
pub use files_read_tracker::{FilesReadTracker, MAX_TRACKED_READ_FILES};
pub use http::{CallerAddress, HttpResponse, McpHttpEndpoint, McpHttpSettings};
pub use output_file_store::{MAX_OUTPUT_FILE_BYTES, OutputFileStore};
pub use server::{McpServer, uses_initialize_handshake};
pub use stdio::{
    CallerDisconnectSignal, McpStreamSettings, serve_mcp_handler_over_streams,
    serve_mcp_over_streams, serve_mcp_over_streams_with,
};
pub use tools::WorkspaceTools;
