//! A workspace over any byte stream, both halves: an SSH server with commands and SFTP, backed by a
//! [`Backend`](ab_core::Backend), and [`client::RemoteDriver`], the driver of a remote workspace.
//!
//! - [`SshServer`] serves one connection over any byte stream. [`serve_ssh_on_listener`] serves TCP
//!   connections, and [`websocket::WebSocketByteStream`] turns a WebSocket into a byte stream.
//! - A server with [`SshConnectionThreads`] keeps each connection on one thread. Otherwise connections
//!   run on the caller's runtime.
//! - Everything that a connection started ends with it: commands, open files, tasks.
//! - This crate opens no workspace files and starts no programs. The backend does, with its guards
//!   and isolation. Host keys and lists of known hosts are the only files that it opens.

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
pub mod websocket;
mod window_control;
pub mod wire;

pub use auth::{SshAccess, SshUsers};
pub use host_key::{HostKey, HostKeyOrigin};
pub use lanes::SshConnectionThreads;
pub use listener::{
    DEFAULT_MAX_UNAUTHENTICATED_CONNECTIONS, SshConnectionEndObserver, SshListenerOptions,
    serve_ssh_on_listener,
};
pub use server::{SshConnectionEnd, SshServer, SshServerSettings};
