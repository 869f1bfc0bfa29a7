//! Limits on the resources of commands, such as memory and processes. The kernel enforces them
//! through control groups.

pub(crate) mod cgroup;
pub(crate) mod hierarchy;
