//! The proofs of `ab-core`: the behaviour suite on what this crate alone can build, and what each
//! part promises beyond it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test ends at the first thing that is not as it must be"
)]

mod closeables;
mod codes;
mod edits;
mod fuzz;
mod guards;
mod journal;
mod life;
mod memory;
mod model;
mod mounts;
mod narrow;
mod overlay;
mod paths;
mod restricted;
mod scope;
mod streams;
mod suite;
