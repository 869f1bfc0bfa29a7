//! The proofs of `ab-policy`: rules, corpus, guard, and what the analysis shares with a real shell.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends at the first surprise")]

mod corpus;
mod fuzz;
mod guard;
mod ordinary;
mod rules;
mod screen;
mod shell;
mod work;
