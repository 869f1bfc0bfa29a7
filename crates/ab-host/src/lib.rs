//! The only crate that opens workspace files.
//!
//! [`Local`] is the driver over a directory of this host. Every file is opened beneath a handle on
//! that directory, see `jail`. Nothing here reads the environment.

mod blocking;
pub mod facilities;
mod failure;
mod jail;
mod local;
mod stripes;

pub use local::{Local, LocalOptions, MissingRoot, Resolution};
