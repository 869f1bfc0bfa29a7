//! The remote driver: a workspace elsewhere that behaves like here.

mod suite;
pub(crate) mod world;
