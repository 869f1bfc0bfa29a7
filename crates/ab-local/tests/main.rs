//! Local workspaces as the other crates get them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on should say where"
)]

mod launcher;
mod session;
