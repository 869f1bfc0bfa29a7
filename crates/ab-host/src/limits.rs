//! Limits on commands that the kernel sees to.

pub(crate) mod cgroup;
pub(crate) mod hierarchy;
