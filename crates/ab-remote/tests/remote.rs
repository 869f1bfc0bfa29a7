//! The remote driver: a workspace elsewhere that behaves like here.

mod openssh;
mod sshd;
mod suite;
pub(crate) mod world;
