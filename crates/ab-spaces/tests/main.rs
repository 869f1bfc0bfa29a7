//! Integration tests of the crate.

mod fuzz;
mod messages;
mod policy;
mod runs;
mod schema;
mod service;
mod stage;
