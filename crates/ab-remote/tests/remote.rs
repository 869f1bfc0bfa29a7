//! The remote driver: a workspace elsewhere that behaves like here.

mod faults;
mod lifecycle;
pub(crate) mod relay;
mod openssh;
mod sshd;
mod suite;
pub(crate) mod world;
