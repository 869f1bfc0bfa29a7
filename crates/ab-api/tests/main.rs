//! Tests of the wire types.

#![allow(clippy::expect_used, reason = "a test ends at the first unexpected result")]

mod page;
mod task;
mod wire;
