//! Tests of the wire types.

mod page;
mod task;
mod wire;
