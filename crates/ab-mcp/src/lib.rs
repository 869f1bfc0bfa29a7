//! MCP: the tools of a workspace, over streams that others open.
//!
//! [`WorkspaceTools`] are those of one [`Backend`](ab_core::Backend), whatever its kind, callable without a
//! transport. A [`Server`] shows them to MCP clients.
//! [`serve_stdio`] speaks JSON lines over any pair of streams until the caller is gone; an
//! [`HttpEndpoint`] answers the requests that an HTTP server passes to it. A [`Client`] calls such
//! servers over any stream, and [`forward_lines_over_http`] makes one of HTTP. Whatever
//! goes wrong with a call is a result that a model can read; what goes wrong with the protocol is
//! the protocol's own error.

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
mod server;
mod stdio;
mod tools;
mod used;
mod window;

pub use bounds::{
    DEFAULT_EXEC_TIMEOUT, DEFAULT_MAX_BODY_BYTES, DEFAULT_MAX_RESULT_BYTES, DEFAULT_READ_LINES,
    MAX_CONCURRENT_CALLS, MAX_EXEC_TIMEOUT, MAX_MESSAGE_BYTES, MAX_QUEUED_ANSWER_BYTES,
    MAX_REQUESTED_RESULT_BYTES, MAX_SHOWN_LINE_BYTES, MAX_UNANSWERED_CALLS,
};
pub use carried::{HttpTarget, forward_lines_over_http};
pub use client::Client;
pub use extension::ServerExtension;
pub use http::{CallerAddress, HttpEndpoint, HttpResponse, HttpSettings};
pub use server::{Server, uses_initialize_handshake};
pub use stdio::serve_stdio;
pub use tools::WorkspaceTools;
