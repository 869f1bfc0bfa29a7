//! The client and the scripted agent, at both ends of a connection.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod conversation;
mod fuzz;
mod misbehaviour;
mod raw;
mod stage;
