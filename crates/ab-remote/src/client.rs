//! The client side: a workspace on another machine, reached by SSH over any byte stream.
//!
//! - [`ClientSettings`] contain the address of the workspace and the rules for reconnecting.
//! - `link` is the state machine that decides when to connect, to wait and to give up. It performs
//!   no I/O itself.
//! - `dial` makes one connection, or returns the reason why it failed.

pub mod address;
mod carrier;
pub(crate) mod context;
mod dial;
pub mod endpoint;
mod file;
pub mod host_key;
mod keeper;
pub mod known_hosts;
mod lines;
mod link;
mod ours;
mod place;
mod plain;
mod process;
mod remote;
mod reply;
mod requests;
mod secret;
mod session;
pub mod settings;

pub use address::{HostPort, WebSocketUrl};
pub use dial::{ConnectError, check_connection, open_daemon_http_stream, open_websocket};
pub use endpoint::{
    ByteStream, CleartextTokenPolicy, Connector, Credential, Proxy, RemoteEndpoint, RequestHeaders,
    SshEndpoint, TrustRoots, WebSocketEndpoint,
};
pub use host_key::{HostKeyCheck, HostKeyFingerprint};
pub use known_hosts::KnownHosts;
pub use remote::RemoteDriver;
pub use secret::SecretText;
pub use settings::{ClientSettings, Keepalive, McpEndpoint, ReconnectPolicy};
