//! Default limits of commands, for a daemon whose operator sets no limits.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use ab_core::process::ExecLimits;
use ab_host::SandboxRequirement;
use rustix::fs::{Access, access};

/// Maximum number of commands that run at the same time.
pub(super) const MAX_COMMANDS: u32 = 512;
/// Maximum number of processes and threads of one command.
const PROCESSES: u64 = 1024;
/// The part of the host's memory that one command may use, in quarters of the host's memory.
const QUARTERS_OF_MEMORY: u64 = 3;

/// Returns `asked`, with defaults for the number of processes and for memory if they are not set.
pub(super) fn completed(asked: ExecLimits) -> ExecLimits {
    let processes = asked.processes.or_else(|| can_group().then_some(PROCESSES));
    let memory = asked.memory.or_else(|| {
        let all = memory_in(&fs::read_to_string("/proc/meminfo").ok()?)?;
        Some(all / 4 * QUARTERS_OF_MEMORY)
    });
    ExecLimits { processes, memory, ..asked }
}

/// The limits in the result of [`completed`] that are defaults. If the host cannot enforce a
/// default limit, commands run without this limit.
pub(super) fn unasked(asked: ExecLimits) -> BTreeSet<SandboxRequirement> {
    let memory = asked.memory.is_none().then_some(SandboxRequirement::MemoryLimit);
    memory
        .into_iter()
        .chain(asked.processes.is_none().then_some(SandboxRequirement::ProcessLimit))
        .collect()
}

/// Whether a control group can be created. Without a control group, the kernel counts all processes
/// of the user against the limit of a command. A user with many processes could then not start any
/// command.
fn can_group() -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(path) = own.lines().find_map(|line| line.strip_prefix("0::/")) else { return false };
    access(Path::new("/sys/fs/cgroup").join(path), Access::WRITE_OK).is_ok()
}

/// The total memory of the host, in bytes.
fn memory_in(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_kept_and_the_rest_has_bounds() {
        let asked = ExecLimits { processes: Some(9), memory: Some(7), ..ExecLimits::default() };
        assert_eq!((completed(asked), unasked(asked)), (asked, BTreeSet::new()));
        let all = [SandboxRequirement::MemoryLimit, SandboxRequirement::ProcessLimit].into();
        assert_eq!(unasked(ExecLimits::default()), all);
        let completed = completed(ExecLimits::default());
        assert!(completed.memory.is_some_and(|memory| memory > 0));
        assert!(completed.processes.is_none_or(|processes| processes < 3000));
        assert_eq!(memory_in("MemFree: 1 kB\nMemTotal:       16 kB\n"), Some(16 * 1024));
        assert_eq!(memory_in("MemTotal: much"), None);
    }
}
