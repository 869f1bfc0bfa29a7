//! The mechanisms that isolate commands: arguments, rules, filters and variables for each of them.

pub(crate) mod bwrap;
pub(crate) mod environment;
pub(crate) mod landlock;
pub(crate) mod seccomp;
