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

pub use address::{Address, Host};
pub use dial::{DialError, open_stream, open_websocket, probe};
pub use endpoint::{
    ByteStream, Connector, Credential, Endpoint, Headers, Proxy, Ssh, TokenInClear, TrustRoots,
    WebSocket,
};
pub use host_key::{Fingerprint, HostKeyCheck};
pub use known_hosts::KnownHosts;
pub use remote::Remote;
pub use secret::Secret;
pub use settings::{ClientSettings, Keepalive, McpEndpoint, Reconnection};
