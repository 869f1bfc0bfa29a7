//! Agents behind HTTP: messages, events, ends, files and configuration, over a real port with real processes.

mod bombs;
mod files;
mod fixture;
mod installing;
mod misbehaviour;
mod transport;

pub(crate) use fixture::{Fixture, unsandboxed};
