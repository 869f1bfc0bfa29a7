//! Integration tests of the crate.

#![allow(clippy::expect_used, reason = "a test ends at the first unexpected result")]

mod escapes;
mod examples;
mod fuzz;
mod messages;
mod policy;
mod runs;
mod schema;
mod service;
mod stage;
