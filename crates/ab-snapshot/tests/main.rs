//! Workspaces and deliveries with real git and a real sandbox.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test ends at the first thing that is not as it must be"
)]

mod cleanup;
mod deliver;
mod files;
mod fixture;
mod hostile;
mod prepare;
mod remote;
