//! MCP: the tools of a workspace, over streams that the caller opens.
//!
//! [`WorkspaceTools`] are the tools of one [`Backend`](ab_core::Backend) of any kind, callable
//! without a transport. A [`Server`] offers them to MCP clients. [`serve_stdio`] serves JSON lines
//! over any pair of streams until the client is gone; an [`McpHttpEndpoint`] answers the requests that
//! an HTTP server passes to it. A [`Client`] calls such servers over any stream, and
//! [`forward_lines_over_http`] makes such a stream from HTTP. A tool that fails returns a result
//! that a model can read. Violations of the protocol are reported as JSON-RPC errors.

mod answer;
mod arguments;
mod bounds;
mod briefing;
mod carried;
mod catalog;
mod client;
mod extension;
mod failure;
mod http;
mod lines;
mod media;
mod nearest;
mod nonsense;
mod outgoing;
mod progress;
mod quantity;
mod read_ledger;
mod saved_output;
mod server;
mod stdio;
mod tools;
mod used;
mod window;

pub use bounds::{DEFAULT_MAX_RESULT_BYTES, DEFAULT_READ_LINES, MAX_REQUESTED_RESULT_BYTES};
pub use carried::{McpHttpTarget, forward_lines_over_http};
pub use catalog::ToolFamily;
pub use client::Client;
pub use extension::ServerExtension;
pub use http::{CallerAddress, HttpResponse, McpHttpEndpoint, McpHttpSettings};
pub use read_ledger::{MAX_REMEMBERED_FILES, ReadLedger};
pub use saved_output::{MAX_SAVED_OUTPUT_BYTES, SavedOutput};
pub use server::{Server, uses_initialize_handshake};
pub use stdio::{CallerGone, serve_handler, serve_stdio};
pub use tools::WorkspaceTools;
