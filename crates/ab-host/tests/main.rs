//! Tests of the local driver against a real file system.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test ends at the first thing that is not as it must be"
)]

mod bounds;
mod escape;
mod exec;
mod model;
mod overlay;
mod races;
mod restricted;
mod search;
mod suite;
mod versions;
