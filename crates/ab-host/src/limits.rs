//! Limits on commands that the kernel enforces.

pub(crate) mod cgroup;
pub(crate) mod hierarchy;
