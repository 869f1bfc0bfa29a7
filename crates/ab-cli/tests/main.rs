//! The built binaries, driven as a person or a script would.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod agent;
mod browser;
mod changing;
mod chat;
mod client;
mod comparing;
mod configured;
mod daemon;
mod daemon_bounds;
mod elsewhere;
mod enforced;
mod escapes;
mod executing;
mod gateway;
mod guessing;
mod killed;
mod mcp;
mod outliving;
mod peers;
mod policy;
mod reading;
mod readme;
mod real_agents;
mod refusals;
mod relay;
mod remote;
mod running;
mod sandboxes;
mod searching;
mod secrets;
mod secure_shell;
mod serve;
mod session;
mod session_bounds;
mod session_endpoint;
mod sessions;
mod stage;
mod streams;
mod surface;
mod surviving;
mod toolchains;
mod watched;
