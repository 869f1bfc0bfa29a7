//! Integration tests of the crate.

mod escapes;
mod fuzz;
mod messages;
mod policy;
mod runs;
mod schema;
mod service;
mod stage;
