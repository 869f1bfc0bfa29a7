//! Everything through real protocol messages: an rmcp client, or raw lines.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod caller;
mod cancelling;
mod changing;
mod commands;
mod failures;
mod fixtures;
mod fuzz;
mod http;
mod listing;
mod port;
mod protocol;
mod reading;
mod schemas;
mod searching;
mod sessions;
mod slips;
mod without_transport;
