//! The client's half: a workspace elsewhere, reached by SSH over whatever carries bytes.
//!
//! - [`ClientSettings`] say where it is and what to do when it is out of reach.
//! - The link decides when to connect, to wait and to give up; it does nothing itself.
//! - Dialling makes one connection, or says why there is none.

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
pub use dial::{DialError, check_connection, open_http_stream, open_websocket};
pub use endpoint::{
    ByteStream, CleartextTokenPolicy, Connector, Credential, Headers, Proxy, RemoteEndpoint,
    SshEndpoint, TrustRoots, WebSocketEndpoint,
};
pub use host_key::{Fingerprint, HostKeyCheck};
pub use known_hosts::KnownHosts;
pub use remote::RemoteDriver;
pub use secret::Secret;
pub use settings::{ClientSettings, Keepalive, McpEndpoint, ReconnectPolicy};
