//! The remote driver: a workspace elsewhere that behaves like here.

mod deadlines;
mod faults;
mod handshake;
mod interrupted;
mod lifecycle;
mod openssh;
mod plain;
pub(crate) mod relay;
mod sshd;
mod strange;
mod suite;
pub(crate) mod world;
