//! Tests of what the library adds to core and host.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test ends at the first thing that is not as it must be"
)]

mod agent;
mod journal;
mod policy;
mod pool;
mod serve_client;
