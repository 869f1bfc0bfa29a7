//! The walls around commands: what each of them is told, filtered and refused.

pub(crate) mod bwrap;
pub(crate) mod environment;
pub(crate) mod landlock;
pub(crate) mod seccomp;
