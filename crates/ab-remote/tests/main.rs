//! The server, met by the programs of others and by clients that mean no good.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test that cannot go on should say where"
)]

mod beyond;
mod bounds;
mod client;
mod dial;
mod escapes;
mod forgetting;
mod fuzz;
mod golden;
mod hostile;
mod openssh;
mod protocol;
mod remote;
mod stage;
mod websocket;
