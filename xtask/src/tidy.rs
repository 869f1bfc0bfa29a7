//! Tidy: the rules of this repository as ordinary tests, run by `cargo test -p xtask`.
//!
//! A rule is a pure function from text or data to problems. Each rule has a module, a good and a
//! bad example, and one test that runs it on the files of this repository.

mod acts;
mod allowed;
mod behaviour;
mod code;
mod conformance;
mod crates;
mod evidence;
mod host_paths;
mod integration_tests;
mod links;
mod local_driver;
mod names;
mod paths;
mod problem;
mod security;
mod sources;
mod suite;
mod table;
mod tree;
mod type_names;
