//! A workspace over any byte stream. This crate contains both sides. The server side is an SSH
//! server with commands and SFTP, which serves a [`Backend`](ab_core::Backend). The client side is
//! [`client::RemoteDriver`], the driver of a remote workspace.
//!
//! - [`SshServer`] serves one connection over any byte stream. [`serve_ssh_on_listener`] serves TCP
//!   connections, and [`websocket::WebSocketByteStream`] converts a WebSocket to a byte stream.
//! - A server with [`SshConnectionThreads`] keeps each connection on one thread. Otherwise
//!   connections run on the caller's runtime.
//! - Everything that a connection started ends with the connection: commands, open files and tasks.
//! - This crate opens no workspace files and starts no programs. The backend does this, with its
//!   guards and isolation. The only files that this crate opens are host keys and lists of known
//!   hosts.

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
