//! MCP: the tools of a workspace, over streams that others open.
//!
//! [`Tools`] are those of one [`Backend`](ab_core::Backend), whatever its kind, callable without a
//! transport. A [`Server`] shows them to MCP clients.
//! [`serve_stdio`] speaks JSON lines over any pair of streams until the caller is gone; an
//! [`Endpoint`] answers the requests of a port that somebody else opened. A [`Client`] calls such
//! servers over any stream, and [`forward_lines`] makes one of HTTP. Whatever
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
    CALLS_AT_ONCE, CALLS_IN_FLIGHT, DEFAULT_BODY_BYTES, DEFAULT_EXEC_TIME, DEFAULT_LINES,
    DEFAULT_RESULT_BYTES, MAX_EXEC_TIME, MAX_MESSAGE_BYTES, QUEUED_ANSWER_BYTES,
    REQUESTED_RESULT_BYTES, SHOWN_LINE_BYTES,
};
pub use carried::{HttpTarget, forward_lines};
pub use client::Client;
pub use extension::Extension;
pub use http::{CallerAddress, Endpoint, HttpResponse, HttpSettings};
pub use server::{Server, has_handshake};
pub use stdio::serve_stdio;
pub use tools::Tools;
