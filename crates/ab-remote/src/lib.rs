//! A workspace over any byte stream, both halves: SSH with commands and SFTP, served from a
//! [`Backend`](ab_core::Backend), and [`client::RemoteDriver`], the driver of one elsewhere.
//!
//! - [`SshServer`] serves one connection over whatever carries bytes; [`serve_listener`] is that over TCP, and
//!   [`websocket::WebSocketByteStream`] makes a byte stream of a WebSocket.
//! - A server with [`ConnectionThreads`] keeps each connection on one thread; without them the runtime that calls
//!   does the work.
//! - What a connection started ends with it: commands, open files, tasks.
//! - No file of a workspace is opened here and no program started; the backend does that, with its
//!   guards and walls. Host keys and lists of known hosts are the only files.

pub mod auth;
mod backlog;
pub mod client;
mod command;
mod cut;
mod host_key;
mod inbox;
mod input;
mod lanes;
mod ledger;
mod listener;
mod outlet;
mod process;
pub mod server;
pub mod sftp;
mod signal;
mod valve;
pub mod websocket;
pub mod wire;

pub use auth::{SshAccess, SshUsers};
pub use host_key::{HostKey, HostKeyOrigin};
pub use lanes::ConnectionThreads;
pub use listener::{
    ConnectionEndObserver, DEFAULT_MAX_CONNECTIONS, DEFAULT_MAX_UNAUTHENTICATED_CONNECTIONS,
    ListenerOptions, serve_listener,
};
pub use server::{ConnectionEnd, SshServer, SshServerSettings};
