//! The mechanisms that isolate commands. For each of them, there is a module for its arguments,
//! rules, filters or variables.

pub(crate) mod bwrap;
pub(crate) mod environment;
pub(crate) mod landlock;
pub(crate) mod seccomp;
